"""Results as files: an .npz archive of arrays and one JSON document, with a digest of both.

Headers of a few bytes state the type and shape of each array, so the reader checks that all arrays
belong to the result and fit into memory before it reads them.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from spillway.config import filesystem, memory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    Table = Mapping[str, NDArray[Any]]


VERSION = 1
"""Version of the form of the files."""

# The tables of a result, and the prefix that marks the names of their arrays.
_PREFIXES = {
    "columns": "column_",
    "offered": "offered_",
    "decisions": "decision_",
    "timeline": "timeline_",
    "control": "control_",
}
_OUTPUT: Mapping[str, type | tuple[type, ...]] = {
    "tenants": list,
    "slo_classes": list,
    "request_id": list,
    "attributes": dict,
    "models": list,
    "ledger": dict,
    "summary": dict,
    "by_class": dict,
    "by_tenant": dict,
    "instances": list,
    "steps": int,
    "events": int,
    "end_s": (int, float),
}
_CODES = {"tenant": "tenants", "slo_class": "slo_classes"}
_Header = tuple[str, tuple[int, ...]]  # type of the elements as NumPy writes it, and shape


def write(path: Path, content: Mapping[str, Any], output: Mapping[str, Any]) -> None:
    """Writes a result: everything except the tables of arrays goes into the document.

    Raises ConfigError if it cannot be written.
    """
    arrays = {
        prefix + name: np.ascontiguousarray(values)
        for table, prefix in _PREFIXES.items()
        for name, values in output[table].items()
    }
    document = json.dumps(
        {
            "result_version": VERSION,
            **content,
            "output": {key: value for key, value in output.items() if key not in _PREFIXES},
            "arrays": {name: [array.dtype.str, array.shape] for name, array in arrays.items()},
        },
        default=dict,
    )
    with filesystem.replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(
            stream,
            allow_pickle=False,
            document=np.array(document),
            digest=np.array(_digest(document, arrays)),
            **arrays,
        )


def read(stream: BinaryIO) -> dict[str, Any]:
    """The document that was written, with its tables in `output`, read-only.

    Raises ValueError, or another error of reading a broken file.
    """
    with zipfile.ZipFile(stream) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise ValueError("a member occurs twice")
        headers = {name.removesuffix(".npy"): _header(archive, name) for name in names}
        needed = sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in headers.values())
        if needed > memory.available_bytes():
            raise ValueError(
                f"it takes {memory.shown(needed)} of memory, but "
                f"{memory.shown(memory.available_bytes())} are available"
            )
        text = str(_array(archive, "document"))
        document: dict[str, Any] = json.loads(text)
        version = document["result_version"]
        if version != VERSION:
            raise ValueError(f"result_version {version}")
        members = {
            name: header for name, header in headers.items() if name not in ("document", "digest")
        }
        if members != {name: (kind, tuple(n)) for name, (kind, n) in document["arrays"].items()}:
            raise ValueError("its arrays are not those that were saved")
        arrays = {name: _array(archive, name) for name in members}
        if str(_array(archive, "digest")) != _digest(text, arrays):
            raise ValueError("its content is not what was saved: the digest differs")
    output = document["output"]
    for key, kind in _OUTPUT.items():
        if not isinstance(output[key], kind):
            raise ValueError(f"output.{key} is not of type {kind}")
    for array in arrays.values():
        array.setflags(write=False)
    for table, prefix in _PREFIXES.items():
        output[table] = {
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        }
    _check_codes(output)
    return document


def _check_codes(output: Mapping[str, Any]) -> None:
    """Check that all numbers of names have names."""
    for column, named in _CODES.items():
        if (output["columns"][column] >= len(output[named])).any():
            raise ValueError(f"column {column} holds a number without a name")
    models = output["offered"]["model"]
    if ((models < 0) | (models >= len(output["models"]))).any():
        raise ValueError("column model holds a number without a name")
    for name, values in output["attributes"].items():
        codes = output["offered"][f"attribute.{name}"]
        if (codes >= len(values)).any() or (codes < -1).any():
            raise ValueError(f"attribute {name} holds a number without a value")


def _header(archive: zipfile.ZipFile, name: str) -> _Header:
    with archive.open(name) as member:
        if npy.read_magic(member) != (1, 0):
            raise ValueError(f"{name} is no array of a result")
        shape, in_columns, kind = npy.read_array_header_1_0(member)
    if in_columns or kind.hasobject:
        raise ValueError(f"{name} is no array of a result")
    return kind.str, shape


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        return npy.read_array(member, allow_pickle=False)


def _digest(document: str, arrays: Table) -> str:
    hasher = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = arrays[name]
        hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()
