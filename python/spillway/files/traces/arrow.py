"""Plain lines read by PyArrow (extra `frames`), many rows at once.

Each function returns None for what is not plain, and without PyArrow. The caller then reads row by
row, which gives the same values and also finds what is wrong.
"""

from __future__ import annotations

import csv
import decimal
import functools
import json
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from spillway.config import extras
from spillway.config.limits import LONGEST_SPAN_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spillway.data.arrays import Floats
    from spillway.files.traces.table import Booleans, Int64s


Cells: TypeAlias = "Sequence[str] | pa.Array"
"""The cells of a column of text."""

_WORTH_CHARACTERS = 1 << 16  # row by row, these take longer than the import of PyArrow
_MOST_CHARACTERS = 1 << 28  # PyArrow's blocks are smaller than 2 GiB
_MOST_DIGITS = 20  # with 18 places, PyArrow's decimals of more digits can overflow unnoticed
_EXACT_IN_FLOATS = 2.0**53
_INSTANT = r"^(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}"


@functools.cache
def _installed() -> Any:
    """Return PyArrow; None without it."""
    try:
        for module in ("compute", "csv", "json"):
            extras.require(f"pyarrow.{module}", "frames")
        return extras.require("pyarrow", "frames")
    except ImportError:
        return None


def _loaded(characters: int = 0) -> Any:
    """Return PyArrow; None without it, and for texts that are too short or too long for it."""
    is_worth_it = characters >= _WORTH_CHARACTERS or "pyarrow" in sys.modules
    return _installed() if is_worth_it and characters <= _MOST_CHARACTERS else None


def csv_columns(text: str, delimiter: str, header: Sequence[str]) -> dict[str, pa.Array] | None:
    """Return the columns of lines of CSV without quotes."""
    arrow = _loaded(len(text))
    if arrow is None or text[:1] in ("", "\n", "\ufeff"):
        return None
    if any(mark in text for mark in ("\0", "\r", "\n\n")):
        return None
    if " " in text and (text[0] == " " or "\n " in text or f"{delimiter} " in text):
        return None
    data = text.encode()
    names = list(map(str, range(len(header))))
    kinds = dict.fromkeys(names, arrow.string())
    try:
        table = arrow.csv.read_csv(
            arrow.BufferReader(data),
            arrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            arrow.csv.ParseOptions(delimiter=delimiter, quote_char=False),
            arrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
        )
    except arrow.ArrowInvalid:
        return None
    columns = [column.combine_chunks() for column in table.columns]
    limit = csv.field_size_limit()
    if len(text) > limit and any(_longest(arrow, column) > limit for column in columns):
        return None
    return dict(zip(header, columns, strict=True))


def jsonl_columns(text: str) -> dict[str, pa.Array] | None:
    """Return the values by key of lines with an object each, all with the same keys.

    All values of a key are texts, whole numbers (int64), decimal numbers, or lists of whole numbers
    (uint64).
    """
    arrow = _loaded(len(text))
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if not text.endswith("\n"):
        text += "\n"
    data = np.frombuffer(text.encode(), np.uint8)
    end = np.flatnonzero(data == ord("\n"))
    begin = np.append(0, end[:-1] + 1)
    # No valid JSON has such an end of a line within an object.
    is_apart = (data[begin] == ord("{")).all() and (data[end - 1] == ord("}")).all()
    if arrow is None or not is_apart or "\r" in text:
        return None
    kinds = _kinds(arrow, text[: text.index("\n")])
    if None in kinds.values():
        return None
    if any(map(arrow.types.is_decimal, kinds.values())):  # PyArrow takes texts for them, too
        texts = sum(kind == arrow.string() for kind in kinds.values())
        if text.count('"') != len(end) * 2 * (len(kinds) + texts):
            return None
    try:
        table = arrow.json.read_json(
            arrow.BufferReader(data),
            arrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            arrow.json.ParseOptions(arrow.schema(kinds), unexpected_field_behavior="error"),
        )
    except arrow.ArrowInvalid:
        return None
    columns = {key: table.column(key).combine_chunks() for key in kinds}
    items = [column.flatten() for column in columns.values() if arrow.types.is_list(column.type)]
    if table.num_rows != len(end) or any(
        column.null_count for column in (*columns.values(), *items)
    ):
        return None
    return columns


