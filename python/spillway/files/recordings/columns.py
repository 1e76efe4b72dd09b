"""Columns of a recording that are filled row by row, and kept as arrays."""

from __future__ import annotations

import array
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spillway.data.arrays import Booleans, Ints


_ROWS_OF_PART = 1 << 12

Column: TypeAlias = "Sequence[Any] | np.ndarray[Any, Any]"
"""The values of all rows, as a list or as an array."""


def as_array(values: Column) -> np.ndarray[Any, Any]:
    """Return numbers as an array of whole numbers or else of floats, where NaN stands for None."""
    if isinstance(values, np.ndarray):
        return values
    if not values:
        return np.zeros(0, np.int64)
    try:
        found = np.array(values)
    except (OverflowError, ValueError):
        found = np.array(None)
    if found.dtype.kind in "ifb" and found.dtype.itemsize in (1, 8):
        return found
    return np.array([np.nan if value is None else float(value) for value in values], np.float64)


def where(values: Column | None, wanted: Booleans) -> Any:
    """Return the values of the wanted rows."""
    if isinstance(values, np.ndarray):
        return values[wanted]
    return None if values is None else list(itertools.compress(values, wanted))


class Growing:
    """A column of numbers that grows by parts, in one piece of memory."""

    def __init__(self) -> None:
        self._numbers: np.ndarray[Any, Any] = np.empty(0, np.int64)
        self._rows = 0

    def add(self, part: np.ndarray[Any, Any]) -> None:
        """Add the numbers of further rows; the first part and floats state the type."""
        if not self._rows or (self._numbers.dtype.kind == "i" and part.dtype.kind == "f"):
            self._numbers = self._numbers.astype(part.dtype)
        rows = self._rows + len(part)
        if rows > len(self._numbers):
            self._numbers.resize(max(rows, 2 * len(self._numbers)), refcheck=False)
        self._numbers[self._rows : rows] = part
        self._rows = rows

    def array(self) -> np.ndarray[Any, Any]:
        """The numbers of all rows."""
        if len(self._numbers) != self._rows:
            self._numbers.resize(self._rows, refcheck=False)
        return self._numbers


class Numbers:
    """A column of numbers that grows by one; None is NaN."""

    def __init__(self) -> None:
        self._parts = Growing()
        self._last: list[Any] = []

    def append(self, value: float | None) -> None:
        """Add the number of a row."""
        self._last.append(value)
        if len(self._last) == _ROWS_OF_PART:
            self._flush()

    def _flush(self) -> None:
        self._parts.add(as_array(self._last))
        self._last = []

    def parts(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the numbers of some rows after the other."""
        numbers = self.array()
        return (numbers[at : at + _ROWS_OF_PART] for at in range(0, len(numbers), _ROWS_OF_PART))

    def array(self) -> np.ndarray[Any, Any]:
        """The numbers of all rows."""
        if self._last:
            self._flush()
        return self._parts.array()


class Places(Sequence[str]):
    """The places of rows in their file, of which none holds a line feed."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._last: list[str] = []

    def append(self, place: str) -> None:
        """Add the place of a row."""
        self._last.append(place)
        if len(self._last) == _ROWS_OF_PART:
            self._parts.append("\n".join(self._last))
            self._last = []

    def __len__(self) -> int:
        return len(self._parts) * _ROWS_OF_PART + len(self._last)

    def __getitem__(self, row: Any) -> Any:
        part, at = divmod(range(len(self))[row], _ROWS_OF_PART)
        return (self._parts[part].split("\n") if part < len(self._parts) else self._last)[at]

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part.split("\n")
        yield from self._last


class LinePlaces(Sequence[str]):
    """The places of rows that are lines, or items of a document."""

    def __init__(self) -> None:
        self._lines: list[Sequence[int]] = []
        self._unit = "line"

    def add(self, lines: Sequence[int], unit: str = "line") -> None:
        """Add the numbers of the lines, or of other units, of further rows."""
        self._unit = unit
        last = self._lines[-1] if self._lines else None
        if isinstance(last, range) and isinstance(lines, range) and last.stop == lines.start:
            self._lines[-1] = range(last.start, lines.stop)
        else:
            self._lines.append(lines if isinstance(lines, range) else array.array("q", lines))

    def __len__(self) -> int:
        return sum(map(len, self._lines))

    def __getitem__(self, row: Any) -> Any:
        return next(itertools.islice(self, range(len(self))[row], None))

    def __iter__(self) -> Iterator[str]:
        return (f"{self._unit} {line}" for line in itertools.chain.from_iterable(self._lines))


class Lists(Sequence[Any]):
    """A list of numbers per row; their values follow each other."""

    def __init__(self, values: np.ndarray[Any, Any], offsets: Ints) -> None:
        self.values = values
        self.offsets = offsets

    @classmethod
    def of(cls, lists: Iterable[Sequence[float]]) -> Lists:
        """Return the same of lists of numbers."""
        if isinstance(lists, Lists):
            return lists
        found = list(lists)
        values = np.fromiter(itertools.chain.from_iterable(found), np.float64)
        return cls(values, np.cumsum([0, *map(len, found)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: Any) -> Any:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def rows(self, order: Ints) -> Lists:
        """Return the lists of some rows, in this order."""
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        values = np.empty(int(offsets[-1]))
        begins = zip(order.tolist(), offsets.tolist(), counts.tolist(), strict=False)
        for row, begin, count in begins:
            values[begin : begin + count] = self[row]
        return Lists(values, offsets)

    def row_of(self, value: int) -> int:
        """Return the row of a value."""
        return int(np.searchsorted(self.offsets, value, side="right")) - 1
