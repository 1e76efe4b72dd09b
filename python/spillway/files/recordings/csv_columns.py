"""Columns of a CSV file with a row per request, by their meaning."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.config.limits import MAX_TOKENS
from spillway.files.error import TraceError
from spillway.files.recordings.rows import Request, Rows, rows_of
from spillway.files.recordings.units import PER_SECOND
from spillway.files.traces.csv_table import csv_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from spillway.files.recordings.source import Source
    from spillway.files.traces.csv_table import CsvTable


_FIELDS = {  # of a `Request`, and the meanings of columns with it: durations, then instants
    "send": ("send_s",),
    "ttft": ("ttft_s", "first_token_s"),
    "e2e": ("e2e_s", "last_token_s"),
}
TIMES = ("send_s", "ttft_s", "e2e_s", "first_token_s", "last_token_s")
MEANINGS = (*TIMES, "input_tokens", "output_tokens", "failed", "tenant")
"""The meanings of columns; those of `TIMES` are times."""

_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?\s*")
_WHOLE = re.compile(r"\s*[0-9]{1,18}(?:\.0*)?\s*")  # pandas writes 21073.0
_MOST_DIGITS = 300  # more than a float holds
_INTEGER = re.compile(r"\s*-?[0-9]{1,20}\s*")
_STATE_NAMES = ("status", "outcome")  # other columns hold an error, or whether there is one
_COMPLETED = {"ok", "success", "succeeded", "successful", "completed", "200"}
_NO_ERROR = {"", "0", "false", "none", "null"}

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
    "failed": ("status", "error", "failed", "outcome"),
    "tenant": ("tenant", "tenant_id"),
}


@dataclass(frozen=True)
class CsvColumns:
    """The columns to read: by meaning, and the units of those with times."""

    names: Mapping[str, str]
    units: Mapping[str, str]


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
    return CsvColumns(names, {column: unit_of(column) or "s" for column in times})


def request_rows(source: Source, columns: CsvColumns, **others: Any) -> Rows:
    """Return the requests of a CSV file; `others`: what else is known of the run.

    Raises TraceError if it cannot be read, lacks a column or has an invalid value.
    """
    path, names = source.path, columns.names
    requests: list[Request] = []
    tenant: list[str] = []
    with contextlib.closing(csv_tables(path)) as tables:
        header = next(tables).columns
        for meaning, column in names.items():
            if header.count(column) != 1:
                problem = "the header row has no such column" if column not in header else "twice"
                raise TraceError(f"{path}, {meaning} = {column!r}: {problem}; it has {header!r}")
        for table in tables:
            requests += _requests(table, columns)
            tenant += table.texts(names["tenant"]) if "tenant" in names else ()
    if not requests:
        raise TraceError(f"{path}: holds no requests, only a header row")
    fields = {
        name: (names[time], columns.units[names[time]])
        for name, times in _FIELDS.items()
        for time in reversed(times)
        if time in names
    }
    return rows_of(source, requests, fields, tenant=tenant or None, **others)


def _requests(table: CsvTable, columns: CsvColumns) -> Iterator[Request]:
    names = columns.names
    failed = _failed(table, names)
    places = [f"line {line}" for line in table.lines]
    send = _times(table, names["send_s"], required=True)
    ttft, e2e = (_latencies(table, columns, send, *_FIELDS[latency]) for latency in ("ttft", "e2e"))
    lengths = (_tokens(table, names[name], failed) for name in ("input_tokens", "output_tokens"))
    return map(Request, places, send, ttft, e2e, *lengths, failed)


def _latencies(
    table: CsvTable, columns: CsvColumns, send: Sequence[Any], latency: str, instant: str
) -> list[float | None]:
    """Return latencies, in the unit of their column; None where there is none."""
    names, units = columns.names, columns.units
    if latency in names:
        return _times(table, names[latency])
    if instant not in names:
        return [None] * len(table)
    factor = PER_SECOND[units[names[instant]]] / PER_SECOND[units[names["send_s"]]]
    begins = send if factor == 1 else [begin * factor for begin in send]  # whole ones stay exact
    ends = _times(table, names[instant])
    return [None if e is None else e - b for b, e in zip(begins, ends, strict=True)]


def _times(table: CsvTable, column: str, *, required: bool = False) -> list[float | None]:
    """Return a column of times; None in empty cells."""
    values: list[float | None] = []
    for row, text in enumerate(table.texts(column)):
        if not text.strip() and not required:
            values.append(None)
            continue
        if not _NUMBER.fullmatch(text):
            table.refuse(row, column, f"must be a number{'' if required else ' or empty'}")
        is_whole = len(text) < _MOST_DIGITS and _INTEGER.fullmatch(text)
        value = int(text) if is_whole else float(text)
        if not math.isfinite(value):
            table.refuse(row, column, "must be a finite number")
        values.append(value)
    return values


def _tokens(table: CsvTable, column: str, failed: Sequence[bool]) -> list[int]:
    """Return a column of tokens; 0 in the empty cells of failed requests."""
    values = []
    for row, text in enumerate(table.texts(column)):
        if failed[row] and not text.strip():
            values.append(0)
        elif not _WHOLE.fullmatch(text) or float(text) > MAX_TOKENS:
            table.refuse(row, column, f"must be a whole number >= 0 and <= {MAX_TOKENS}")
        else:
            values.append(int(text.partition(".")[0]))
    return values


def _failed(table: CsvTable, names: Mapping[str, str]) -> list[bool]:
    """Return which requests failed, by a column with a state or with an error."""
    if "failed" not in names:
        return [False] * len(table)
    well = _COMPLETED if names["failed"] in _STATE_NAMES else _NO_ERROR
    return [text.strip().lower() not in well for text in table.texts(names["failed"])]
