"""JSON documents that need not fit into memory: their outline, and the items of long lists."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from spillway.config import yaml
from spillway.files.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from spillway.files.traces.lines import Lines


Place: TypeAlias = "tuple[str | int, ...]"
"""The keys and indices that lead to a value."""

ANY = "*"
"""Any key, or any index, in the place of a list."""

_CHARACTERS = 1 << 20
_MARKS = re.compile(r'"(?:[^"\\]+|\\.)*(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_LITERAL = 32  # a number or a literal that the end of a piece cuts
_AFTER = tuple(" \t\r\n,]}")  # a number that has ended
_DECODER = json.JSONDecoder()


def outline(text: str) -> Any:
    """Return what a document begins with: of a text that is cut, all that is complete in it.

    None if that is not JSON.
    """
    opened: list[str] = []  # at `end`
    end = 0
    for match in _MARKS.finditer(text):
        mark = match[0]
        if mark in "[{":
            opened.append("]" if mark == "[" else "}")
            end = match.end()
        elif mark in "]}":
            if not opened:
                return None
            opened.pop()
            end = match.end()
            if not opened:
                break
        elif mark == ",":
            end = match.start()
    try:
        found = json.loads(text[:end] + "".join(reversed(opened)))
    except (ValueError, RecursionError):
        return None
    return found if yaml.is_unicode(found) else None


def items(lines: Lines, path: Sequence[str]) -> Iterator[tuple[Place, Any]]:
    """Yield the place and the value of each item of the lists at a path of keys, or `ANY`.

    All other values are yielded with their places, too, so that the document without these lists
    can be put together. Raises TraceError if the document is not valid JSON.
    """
    yield from _Walk(lines).value((), tuple(path))


def without_items(found: Iterable[tuple[Place, Any]], path: Sequence[str]) -> Any:
    """Return the document of `items`, in whose lists at the path only the first item is left."""
    root: Any = None
    for place, value in found:
        if not place:
            root = value
            continue
        if len(place) > len(path) + 1 or (len(place) == len(path) + 1 and place[-1] != 0):
            continue
        holder = functools.reduce(lambda inner, key: inner[key], place[:-1], root)
        if isinstance(holder, list):
            holder.append(value)
        else:
            holder[place[-1]] = value
    return root


class _Walk:
    """The way through the text of a document, which is read as it is needed."""

    def __init__(self, lines: Lines) -> None:
        self._path: Path = lines.path
        self._read = lines.read
        self._text = lines.read(_CHARACTERS)
        self._at = 0

    def value(self, place: Place, path: tuple[str, ...]) -> Iterator[tuple[Place, Any]]:
        """Yield the value that follows: whole if it is not on the path, else in its parts."""
        mark = self._mark()
        is_list = mark == "["
        if not path and is_list:
            yield place, []
            for at in self._members("]"):
                yield (*place, at), self._decoded(place)
        elif path and (is_list or mark == "{"):
            yield place, [] if is_list else {}
            for at in self._members("]" if is_list else "}"):
                key = at if is_list else self._key(place)
                inner = path[1:] if path[0] in (ANY, key) else None
                if inner is None:
                    yield (*place, key), self._decoded((*place, key))
                else:
                    yield from self.value((*place, key), inner)
        else:
            yield place, self._decoded(place)

    def _members(self, end: str) -> Iterator[int]:
        """Yield the number of each member of a list or an object, before the member."""
        self._at += 1
        if self._mark() == end:
            self._at += 1
            return
        number = 0
        while True:
            yield number
            mark = self._mark()
            self._at += 1
            if mark == end:
                return
            if mark != ",":
                self._refuse((), "expecting a comma or the end")
            number += 1

    def _key(self, place: Place) -> str:
        key = self._decoded(place)
        if not isinstance(key, str) or self._mark() != ":":
            self._refuse(place, "expecting a key and a colon")
        self._at += 1
        return key

    def _mark(self) -> str:
        """Return the next character that is no white space; TraceError at the end of the text."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return str(self._text[self._at])
            self._more()

    def _decoded(self, place: Place) -> Any:
        self._mark()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                position = getattr(error, "pos", 0)
                message = getattr(error, "msg", "nested too deeply")
                is_cut = message.startswith("Unterminated string") or (
                    position >= len(self._text) - _LONGEST_LITERAL
                )
                if not is_cut:
                    self._refuse(place, message)
            else:
                # A number may go on in the text that is not read yet.
                if self._text[end : end + 1] in _AFTER or not isinstance(value, int | float):
                    self._at = end
                    if not yaml.is_unicode(value):
                        self._refuse(place, "half of a surrogate pair")
                    return value
            self._more()

    def _more(self) -> None:
        """Read on; what is behind is forgotten."""
        left = self._text[self._at :]
        more = self._read(max(_CHARACTERS, len(left)))
        if not more:
            self._refuse((), "the document is cut off")
        self._text, self._at = left + more, 0

    def _refuse(self, place: Place, problem: str) -> NoReturn:
        shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
        at = f", {shown.lstrip('.')}" if shown else ""
        raise TraceError(f"{self._path}{at}: not valid JSON: {problem}")
