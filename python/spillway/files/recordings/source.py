"""A file of measurements: what it begins with, its lines, its JSON, and its digest."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, NoReturn

from spillway.config import filesystem, yaml
from spillway.files.error import TraceError
from spillway.files.head import Head, columns_in
from spillway.files.recordings import streams
from spillway.files.traces.lines import NotTextError, opened, split_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from spillway.files.head import Layout


_MISSING = object()
_PART_BYTES = 1 << 20
_OUTLINED = 1 << 20  # characters


class Source(Head):
    """A file of measurements, plain or compressed, of which only the first line is in memory.

    Raises TraceError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.is_text = True
        try:
            with opened(path) as lines:
                super().__init__(path, lines.head)
        except NotTextError:
            super().__init__(path, "")
            self.is_text = False

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line that is not empty.

        Raises TraceError if the file is not text.
        """
        with opened(self.path) as lines:
            for number, text in lines.batches():
                for at, line in enumerate(split_lines(text), start=number):
                    if line.strip():
                        yield at, line

    @functools.cached_property
    def text(self) -> str:
        """The content, all of it; "" if it is not UTF-8."""
        return self._read()

    def _read(self) -> str:
        try:
            with opened(self.path) as lines:
                return "".join(text for _, text in lines.batches())
        except NotTextError:
            return ""

    @functools.cached_property
    def columns(self) -> Mapping[Layout, Collection[str]]:
        """The names of columns by layout."""
        if self.first_line.startswith(("{", "[")):
            whole = self.outline if isinstance(self.outline, dict) else {}
            return {"csv": (), "jsonl": self.first_object.keys(), "json": whole.keys()}
        return {"csv": columns_in(self.first_line), "jsonl": (), "json": ()}

    @property
    def is_empty(self) -> bool:
        """Whether the file holds nothing but white space."""
        return self.is_text and not self.first_line

    @functools.cached_property
    def outline(self) -> Any:
        """The content as JSON, of a long document as far as its beginning goes; None if it is not.

        It tells formats apart without all of a document in memory.
        """
        if self.first_line[:1] not in ("{", "["):
            return None
        if self.first_object:
            return self.json
        with opened(self.path) as lines:
            return streams.outline(lines.read_at_least(_OUTLINED))

    @property
    def first_keys(self) -> AbstractSet[str]:
        """The keys of the first JSON object: the document, its first item, or the first line."""
        found = self.outline
        if isinstance(found, list):
            found = found[0] if found else None
        return (found if isinstance(found, dict) else self.first_object).keys()

    def items(self, *path: str) -> Iterator[tuple[streams.Place, Any]]:
        """Yield what a document holds, and one by one the items of its lists at a path.

        See `streams.items`.
        """
        with opened(self.path) as lines:
            yield from streams.items(lines, path)

    @functools.cached_property
    def json(self) -> Any:
        """The content as JSON; None if it is not."""
        if self.first_line[:1] not in ("{", "["):
            return None
        if self.first_object:  # the file is this object, or has one per line
            is_whole = sum(1 for _, _ in zip(self.lines(), range(2), strict=False)) == 1
            return self.first_object if is_whole else None
        return parsed(self._read())

    def whole(self) -> Any:
        """The content as JSON. Raises TraceError if it is not, though it begins so."""
        if self.json is None:
            raise TraceError(f"{self.path}: not valid JSON, though it begins so")
        return self.json

    @functools.cached_property
    def first_object(self) -> dict[str, Any]:
        """The JSON object of the first line; empty if the line is none."""
        found = parsed(self.first_line)
        return found if isinstance(found, dict) else {}

    def add_to(self, digest: hashlib._Hash) -> None:
        """Add the bytes of the file to a digest."""
        try:
            with filesystem.open_binary(self.path) as stream:
                while part := stream.read(_PART_BYTES):
                    digest.update(part)
        except OSError as error:
            raise TraceError(str(filesystem.cannot("read", self.path, error))) from error

    def refuse(self, place: str, value: Any, allowed: str) -> NoReturn:
        """Raise the TraceError of one value; `place`: its path in the file, e.g. "ttfts[3]"."""
        shown = "" if value is _MISSING else f" = {value!r:.40}"
        raise TraceError(f"{self.path}, {place}{shown}: {allowed}")

    def refuse_missing(self, place: str, hint: str = "") -> NoReturn:
        """Raise the TraceError of a value that the file does not have."""
        self.refuse(place, _MISSING, f"missing{'; ' if hint else ''}{hint}")


def parsed(text: str) -> Any:
    """A text as JSON; None if it is not."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # a number of thousands of digits is no JSONDecodeError
        return None
    return found if yaml.is_unicode(found) else None


def digest(*sources: Source) -> str:
    """Return the SHA-256 of the bytes of the files, one after the other."""
    found = hashlib.sha256()
    for source in sources:
        source.add_to(found)
    return found.hexdigest()
