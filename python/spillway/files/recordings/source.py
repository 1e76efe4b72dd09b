"""A file of measurements, read once for detection, parsing and its digest."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from spillway.config import filesystem, yaml
from spillway.files.error import TraceError
from spillway.files.head import Head, columns_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from spillway.files.head import Layout


_MISSING = object()
_LINE = re.compile(r"\S[^\r\n]*")


class Source(Head):
    """A file of measurements, parsed on first use.

    Raises TraceError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with filesystem.open_text(path):  # refuses devices and pipes
                pass
            self.bytes = path.read_bytes()
        except OSError as error:
            raise TraceError(str(filesystem.cannot("read", path, error))) from error

    @functools.cached_property
    def text(self) -> str:
        """The content; "" if it is not UTF-8."""
        try:
            return self.bytes.decode("utf-8-sig")
        except UnicodeDecodeError:
            return ""

    @functools.cached_property
    def first_line(self) -> str:  # type: ignore[override]
        """The first line that is not empty; "" if there is none."""
        found = _LINE.search(self.text)
        return found[0].strip() if found else ""

    @functools.cached_property
    def columns(self) -> Mapping[Layout, Collection[str]]:
        """The names of columns by layout."""
        if self.first_line.startswith(("{", "[")):
            whole = self.json if isinstance(self.json, dict) else {}
            return {"csv": (), "jsonl": self.first_object.keys(), "json": whole.keys()}
        return {"csv": columns_in(self.first_line), "jsonl": (), "json": ()}

    @property
    def is_empty(self) -> bool:
        """Whether the file holds nothing but white space."""
        return not self.bytes.strip()

    @functools.cached_property
    def json(self) -> Any:
        """The content as JSON; None if it is not."""
        if self.first_line[:1] not in ("{", "["):
            return None
        return parsed(self.text)

    @functools.cached_property
    def first_object(self) -> dict[str, Any]:
        """The JSON object of the first line; empty if the line is none."""
        found = parsed(self.first_line)
        return found if isinstance(found, dict) else {}

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
        found.update(source.bytes)
    return found.hexdigest()
