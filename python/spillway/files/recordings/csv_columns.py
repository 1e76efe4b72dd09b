"""Columns of a file with a row per request, by their meaning."""

from __future__ import annotations

import collections
import contextlib
import math
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.formatting import sample
from spillway.config.limits import MAX_TOKENS
from spillway.config.messages import note
from spillway.data.recording import RequestCounts
from spillway.files import export, states
from spillway.files.error import TraceError
from spillway.files.recordings.columns import Growing, LinePlaces, as_array
from spillway.files.recordings.rows import Rows, Time, kept
from spillway.files.recordings.tables import tables
from spillway.files.recordings.units import PER_SECOND
from spillway.files.traces import arrow
from spillway.files.traces.table import Skipped, parsed
from spillway.files.traces.timestamps import ALLOWED, timestamp_to_ns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from spillway.data.arrays import Booleans, Ints
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source
    from spillway.files.states import Kind
    from spillway.files.traces.csv_table import CsvTable


_FIELDS = {  # of `Rows`, and the meanings of columns with it: durations, then instants
    "send": ("send_s",),
    "ttft": ("ttft_s", "first_token_s"),
    "e2e": ("e2e_s", "last_token_s"),
}
TIMES = ("send_s", "ttft_s", "e2e_s", "first_token_s", "last_token_s")
INSTANTS = ("send_s", "first_token_s", "last_token_s")
STATES = ("failed", "completed")
MEANINGS = (*TIMES, "input_tokens", "output_tokens", *STATES, "tenant", "session", "cached_tokens")
"""The meanings of columns; those of `TIMES` are times, those of `STATES` say which failed."""

_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")
_MOST_DIGITS = 300  # more than a float holds
_INTEGER = re.compile(r"\s*-?[0-9]{1,20}\s*")

# Meaning → names of columns without their unit, the preferred one first.
_TIME_NAMES: Mapping[str, tuple[str, ...]] = {
    "send_s": ("send_time", "send", "arrival_time", "arrival"),
    "ttft_s": ("ttft",),
    "e2e_s": ("e2e",),
    "first_token_s": ("first_token", "first_token_time"),
    "last_token_s": ("last_token", "last_token_time"),
}
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "tenant": ("tenant", "tenant_id"),
    "session": ("session",),
    "cached_tokens": ("cached_tokens",),
}
_WHOLE = f"must be a whole number >= 0 and <= {MAX_TOKENS}"
_MOST_SHOWN = 8


@dataclass(frozen=True)
class CsvColumns:
    """The columns to read: by meaning, the units of those with times, and those with states.

    Of a column of `dates`, the unit is that in which they are read: ns. `marks`: columns that may
    mark requests as warm-up.
    """

    names: Mapping[str, str]
    units: Mapping[str, str]
    states: Mapping[str, Kind]
    dates: frozenset[str] = frozenset()
    marks: tuple[str, ...] = ()


def unit_of(column: str) -> str | None:
    """Return the unit in which the name of a column ends; None if it does not."""
    ending = column.rpartition("_")[2].lower()
    return ending if ending in PER_SECOND and ending != column else None


def recognized(columns: Collection[str]) -> CsvColumns | None:
    """Return the columns of a header row with known names; None if they are no recording."""
    names = {}
    for meaning, stems in _TIME_NAMES.items():
        spelled = [f"{stem}_{unit}" for stem in stems for unit in PER_SECOND]
        if found := [name for name in spelled if name in columns]:
            names[meaning] = found[0]
    for meaning, stems in _OTHER_NAMES.items():
        if found := [name for name in stems if name in columns]:
            names[meaning] = found[0]
    has_latency = {"ttft_s", "e2e_s", "first_token_s", "last_token_s"} & set(names)
    if not ({"send_s", "input_tokens", "output_tokens"} <= set(names) and has_latency):
        return None
    times = [names[time] for time in TIMES if time in names]
    kinds = {name: kind for name in columns if (kind := states.kind_of(name))}
    units = {column: unit_of(column) or "s" for column in times}
    return CsvColumns(names, units, kinds, marks=states.marks_among(columns))


