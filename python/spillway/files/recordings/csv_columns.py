"""Columns of a CSV file with a row per request, by their meaning."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from spillway.config.limits import MAX_TOKENS
from spillway.files.error import TraceError
from spillway.files.recordings.rows import Rows, Time
from spillway.files.recordings.units import PER_SECOND
from spillway.files.traces.csv_table import csv_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from spillway.files.recordings.source import Source


TIMES = ("send_s", "ttft_s", "e2e_s", "first_token_s", "last_token_s")
MEANINGS = (*TIMES, "input_tokens", "output_tokens", "failed", "tenant")
"""The meanings of columns; those of `TIMES` are times."""

_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?\s*")
_WHOLE = re.compile(r"\s*[0-9]{1,18}\s*")
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
    path = source.path
    cells: dict[str, list[str]] = {column: [] for column in columns.names.values()}
    lines: list[int] = []
    with contextlib.closing(csv_tables(path)) as tables:
        header = next(tables).columns
        for meaning, column in columns.names.items():
            if header.count(column) != 1:
                problem = "the header row has no such column" if column not in header else "twice"
                raise TraceError(f"{path}, {meaning} = {column!r}: {problem}; it has {header!r}")
        for table in tables:
            lines += table.lines
            for column, collected in cells.items():
                collected.extend(table.texts(column))
    if not lines:
        raise TraceError(f"{path}: holds no requests, only a header row")
    reader = _Cells(path, columns, cells, lines)
    failed = reader.failed()
    send = reader.times("send_s", required=True)
    assert send is not None
    latencies = {}
    for meaning, instant in (("ttft_s", "first_token_s"), ("e2e_s", "last_token_s")):
        time = reader.times(meaning)
        if time is None and (end := reader.times(instant)) is not None:
            time = end.minus(send)
        latencies[meaning] = time
    return Rows(
        source,
        send=send,
        input_tokens=reader.whole("input_tokens", failed),
        output_tokens=reader.whole("output_tokens", failed),
        ttft=latencies["ttft_s"],
        e2e=latencies["e2e_s"],
        failed=failed,
        places=[f"line {line}" for line in lines],
        tenant=reader.texts("tenant"),
        **others,
    )


@dataclass(frozen=True)
class _Cells:
    """The cells of a file by meaning."""

    path: Path
    columns: CsvColumns
    cells: Mapping[str, Sequence[str]]
    lines: Sequence[int]

    def texts(self, meaning: str) -> Sequence[str] | None:
        column = self.columns.names.get(meaning)
        return None if column is None else self.cells[column]

    def times(self, meaning: str, *, required: bool = False) -> Time | None:
        """Return a column of times; None without the column, and in empty cells."""
        texts = self.texts(meaning)
        if texts is None:
            return None
        values: list[float | None] = []
        for row, text in enumerate(texts):
            if not text.strip() and not required:
                values.append(None)
                continue
            if not _NUMBER.fullmatch(text):
                self.refuse(
                    row, meaning, "must be a number" if required else "must be a number or empty"
                )
            is_whole = len(text) < _MOST_DIGITS and _INTEGER.fullmatch(text)
            value = int(text) if is_whole else float(text)
            if not math.isfinite(value):
                self.refuse(row, meaning, "must be a finite number")
            values.append(value)
        column = self.columns.names[meaning]
        return Time(column, self.columns.units[column], values)

    def whole(self, meaning: str, failed: Sequence[bool]) -> list[int]:
        """Return a column of tokens; 0 in the empty cells of failed requests."""
        texts = self.texts(meaning) or ()
        values = []
        for row, text in enumerate(texts):
            if failed[row] and not text.strip():
                values.append(0)
            elif not _WHOLE.fullmatch(text) or float(text) > MAX_TOKENS:
                self.refuse(row, meaning, f"must be a whole number >= 0 and <= {MAX_TOKENS}")
            else:
                values.append(int(text))
        return values

    def failed(self) -> list[bool]:
        """Return which requests failed, by a column with a state or with an error."""
        texts = self.texts("failed")
        if texts is None:
            return [False] * len(self.lines)
        states = self.columns.names["failed"] in _STATE_NAMES
        well = _COMPLETED if states else _NO_ERROR
        return [text.strip().lower() not in well for text in texts]

    def refuse(self, row: int, meaning: str, allowed: str) -> NoReturn:
        column = self.columns.names[meaning]
        value: Any = self.cells[column][row]
        raise TraceError(f"{self.path} line {self.lines[row]}, {column} = {value!r:.40}: {allowed}")
