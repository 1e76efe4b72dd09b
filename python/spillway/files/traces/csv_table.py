"""CSV files with a header row and a row per request."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import decimal
import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.error import TraceError
from spillway.files.head import DELIMITERS, header_of
from spillway.files.options import AUTO
from spillway.files.traces import access_log, arrow
from spillway.files.traces.lines import opened, split_lines
from spillway.files.traces.table import Skipped, Table

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from spillway.files.format import Format
    from spillway.files.traces.arrow import Cells
    from spillway.files.traces.lines import Lines
    from spillway.files.traces.table import Booleans, Int64s


_WHOLE = re.compile(r"\s*([0-9]+)(?:\.0*)?\s*")  # also as pandas writes it in a column with gaps
_DECIMAL = re.compile(r"\s*[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]{1,3})?\s*")
_EXACT = decimal.Context(prec=60)
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class CsvTable(Table):
    """Consecutive rows of a CSV file, as text."""

    cells: Mapping[str, Cells]

    def cell(self, row: int, column: str) -> str:
        """Return the text of a cell."""
        return str(self.cells[column][row]) if column in self.cells else ""

    def cells_of(self, column: str) -> Cells:
        """Return the cells of a column; all empty if the file does not have the column."""
        return self.cells[column] if column in self.cells else [""] * len(self)

    def texts(self, column: str) -> Sequence[str]:
        """Return the same as Python's texts."""
        cells = self.cells_of(column)
        if isinstance(cells, list | tuple):
            return cells
        found: list[str] = cells.to_pylist()  # type: ignore[union-attr]
        return found

    def part(self, begin: int, end: int) -> CsvTable:
        """Return the table of some of the rows."""
        cells = {name: column[begin:end] for name, column in self.cells.items()}
        return dataclasses.replace(self, lines=self.lines[begin:end], cells=cells)

    def where(self, wanted: Sequence[bool]) -> CsvTable:
        """Return the table of the wanted rows."""
        cells = {name: list(itertools.compress(self.texts(name), wanted)) for name in self.cells}
        lines = list(itertools.compress(self.lines, wanted))
        return dataclasses.replace(self, lines=lines, cells=cells)

    def filled(self, column: str) -> Booleans:
        """Return which cells of a column are not empty."""
        return np.array(list(map(bool, self.texts(column))), dtype=bool)

    def ids(self, column: str) -> Sequence[str]:
        """Return the cells of a column, which must not be empty; nothing without the column."""
        if column not in self.columns:
            return []
        texts = self.texts(column)
        if "" in texts:
            self.refuse(texts.index(""), column, "must not be empty")
        return texts

    def whole(
        self, column: str, *, at_least: int = 0, at_most: int = MAX_TOKENS, empty: str = ""
    ) -> Int64s:
        """Return the cells of a column as whole numbers; `empty` replaces empty cells."""

        def parse(text: str) -> int:
            if not (match := _WHOLE.fullmatch(text)):
                raise ValueError
            value = int(match[1])
            if not at_least <= value <= at_most:
                raise ValueError
            return value

        values = arrow.whole(self.cells_of(column), empty)
        if values is not None and at_least <= values.min() and values.max() <= at_most:
            return values
        texts = [text or empty for text in self.texts(column)]
        allowed = f"must be a whole number >= {at_least} and <= {at_most}"
        return self.parsed(texts, column, parse, allowed)

    def seconds_ns(self, column: str) -> Int64s:
        """Return decimal seconds in exact nanoseconds; further digits are rounded."""
        allowed = f"must be a decimal number of seconds >= 0 and <= {LONGEST_SPAN_S}"
        return self.decimals_ns(column, 9, allowed)

    def decimals_ns(self, column: str, places: int, allowed: str) -> Int64s:
        """Return decimal numbers of units of 10**places ns in exact nanoseconds."""
        found = arrow.decimals(self.cells_of(column), places)
        if found is not None:
            return found
        return self.parsed(
            self.texts(column), column, lambda text: decimal_to_ns(text, places), allowed
        )

    def timestamps_ns(self, column: str, time_zone: str = AUTO) -> Int64s:
        """Return the same as `Table.timestamps_ns`."""
        found = arrow.instants(self.cells_of(column)) if time_zone == AUTO else None
        return super().timestamps_ns(column, time_zone) if found is None else found

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


def csv_tables(path: str | Path, skipped: Skipped | None = None) -> Generator[CsvTable, None, None]:
    """Read a CSV file in pieces; the first piece has no rows, and empty lines are skipped.

    The separator is the comma, semicolon or tab that gives the header row the most names. Raises
    TraceError if the file cannot be read, is empty, is not text, or a row does not fit the header.
    """
    with opened(Path(path)) as lines:
        yield from _pieces(lines, skipped or Skipped())


