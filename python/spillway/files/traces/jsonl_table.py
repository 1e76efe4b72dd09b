"""JSONL files with a JSON object per line, each a request."""

from __future__ import annotations

import dataclasses
import decimal
import functools
import itertools
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config import yaml
from spillway.config.formatting import sample
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.error import TraceError
from spillway.files.traces import arrow
from spillway.files.traces.csv_table import CsvTable
from spillway.files.traces.documents import DECODER
from spillway.files.traces.lines import split_lines
from spillway.files.traces.rows import Lists
from spillway.files.traces.table import Table

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from spillway.files.format import Format
    from spillway.files.traces.lines import Lines
    from spillway.files.traces.table import Int64s, Skipped


DECIMAL = "decimal256(57, 18)"
"""The type of arrays of decimal numbers."""

UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds per unit."""

_PLACES = {unit: len(str(scale)) - 1 for unit, scale in UNIT_NS.items()}

_scan = json.JSONDecoder(parse_float=decimal.Decimal).scan_once  # type: ignore[attr-defined]
_ENDS = ("\n", "", "\r\n")
_EXACT = decimal.Context(prec=60)
_ITEMS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class JsonlTable(Table):
    """Consecutive objects of a JSONL file; numbers with a fraction are `Decimal`."""

    objects: Sequence[dict[str, Any]]
    arrays: Mapping[str, pa.Array] = field(default_factory=dict)
    """The values by key, if PyArrow has read them."""

    def cell(self, row: int, column: str) -> Any:
        """Return the value of a key; "" if the object does not have it."""
        return at_path(self.objects[row], column)

    def shown(self, row: int, column: str) -> str:
        """Return the value of a key for errors."""
        return _shown(self.cell(row, column))

    def part(self, begin: int, end: int) -> JsonlTable:
        """Return the table of some of the rows."""
        lines, objects = self.lines[begin:end], self.objects[begin:end]
        return dataclasses.replace(self, lines=lines, objects=objects, arrays={})

    def where(self, wanted: Sequence[bool]) -> JsonlTable:
        """Return the table of the wanted rows."""
        lines = list(itertools.compress(self.lines, wanted))
        objects = list(itertools.compress(self.objects, wanted))
        return dataclasses.replace(self, lines=lines, objects=objects, arrays={})

    def joined(self, tables: Sequence[JsonlTable]) -> JsonlTable:
        """Return a table with the rows of all `tables`."""
        keys = dict.fromkeys(itertools.chain.from_iterable(table.columns for table in tables))
        lines = list(itertools.chain.from_iterable(table.lines for table in tables))
        objects = list(itertools.chain.from_iterable(table.objects for table in tables))
        return JsonlTable(self.path, tuple(keys), lines, objects, unit=self.unit)

    def as_csv(self) -> CsvTable:
        """Return the same with the texts of values as cells."""
        cells = {name: [text_of(row.get(name)) for row in self.objects] for name in self.columns}
        return CsvTable(self.path, self.columns, self.lines, cells, unit=self.unit)

    def values(self, key: str) -> list[Any]:
        """Return the values of a key, or at a path with dots; "" where there is none."""
        if key not in self.columns and "." in key:
            return _nested(self.objects, key)
        if key not in self.columns:
            return [""] * len(self)
        try:
            return list(map(operator.itemgetter(key), self.objects))
        except KeyError:
            return [row.get(key, "") for row in self.objects]

    def array(self, key: str, *types: str) -> pa.Array | None:
        """Return the values of a key, if PyArrow has read them as one of the types."""
        array = self.arrays.get(key)
        return array if array is not None and str(array.type) in types else None

    def texts(self, key: str) -> list[str]:
        """Return the texts of a key; "" where an object does not have it."""
        if self.arrays and key not in self.arrays:
            return [""] * len(self)
        array = self.array(key, "string")
        texts: list[Any] = self.values(key) if array is None else array.to_pylist()
        if array is None and set(map(type, texts)) != {str}:
            row = next(row for row, text in enumerate(texts) if not isinstance(text, str))
            self.refuse(row, key, "must be text")
        return texts

    def whole(self, key: str, *, at_least: int = 0, at_most: int = MAX_TOKENS) -> Int64s:
        """Return the whole numbers of a key."""
        array = self.array(key, "int64")
        found = None if array is None else arrow.int64s(array)
        if found is not None and at_least <= found.min() and found.max() <= at_most:
            return found
        return self.checked_whole(self.values(key), key, at_least=at_least, at_most=at_most)

    def checked_whole(
        self, values: Sequence[Any], key: str, *, at_least: int = 0, at_most: int = MAX_TOKENS
    ) -> Int64s:
        """Return values as an array; errors give them as those of `key`."""
        if decimal.Decimal in set(map(type, values)):  # a whole one as pandas writes it: 3.0
            values = [
                int(value)
                if type(value) is decimal.Decimal and 0 <= value <= at_most and value % 1 == 0
                else value
                for value in values
            ]
        whole = set(map(type, values)) == {int}
        if not (whole and at_least <= min(values) and max(values) <= at_most):
            row, value = next(
                (row, value)
                for row, value in enumerate(values)
                if type(value) is not int or not at_least <= value <= at_most
            )
            allowed = f"must be a whole number >= {at_least} and <= {at_most}"
            self.refuse(row, key, allowed, shown=_shown(value))
        return np.array(values, dtype=np.int64)

    def checked_ids(self, row: int, key: str, value: Any, at_most: int) -> list[int]:
        """Return a value of a row that must be a list of whole numbers."""
        if not isinstance(value, list) or not all(
            type(block) is int and 0 <= block <= at_most for block in value
        ):
            self.refuse(row, key, f"must be a list of whole numbers >= 0 and <= {at_most}")
        return value

    def lists(self, key: str) -> Lists | None:
        """Return the lists of whole numbers of a key, if they can be had without its `values`."""
        array = self.array(key, "list<item: uint64>")
        if array is None:
            return None
        values: Any = np.from_dlpack(array.flatten())
        return Lists(values, arrow.int64s(array.value_lengths().cast("int64")))

    def times_ns(self, key: str, unit: str) -> Int64s:
        """Return the exact times of a key in nanoseconds; `unit`: s, ms, us or ns."""
        scale_ns = UNIT_NS[unit]
        highest = LONGEST_SPAN_S * 1_000_000_000 // scale_ns
        array = self.array(key, DECIMAL)
        found = None if array is None else arrow.decimals(array, _PLACES[unit])
        if found is not None:
            return found
        array = self.array(key, "int64")
        found = None if array is None else arrow.int64s(array)
        if found is not None and found.min() >= 0 and found.max() <= highest:
            return found * scale_ns
        values = self.values(key)
        if set(map(type, values)) == {int} and 0 <= min(values) <= max(values) <= highest:
            return np.array(values, dtype=np.int64) * scale_ns
        times_ns = []
        for row, value in enumerate(values):
            if type(value) not in (int, decimal.Decimal) or not 0 <= value <= highest:
                self.refuse(row, key, f"must be a number >= 0 and <= {highest} ({unit})")
            exact = _EXACT.multiply(value, scale_ns)
            times_ns.append(int(exact.to_integral_value(context=_EXACT)))
        return np.array(times_ns, dtype=np.int64)


class _Decoded(Sequence[dict[str, Any]]):
    """The objects of valid lines, decoded when one is first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text

    @functools.cached_property
    def _objects(self) -> list[dict[str, Any]]:
        return [_scan(line, 0)[0] for line in split_lines(self._text)]

    def __getitem__(self, at: Any) -> Any:
        return self._objects[at]

    def __len__(self) -> int:
        return len(self._objects)