def request_rows(
    source: Source,
    columns: CsvColumns,
    settings: Settings,
    known: Collection[str] = (),
    **others: Any,
) -> Rows:
    """Return the requests of a file.

    `known`: columns that the caller reads, or knows to be of no use; `others`: what else is known
    of the run.

    Raises TraceError if it cannot be read, lacks a column or has an invalid value. Warns of columns
    that are not read.
    """
    path, names = source.path, columns.names
    skipped = Skipped(allowed=settings.skip_bad)
    whole: dict[str, Growing] = collections.defaultdict(Growing)
    places = LinePlaces()
    repeated = 0
    texts = [names[meaning] for meaning in ("tenant", "session") if meaning in names]
    labels = {name: _Labels() for name in (*columns.states, *texts, *columns.marks)}
    wanted = {*names.values(), *columns.states, *columns.marks}
    with contextlib.closing(tables(path, wanted, skipped)) as found_tables:
        header = next(found_tables).columns
        for meaning, column in (*names.items(), *((column, column) for column in columns.states)):
            if header.count(column) != 1:
                problem = "there is no such column" if column not in header else "twice"
                raise TraceError(f"{path}, {meaning} = {column!r}: {problem}; it has {header!r}")
        for table in found_tables:
            repeated += _repeated(table)
            for good, part in parsed(table, partial(_requests, columns=columns), skipped):
                places.add(good.lines, good.unit)
                for name, values in part.items():
                    whole[name].add(values)
                for name, found in labels.items():
                    found.add(good, name)
    if not places:
        raise TraceError(f"{path}: holds no requests")
    if repeated:
        note(
            f"{path}: {_ID} of {repeated:,} requests is that of another: the file has retries, or "
            "lists requests twice; each is read as a request"
        )
    failed, unread = _failed(source, columns, labels, places)
    warm_up, marks = _warm_up(columns.marks, labels, len(places))
    unread.update({*columns.marks} - marks)
    _note_unread(source, [name for name in header if name not in known], columns, unread)
    fields = {
        name: (names[time], columns.units[names[time]])
        for name, times in _FIELDS.items()
        for time in reversed(times)
        if time in names
    }
    times: dict[str, Any] = {
        name: Time(*field, whole[name].array()) for name, field in fields.items()
    }
    lengths: dict[str, Any] = {name: whole[name].array() for name in _TOKENS}
    for values in lengths.values():
        values[(values < 0) & failed] = 0
    rows = Rows(
        source,
        **times,
        **lengths,
        failed=failed,
        places=places,
        tenant=labels[names["tenant"]].texts() if "tenant" in names else None,
        session=labels[names["session"]].texts() if "session" in names else None,
        cached_tokens=whole["cached_tokens"].array() if "cached_tokens" in names else None,
        counts=RequestCounts(skipped=skipped.rows),
        **others,
    )
    if warm_up.any():
        rows = kept(rows, ~warm_up, "warm_up")
        by = ", ".join(sorted(marks))
        note(f"{path}: {int(warm_up.sum()):,} requests that {by} marks as warm-up are left out")
    if not settings.skip_bad:
        for name in lengths:
            _check_filled(source, names[name], np.asarray(getattr(rows, name)), rows)
    return rows


_TOKENS = ("input_tokens", "output_tokens")
_ID = "request_id"


def _repeated(table: CsvTable) -> int:
    """Return how many requests have the name of another in the table."""
    if _ID not in table.cells:
        return 0
    cells = table.cells_of(_ID)
    number = arrow.distinct(cells)
    return len(table) - (len(set(table.texts(_ID))) if number is None else number)


