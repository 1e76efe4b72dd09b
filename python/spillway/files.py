"""Configurations and results as files.

A configuration file is YAML or JSON with the keys of `Simulation`, plus `schema` (1) and `profile`
(vllm or blis_0_6). What it leaves out takes the profile's value, or else the default.

YAML is read by the core schema of version 1.2 (see `spillway._yaml`): `1:30`, `1_000` and `yes` are
text, `0x10` is 16, and there are no aliases.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import json
import math
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from spillway import _config, _core, _yaml, profiles
from spillway._core.cluster import Simulation
from spillway._messages import checked, checked_simulation, note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spillway.results import Result

SCHEMA = 1
"""Version of the configuration files and of summary.json."""

Configuration = Simulation | str | os.PathLike[str]
"""A simulation, or the path of a configuration file that describes it."""

REQUEST_COLUMNS = (
    "request_id",
    "tenant",
    "slo_class",
    "outcome",
    "reason",
    "instance",
    "arrival_s",
    "ttft_s",
    "e2e_s",
    "queue_s",
    "scheduling_delay_s",
    "itl_mean_s",
    "input_tokens",
    "output_tokens",
)
"""Columns of requests.csv, in order."""


def read_settings(path: str | Path) -> dict[str, Any]:
    """The content of a configuration file as plain dicts, lists and numbers.

    Raises ConfigError if it cannot be read, is no YAML or JSON, or is no mapping.
    """
    path = Path(path)
    try:
        with open_text(path) as stream:
            text = stream.read()
    except OSError as error:
        raise cannot("read", path, error) from error
    except UnicodeDecodeError as error:
        raise _config.config_error(
            [(str(path), "", "is no text file; a configuration is YAML or JSON")]
        ) from error
    return parse_settings(text, str(path))


def note_empty(settings: Mapping[str, Any], path: str | Path) -> None:
    """Warns if a file that could be read is empty."""
    if not settings:
        note(f"{path}: is empty, so every setting has its default")


def open_text(path: Path, newline: str | None = None) -> TextIO:
    """Opens a text file in UTF-8 for reading.

    Raises OSError if that fails, and for what is no regular file: a device may never end, and
    nothing may ever be written into a pipe.
    """
    try:
        mode = path.stat().st_mode
    except ValueError as error:
        raise OSError(errno.EINVAL, "no file can have this name") from error
    if not stat.S_ISREG(mode):
        problem = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "Not a regular file"
        raise OSError(errno.EINVAL, problem)
    return path.open(newline=newline, encoding="utf-8-sig")


def cannot(verb: str, path: Path, error: OSError) -> _core.sim.ConfigError:
    """The ConfigError that a file cannot be read, written or whatever the participle says."""
    return _config.config_error([(shown(path), "", f"cannot be {verb}: {reason(error)}")])


def shown(path: Path) -> str:
    """A path as messages have it: on one line, whatever characters it holds."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def reason(error: OSError) -> str:
    """What the system says of a failure."""
    return error.strerror or str(error)


def parse_settings(text: str, name: str) -> dict[str, Any]:
    """The same from text; `name` stands for the file in errors."""
    settings = _yaml.parse(text, name, is_json=name.endswith(".json"))
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        allowed = (
            f"must be a mapping of settings such as `router: round_robin`, not {settings!r:.60}"
        )
        raise _config.config_error([(name, "", allowed)])
    return settings


def from_settings(
    settings: Mapping[str, Any], *, base: Path | None = None, read_trace: bool = True
) -> Simulation:
    """A simulation from the settings of a configuration file.

    `base` is the folder that a trace's file is relative to. With `read_trace=False` the trace's
    requests are left unread, for a caller that replaces them.
    """
    stated = dict(settings)
    schema = stated.pop("schema", SCHEMA)
    profile = stated.pop("profile", "vllm")
    if schema != SCHEMA or isinstance(schema, bool):
        raise _config.config_error([("schema", repr(schema), f"must be {SCHEMA}")])
    simulation = profiles.apply(profile, Simulation.from_dict(stated), stated)
    workload = simulation.workload
    if read_trace and isinstance(workload, _core.workload.Trace) and workload.file:
        simulation = simulation.replace(workload=_resolved(workload, base or Path()))
    return simulation


def load(path: str | Path) -> Simulation:
    """Reads a configuration file; a trace that it names is read too, relative to the file.

    Raises ConfigError with all violations, and TraceError for a trace that cannot be read. Warns if
    the file is empty or does not say its `schema`.
    """
    settings = read_settings(path)
    simulation = from_settings(settings, base=Path(path).parent)
    note_empty(settings, path)
    return simulation


def as_simulation(given: Configuration) -> Simulation:
    """The simulation that is meant.

    Raises TypeError for anything else.
    """
    if isinstance(given, str | os.PathLike):
        return load(Path(given))
    allowed = "a Simulation, or the path of a configuration file"
    return checked("simulation", given, Simulation, allowed)


def dump(simulation: Simulation, path: str | Path) -> None:
    """Writes a configuration file with all settings: JSON if `path` ends in .json, else YAML."""
    checked_simulation(simulation)
    path = Path(path)
    settings = to_settings(simulation, path.parent)
    if path.suffix == ".json":
        text = json.dumps(settings, indent=2) + "\n"
    else:
        text = _yaml.to_yaml(settings)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def to_settings(simulation: Simulation, folder: Path) -> dict[str, Any]:
    """All settings as they stand in a configuration file in `folder`."""
    settings = {"schema": SCHEMA, **simulation.to_dict()}
    file = settings["workload"].get("file")
    if file and not Path(file).is_absolute():
        # In a configuration file a path is relative to that file.
        settings["workload"]["file"] = os.path.relpath(file, folder)
    return settings