def _kinds(arrow: Any, line: str) -> dict[str, Any]:
    """Return the types of the values of an object by key; None for one that is not to be read."""
    kinds = {str: arrow.string(), int: arrow.int64(), decimal.Decimal: arrow.decimal256(57, 18)}
    lists = arrow.list_(arrow.uint64())
    try:
        found = json.loads(line, parse_float=decimal.Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return {"": None}
    if not (found and all(map(str.isascii, found))):
        return {"": None}
    return {
        key: lists
        if type(value) is list and set(map(type, value)) <= {int}
        else kinds.get(type(value))
        for key, value in found.items()
    }


def whole(cells: Cells, empty: str = "") -> Int64s | None:
    """Return texts of digits, or of digits and `.0`, as numbers; `empty` replaces empty ones."""
    arrow = _loaded()
    if arrow is None or not isinstance(cells, arrow.StringArray):
        return None
    texts = arrow.compute.replace_substring_regex(cells, "^$", empty) if empty else cells
    if not _are_digits(arrow, texts):
        texts = arrow.compute.replace_substring_regex(texts, r"^([0-9]+)\.0+$", r"\1")
        if not _are_digits(arrow, texts):
            return None
    try:
        return int64s(texts.cast(arrow.int64()))
    except arrow.ArrowInvalid:
        return None


def decimals(cells: Cells, places: int) -> Int64s | None:
    """Return numbers, or texts of digits that may have a point, times 10**places.

    They are rounded half to even, and less than the longest span in nanoseconds.
    """
    arrow = _loaded()
    if arrow is None or not isinstance(cells, arrow.Array):
        return None
    if isinstance(cells, arrow.StringArray):
        digits = arrow.compute.replace_substring(cells, ".", "", max_replacements=1)
        if not _are_digits(arrow, digits) or _longest(arrow, digits) > _MOST_DIGITS:
            return None
    exact = arrow.decimal128(38, places)
    try:
        try:
            found = cells.cast(exact)
        except arrow.ArrowInvalid:  # more places
            longer = cells.cast(arrow.decimal128(38, 18))
            found = arrow.compute.round(longer, places, "half_to_even").cast(exact)
        return _spans_ns(int64s(found.view(arrow.decimal128(38, 0)).cast(arrow.int64())))
    except arrow.ArrowInvalid:
        return None


def numbers(cells: Cells) -> tuple[Int64s | Floats, Booleans] | None:
    """Return texts of decimal numbers, and which are empty (0): whole ones exactly, or floats."""
    arrow = _loaded()
    if arrow is None or not isinstance(cells, arrow.StringArray):
        return None
    empty = np.from_dlpack(arrow.compute.binary_length(cells)) == 0
    if empty.any():
        cells = arrow.compute.if_else(arrow.compute.equal(cells, ""), "0", cells)
    try:
        if _are_digits(arrow, cells):
            return int64s(cells.cast(arrow.int64())), empty
        found: Floats = np.from_dlpack(cells.cast(arrow.float64()))  # type: ignore[assignment]
    except arrow.ArrowInvalid:
        return None
    is_exact = np.abs(found).max(initial=0) < _EXACT_IN_FLOATS  # false for NaN
    return (found, empty) if is_exact else None


def codes(cells: Cells) -> tuple[list[str], Int64s] | None:
    """Return the different texts, and the index of that of each cell."""
    arrow = _loaded()
    if arrow is None or not isinstance(cells, arrow.StringArray):
        return None
    found = cells.dictionary_encode()
    return found.dictionary.to_pylist(), int64s(found.indices)


def distinct(cells: Cells) -> int | None:
    """Return how many texts are different."""
    arrow = _loaded()
    if arrow is None or not isinstance(cells, arrow.StringArray):
        return None
    found: int = arrow.compute.count_distinct(cells).as_py()
    return found


def instants(cells: Cells) -> Int64s | None:
    """Return dates with times and without a zone in nanoseconds since 1970."""
    arrow = _loaded()
    if arrow is None or not isinstance(cells, arrow.StringArray):
        return None
    if not arrow.compute.all(arrow.compute.match_substring_regex(cells, _INSTANT)).as_py():
        return None
    try:
        return _spans_ns(int64s(cells.cast(arrow.timestamp("ns")).cast(arrow.int64())))
    except arrow.ArrowInvalid:
        return None


def int64s(numbers: pa.Array) -> Int64s:
    """Return whole numbers of PyArrow as NumPy's, without the import of pandas by `to_numpy`."""
    found: Int64s = np.from_dlpack(numbers)  # type: ignore[assignment]
    return found


def _spans_ns(found: Int64s) -> Int64s | None:
    is_in_range = found.min() >= 0 and found.max() < LONGEST_SPAN_S * 1_000_000_000
    return found if is_in_range else None


def _are_digits(arrow: Any, texts: pa.Array) -> bool:
    return bool(arrow.compute.all(arrow.compute.ascii_is_decimal(texts)).as_py())


def _longest(arrow: Any, texts: pa.Array) -> int:
    return int(arrow.compute.max(arrow.compute.binary_length(texts)).as_py())
