"""Columns of a trace in temporary files, for traces that do not fit into memory."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway.files.error import TraceError
from spillway.files.traces.columns import Columns
from spillway.files.traces.lines import STANDARD_INPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from spillway.files.format import Format
    from spillway.files.traces.rows import Rows
    from spillway.files.traces.table import Table


class NotStreamableError(TraceError):
    """A valid trace whose requests must all be in memory."""


# The order and the types are those of the core's ColumnFiles, and of the digest.
_TYPES = {
    "arrival_ns": np.int64,
    "input_tokens": np.int32,
    "output_tokens": np.int32,
    "tenant": np.uint16,
    "slo_class": np.uint16,
}
_PART_BYTES = 1 << 20


class _File(list[Any]):
    """Stands for a list of arrays, of which it keeps only the number of rows."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        super().__init__()
        self._dtype = dtype
        self.path = path
        self.stream = path.open("wb")
        self.rows = 0

    def append(self, part: npt.NDArray[Any]) -> None:
        self.stream.write(part.astype(self._dtype, copy=False).data)
        self.rows += len(part)

    def __bool__(self) -> bool:
        return self.rows > 0


class SpooledColumns(Columns):
    """The columns of a trace in the files of a folder, in order of arrival.

    Raises NotStreamableError for what only columns in memory can hold: names of requests, shared
    segments, times that are known at the end of the file.
    """

    def __init__(self, path: Path, form: Format, folder: Path) -> None:
        super().__init__(path, form, sort=False)
        if form.sorts or form.retime is not None:
            raise NotStreamableError(f"{path}: the format {form.name} cannot be streamed")
        self._files = [_File(folder / name, dtype) for name, dtype in _TYPES.items()]
        (
            self._arrival_ns,
            self._input_tokens,
            self._output_tokens,
            self._tenant,
            self._slo_class,
        ) = self._files

    def add(self, table: Table, rows: Rows) -> None:
        """Add the requests of a piece of the file."""
        has_names = any(rows.request_id[:1])
        if (
            has_names
            or rows.hash_ids
            or (rows.prefix_tokens is not None and rows.prefix_tokens.any())
            or (rows.cached_tokens is not None and rows.cached_tokens.any())
            or (rows.warm_tokens is not None and rows.warm_tokens.any())
            or any(rows.session)
        ):
            what = "request_id" if has_names else "shared beginnings of prompts"
            raise NotStreamableError(f"{self._path}: a trace with {what} cannot be streamed")
        has_models = any(rows.model)
        has_limits = rows.max_tokens is not None and rows.max_tokens.any()
        if has_limits or has_models or rows.attributes:
            what = "attributes" if rows.attributes else "models" if has_models else "max_tokens"
            raise NotStreamableError(f"{self._path}: a trace with {what} cannot be streamed")
        super().add(table, rows)

    def as_trace(self) -> _core.workload.Trace:
        """The trace, which keeps the files open; their folder may then be removed."""
        rows = self._files[0].rows
        if not rows:
            raise TraceError(f"{self._path}: holds no requests")
        self.tell()
        tenants, slo_classes = list(self._tenants.index), list(self._slo_classes.index)
        digest = hashlib.sha256()
        for file in self._files:
            file.stream.close()
            with file.path.open("rb") as stream:
                while part := stream.read(_PART_BYTES):
                    digest.update(part)
        for names in (tenants, slo_classes, []):
            digest.update("".join(f"{name}\n" for name in [*names, ""]).encode())
        make = _core.workload._make_streamed_trace  # type: ignore[attr-defined]
        trace: _core.workload.Trace = make(
            paths=[str(file.path) for file in self._files],
            rows=rows,
            sha256=digest.hexdigest(),
            tenants=tenants,
            slo_classes=slo_classes,
            file="" if str(self._path) == STANDARD_INPUT else str(self._path),
        )
        return trace

    def close(self) -> None:
        """Close the files, whether or not they became a trace."""
        for file in self._files:
            file.stream.close()


@contextlib.contextmanager
def spooled(path: Path, form: Format) -> Iterator[SpooledColumns]:
    """Columns in a temporary folder (see `TMPDIR`), which takes 20 bytes per request."""
    with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
        columns = SpooledColumns(path, form, Path(folder))
        try:
            yield columns
        finally:
            columns.close()
