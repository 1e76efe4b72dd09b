"""Consecutive rows of a trace's file, of any layout."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from spillway.config.formatting import quoted
from spillway.files.error import TraceError
from spillway.files.options import AUTO
from spillway.files.traces import timestamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Self


Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Booleans: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]


AnyTable = TypeVar("AnyTable", bound="Table")
Result = TypeVar("Result")


class Skipped:
    """Malformed rows: an error each, or counted if they are to be skipped."""

    def __init__(self, *, allowed: bool = False) -> None:
        self.allowed = allowed
        self.rows = 0
        self.first = ""  # the error of the first

    def add(self, error: TraceError) -> None:
        """Count a row. Raises its error if rows must not be skipped."""
        if not self.allowed:
            raise error
        self.first = self.first or str(error)
        self.rows += 1

    @contextlib.contextmanager
    def allowing(self) -> Iterator[None]:
        """Add the TraceError of the block."""
        try:
            yield
        except TraceError as error:
            self.add(error)


@dataclass(frozen=True)
class Table:
    """Consecutive rows of a file, with the number of the line of each row.

    `unit`: what the numbers count, lines or the items of a JSON document.
    """

    path: Path
    columns: Sequence[str]
    lines: Sequence[int]
    unit: str = field(default="line", kw_only=True)

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, begin: int, end: int) -> Self:
        """Return the table of some of the rows."""
        raise NotImplementedError

    def where(self, wanted: Sequence[bool]) -> Self:
        """Return the table of the wanted rows."""
        raise NotImplementedError

    def joined(self, tables: Sequence[Self]) -> Self:
        """Return a table with the rows of all `tables`."""
        raise NotImplementedError

    def cell(self, row: int, column: str) -> Any:
        """Return the raw content of a cell."""
        raise NotImplementedError

    def shown(self, row: int, column: str) -> str:
        """Return the content of a cell for errors."""
        return quoted(str(self.cell(row, column)))

    def texts(self, column: str) -> Sequence[str]:
        """Return the texts of a column; "" where there is none."""
        raise NotImplementedError

    def timestamps_ns(self, column: str, time_zone: str = AUTO) -> Int64s:
        """Return dates with times in nanoseconds since 1970.

        `time_zone`: that of times that state none, as an option of the format (`TIME_ZONE`).
        """
        zone = timestamps.zone_of(time_zone)
        return self.parsed(
            self.texts(column),
            column,
            lambda text: timestamps.timestamp_to_ns(text, zone),
            timestamps.ALLOWED,
        )

    def parsed(
        self, texts: Sequence[str], column: str, parse: Callable[[str], int], allowed: str
    ) -> Int64s:
        """Return texts as `parse` reads them; it raises ValueError if it cannot."""
        try:
            return np.array(list(map(parse, texts)), dtype=np.int64)
        except ValueError:
            row = next(row for row, text in enumerate(texts) if _fails(parse, text))
            self.refuse(row, column, allowed)

    def refuse(self, row: int, column: str, allowed: str, *, shown: str = "") -> NoReturn:
        """Raise the TraceError of one cell; `shown` replaces its content in the message."""
        value = shown or self.shown(row, column)
        place = f"{self.path} {self.unit} {self.lines[row]}"
        raise TraceError(f"{place}, {column} = {value}: {allowed}")


_PARTS = 16  # of a table with a malformed row


def parsed(
    table: AnyTable, parse: Callable[[AnyTable], Result], skipped: Skipped
) -> Iterator[tuple[AnyTable, Result]]:
    """Yield a table with what `parse` returns; malformed rows are found by dividing it."""
    try:
        found = parse(table)
    except TraceError as error:
        if not skipped.allowed or len(table) == 1:
            skipped.add(error)
            return
    else:
        yield table, found
        return
    rows_of_part = -(-len(table) // _PARTS)
    for begin in range(0, len(table), rows_of_part):
        yield from parsed(table.part(begin, begin + rows_of_part), parse, skipped)


def _fails(parse: Callable[[str], int], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return True
    return False
