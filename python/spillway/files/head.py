"""What the first line of a file says of its format."""

from __future__ import annotations

import csv
import functools
import json
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


Layout: TypeAlias = Literal["csv", "jsonl", "json"]
"""Where the names of columns are; see `Format`."""

DELIMITERS = (",", ";", "\t")


class Head:
    """A file, known by its first line that is not empty; "" if there is none.

    Of a JSON document, `first_line` is its first object; `holds` says what the file holds.
    """

    holds = ""

    def __init__(self, path: Path, first_line: str, holds: str = "") -> None:
        self.path = path
        self.first_line = first_line
        self.holds = holds

    @functools.cached_property
    def columns(self) -> Mapping[Layout, Collection[str]]:
        """The names of columns by layout."""
        line = self.first_line
        if line.startswith(("{", "[")):
            return {"csv": (), "jsonl": _keys(line)}
        return {"csv": columns_in(line), "jsonl": ()}

    @property
    def is_empty(self) -> bool:
        """Whether the file holds nothing."""
        return not self.first_line


def columns_in(line: str) -> list[str]:
    """Return the names in a header row; nothing if the line is not one."""
    rows = [header_of(line, delimiter) for delimiter in DELIMITERS]
    return max(rows, key=len)  # the first of several


def header_of(line: str, delimiter: str) -> list[str]:
    """Return the names in a header row with this delimiter."""
    try:
        row = next(csv.reader([line], skipinitialspace=True, delimiter=delimiter), [])
    except csv.Error:
        return []
    return [name.strip() for name in row]


def _keys(line: str) -> list[str]:
    """Return the keys of an object; nothing if the line is not one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(value) if isinstance(value, dict) else []
