"""Recordings from files and folders of any format."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.config.formatting import sample
from spillway.files.recordings import folder
from spillway.files.recordings.formats import FORMATS
from spillway.files.recordings.rows import Settings
from spillway.files.recordings.source import Source
from spillway.files.traces.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.data.recording import (
        LatencyHistograms,
        LatencyPoints,
        Recording,
        ServerFacts,
        StepLog,
    )
    from spillway.files.recordings.format import Format, Kind


def read_recordings(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    server: ServerFacts | Mapping[str, Any] | None = None,
    client_max_in_flight: int | None = None,
    check_units: bool = True,
) -> list[Recording]:
    """Read the measured requests of real servers, with their latencies.

    Parameters
    ----------
    path : str or Path
        A file, or a folder. A folder with runs.json holds a run per CSV file; of another folder,
        every file of a known format is read, in the order of the names.
    format : str, optional
        The name of a format, see below. By default the content of a file selects it.
    columns : mapping of str, optional
        Which columns of a CSV file to read, see the format `columns`.
    units : mapping of str, optional
        The units of columns with times: s, ms, us or ns.
    server : ServerFacts or mapping, optional
        Facts about the server, which complete or replace those of the files.
    client_max_in_flight : int, optional
        The most requests that the client has in flight, >= 1, if the files do not state it.
    check_units : bool
        Whether to refuse times that probably have another unit than stated.

    Returns
    -------
    list of Recording
        The runs, at least one.

    Raises
    ------
    TraceError
        A file cannot be read, has an unknown format, or holds no requests; a value is invalid; the
        times of a run are outside of the ranges in `spillway.files.recordings.units`. The message
        names file, line, field and value.

    """
    settings = Settings(columns, units, server, client_max_in_flight, check_units)
    if columns is not None and format is None:
        format = "columns"  # noqa: A001
    if format != "columns":
        for name, given in (("columns", columns), ("units", units)):
            if given is not None:
                chosen = "" if format is None else f", not of {format}"
                raise TraceError(f"{name}: an argument of the format columns{chosen}")
    return _read(path, format, "recordings", settings)


def read_step_logs(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    server: ServerFacts | Mapping[str, Any] | None = None,
) -> list[StepLog]:
    """Read the logged steps of real engines.

    Parameters
    ----------
    path : str or Path
        A file, or a folder, of which every file of a known format is read.
    format : str, optional
        The name of a format, see below. By default the content of a file selects it.
    server : ServerFacts or mapping, optional
        Facts about the server, which complete or replace those of the files.

    Returns
    -------
    list of StepLog
        The steps of each engine, at least one.

    Raises
    ------
    TraceError
        A file cannot be read, has an unknown format, holds no steps, or a value is invalid.

    """
    return _read(path, format, "step_logs", Settings(server=server))


def read_histograms(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    server: ServerFacts | Mapping[str, Any] | None = None,
) -> list[LatencyHistograms]:
    """Read histograms of the latencies of real engines.

    Parameters
    ----------
    path : str or Path
        A file, or a folder, of which every file of a known format is read.
    format : str, optional
        The name of a format, see below. By default the content of a file selects it.
    server : ServerFacts or mapping, optional
        Facts about the server, which complete or replace those of the files.

    Returns
    -------
    list of LatencyHistograms
        The metrics of each engine, at least one.

    Raises
    ------
    TraceError
        A file cannot be read, has an unknown format, holds no histograms, or a value is invalid.

    """
    return _read(path, format, "histograms", Settings(server=server))


def read_points(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    server: ServerFacts | Mapping[str, Any] | None = None,
) -> list[LatencyPoints]:
    """Read mean latencies of real servers at fixed numbers of concurrent requests.

    Parameters
    ----------
    path : str or Path
        A file, or a folder, of which every file of a known format is read.
    format : str, optional
        The name of a format, see below. By default the content of a file selects it.
    server : ServerFacts or mapping, optional
        Facts about the server, which complete or replace those of the files.

    Returns
    -------
    list of LatencyPoints
        The points of each server and pair of lengths, at least one.

    Raises
    ------
    TraceError
        A file cannot be read, has an unknown format, holds no points, or a value is invalid.

    """
    return _read(path, format, "points", Settings(server=server))


def format_of(path: str | Path) -> Format:
    """Return the format of a file, by its content.

    Raises TraceError if no format detects it, or it cannot be read.
    """
    return _detected(Source(Path(path)))


_READERS: Mapping[Kind, Callable[..., Any]] = {
    "recordings": read_recordings,
    "step_logs": read_step_logs,
    "histograms": read_histograms,
    "points": read_points,
}


def _read(path: str | Path, name: str | None, kind: Kind, settings: Settings) -> list[Any]:
    path = Path(path)
    form = None if name is None else _named(name, kind)
    if path.is_dir():
        return _read_folder(path, form, kind, settings)
    source = Source(path)
    return list(_of_kind(source, form, kind).read(source, settings))


def _read_folder(path: Path, form: Format | None, kind: Kind, settings: Settings) -> list[Any]:
    index = path / folder.INDEX
    if kind == "recordings" and form in (None, folder.FORMAT) and index.exists():
        return list(folder.FORMAT.read(Source(index), settings))
    if form is folder.FORMAT:
        raise TraceError(f"{path}: holds no {folder.INDEX} ({form.doc})")
    read: list[Any] = []
    for file in sorted(file for file in path.iterdir() if file.is_file()):
        source = Source(file)
        found = form or next((known for known in FORMATS.values() if known.detect(source)), None)
        if found is not None and found.kind == kind:
            read += found.read(source, settings)
    if not read:
        raise TraceError(f"{path}: holds no file of a known format\n{_tried(kind)}")
    return read


def _of_kind(source: Source, form: Format | None, kind: Kind) -> Format:
    found = form or _detected(source)
    if found.kind != kind:
        reader = _READERS[found.kind].__name__
        raise TraceError(f"{source.path}: of the format {found.name}, which {reader} reads")
    return found


def _detected(source: Source) -> Format:
    for form in FORMATS.values():
        if form.detect(source):
            return form
    if not source.bytes.strip():
        raise TraceError(f"{source.path}: empty")
    line = source.first_line
    shown = sample(line) if line else "not a text file"
    raise TraceError(f"{source.path}: unknown format: {shown}\n{_tried(None)}")


def _tried(kind: Kind | None) -> str:
    tried = [form for form in FORMATS.values() if kind in (None, form.kind)]
    return "Formats tried:\n" + "\n".join(f"  {form.name}: {form.doc}" for form in tried)


def _named(name: str, kind: Kind) -> Format:
    if name not in FORMATS:
        raise TraceError(f"format = {name!r}: must be one of {', '.join(sorted(FORMATS))}")
    form = FORMATS[name]
    if form.kind != kind:
        raise TraceError(f"format = {name!r}: {_READERS[form.kind].__name__} reads it")
    return form


def _documentation(kind: Kind) -> str:
    """Return the formats of a reader as a section of its docstring."""
    lines = ["Notes", "-----", "The formats:"]
    for form in FORMATS.values():
        if form.kind == kind:
            text = " ".join(part for part in (f"{form.doc}.", form.notes) if part)
            filled = textwrap.wrap(
                f"- `{form.name}`: {text}",
                96,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += ["", *filled]
    return "\n".join(lines)


for _kind, _reader in _READERS.items():
    _reader.__doc__ = f"{inspect.cleandoc(_reader.__doc__ or '')}\n\n{_documentation(_kind)}\n"
