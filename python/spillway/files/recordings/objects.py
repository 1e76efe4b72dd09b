"""Values of JSON objects, checked."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from spillway.config import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.files.recordings.source import Source


class Object:
    """A JSON object in a file; errors name its place there.

    Parameters
    ----------
    source : Source
        The file.
    place : str
        The path of the object in the file, e.g. "benchmarks[0]"; "" is the whole file.
    values : mapping
        The object.

    """

    def __init__(self, source: Source, place: str, values: Mapping[str, Any]) -> None:
        self.source = source
        self.place = place
        self.values = values

    def at(self, key: str) -> str:
        """Return the path of a key in the file."""
        return f"{self.place}.{key}" if self.place else key

    def refuse_missing(self, key: str) -> NoReturn:
        """Raise the TraceError of a key that the object does not have."""
        self.source.refuse_missing(self.at(key))

    def object(self, key: str) -> Object:
        """Return a nested object; an empty one if there is none."""
        found = self.values.get(key)
        if found is None:
            found = {}
        if not isinstance(found, dict):
            self.source.refuse(self.at(key), found, "must be an object")
        return Object(self.source, self.at(key), found)

    def objects(self, key: str) -> list[Object]:
        """Return a list of objects; an empty one if there is none."""
        found = self.items(key)
        for at, item in enumerate(found):
            if not isinstance(item, dict):
                self.source.refuse(f"{self.at(key)}[{at}]", item, "must be an object")
        return [Object(self.source, f"{self.at(key)}[{at}]", item) for at, item in enumerate(found)]

    def items(self, key: str) -> list[Any]:
        """Return a list; an empty one if there is none."""
        found = self.values.get(key)
        if found is None:
            return []
        if not isinstance(found, list):
            self.source.refuse(self.at(key), found, "must be a list")
        return found

    def number(self, key: str) -> float | None:
        """Return a number; None if there is none."""
        found = self.values.get(key)
        if found is None:
            return None
        if not _is_number(found):
            self.source.refuse(self.at(key), found, "must be a number")
        number: float = found
        return number

    def numbers(self, key: str) -> list[float]:
        """Return a list of numbers; an empty one if there is none."""
        found = self.items(key)
        for at, number in enumerate(found):
            if not _is_number(number):
                self.source.refuse(f"{self.at(key)}[{at}]", number, "must be a number")
        return found

    def lists_of_numbers(self, key: str) -> list[list[float]]:
        """Return a list of lists of numbers; an empty one if there is none."""
        found = self.items(key)
        return [
            Object(self.source, "", {f"{self.at(key)}[{at}]": numbers}).numbers(
                f"{self.at(key)}[{at}]"
            )
            for at, numbers in enumerate(found)
        ]

    def whole(self, key: str) -> int | None:
        """Return a whole number >= 0, which may be written with a fraction of 0; None if none."""
        found = self.number(key)
        if found is None:
            return None
        if not 0 <= found < math.inf or found % 1:
            self.source.refuse(self.at(key), found, "must be a whole number >= 0")
        return int(found)

    def wholes(self, key: str) -> list[int]:
        """Return a list of whole numbers >= 0; an empty one if there is none."""
        numbers = self.numbers(key)
        for at, number in enumerate(numbers):
            if not 0 <= number < math.inf or number % 1:
                self.source.refuse(f"{self.at(key)}[{at}]", number, "must be a whole number >= 0")
        return [int(number) for number in numbers]

    def text(self, key: str) -> str | None:
        """Return a text; None if there is none."""
        found = self.values.get(key)
        if found is not None and not isinstance(found, str):
            self.source.refuse(self.at(key), found, "must be text")
        return found


def results(source: Source) -> list[Object]:
    """Return the JSON objects of a file: the only one, those of a list, or one after the other.

    Empty if the file holds anything else. Tools append a result to those of former runs.
    """
    if isinstance(source.json, dict):
        return [Object(source, "", source.json)]
    listed = isinstance(source.json, list)
    found = source.json if listed else _consecutive(source)
    if not all(isinstance(item, dict) for item in found):
        return []
    return [
        Object(source, f"[{at}]" if listed else f"result {at + 1}", item)
        for at, item in enumerate(found)
    ]


def _consecutive(source: Source) -> list[Any]:
    """Return the JSON values of a text one after the other, e.g. one per line; [] if it is none."""
    found: list[Any] = []
    decoder = json.JSONDecoder()
    text = source.text.rstrip()
    at = 0
    try:
        while at < len(text):
            at += len(text[at : at + _MOST_SPACE]) - len(text[at : at + _MOST_SPACE].lstrip())
            value, at = decoder.raw_decode(text, at)
            found.append(value)
    except (ValueError, RecursionError):
        return []
    return found if yaml.is_unicode(found) else []


_MOST_SPACE = 1_000  # characters between results


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**1000
