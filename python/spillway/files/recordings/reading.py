"""Recordings from files and folders of any format."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.config.messages import AlikeNotes, note
from spillway.data.recording import Recording
from spillway.files.error import TraceError
from spillway.files.formats import (
    alternatives,
    by_content,
    detected,
    document,
    formats,
    instead,
    named,
    tried,
)
from spillway.files.head import Head
from spillway.files.recordings import folder
from spillway.files.recordings.oddities import note_equal_runs
from spillway.files.recordings.rows import Rows, Settings, recording
from spillway.files.recordings.server import merged
from spillway.files.recordings.source import Source, digest
from spillway.files.traces.lines import opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spillway.data.recording import LatencyHistograms, LatencyPoints, ServerFacts, StepLog
    from spillway.files.format import Content, Format


class NothingFoundError(TraceError):
    """A folder holds no file of the formats that were asked for."""


MEASUREMENTS: tuple[Content, ...] = ("recordings", "step_logs", "histograms", "points")

FORMATS = alternatives("recordings")
"""The formats by name. Their files differ, so at most one format detects a file."""


def read_recordings(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    server: ServerFacts | Mapping[str, Any] | None = None,
    client_max_in_flight: int | None = None,
    num_replicas: int | None = None,
    check_units: bool = True,
    skip_bad: bool = False,
    run: str | int | None = None,
) -> list[Recording]:
    r"""Read the measured requests of real servers, with their latencies.

    Parameters
    ----------
    path : str or Path
        A file, or a folder. A folder with runs.json holds a run per CSV file; of another folder,
        every file of a known format is read, those of its folders included, in the order of the
        names.
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
    num_replicas : int, optional
        How many replicas of the server shared the requests, >= 1, if the files do not state it.
    check_units : bool
        Whether to refuse times that probably have another unit than stated.
    skip_bad : bool
        Whether to leave out malformed requests, which `Recording.counts` counts, instead of
        refusing the file.
    run : str or int, optional
        The only run to return: its name, or its number from 1.

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

    Examples
    --------
    >>> import pathlib, spillway
    >>> lines = ["send_s,input_tokens,output_tokens,ttft_s,e2e_s", "0,512,64,0.05,1.2"]
    >>> _ = pathlib.Path("measured.csv").write_text("\n".join(lines))
    >>> (recording,) = spillway.read_recordings("measured.csv")
    >>> recording.num_requests
    1
    """
    settings = Settings(
        columns, units, server, client_max_in_flight, num_replicas, check_units, skip_bad
    )
    found = _read(path, mapping("columns", format, settings), "recordings", settings)
    return found if run is None else [run_of(Path(path), found, run)]


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
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    server: ServerFacts | Mapping[str, Any] | None = None,
    check_units: bool = True,
) -> list[LatencyPoints]:
    """Read mean latencies of real servers at fixed numbers of concurrent requests, or fixed rates.

    Parameters
    ----------
    path : str or Path
        A file, or a folder, of which every file of a known format is read.
    format : str, optional
        The name of a format, see below. By default the content of a file selects it.
    columns : mapping of str, optional
        Which columns of a CSV file to read, see the format `points`.
    units : mapping of str, optional
        The units of columns with times: s, ms, us or ns.
    server : ServerFacts or mapping, optional
        Facts about the server, which complete or replace those of the files.
    check_units : bool
        Whether to refuse times that probably have another unit than stated.

    Returns
    -------
    list of LatencyPoints
        The points of each server and pair of lengths, at least one.

    Raises
    ------
    TraceError
        A file cannot be read, has an unknown format, holds no points, or a value is invalid.

    """
    settings = Settings(columns, units, server, check_units=check_units)
    return _read(path, mapping("points", format, settings), "points", settings)


def format_of(path: str | Path) -> Format:
    """Return the format of a file, by its content.

    Raises TraceError if no format detects it, or it cannot be read.
    """
    return detected(Source(Path(path)), "recordings")


def measurements_of(
    path: Path, form: Format | None, settings: Settings
) -> dict[Content, list[Any]]:
    """Read all that a file or folder gives, by content; without a format, of any."""
    if form is not None and not path.is_dir():
        (content,) = set(form.gives) & set(MEASUREMENTS)
        return {content: _contents(Source(path), form, settings)}
    found: dict[Content, list[Any]] = {}
    files = list(_files(path, form))
    for content in MEASUREMENTS:
        with contextlib.suppress(NothingFoundError):
            found[content] = _read_folder(path, files, content, settings)
    _note_others(path, [file for file, known in files if known is None])
    if not found:
        raise TraceError(f"{path}: holds no file of a known format\n{tried()}")
    return found


def is_recording(path: Path, name: str | None) -> bool:
    """Whether the format of this name, or of the file, gives recordings.

    Raises TraceError if the file holds measurements of another kind.
    """
    if name is not None:
        return name in formats("recordings")
    form = by_content(Source(path), "recordings")
    if form is not None and "recordings" not in form.gives:
        raise _of_another_kind(path, form, "recordings")
    return form is not None


def run_of(path: Path, runs: Sequence[Recording], run: str | int | None) -> Recording:
    """Return the run of a name or a number from 1; without one, the only run.

    Raises TraceError, which lists the runs, if there is none.
    """
    if run is None:
        found = list(runs)
    else:
        found = [known for known in runs if known.name == run]
        if not found and str(run).isdecimal():
            found = list(runs[int(run) - 1 : int(run)]) if int(run) else []
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"{at} {known.name}" for at, known in enumerate(runs, start=1))
    if run is None:
        raise TraceError(
            f"{path}: holds {len(runs)} runs ({listed}); choose one: --trace-run NAME, or its "
            "number (run=… in Python)"
        )
    allowed = "must be the name of a run, or its number"
    raise TraceError(f"{path}, run = {run!r:.60}: {allowed}: {listed}")


def mapping(mapped: str, name: str | None, settings: Settings) -> str | None:
    """Return the name of the format: the mapped one if the caller names columns.

    Raises TraceError if columns or units are given to another format.
    """
    if settings.columns is not None and name is None:
        return mapped
    if name != mapped:
        for argument in ("columns", "units"):
            if getattr(settings, argument) is not None:
                chosen = "" if name is None else f", not of {name}"
                raise TraceError(f"{argument}: only for files of the format {mapped}{chosen}")
    return name


def _read(path: str | Path, name: str | None, content: Content, settings: Settings) -> list[Any]:
    path = Path(path)
    form = None if name is None else named(name, content)
    if path.is_dir():
        if form is folder.FORMAT and not (path / folder.INDEX).is_file():
            raise TraceError(f"{path}: holds no {folder.INDEX} ({form.doc})")
        return _read_folder(path, _files(path, form), content, settings)
    source = Source(path)
    form = form or detected(source, content)
    if content not in form.gives:
        raise _of_another_kind(path, form, content)
    return _contents(source, form, settings)


def _of_another_kind(path: Path, form: Format, content: Content) -> TraceError:
    return TraceError(f"{path}: {form.name} ({form.doc}) {instead(form, content)}")


def _read_folder(
    path: Path,
    files: Iterable[tuple[Path, Format | None]],
    content: Content,
    settings: Settings,
) -> list[Any]:
    read: list[Any] = []
    notes = AlikeNotes()
    for file, known in files:
        if known is None or content not in known.gives:
            continue
        with notes.of(file):
            found = _contents(Source(file), known, settings)
        place = file.parent.relative_to(path).as_posix()
        if content == "recordings" and place != ".":
            found = [dataclasses.replace(run, name=f"{place}/{run.name}") for run in found]
        read += found
    with notes.of(path):
        if content == "recordings":
            note_equal_runs(path, read)
        if content == "points":
            read = _different(path, read)
    notes.tell()
    if not read:
        raise NothingFoundError(f"{path}: holds no file of a known format\n{tried()}")
    return read


def _different(path: Path, points: Sequence[LatencyPoints]) -> list[LatencyPoints]:
    """Return the points without those that another file of the folder states, too."""
    known: dict[Path, set[Any]] = {}
    for item in points:
        known.setdefault(Path(str(item.source)), set()).update(_loads(item))
    left_out: list[Path] = []
    for file in sorted(known, key=lambda file: len(known[file])):
        others = [known[other] for other in known if other != file and other not in left_out]
        if known[file] <= set().union(*others):
            left_out.append(file)
    if left_out:
        names = sorted(file.relative_to(path).as_posix() for file in left_out)
        more = f" … and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else ""
        listed = ", ".join(names[:_MOST_NAMES])
        note(f"{path}: left out, as other files hold the same points: {listed}{more}")
    return [item for item in points if Path(str(item.source)) not in left_out]


def _loads(points: LatencyPoints) -> Iterator[tuple[Any, ...]]:
    """Yield what each point states, to the digits that all files of a tool have."""
    columns = (points.concurrency, points.requests_per_s, points.ttft_s, points.itl_s)
    lists = [column.tolist() for column in columns if column is not None]
    server = (points.server.model, points.input_tokens, points.output_tokens)
    for values in zip(*lists, strict=True):
        yield (*server, *(f"{value:.6g}" for value in values))


def _files(path: Path, form: Format | None) -> Iterator[tuple[Path, Format | None]]:
    """Yield the files of a folder and of those in it, by name, and the format of each.

    Hidden ones are left out. Of a folder with runs.json, that is the only one. With a format, all
    are of it.
    """
    index = path / folder.INDEX
    if index.is_file() and form in (None, folder.FORMAT):
        yield index, folder.FORMAT
        return
    for entry in sorted(entry for entry in path.iterdir() if not entry.name.startswith(".")):
        if entry.is_dir() and not entry.is_symlink():
            yield from _files(entry, form)
        elif entry.is_file() and form is not folder.FORMAT:
            known = form or by_content(Source(entry), "recordings")
            yield entry, None if known is not None and known.is_beside(entry) else known


def _note_others(path: Path, files: Sequence[Path]) -> None:
    """Warn of the files of a folder that are not read, or only beside another one."""
    by_kind: dict[str, list[str]] = {}
    for file in files:
        with contextlib.suppress(TraceError), opened(file) as lines:
            is_trace = by_content(Head(file, lines.head), "trace") is not None
            what = _TRACES if is_trace else _NO_MEASUREMENTS
            by_kind.setdefault(what, []).append(file.relative_to(path).as_posix())
    for what, names in by_kind.items():
        more = f" … and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else ""
        note(f"{path}: {what}: {', '.join(names[:_MOST_NAMES])}{more}")


_MOST_NAMES = 8  # of files, in a note
_TRACES, _NO_MEASUREMENTS = "traces, each to be read by itself", "no measurements of their own"


def _contents(source: Source, form: Format, settings: Settings) -> list[Any]:
    """Return the measurements in a file of a format, with what the caller and the file state."""
    if form.required:
        form.check_columns(source.columns[form.layout], str(source.path), "recordings")
    if form.detect and not form.detect(source):
        form.refuse(str(source.path))
    assert form.read is not None
    measured = list(form.read(source, settings))
    found = []
    while measured:
        if isinstance(measured[0], Rows):
            found.append(recording(measured.pop(0), settings, form.name))
            continue
        item = measured.pop(0)
        found.append(
            dataclasses.replace(
                item,
                server=merged(item.server, settings.server, source.path),
                source=str(source.path),
                format=form.name,
                sha256=digest(source),
            )
        )
    note_equal_runs(source.path, [run for run in found if isinstance(run, Recording)])
    return found


for _reader in (read_recordings, read_step_logs, read_histograms, read_points):
    document(_reader, _reader.__name__.removeprefix("read_"))  # type: ignore[arg-type]