def tables_of(lines: Lines, form: Format, skipped: Skipped) -> Generator[JsonlTable, None, None]:
    """Read a file of a format in pieces; empty lines are skipped.

    Raises TraceError if the file cannot be read, is not text, or a line is not an object of the
    format.
    """
    if lines.items is not None:
        yield from _tables_of_items(lines, form, skipped)
        return
    for first, text in lines.batches():
        arrays = arrow.jsonl_columns(text)
        if arrays is not None and set(form.required) <= arrays.keys():
            alike = range(first, first + len(next(iter(arrays.values()))))
            yield JsonlTable(lines.path, tuple(arrays), alike, _Decoded(text), arrays)
            continue
        numbers, objects = _objects(lines.path, first, split_lines(text), skipped)
        yield from _table(lines.path, numbers, objects, form, skipped)


def _tables_of_items(
    lines: Lines, form: Format, skipped: Skipped
) -> Generator[JsonlTable, None, None]:
    items = enumerate(lines.items or (), start=1)
    while batch := list(itertools.islice(items, _ITEMS_AT_ONCE)):
        numbers: list[int] = []
        objects: list[dict[str, Any]] = []
        for number, found in batch:
            if isinstance(found, dict):
                numbers.append(number)
                objects.append(found)
            else:
                problem = f"must be a JSON object, not {sample(repr(found))}"
                skipped.add(TraceError(f"{lines.path} item {number}: {problem}"))
        yield from _table(lines.path, numbers, objects, form, skipped, unit="item")


