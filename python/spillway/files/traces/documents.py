"""The objects of a JSON document: an array, objects over several lines, or lists in objects."""

from __future__ import annotations

import decimal
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from spillway.config import yaml
from spillway.config.messages import note
from spillway.files.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


DECODER = json.JSONDecoder(parse_float=decimal.Decimal, object_pairs_hook=yaml.unique_keys)
"""Numbers with a fraction are `Decimal`, so that the times of a trace are exact."""

_CHARACTERS = 1 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_LITERAL = 12  # a literal or an escape that the end of a piece cuts


def is_spread(head: str) -> bool:
    """Whether a first line is the beginning of a document that goes on in further lines."""
    return head.startswith("[") or (head.startswith("{") and head[-1] in "{[,:")


def values_in(path: Path, start: str, read: Callable[[int], str]) -> Iterator[Any]:
    """Yield the values of an array, or the values that follow each other, as they are read.

    `start`: the beginning of the text; `read(n)` returns about n further characters.
    """
    text, at, number, inside = start, 0, 1, False
    opened = closed = False
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            text, at = read(_CHARACTERS), 0
            if text:
                continue
            if inside:
                raise TraceError(f"{path} item {number}: not valid JSON: the array is cut off")
            return
        mark = text[at]
        if closed:
            raise TraceError(f"{path}: not valid JSON: more text after the end of the array")
        if mark == "[" and not opened:
            inside, opened, at = True, True, at + 1
        elif inside and mark == ",":
            at += 1
        elif inside and mark == "]":
            inside, closed, at = False, True, at + 1
        else:
            value, text, at = _decoded(f"{path} item {number}", text, at, read)
            yield value
            opened, number = True, number + 1
            if at > _CHARACTERS:
                text, at = text[at:], 0


def _decoded(place: str, text: str, at: int, read: Callable[[int], str]) -> tuple[Any, str, int]:
    """Return the value at a place of a text, the text with what had to be read, and the end."""
    value, end, problem = _scanned(place, text, at)
    while problem:
        more = read(max(_CHARACTERS, len(text) - at)) if end is None else ""
        if not more:
            raise TraceError(f"{place}: not valid JSON: {problem}")
        text, at = text[at:] + more, 0
        value, end, problem = _scanned(place, text, at)
    assert end is not None
    return value, text, end


def _scanned(place: str, text: str, at: int) -> tuple[Any, int | None, str]:
    """Return a value, its end, and what is wrong; the end is None if the text may be cut off."""
    try:
        value, end = DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        is_cut = error.msg.startswith("Unterminated string") or (
            error.pos >= len(text) - _LONGEST_LITERAL
        )
        return None, None if is_cut else at, error.msg
    except RecursionError as error:
        raise TraceError(f"{place}: not valid JSON: nested too deeply") from error
    except yaml.UnreadableError as error:
        raise TraceError(f"{place}: not valid JSON: {error}") from error
    except (ValueError, decimal.InvalidOperation) as error:
        raise TraceError(f"{place}: not valid JSON: a number has too many digits") from error
    if not yaml.is_unicode(value):
        raise TraceError(f"{place}: not valid JSON: half of a surrogate pair")
    return value, end, ""


def key_of_list(found: dict[str, Any], fits: Callable[[dict[str, Any]], bool]) -> str | None:
    """Return the key of an object's list of objects, preferably of such that fit; None without."""
    keys = [
        key
        for key, value in found.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    keys.sort(key=lambda key: (not fits(found[key][0]), key != "data"))
    return keys[0] if keys else None


def items_of(
    path: Path, values: Iterator[Any], fits: Callable[[dict[str, Any]], bool]
) -> tuple[Any, Iterator[Any]]:
    """Return the first item of a document, and all: its values, or those of the lists in them."""
    first = next(values, None)
    everything = values if first is None else itertools.chain([first], values)
    if not isinstance(first, dict) or fits(first):
        return first, everything
    key = key_of_list(first, fits)
    if key is None:
        return first, everything
    _note_pages(path, first, len(first[key]))
    lists = (value.get(key) or [] for value in everything if isinstance(value, dict))
    return first[key][0], itertools.chain.from_iterable(
        items if isinstance(items, list) else [items] for items in lists
    )


_TOTALS = ("totalItems", "total_items", "totalCount", "total_count", "total")
_MORE = ("has_more", "hasMore", "has_next", "hasNext")


def _note_pages(path: Path, found: dict[str, Any], listed: int) -> None:
    """Warn of an object that says itself that it is one page of several."""
    about = [found, *(value for value in found.values() if isinstance(value, dict))]
    totals = [of[key] for of in about for key in _TOTALS if type(of.get(key)) is int]
    if totals and totals[0] > listed:
        note(f"{path}: a page that lists {listed:,} of {totals[0]:,} items; the others are missing")
    elif any(of.get(key) is True for of in about for key in _MORE):
        note(f"{path}: a page of {listed:,} items, after which there are more; they are missing")