class _Labels:
    """A column of texts of which many are equal."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self._codes = Growing()

    def add(self, table: CsvTable, column: str) -> None:
        """Add the cells of a table."""
        found = arrow.codes(table.cells_of(column))
        if found is None:
            texts = table.texts(column)
            different = list(dict.fromkeys(texts))
            at = {text: code for code, text in enumerate(different)}
            found = different, np.array([at[text] for text in texts], np.int64)
        different, codes = found
        index = self.index
        own = [index.setdefault(text, len(index)) for text in different]
        self._codes.add(np.array(own, np.int32)[codes])

    def codes(self) -> np.ndarray[Any, Any]:
        """Return the index of the text of each row."""
        return self._codes.array()

    def texts(self) -> np.ndarray[Any, Any]:
        """Return the text of each row."""
        texts: np.ndarray[Any, Any] = np.array([*self.index, None], dtype=object)
        found: np.ndarray[Any, Any] = texts[self.codes()]
        return found


def _requests(table: CsvTable, columns: CsvColumns) -> dict[str, np.ndarray[Any, Any]]:
    names = columns.names
    if names["send_s"] in columns.dates:
        send, unknown = _dates(table, names["send_s"])
    else:
        send, unknown = _numbers(table, names["send_s"], "must be a number")
    if unknown.any():
        allowed = "must be a date with a time" if columns.dates else "must be a number"
        table.refuse(int(unknown.argmax()), names["send_s"], allowed)
    found = {"send": send}
    for latency in ("ttft", "e2e"):
        if set(_FIELDS[latency]) & set(names):
            found[latency] = _latencies(table, columns, send, *_FIELDS[latency])
    for name in (*_TOKENS, "cached_tokens"):
        if name not in names:
            continue
        values, empty = _numbers(table, names[name], _WHOLE)
        wrong = ~empty & ((values < 0) | (values > MAX_TOKENS) | (values % 1 != 0))
        if wrong.any():
            table.refuse(int(wrong.argmax()), names[name], _WHOLE)
        unknown_tokens = 0 if name == "cached_tokens" else -1
        found[name] = np.where(empty, unknown_tokens, values).astype(np.int64)
    return found


def _latencies(
    table: CsvTable, columns: CsvColumns, send: Any, latency: str, instant: str
) -> np.ndarray[Any, Any]:
    """Return latencies, in the unit of their column; NaN where there is none."""
    names, units = columns.names, columns.units
    if latency in names:
        values, empty = _numbers(table, names[latency])
    else:
        # Whole numbers stay exact: nanoseconds since 1970 exceed a float.
        factor = PER_SECOND[units[names[instant]]] / PER_SECOND[units[names["send_s"]]]
        begins = send if factor == 1 else send * (int(factor) if factor > 1 else factor)
        is_date = names[instant] in columns.dates
        ends, empty = (_dates if is_date else _numbers)(table, names[instant])
        values = ends - begins
    if empty.any():
        values = values.astype(np.float64)
        values[empty] = np.nan
    return values


def _dates(table: CsvTable, column: str) -> tuple[Ints, Booleans]:
    """Return dates with times in nanoseconds, and which cells are empty; these hold 0."""
    texts = table.texts(column)
    empty = np.array([not text.strip() for text in texts], dtype=bool)
    if not empty.any():
        return table.timestamps_ns(column), empty
    times_ns = table.parsed(
        texts, column, lambda text: timestamp_to_ns(text) if text.strip() else 0, ALLOWED
    )
    return times_ns, empty


def _numbers(
    table: CsvTable, column: str, allowed: str = "must be a number or empty"
) -> tuple[np.ndarray[Any, Any], Booleans]:
    """Return a column of numbers, and which cells are empty; these hold 0."""
    found = arrow.numbers(table.cells_of(column))
    if found is None:
        texts = table.texts(column)
        values = [_number(table, row, column, text, allowed) for row, text in enumerate(texts)]
        empty = np.array([value is None for value in values], dtype=bool)
        found = as_array([0 if value is None else value for value in values]), empty
    return found


def _number(table: CsvTable, row: int, column: str, text: str, allowed: str) -> float | None:
    if not text.strip():
        return None
    if not _NUMBER.fullmatch(text):
        table.refuse(row, column, allowed)
    is_whole = len(text) < _MOST_DIGITS and _INTEGER.fullmatch(text)
    value = int(text) if is_whole else float(text)
    if not math.isfinite(value):
        table.refuse(row, column, allowed if allowed == _WHOLE else "must be a finite number")
    return value


def _check_filled(source: Source, column: str, values: Ints, rows: Rows) -> None:
    """Raise TraceError for an empty cell (-1) of a column of tokens of a completed request."""
    empty = (values < 0) & ~np.asarray(rows.failed)
    if empty.any():
        place = rows.places[int(empty.argmax())]
        raise TraceError(f"{source.path} {place}, {column} = '': {_WHOLE}")


def _failed(
    source: Source, columns: CsvColumns, labels: Mapping[str, _Labels], places: Sequence[str]
) -> tuple[Booleans, set[str]]:
    """Return which requests failed by the columns with states, and those that do not say it."""
    failed = np.zeros(len(places), dtype=bool)
    completed = failed.copy()
    unread = set()
    read = []
    for column, kind in columns.states.items():
        index = labels[column].index
        said = states.verdicts(kind, index)
        unknown = [value for value, verdict in said.items() if verdict is None]
        is_silent = not any(map(str.strip, index)) and kind not in ("failed", "error")
        is_named = column in columns.names.values()
        if not is_named and (is_silent or (unknown and states.is_weak(column))):
            unread.add(column)
            continue
        if unknown:
            shown = _samples(unknown)
            raise TraceError(
                f"{source.path}, {column} = {shown}: not known whether such a request completed; "
                f"must be true or false, a code of HTTP, or a state such as ok or error; write "
                f"{column} so, and name it: --columns completed={column} or failed={column} "
                f'(columns={{"completed": "{column}"}} in Python)'
            )
        if others := states.guessed(kind, said):
            note(f"{source.path}, {column} = {_samples(others)}: taken as failed")
        good = np.array([bool(said[value]) for value in index])[labels[column].codes()]
        failed |= ~good
        completed |= good
        read.append(column)
    differing = failed & completed
    if differing.any():
        note(
            f"{source.path}: {', '.join(read)} disagree on {int(differing.sum()):,} requests, "
            f"first {places[int(differing.argmax())]}; they are taken as failed"
        )
    return failed, unread


def _warm_up(
    marks: Sequence[str], labels: Mapping[str, _Labels], rows: int
) -> tuple[Booleans, set[str]]:
    """Return which requests are warm-up, and the columns that say so."""
    found, by = np.zeros(rows, dtype=bool), set()
    for column in marks:
        said = [states.is_warm_up(column, text) for text in labels[column].index]
        if None not in said and any(said):
            found |= np.array(said, dtype=bool)[labels[column].codes()]
            by.add(column)
    return found, by


def _samples(values: Sequence[str]) -> str:
    more = ", …" if len(values) > _MOST_SHOWN else ""
    return ", ".join(repr(value[:40]) for value in values[:_MOST_SHOWN]) + more


def _note_unread(
    source: Source, header: Sequence[str], columns: CsvColumns, unread: set[str]
) -> None:
    """Warn of columns that are not read, unless they are those of Spillway's own files."""
    read = {*columns.names.values(), *columns.states, *columns.marks} - unread
    used = read | {name.partition(".")[0] for name in read}
    own = set(export.REQUEST_COLUMNS)
    found = [name for name in header if name and name not in used | own]
    if not found:
        return
    shown = [sample(name) for name in found[:_MOST_SHOWN]]
    if more := len(found) - len(shown):
        shown.append(f"… and {more} more")
    note(f"{source.path}: unused columns: {', '.join(shown)}")
