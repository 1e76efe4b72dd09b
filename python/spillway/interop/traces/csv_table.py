"""CSV files with a header row and a row per request."""

from __future__ import annotations

import contextlib
import csv
import decimal
import itertools
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spillway.config import filesystem
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.interop.traces.error import TraceError
from spillway.interop.traces.table import ROWS_AT_ONCE, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from spillway.interop.traces.format import Format
    from spillway.interop.traces.table import Booleans, Int64s

__all__ = ["CsvTable", "columns_in", "csv_tables", "tables_of"]


def __dir__() -> list[str]:
    return __all__


_WHOLE = re.compile(r"\s*[0-9]{1,18}\s*")
_DECIMAL = re.compile(r"\s*[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]{1,3})?\s*")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([-+][0-9]{2}):?([0-9]{2}))?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EXACT = decimal.Context(prec=60)


@dataclass(frozen=True)
class CsvTable(Table):
    """Consecutive rows of a CSV file, as text."""

    cells: Mapping[str, Sequence[str]]

    def cell(self, row: int, column: str) -> str:
        """Return the text of a cell."""
        return self.texts(column)[row]

    def texts(self, column: str) -> Sequence[str]:
        """Return the cells of a column; all empty if the file does not have the column."""
        return self.cells[column] if column in self.cells else [""] * len(self)

    def filled(self, column: str) -> Booleans:
        """Return which cells of a column are not empty."""
        return np.array([text != "" for text in self.texts(column)], dtype=bool)

    def ids(self, column: str) -> Sequence[str]:
        """Return the cells of a column, which must not be empty; nothing without the column."""
        if column not in self.cells:
            return []
        texts = self.cells[column]
        if "" in texts:
            self.refuse(texts.index(""), column, "must not be empty")
        return texts

    def whole(
        self, column: str, *, at_least: int = 0, at_most: int = MAX_TOKENS, empty: str = ""
    ) -> Int64s:
        """Return the cells of a column as whole numbers; `empty` replaces empty cells."""

        def parse(text: str) -> int:
            if not _WHOLE.fullmatch(text):
                raise ValueError
            value = int(text)
            if not at_least <= value <= at_most:
                raise ValueError
            return value

        allowed = f"must be a whole number >= {at_least} and <= {at_most}"
        return self._parsed(column, parse, allowed, empty)

    def seconds_ns(self, column: str) -> Int64s:
        """Return decimal seconds in exact nanoseconds; further digits are rounded."""
        allowed = f"must be a decimal number of seconds >= 0 and <= {LONGEST_SPAN_S}"
        return self._parsed(column, _seconds_to_ns, allowed)

    def timestamps_ns(self, column: str) -> Int64s:
        """Return dates with times in nanoseconds since 1970; without a time zone they are UTC."""
        allowed = (
            "must be an instant between 1970 and 2070 such as 2023-11-16 18:15:46.6805900, "
            "with or without a time zone"
        )
        return self._parsed(column, _timestamp_to_ns, allowed)

    def shared_tokens(self, prefix_group: str, prefix_tokens: str) -> Int64s:
        """Return how many tokens each prompt shares with its group; 0 without a group."""
        in_group = self.filled(prefix_group)
        if prefix_tokens not in self.columns and in_group.any():
            self.refuse(
                int(in_group.argmax()),
                prefix_group,
                f"needs a column {prefix_tokens} with the number of tokens that the group shares",
            )
        return self.whole(prefix_tokens, empty="0") * in_group

    def _parsed(
        self, column: str, parse: Callable[[str], int], allowed: str, empty: str = ""
    ) -> Int64s:
        texts = [text or empty for text in self.texts(column)]
        try:
            return np.array([parse(text) for text in texts], dtype=np.int64)
        except ValueError:
            self.refuse(
                next(row for row, text in enumerate(texts) if _fails(parse, text)), column, allowed
            )


def csv_tables(path: str | Path) -> Generator[CsvTable, None, None]:
    """Read a CSV file in pieces; the first piece has no rows, and empty lines are skipped.

    Raises TraceError if the file cannot be read, is empty, is not text, or a row does not fit the
    header.
    """
    path = Path(path)
    try:
        with filesystem.open_text(path, newline="") as stream:
            reader = csv.reader(stream, skipinitialspace=True)
            rows = ((reader.line_num, row) for row in reader if row and row != [""])
            _, first = next(rows, (0, None))
            if first is None:
                raise TraceError(f"{path}: empty; must hold a header row and requests")
            header = tuple(name.strip() for name in first)
            yield CsvTable(path, header, [], {})
            while piece := list(itertools.islice(rows, ROWS_AT_ONCE)):
                yield _table(path, header, piece)
    except OSError as error:
        raise TraceError(str(filesystem.cannot("read", path, error))) from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file; must be CSV in UTF-8") from error
    except csv.Error as error:
        raise TraceError(f"{path} line {reader.line_num}: not valid CSV: {error}") from error


def tables_of(path: Path, form: Format) -> Generator[CsvTable, None, None]:
    """Read a file of a format; TraceError like `csv_tables`, or if the header row does not fit."""
    with contextlib.closing(csv_tables(path)) as tables:
        header = next(tables).columns
        form.check_columns(header, str(path))
        if twice := sorted({name for name in header if name and header.count(name) > 1}):
            raise TraceError(f"{path}: the header row names {', '.join(twice)} more than once")
        table = None
        for table in tables:
            yield table
    if table is None:
        raise TraceError(f"{path}: holds no requests, only a header row")


def columns_in(line: str) -> list[str]:
    """Return the names in a header row; nothing if the line is not one."""
    try:
        row = next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        return []
    return [name.strip() for name in row]


def _fails(parse: Callable[[str], int], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return True
    return False


def _table(path: Path, header: tuple[str, ...], rows: Sequence[tuple[int, list[str]]]) -> CsvTable:
    for line, row in rows:
        if len(row) != len(header):
            raise TraceError(
                f"{path} line {line}: holds {len(row)} fields; the header row names {len(header)}"
            )
    lines = [line for line, _ in rows]
    columns: Iterable[Sequence[str]] = zip(*(row for _, row in rows), strict=True)
    return CsvTable(path, header, lines, dict(zip(header, columns, strict=False)))


def _seconds_to_ns(text: str) -> int:
    # Decimal, not float, so that the times of a trace are exact.
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    try:
        value = _EXACT.create_decimal(text.strip())
    except decimal.InvalidOperation as error:
        raise ValueError from error
    if value > LONGEST_SPAN_S:
        raise ValueError
    return int(value.scaleb(9, _EXACT).to_integral_value(context=_EXACT))


def _timestamp_to_ns(text: str) -> int:
    """Return nanoseconds since 1970."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if not match:
        raise ValueError
    date, time, fraction, hours, minutes = match.groups()
    instant = datetime.fromisoformat(f"{date}T{time}{hours or '+00'}:{minutes or '00'}")
    seconds = (instant - _EPOCH) // timedelta(seconds=1)
    if not 0 <= seconds < LONGEST_SPAN_S:
        raise ValueError
    return seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