def fingerprint(simulation: Simulation) -> str:
    """SHA-256 of the canonical JSON form and Spillway's version: equal for runs that must agree."""
    checked_simulation(simulation)
    canonical = json.dumps(
        {"settings": simulation._identity(), "version": _core.sim.build_info["version"]},
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a configuration file."""
    schema = _object_schema(Simulation._describe())
    schema["properties"] = {
        "schema": {"const": SCHEMA, "description": "Version of the file format."},
        "profile": {"enum": list(profiles.NAMES), "description": "Whose semantics to follow."},
        **schema["properties"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Spillway",
        **schema,
    }


def write_result(result: Result, directory: Path) -> None:
    """Writes summary.json of a run, and requests.csv if its requests were kept.

    Raises ConfigError if they cannot be written.
    """
    summary, requests = directory / "summary.json", directory / "requests.csv"
    text = json.dumps(result.to_dict(), indent=2) + "\n"
    make_folder(directory)
    with _replacing_all([requests, summary]) as (new_requests, new_summary):
        if result.has_requests:
            _write_requests(result, new_requests)
        else:
            new_requests.unlink()
        new_summary.write_text(text, encoding="utf-8")


def make_folder(folder: Path) -> None:
    """Makes a folder, and those that it lies in, unless it is there.

    Raises ConfigError if that fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot("written", folder, error) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that takes the place of `path` if all goes well, and vanishes if not.

    Raises ConfigError if it cannot be written.
    """
    with _replacing_all([path]) as (temporary,):
        yield temporary


@contextlib.contextmanager
def _replacing_all(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary files that take the places of `paths`: all of them if all goes well, or none.

    Where the caller has removed one, its place is left empty. Raises ConfigError if they cannot be
    written.
    """
    try:
        with _all_or_none(paths) as temporaries:
            yield temporaries
    except OSError as error:
        place = error.filename2 or (paths[0].parent if len(paths) > 1 else paths[0])
        raise cannot("written", Path(place), error) from error


@contextlib.contextmanager
def _all_or_none(paths: Sequence[Path]) -> Iterator[list[Path]]:
    import tempfile

    with contextlib.ExitStack() as discarded:

        def beside(path: Path) -> Path:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(handle)
            discarded.callback(Path(name).unlink, missing_ok=True)
            return Path(name)

        temporaries = [beside(path) for path in paths]
        yield temporaries
        with contextlib.ExitStack() as undone:
            for path, temporary in zip(paths, temporaries, strict=True):
                # The last step needs no way back.
                if path != paths[-1] and path.is_file():
                    kept = beside(path)
                    path.replace(kept)
                    undone.callback(kept.replace, path)
                if temporary.exists():
                    temporary.chmod(0o666 & ~_umask())
                    temporary.replace(path)
                    undone.callback(path.unlink)
            undone.pop_all()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_requests(result: Result, path: Path) -> None:
    def cells(name: str) -> list[str]:
        values = result.requests[name].tolist()
        if name.endswith("_s"):
            return ["" if math.isnan(value) else f"{value:.9f}" for value in values]
        if name == "instance":
            return ["" if value < 0 else str(value) for value in values]
        return [str(value) for value in values]

    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(REQUEST_COLUMNS)
        writer.writerows(zip(*(cells(name) for name in REQUEST_COLUMNS), strict=True))


def _resolved(trace: _core.workload.Trace, base: Path) -> _core.workload.Trace:
    from spillway.interop.traces import read_trace

    # A stated digest proves that sorting gives back the requests that were meant.
    found = read_trace(base / trace.file, sort=bool(trace.sha256))
    if trace.sha256 and trace.sha256 != found.sha256:
        allowed = f"is not that of {trace.file}: {found.sha256}"
        if trace.file.endswith(".jsonl"):
            allowed += (
                "; a trace that was read in another unit, with other blocks or spread must be "
                "written first, with spillway.interop.traces.write_mooncake"
            )
        raise _config.config_error([("workload.sha256", trace.sha256, allowed)])
    return found


_JSON_TYPES = {"bool": "boolean", "int": "integer", "float": "number", "str": "string"}


def _field_schema(field: Mapping[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    schema: dict[str, Any]
    if kind in _JSON_TYPES:
        schema = {"type": _JSON_TYPES[kind]}
        for key, word in (
            ("at_least", "minimum"),
            ("more_than", "exclusiveMinimum"),
            ("at_most", "maximum"),
            ("less_than", "exclusiveMaximum"),
        ):
            if key in field:
                schema[word] = field[key]
    elif kind == "choice":
        schema = {"enum": field["choices"]}
    elif kind == "struct":
        schema = _object_schema(field["of"])
    else:
        kinds = [alternative["kind"] for alternative in field["alternatives"]]
        schema = {"anyOf": [{"enum": kinds}, *map(_object_schema, field["alternatives"])]}
    if field.get("sequence"):
        many = {"type": "array", "items": schema}
        schema = {"anyOf": [many, schema]} if kind in ("struct", "variant") else many
    if field.get("optional"):
        schema = {"anyOf": [schema, {"type": "null"}]}
    unit = f" [{field['unit']}]" if field["unit"] else ""
    return {**schema, "description": field["doc"] + unit, "default": field["default"]}


def _object_schema(description: Mapping[str, Any]) -> dict[str, Any]:
    properties = {field["name"]: _field_schema(field) for field in description["fields"]}
    schema: dict[str, Any] = {"type": "object", "description": description["doc"]}
    if "presets" in description:
        properties["preset"] = {
            "enum": description["presets"],
            "description": "Values to start from.",
        }
    if "kind" in description:
        properties = {"kind": {"const": description["kind"]}, **properties}
        schema["required"] = ["kind"]
    return {**schema, "properties": properties, "additionalProperties": False}