def tables_of(lines: Lines, form: Format, skipped: Skipped) -> Generator[CsvTable, None, None]:
    """Read a file of a format; TraceError like `csv_tables`, or if the header row does not fit."""
    path = lines.path
    with contextlib.closing(_pieces(lines, skipped)) as tables:
        header = next(tables).columns
        form.check_columns(header, str(path))
        if twice := sorted(name for name, count in Counter(header).items() if name and count > 1):
            raise TraceError(f"{path}: the header row names {', '.join(twice)} more than once")
        table = None
        for table in tables:
            yield table
    if table is None and not skipped.rows:
        raise TraceError(f"{path}: holds no requests, only a header row")


def _pieces(lines: Lines, skipped: Skipped) -> Generator[CsvTable, None, None]:
    """Yield a table without rows, then the rows of each batch of lines."""
    path = lines.path
    if not lines.head:
        raise TraceError(f"{path}: empty; must hold a header row and requests")
    if access_log.is_line(lines.head):
        header = tuple(map(str, range(1, len(access_log.fields(lines.head)) + 1)))
        yield CsvTable(path, header, [], {})
        for number, text in lines.batches():
            rows = access_log.rows(split_lines(text), number)
            yield from _read(path, header, rows, skipped, at_once=None)
        return
    rows_of = {delimiter: len(header_of(lines.head, delimiter)) for delimiter in DELIMITERS}
    delimiter = max(rows_of, key=lambda delimiter: rows_of[delimiter])
    batches = lines.batches()
    number, text = next(batches)
    lines_of_text = split_lines(text)
    first = next(at for at, line in enumerate(lines_of_text) if line.strip())
    if '"' in _unquoted(lines_of_text[first], delimiter):
        rest = _chained(lines_of_text[first:], batches)
        yield from _read(path, None, _rows(path, rest, number + first, delimiter), skipped)
        return
    header = tuple(header_of(lines_of_text[first], delimiter))
    yield CsvTable(path, header, [], {})
    number, text = number + first + 1, "".join(lines_of_text[first + 1 :])
    while True:
        plain = _unquoted(text, delimiter)
        if '"' in plain:  # fields may hold ends of lines
            rest = _chained(split_lines(text), batches)
            yield from _read(path, header, _rows(path, rest, number, delimiter), skipped)
            return
        if (cells := arrow.csv_columns(plain, delimiter, header)) is not None:
            numbers = range(number, number + len(cells[header[0]]))
            yield CsvTable(path, header, numbers, cells)
        else:
            rows = _rows(path, split_lines(plain), number, delimiter)
            yield from _read(path, header, rows, skipped, at_once=None)
        number, text = next(batches, (0, ""))
        if not text:
            return


def _unquoted(text: str, delimiter: str) -> str:
    """Return lines of CSV that end with line feeds, without the quotes of cells that need none."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if '"' in text:
        cell = rf'(?<![^\n{delimiter}])"((?! )[^"\r\n{delimiter}]*)"(?![^\n{delimiter}])'
        text = "".join(re.split(cell, text))
    return text


def _chained(lines: Iterable[str], batches: Iterable[tuple[int, str]]) -> Iterator[str]:
    yield from lines
    for _, text in batches:
        yield from split_lines(text)


def _rows(
    path: Path, lines: Iterable[str], number: int, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line and the cells of each row."""
    reader = csv.reader(lines, skipinitialspace=True, delimiter=delimiter)
    try:
        for row in reader:
            if row and row != [""]:
                yield number + reader.line_num - 1, row
    except csv.Error as error:
        line = number + reader.line_num - 1
        raise TraceError(f"{path} line {line}: not valid CSV: {error}") from error


def _read(
    path: Path,
    header: tuple[str, ...] | None,
    rows: Iterator[tuple[int, list[str]]],
    skipped: Skipped,
    at_once: int | None = _ROWS_AT_ONCE,
) -> Iterator[CsvTable]:
    """Yield tables of rows that `csv.reader` has split; without a header, the first row is it."""
    if header is None:
        names = next(rows, None)
        if names is None:
            raise TraceError(f"{path}: empty; must hold a header row and requests")
        header = tuple(name.strip() for name in names[1])
        yield CsvTable(path, header, [], {})
    width = len(header)
    while (first := next(rows, None)) is not None:
        lines: list[int] = []
        cells: list[str] = []
        for line, row in itertools.chain([first], itertools.islice(rows, at_once)):
            if len(row) == width:
                lines.append(line)
                cells += row
            else:
                problem = f"holds {len(row)} fields; the header row names {width}"
                skipped.add(TraceError(f"{path} line {line}: {problem}"))
        if lines:
            columns = {name: cells[at::width] for at, name in enumerate(header)}
            yield CsvTable(path, header, lines, columns)


def decimal_to_ns(text: str, places: int) -> int:
    """Return a decimal number of units of 10**places ns in nanoseconds.

    Raises ValueError if it is not one, or is longer than `LONGEST_SPAN_S`.
    """
    # Decimal, not float, so that the times of a trace are exact.
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    try:
        value = _EXACT.create_decimal(text.strip()).scaleb(places, _EXACT)
    except decimal.InvalidOperation as error:
        raise ValueError from error
    if value > LONGEST_SPAN_S * 1_000_000_000:
        raise ValueError
    return int(value.to_integral_value(context=_EXACT))