def _table(
    path: Path,
    numbers: list[int],
    objects: list[dict[str, Any]],
    form: Format,
    skipped: Skipped,
    *,
    unit: str = "line",
) -> Iterator[JsonlTable]:
    """Yield the table of the objects that have the keys of the format, if there are any."""
    shapes = dict.fromkeys(map(tuple, objects))
    if not all(set(form.required) <= set(shape) for shape in shapes):
        numbers, objects = _fitting(f"{path} {unit}", numbers, objects, form, skipped)
    if objects:
        keys = tuple(dict.fromkeys(itertools.chain.from_iterable(shapes)))
        yield JsonlTable(path, keys, numbers, objects, unit=unit)


def _objects(
    path: Path, first: int, batch: Sequence[str], skipped: Skipped
) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the numbers of the lines that are not empty, and their objects."""
    numbers: list[int] = []
    objects: list[dict[str, Any]] = []
    for number, text in enumerate(batch, start=first):
        try:
            found, end = _scan(text, 0)
            # As many colons as keys: no key is given twice. Without escapes, all is Unicode.
            is_plain = type(found) is dict and text.count(":") == len(found) and "\\u" not in text
            if is_plain and text[end:] in _ENDS:
                numbers.append(number)
                objects.append(found)
                continue
        except (StopIteration, ValueError, ArithmeticError, RecursionError):
            pass
        if text.isspace():
            continue
        try:
            objects.append(_object(text, f"{path} line {number}"))
        except TraceError as error:
            skipped.add(error)
        else:
            numbers.append(number)
    return numbers, objects


def _fitting(
    place: str,
    numbers: Sequence[int],
    objects: Sequence[dict[str, Any]],
    form: Format,
    skipped: Skipped,
) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the lines and objects that have the keys of the format."""
    fits = [set(form.required) <= found.keys() for found in objects]
    for number, found, fit in zip(numbers, objects, fits, strict=True):
        if not fit:
            with skipped.allowing():
                form.check_columns(found, f"{place} {number}")
    return list(itertools.compress(numbers, fits)), list(itertools.compress(objects, fits))


def _nested(objects: Sequence[dict[str, Any]], path: str) -> list[Any]:
    """Return `at_path` of all objects, fast if all have plain keys."""
    found: Sequence[Any] = objects
    try:
        for name in path.split("."):
            found = list(map(operator.itemgetter(name), found))
    except (KeyError, TypeError, IndexError):
        return [at_path(row, path) for row in objects]
    if dict in set(map(type, found)):
        return [at_path(row, path) for row in objects]
    return list(found)


def at_path(found: Any, path: str) -> Any:
    """Return the value of a key, or at a path of keys with dots; "" if there is none.

    A key may hold dots itself, as those of OpenTelemetry do; of several the longest is taken.
    Attributes may be a list of objects with a key and a value each, as in OTLP.
    """
    while True:
        if isinstance(found, list):
            found = _attributes(found)
        if not isinstance(found, dict):
            return ""
        if path in found:
            value = found[path]
            return _any_value(value) if isinstance(value, dict) and len(value) == 1 else value
        end = path.rfind(".")
        while end > 0 and path[:end] not in found:
            end = path.rfind(".", 0, end)
        if end <= 0:
            return ""
        found, path = found[path[:end]], path[end + 1 :]


def _attributes(pairs: list[Any]) -> dict[str, Any]:
    """Return a list of keys and values as an object."""
    return {
        pair["key"]: pair.get("value", "")
        for pair in pairs
        if isinstance(pair, dict) and isinstance(pair.get("key"), str)
    }


_ANY_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue")


def _any_value(value: dict[str, Any]) -> Any:
    """Return the value of an AnyValue of OTLP; what is none as it is."""
    ((kind, inner),) = value.items()
    return inner if kind in _ANY_VALUES else value


def text_of(value: Any) -> str:
    """Return a value of JSON as the text of a cell."""
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value if isinstance(value, str) else "" if value is None else repr(value)


def _shown(value: Any) -> str:
    """Return a value for errors."""
    return (str(value) if isinstance(value, decimal.Decimal) else repr(value))[:40]


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        values = DECODER.decode(text)
    except (json.JSONDecodeError, yaml.UnreadableError) as error:
        raise TraceError(f"{place}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise TraceError(f"{place}: not valid JSON: nested too deeply") from error
    except (ValueError, decimal.InvalidOperation) as error:
        raise TraceError(f"{place}: not valid JSON: a number has too many digits") from error
    if not isinstance(values, dict):
        raise TraceError(f"{place}: must be a JSON object, not {sample(text.strip())}")
    if not yaml.is_unicode(values):
        raise TraceError(f"{place}: not valid JSON: half of a surrogate pair")
    return values
