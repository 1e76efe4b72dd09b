"""Traces from files of any format."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spillway import _core
from spillway.config.formatting import counted, sample
from spillway.config.messages import note
from spillway.files import export
from spillway.files.error import TraceError
from spillway.files.formats import (
    by_content,
    detected,
    document,
    formats,
    named,
    options_by_name,
)
from spillway.files.head import Head
from spillway.files.options import AUTO, note_lengths
from spillway.files.states import kind_of
from spillway.files.traces import csv_table, jsonl_table, spillway_csv
from spillway.files.traces.column_map import mapped
from spillway.files.traces.columns import Columns
from spillway.files.traces.jsonl_table import at_path
from spillway.files.traces.lines import STANDARD_INPUT, Lines, opened
from spillway.files.traces.rows import ATTRIBUTE
from spillway.files.traces.spool import NotStreamableError, SpooledColumns, spooled
from spillway.files.traces.table import Skipped, parsed
from spillway.files.traces.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from spillway.files.format import Format
    from spillway.files.head import Layout
    from spillway.files.traces.rows import Rows
    from spillway.files.traces.table import Int64s, Table


_Columns = TypeVar("_Columns", bound=Columns)
_Result = TypeVar("_Result")

FORMATS = formats("trace")
"""The formats by name."""

_MOST_UNUSED = 20

_TABLES: Mapping[Layout, Callable[[Lines, Format, Skipped], Generator[Table, None, None]]] = {
    "csv": csv_table.tables_of,
    "jsonl": jsonl_table.tables_of,
}


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    sort: bool = False,
    columns: Mapping[str, str] | None = None,
    time_unit: str = AUTO,
    skip_bad: bool = False,
    units: Mapping[str, str] | None = None,
    client_max_in_flight: int | None = None,
    num_replicas: int | None = None,
    check_units: bool = True,
    run: str | int | None = None,
    stream: bool | Literal["auto"] = False,
    **options: float | str,
) -> _core.workload.Trace:
    """Read recorded requests from a trace, or from a recording of one run.

    A recording may be a folder, too. A trace is CSV with a header row, a JSON object per line, or a
    JSON document: an array of objects, objects over several lines, or objects with a list of
    objects; or a Parquet file, or an access log in text.

    Parameters
    ----------
    path : str or Path
        The file, in UTF-8, plain, gzip or Zstandard (needs the extra `zstd`), or Parquet (needs the
        extra `frames`); "-" is standard input. Columns are found by name, whatever their order, and
        separated by commas, semicolons or tabs. The extra `frames` makes reading two to six times
        as fast.
    format : str, optional
        A key of `FORMATS`, see below. By default the columns select the format.
    sort : bool
        Sort the requests by time; requests of one instant keep the order of the file.
    columns : mapping of str to str, optional
        The columns of a file of none of the formats, by their meaning, e.g. {"arrival_s": "ts",
        "input_tokens": "usage.prompt_tokens", "output_tokens": "usage.completion_tokens"}. The
        meanings are the columns of the format `columns`; the three above are required. Further ones
        are `failed` and `completed` (a column with an error or a status; without them, columns of
        usual names such as `success` are recognized) and `cached_tokens`. A dot leads into a JSON
        object. The fields of an access log are named by their numbers. Times count from the first
        request.
    time_unit : {"auto", "s", "ms", "us", "ns", "iso"}
        Unit of the column of `arrival_s`; only with `columns`. "auto": dates with times are
        "iso"; numbers have the unit in the name of the column (`sent_ms`, `offsetMillis`,
        `startTimeUnixNano`, `time (s)`), or else the largest in which the first is at most 3.2e9,
        so that seconds, milliseconds, microseconds and nanoseconds since 1970 are told apart; of
        other times, a warning says which unit was assumed.
    skip_bad : bool
        Skip malformed rows and warn of their number; by default the first is an error.
    units, client_max_in_flight, num_replicas, check_units, run
        Of a recording, as in `read_recordings`.
    stream : bool or "auto"
        Keep the requests in temporary files (20 bytes each) instead of in memory, for runs with
        `metrics.streaming`. The trace is equal to one in memory, but cannot be transformed or
        written; it needs arrivals in order, no `request_id` and no shared beginnings of prompts.
        "auto": where that is possible.
    **options : int, float or str
        Options of the format, see below.

    Returns
    -------
    Trace
        The requests. An empty tenant is "default", an empty class "standard". A request without
        output tokens is a call that failed where it was recorded: it fails in a run, too, without
        work, unless `empty_outputs` of the trace is "served".

    Raises
    ------
    TraceError
        The file cannot be read, has an unknown format, or holds no requests; the format does not
        have an option; a value is invalid; a request is earlier than the previous one (without
        `sort`); a `request_id` occurs twice.

    Warns
    -----
    UserWarning
        What was assumed of the file, e.g. units and failed calls; columns that are not read, apart
        from those that Spillway itself writes into requests.csv; malformed rows that were skipped.

    Examples
    --------
    >>> import spillway
    >>> from spillway import traffic
    >>> calls = spillway.trace(arrival_s=[0, 0.5], input_tokens=[100, 200], output_tokens=[10, 20])
    >>> traffic.write(calls, "calls.csv")
    >>> spillway.read_trace("calls.csv").rows
    2

    """
    path = Path(path)
    measuring: dict[str, Any] = {
        "units": units,
        "client_max_in_flight": client_max_in_flight,
        "num_replicas": num_replicas,
    }
    if _is_recording(path, format, columns):
        refuse_options(path, "a recording", {"time_unit": time_unit, **options})
        measuring |= {"check_units": check_units, "skip_bad": skip_bad}
        return _of_recording(path, format, columns, run, measuring)
    refuse_options(path, "a trace", {"run": run, **measuring})
    reading: dict[str, Any] = {
        "format": format,
        "columns": columns,
        "time_unit": time_unit,
        "skip_bad": skip_bad,
        **options,
    }
    if stream == "auto" and str(path) != STANDARD_INPUT:
        with contextlib.suppress(TraceError):  # what is wrong shows below
            return _streamed(path, **reading)
    if stream is True:
        if sort:
            raise NotStreamableError(f"{path}: a trace that is sorted cannot be streamed")
        return _streamed(path, **reading)
    return _core.workload.make_trace(**read_columns(path, sort=sort, **reading))


def refuse_options(path: Path, what: str, options: Mapping[str, Any]) -> None:
    """Raise TraceError for an option that is given and has no effect on a file of this kind."""
    other = "a recording" if what == "a trace" else "a trace"
    for name, value in options.items():
        if value not in (None, AUTO):
            shown = value
            if isinstance(value, Mapping):
                shown = ", ".join(f"{key}={text}" for key, text in value.items())
            raise TraceError(f"{name} = {shown!s:.40}: only of {other}; {path} is {what}")


LATENCIES = frozenset({"ttft_s", "e2e_s", "first_token_s", "last_token_s"})
"""The meanings of columns that only recordings have."""


def _is_recording(path: Path, name: str | None, columns: Mapping[str, str] | None) -> bool:
    """Whether a file is a recording, by what the caller says or else its content."""
    if columns is not None:
        return not LATENCIES.isdisjoint(columns)
    if str(path) == STANDARD_INPUT or name in formats("trace"):
        return False
    if path.is_dir():
        return True
    if name is None:
        with opened(path) as lines:
            if by_content(Head(lines.path, lines.head), "trace"):
                return False
    from spillway.files.recordings import reading

    return reading.is_recording(path, name)


def _of_recording(
    path: Path,
    name: str | None,
    columns: Mapping[str, str] | None,
    chosen: str | int | None,
    measuring: Mapping[str, Any],
) -> _core.workload.Trace:
    """Return the requests of a run of a recording."""
    from spillway.files.recordings import reading

    runs = reading.read_recordings(path, name, columns=columns, **measuring)
    run = reading.run_of(path, runs, chosen)
    limit, failed = run.client_max_in_flight, int(run.failed.sum())
    how = "at its times of sending" if limit is None else f"with its client's limit of {limit:,}"
    without = f"; without {counted(failed, 'request')} that failed" if failed else ""
    of = f"{path}, run {run.name}" if runs[1:] else f"{path}"
    if run.num_replicas not in (None, 1):
        how += f"; {run.num_replicas:,} replicas served it, so give the fleet as many instances"
    replay = run.to_trace()
    if "warm_tokens" in replay._columns():
        how += "; the prompt tokens that its server had cached are in every cache from the start"
    note(f"{of}: a recording of the format {run.format}, replayed {how}{without}")
    return replay


def _streamed(path: Path, **reading: Any) -> _core.workload.Trace:
    *_, trace = _collected(path, partial(spooled, path), SpooledColumns.as_trace, **reading)
    return trace


def read_columns(path: str | Path, *, sort: bool = False, **reading: Any) -> dict[str, Any]:
    """Read a trace as arguments of the core's make_trace, for callers that change some of them.

    `reading`: the other arguments of `read_trace`.
    """
    path = Path(path)

    def columns_of(form: Format) -> contextlib.AbstractContextManager[Columns]:
        return contextlib.nullcontext(Columns(path, form, sort=sort or form.sorts))

    form, settings, arguments = _collected(path, columns_of, Columns.as_arguments, **reading)
    if str(path) == STANDARD_INPUT:
        arguments["file"] = ""  # cannot be read again
    if form.retime is not None:
        arguments["arrival_ns"] = form.retime(path, arguments["arrival_ns"], **settings)
    if form.optional is None:
        _note_crowd(path, arguments["arrival_ns"])
    return arguments


def _note_crowd(path: Path, arrival_ns: Int64s) -> None:
    """Warn of a log whose times are so coarse that most requests share theirs."""
    instants = 1 + int((arrival_ns[1:] != arrival_ns[:-1]).sum())
    if len(arrival_ns) >= max(_CROWD, 2 * instants):
        note(
            f"{path}: its {len(arrival_ns):,} requests arrive at only {instants:,} instants, as "
            "with rounded times: a replay has bursts that the traffic did not have"
        )


_CROWD = 20


def _collected(
    path: Path,
    columns_of: Callable[[Format], contextlib.AbstractContextManager[_Columns]],
    finished: Callable[[_Columns], _Result],
    *,
    format: str | None = None,  # noqa: A002
    columns: Mapping[str, str] | None = None,
    time_unit: str = AUTO,
    skip_bad: bool = False,
    **options: float | str,
) -> tuple[Format, dict[str, Any], _Result]:
    """Return the format of a file, its options, and what becomes of the columns of all requests."""
    with opened(path) as lines:
        form = _form(lines, format, columns, time_unit)
        settings = _checked(form, options, path)
        with columns_of(form) as collected:
            own = {"model"} if form is spillway_csv.FORMAT else set()
            unread = Unread({*(columns or {}).values(), *own})
            skipped = Skipped(allowed=skip_bad)
            _collect(lines, form, settings, collected, unread=unread, skipped=skipped)
            return form, settings, finished(collected)


def _collect(
    lines: Lines,
    form: Format,
    settings: Mapping[str, Any],
    collected: Columns,
    *,
    unread: Unread,
    skipped: Skipped,
) -> None:
    """Add all requests of a file to its columns."""
    if form.joined and skipped.allowed:
        raise TraceError(f"{lines.path}: rows of the format {form.name} cannot be skipped")
    names: dict[str, None] = {}
    left_out = 0
    try:
        tables = _tables(lines, form, skipped)
        for table in _joined(tables) if form.joined else tables:
            names |= dict.fromkeys(table.columns)
            for piece in _expanded(table, form, skipped):
                read = partial(_requests, form=form, settings=settings)
                for _, (good, rows, others) in parsed(piece, read, skipped):
                    left_out += others
                    if rows is not None:
                        collected.add(good, rows)
                        if form.optional is None:
                            unread.add(good)
    finally:  # a misspelled column may explain an error
        _note_unused(lines.path, form, names)
    unread.tell(lines.path)
    if form.left_out and left_out:
        note(f"{lines.path}: {left_out:,} {form.left_out} are left out")
    if skipped.rows:
        malformed = counted(skipped.rows, "malformed row")
        note(f"{lines.path}: {malformed} skipped; the first: {skipped.first}")


def _joined(tables: Iterable[Table]) -> Iterator[Table]:
    """Yield one table with the rows of all."""
    found = list(tables)
    if found:
        yield found[0].joined(found)


def _expanded(table: Table, form: Format, skipped: Skipped) -> Iterator[Table]:
    """Yield the table, or that of the requests of each line if lines hold several."""
    if form.expand is None:
        yield table
        return
    for row in range(len(table)):
        with skipped.allowing():
            yield form.expand(table.part(row, row + 1))


def _requests(
    table: Table, form: Format, settings: Mapping[str, Any]
) -> tuple[Table, Rows | None, int]:
    """Return the rows of a table that are requests, what is read of them, and the number of others.

    None without requests.
    """
    others = 0
    if form.select is not None:
        wanted = form.select(table)
        if not all(wanted):
            others = len(table) - sum(wanted)
            table = table.where(wanted)
    if not len(table):
        return table, None, others
    assert form.rows is not None
    return table, form.rows(table, **settings), others


def _form(
    lines: Lines, name: str | None, columns: Mapping[str, str] | None, time_unit: str
) -> Format:
    """Return the format that the caller names or maps, or that of the first line."""
    if columns is None:
        if time_unit != AUTO:
            raise TraceError(f"time_unit = {time_unit!r:.40}: only with columns")
        if name is None:
            return _detected(lines)
        form = named(name, "trace")
        lines.enter(lambda found: not form.missing(found))
        return form
    if name is not None:
        raise TraceError(f"format = {name!r:.40}: not together with columns")
    arrival = columns.get("arrival_s", "")
    lines.enter(lambda found: at_path(found, str(arrival)) != "")
    form = mapped(columns, time_unit, "jsonl" if lines.is_json else "csv")
    note_lengths(lines.path, columns)
    return form


def format_of(path: str | Path) -> Format:
    """Return the format of a file: the first that detects its columns.

    Raises TraceError if no format fits, or the file cannot be read.
    """
    with opened(Path(path)) as lines:
        return _detected(lines)


def _detected(lines: Lines) -> Format:
    if form := by_content(Head(lines.path, lines.head), "trace"):
        return form

    def fits(found: dict[str, Any]) -> bool:
        head = Head(lines.path, json.dumps(found, default=str))
        return by_content(head, "trace") is not None

    lines.enter(fits)
    return detected(Head(lines.path, lines.head, lines.holds), "trace")


def _tables(lines: Lines, form: Format, skipped: Skipped) -> Iterator[Table]:
    """Yield the tables of a file; a format of CSV is read from JSON, too."""
    if form.layout == "csv" and lines.is_json:
        with contextlib.closing(jsonl_table.tables_of(lines, form, skipped)) as tables:
            for table in tables:
                yield table.as_csv()
        return
    with contextlib.closing(_TABLES[form.layout](lines, form, skipped)) as tables:
        yield from tables


def _checked(form: Format, given: Mapping[str, Any], path: Path) -> dict[str, float | str]:
    """Return all options of a format with their values.

    Raises TraceError for an option that the format does not have, or a value that is invalid.
    """
    known = {option.name: option for option in form.options}
    for name, value in given.items():
        if name not in known:
            place = f"{path}, {name} = {value!r:.40}"
            has = f"one of {', '.join(known)}" if known else "it has no options"
            others = ", ".join(options_by_name().get(name, ()))
            of = f"; {name} is an option of {others}" if others else ""
            raise TraceError(f"{place}: unknown option of the format {form.name}; {has}{of}")
    return {name: option.checked(given.get(name, option.default)) for name, option in known.items()}


def _note_unused(path: Path, form: Format, names: Iterable[str]) -> None:
    """Warn of unused columns, which may be misspelled."""
    if form.optional is None:
        return
    known = {*form.required, *form.optional, *export.REQUEST_COLUMNS}
    found = [name for name in names if name and name not in known and not _is_read(form, name)]
    unused = []
    for name in found[:_MOST_UNUSED]:
        near = difflib.get_close_matches(name, form.optional, n=1, cutoff=0.75)
        unused.append(sample(name) + (f" (did you mean {near[0]}?)" if near else ""))
    if more := len(found) - len(unused):
        unused.append(f"… and {more} more")
    if unused:
        optional = ", ".join(form.optional)
        note(f"{path}: unused columns: {', '.join(unused)}; optional columns are {optional}")


def _is_read(form: Format, name: str) -> bool:
    """Whether a further column says which calls failed, or is an attribute."""
    is_own = form is spillway_csv.FORMAT
    return is_own and (name.startswith(ATTRIBUTE) or kind_of(name) not in (None, "end"))


document(read_trace, "trace")
