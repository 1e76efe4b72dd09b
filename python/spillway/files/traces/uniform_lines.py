"""JSON objects of one shape, an object per line, all lines read at once.

Their lines differ only in numbers, texts and lists of whole numbers: between these, the bytes of
each line are those of the first. Lines that are not so are not an error here: the caller then
decodes each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from spillway.files.traces.decimals import decimals, shifted, whole_numbers
from spillway.files.traces.format import Lists

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.files.traces.decimals import Bytes
    from spillway.files.traces.table import Int64s


_Kind: TypeAlias = Literal["number", "text", "list"]

_MEMBER = re.compile(
    r' *"(?P<key>[^"\\]*)" *: *'
    r'(?:(?P<number>-?[0-9][0-9.]*)|"(?P<text>[^"\\]*)"|\[(?P<list>[0-9, ]+)\])'
)
_NEXT = re.compile(r" *,")
_LAST = re.compile(r" *\} *\n")
_FIRST_PRINTABLE = ord(" ")


@dataclass(frozen=True)
class UniformLines:
    """The values of some lines, which have the same keys.

    Attributes
    ----------
    text, data : str, array of uint8
        The lines, and their bytes.
    spans : dict of str to pairs of arrays
        By key, in order: where each value begins and ends, without quotes and brackets.
    kinds : dict of str to {"number", "text", "list"}
        By key: the kind of all values.
    whole : dict of str to array of int64
        By key: its values, if all are whole numbers >= 0.
    lists : dict of str to Lists
        By key: its values, if they are lists.

    """

    text: str
    data: Bytes
    spans: dict[str, tuple[Int64s, Int64s]]
    kinds: dict[str, _Kind]
    whole: dict[str, Int64s]
    lists: dict[str, Lists]

    def __len__(self) -> int:
        begin, _ = next(iter(self.spans.values()))
        return len(begin)

    def decimals(self, key: str, places: int) -> Int64s | None:
        """Return numbers times 10**places as `decimals.decimals` does; None without such a key."""
        if (whole := self.whole.get(key)) is not None:
            return shifted(whole, places)
        if self.kinds.get(key) != "number":
            return None
        return decimals(self.data, *self.spans[key], places)

    def texts(self, key: str) -> list[str] | None:
        """Return the texts of a key; None if the values are not texts."""
        return self._slices(key) if self.kinds.get(key) == "text" else None

    def written(self, key: str) -> list[str] | None:
        """Return texts, or numbers >= 0 as they are written; None without such a key."""
        if key not in self.spans or key in self.lists:
            return None
        begin, _ = self.spans[key]
        is_negative = self.kinds[key] == "number" and (self.data[begin] == ord("-")).any()
        return None if is_negative else self._slices(key)

    def _slices(self, key: str) -> list[str]:
        text = self.text
        begin, end = self.spans[key]
        return [text[i:j] for i, j in zip(begin.tolist(), end.tolist(), strict=True)]


def uniform(text: str) -> UniformLines | None:
    """Return the values of lines; None if the lines are not alike or not valid."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if not text.endswith("\n"):
        text += "\n"
    shape = _shape(text[: text.index("\n") + 1])
    if shape is None or "\\" in text or not text.isascii():
        return None
    kinds, literals = shape
    data = np.frombuffer(text.encode(), np.uint8)
    line_end = np.flatnonzero(data < _FIRST_PRINTABLE)
    if len(line_end) != text.count("\n"):
        return None
    at = np.append(0, line_end[:-1] + 1)
    spans = {}
    for key, literal, following in zip(kinds, literals, literals[1:], strict=False):
        if not _are(data, at, literal):
            return None
        begin = at + len(literal)
        stops = np.flatnonzero(data == following[0])
        found = np.searchsorted(stops, begin)
        if found[-1] >= len(stops):
            return None
        at = stops[found]
        spans[key] = begin, at
    if not (_are(data, at, literals[-1]) and (at + len(literals[-1]) == line_end + 1).all()):
        return None
    values = _values(data, spans, kinds)
    return None if values is None else UniformLines(text, data, spans, kinds, *values)


def _values(
    data: Bytes, spans: Mapping[str, tuple[Int64s, Int64s]], kinds: Mapping[str, _Kind]
) -> tuple[dict[str, Int64s], dict[str, Lists]] | None:
    """Return the whole numbers and the lists by key; None if a value is not valid."""
    whole, lists = {}, {}
    for key, (begin, end) in spans.items():
        if kinds[key] == "list":
            found = _lists(data, begin, end)
            if found is None:
                return None
            lists[key] = found
        elif kinds[key] == "number":
            is_negative = data[begin] == ord("-")
            digits = begin + is_negative
            numbers = whole_numbers(data, digits, end)
            is_valid = numbers is not None or decimals(data, digits, end, 0) is not None
            if not is_valid or _any_leading_zero(data, digits):
                return None
            if numbers is not None and not is_negative.any():
                whole[key] = numbers
    return whole, lists


def _shape(line: str) -> tuple[dict[str, _Kind], list[bytes]] | None:
    """Return the kinds of the values by key, and what is before, between and after the values."""
    kinds: dict[str, _Kind] = {}
    literals: list[bytes] = []
    begin = 0  # of the literal
    at = 1
    if not line.startswith("{"):
        return None
    while member := _MEMBER.match(line, at):
        kind: _Kind = member.lastgroup  # type: ignore[assignment]
        key = member["key"]
        if key in kinds:
            return None
        kinds[key] = kind
        literals.append(line[begin : member.start(kind)].encode())
        begin = member.end(kind)
        if more := _NEXT.match(line, member.end()):
            at = more.end()
            continue
        if not _LAST.fullmatch(line, member.end()):
            return None
        return kinds, [*literals, line[begin:].encode()]
    return None


def _are(data: Bytes, at: Int64s, literal: bytes) -> bool:
    """Whether the bytes from each position are these."""
    size = len(literal)
    last = len(data) - size
    if last < 0 or at[-1] > last:
        return False
    windows = np.ndarray(last + 1, f"S{size}", data, strides=(1,))
    return bool((windows[at] == literal).all())


def _lists(data: Bytes, begin: Int64s, end: Int64s) -> Lists | None:
    """Return lists of whole numbers; None if one is empty or not such a list."""
    commas = np.flatnonzero(data == ord(","))
    first, last = np.searchsorted(commas, begin), np.searchsorted(commas, end)
    inner = last - first  # commas of each list
    counts = inner + 1
    final = np.cumsum(counts) - 1  # numbers of the lists
    is_final = np.zeros(final[-1] + 1, dtype=bool)
    is_final[final] = True
    number_end = np.empty(len(is_final), dtype=np.int64)
    number_end[is_final] = end
    before = np.cumsum(inner) - inner
    number_end[~is_final] = commas[np.repeat(first - before, inner) + np.arange(inner.sum())]
    number_begin = np.append(0, number_end[:-1] + 1)
    number_begin[final - inner] = begin
    number_begin += data[number_begin] == ord(" ")
    if _any_leading_zero(data, number_begin):
        return None
    values = whole_numbers(data, number_begin, number_end)
    return None if values is None else Lists(values.astype(np.uint64), counts)


def _any_leading_zero(data: Bytes, begin: Int64s) -> bool:
    after = data[begin + 1] - ord("0")  # wraps around below
    return bool(((data[begin] == ord("0")) & (after <= 9)).any())
