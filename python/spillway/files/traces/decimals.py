"""Plain decimal numbers in text, those of a whole column at once.

A number is given by the positions of its first byte and of the byte after its last. What is not
plain is not an error here: the caller then reads number by number, which also finds what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.files.traces.table import Int64s


Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
Spans: TypeAlias = tuple[Bytes, "Int64s", "Int64s"]
"""Bytes, and the positions where pieces of them begin and end."""

_MOST_DIGITS = 18  # all such numbers fit int64
_POWERS = 10 ** np.arange(_MOST_DIGITS + 1, dtype=np.int64)
_ZERO, _POINT, _END = b"0.\n"


def spans_of(texts: Sequence[str]) -> Spans | None:
    """Return the spans of texts; None if one holds the end of a line."""
    data = np.frombuffer("\n".join([*texts, ""]).encode(errors="replace"), np.uint8)
    end = np.flatnonzero(data == _END)
    if len(end) != len(texts):
        return None
    return data, np.append(0, end[:-1] + 1), end


def whole_numbers(data: Bytes, begin: Int64s, end: Int64s) -> Int64s | None:
    """Return numbers of 1 to 18 digits and nothing else; None if there is another."""
    widths = end - begin
    return _digits(data, end, widths) if widths.min() > 0 else None


def shifted(whole: Int64s, places: int) -> Int64s | None:
    """Return numbers >= 0 times 10**places; None if one is as large as 9e18, or larger."""
    if whole.max() >= 9 * 10 ** (_MOST_DIGITS - places):
        return None
    found: Int64s = whole * 10**places
    return found


def decimals(data: Bytes, begin: Int64s, end: Int64s, places: int) -> Int64s | None:
    """Return numbers times 10**places, rounded half to even.

    None if one is not digits, which may have a point among them, or has more than 18 digits.
    """
    points = np.flatnonzero(data == _POINT)
    if not len(points):
        whole, fraction, width = whole_numbers(data, begin, end), None, None
    else:
        points = np.append(points, len(data))
        point = np.minimum(points[np.searchsorted(points, begin)], end)
        width = end - point - 1  # of the fraction; -1 if there is no point
        if not width.all():
            return None
        width = np.maximum(width, 0)
        whole, fraction = whole_numbers(data, begin, point), _digits(data, end, width)
        if fraction is None:
            return None
    whole = None if whole is None else shifted(whole, places)
    if whole is None or fraction is None or width is None:
        return whole
    if width.max() <= places:
        return whole + fraction * _POWERS[places - width]
    unit = _POWERS[np.maximum(width - places, 0)]
    kept, rest = np.divmod(fraction * _POWERS[np.maximum(places - width, 0)], unit)
    whole += kept
    whole += (2 * rest > unit) | ((2 * rest == unit) & (whole % 2 == 1))
    return whole


def _digits(data: Bytes, end: Int64s, widths: Int64s) -> Int64s | None:
    """Return the numbers whose digits precede each end, `widths` of them; None if others do."""
    least, most = int(widths.min()), int(widths.max())
    if most > _MOST_DIGITS:
        return None
    found = np.zeros(len(end), dtype=np.int64)
    is_other = np.zeros(len(end), dtype=bool)
    for place in range(most):
        digit = data.take(end - (place + 1), mode="clip")
        digit -= _ZERO
        if place >= least:
            digit *= widths > place
        is_other |= digit > 9
        found += np.multiply(digit, 10**place, dtype=np.int64)
    return None if is_other.any() else found
