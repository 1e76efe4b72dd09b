"""Files with a row per request whose columns the caller names."""

from __future__ import annotations

import contextlib
import itertools
import shlex
from typing import TYPE_CHECKING

from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.options import note_lengths, unit_in
from spillway.files.recordings.csv_columns import (
    INSTANTS,
    MEANINGS,
    STATES,
    TIMES,
    CsvColumns,
    request_rows,
)
from spillway.files.recordings.tables import tables
from spillway.files.recordings.units import PER_SECOND
from spillway.files.states import kind_of, mapped_kind, marks_among
from spillway.files.traces.table import Skipped
from spillway.files.traces.timestamps import has_zone, is_timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source


_REQUIRED = ("send_s", "input_tokens", "output_tokens")


def _read(source: Source, settings: Settings) -> list[Rows]:
    """`columns` maps meanings to columns of the file.

    They are `send_s`, `input_tokens`, `output_tokens`, `ttft_s`, `e2e_s`, `first_token_s`,
    `last_token_s` (instants on the clock of `send_s`), `failed` (which is true, or holds an error,
    for requests that failed), `completed` (the opposite), `tenant`, `session` (the conversation, of
    which `input_tokens` is all so far) and `cached_tokens`; both of `failed` and `completed` may be
    states or codes of HTTP. A column of times has the unit that its name states (`ttft_ms`, `TTFT
    (ms)`, `totalMillis`), or that in `units`: s, ms, us or ns; instants may be dates with times. Of
    JSON, an object is a row, and a name with dots leads into it.
    """
    return [request_rows(source, _columns(source, settings), settings)]


def _columns(source: Source, settings: Settings) -> CsvColumns:
    names = mapped(settings, MEANINGS, ("send_s", "t0_ms"))
    if missing := [meaning for meaning in _REQUIRED if meaning not in names]:
        raise TraceError(f"columns: {', '.join(missing)} missing")
    if not {"ttft_s", "e2e_s", "first_token_s", "last_token_s"} & set(names):
        raise TraceError("columns: must name a latency: ttft_s, e2e_s, first_token_s, last_token_s")
    kinds = {
        names[meaning]: mapped_kind(meaning, names[meaning])
        for meaning in STATES
        if meaning in names
    }
    note_lengths(source.path, names)
    columns, first = _beginning(source, names)
    if not kinds:  # columns of states are recognized, as without a map
        others = [name for name in columns if name not in names.values()]
        kinds = {name: kind for name in others if (kind := kind_of(name)) is not None}
    dates = _dates(source, names, first)
    units = units_of(names, TIMES, settings, dates)
    marks = marks_among(name for name in columns if name not in names.values())
    return CsvColumns(names, units, kinds, frozenset(dates), marks)


def _beginning(source: Source, names: Mapping[str, str]) -> tuple[Sequence[str], dict[str, str]]:
    """Return the columns of a file, and the first text in each of those that the caller names."""
    first: dict[str, str] = {}
    with contextlib.closing(tables(source.path, names.values(), Skipped(allowed=True))) as found:
        columns = next(found).columns
        for table in itertools.islice(found, 1):
            for name in set(names.values()) & table.cells.keys():
                first[name] = next(filter(str.strip, table.texts(name)), "")
    return columns, first


def _dates(source: Source, names: Mapping[str, str], first: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of instants that hold dates with times, and the first of each.

    Raises TraceError if only some of the columns do, or only some state a time zone.
    """
    columns = [names[meaning] for meaning in INSTANTS if meaning in names]
    dates = {name: first[name] for name in columns if is_timestamp(first.get(name, ""))}
    for name in columns:
        if dates and name not in dates and first.get(name):
            shown = f"{name} = {first[name]!r:.40}"
            allowed = f"must be a date with a time, as {next(iter(dates))} is"
            raise TraceError(f"{source.path}, {shown}: {allowed}")
    if len(set(map(has_zone, dates.values()))) > 1:
        shown = ", ".join(f"{name} = {text!r:.40}" for name, text in dates.items())
        raise TraceError(f"{source.path}, {shown}: must all state a time zone, or none")
    return dates


def mapped(
    settings: Settings, meanings: Sequence[str], example: tuple[str, str]
) -> Mapping[str, str]:
    """Return the columns that the caller names, by meaning; `example`: an entry, for the error.

    Where requests have `send_s`, `arrival_s` is that as well.
    Raises TraceError without any, or for a meaning that is none of these.
    """
    names = settings.columns
    if not names:
        meaning, column = example
        raise TraceError(
            f"columns: missing; e.g. --columns {meaning}={column},… "
            f"(columns={{{meaning!r}: {column!r}, …}} in Python)"
        )
    if "send_s" in meanings:  # the name of the same instant in traces
        names = {"send_s" if name == "arrival_s" else name: of for name, of in names.items()}
    for meaning, column in names.items():
        if meaning not in meanings:
            raise TraceError(
                f"columns, {meaning} = {column!r:.40}: not a meaning; must be one of "
                f"{', '.join(meanings)}"
            )
        if not isinstance(column, str):
            raise TraceError(f"columns, {meaning} = {column!r:.40}: must be the name of a column")
    return names


def units_of(
    names: Mapping[str, str],
    times: Sequence[str],
    settings: Settings,
    dates: Collection[str] = (),
) -> dict[str, str]:
    """Return the unit of each column of times, which its name or the caller states.

    `names`: meaning → column, `times`: the meanings of times, `dates`: columns that need no unit,
    and get ns. Raises TraceError without a unit.
    """
    columns = {names[meaning]: meaning for meaning in times if meaning in names}
    given = settings.units or {}
    for column, unit in given.items():
        if column not in columns:
            allowed = f"not a column of times; must be one of {', '.join(columns)}"
            raise TraceError(f"units, {column} = {unit!r:.40}: {allowed}")
        if unit not in PER_SECOND:
            allowed = f"must be one of {', '.join(PER_SECOND)}"
            raise TraceError(f"units, {column} = {unit!r:.40}: {allowed}")
    units: dict[str, str] = {}
    for column, meaning in columns.items():
        if column in dates and column in given:
            allowed = "must not be stated: the column holds dates with times"
            raise TraceError(f"units, {column} = {given[column]!r:.40}: {allowed}")
        found = "ns" if column in dates else given.get(column) or unit_in(column)
        if found is None:
            raise TraceError(
                f"columns, {meaning} = {column!r}: the name states no unit; state it, e.g. "
                f"--units {shlex.quote(f'{column}=ms')} (units={{{column!r}: 'ms'}} in Python)"
            )
        units[column] = found
    return units


FORMAT = Format(
    name="columns",
    doc="CSV or JSON with any names: columns send_s=t0,…,ttft_s=first,…, units t0=ms",
    gives=("recordings",),  # chosen by the argument `columns`
    read=_read,
)
