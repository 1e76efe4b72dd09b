"""Fields of configuration files, with a record of those that nothing has read."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Any

import yaml

from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.config.yaml import ManifestLoader, parse
from spillway.files.deployments.secrets import masked
from spillway.files.deployments.target import Unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


no_counterpart = "has no counterpart in a simulation"


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    """Names the file in errors of settings: systems take values that no simulation has."""
    try:
        yield
    except ConfigError as error:
        raise config_error(
            [
                (
                    path if path.startswith(where) or ": " in path else f"{where}: {path}",
                    value,
                    must,
                )
                for path, value, must in error.violations
            ]
        ) from error


def documents_of(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Place and content of each document in a file of YAML, or of the one in a file of JSON."""
    if name.endswith(".json"):
        yield name, parse(text, name, is_json=True)
        return
    try:
        every = list(yaml.load_all(text, Loader=ManifestLoader))
    except (yaml.YAMLError, RecursionError):
        parse(text, name)  # names the line
        raise
    found = [content for content in every if content is not None]
    for i, content in enumerate(found):
        yield f"{name} document {i + 1}" if len(found) > 1 else name, content


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "must be true or false"),
    "int": (
        lambda value: _is_number(value) and float(value).is_integer(),
        "must be a whole number",
    ),
    "float": (_is_number, "must be a finite number"),
    "str": (lambda value: isinstance(value, str), "must be text"),
    "list": (lambda value: isinstance(value, list), "must be a list"),
    "map": (lambda value: isinstance(value, dict), "must be a mapping"),
}


class Fields:
    """The fields of a mapping in a file: each is taken by name, and `rest` lists the others.

    `where`: file and place, for errors; `values`: all fields.
    """

    def __init__(self, where: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise config_error([(where, f"{values!r:.40}", "must be a mapping")])
        self.where = where
        self.values: Mapping[str, Any] = dict(values)
        self._taken: set[str] = set()
        self._below: list[Fields] = []

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def take(self, name: str, kind: str, default: Any = None) -> Any:
        """The value of a field, or the default if it is missing or null; checks its type."""
        self._taken.add(name)
        value = self.values.get(name)
        if value is None:
            return default
        is_valid, allowed = _KINDS[kind]
        if not is_valid(value):
            shown = f"{masked(value, name)!r:.40}"
            raise config_error([(f"{self.where}: {name}", shown, allowed)])
        return int(value) if kind == "int" else float(value) if kind == "float" else value

    def required(self, name: str, kind: str = "int") -> Any:
        """The value of a field, which must not be missing."""
        value = self.take(name, kind)
        if value is None:
            raise config_error([(f"{self.where}: {name}", "", "is missing")])
        return value

    def choice(self, name: str, choices: Mapping[str, Any], default: str) -> Any:
        """The entry of `choices` that the field names."""
        value = self.take(name, "str", default)
        if value not in choices:
            allowed = f"must be one of {', '.join(choices)}"
            raise config_error([(f"{self.where}: {name}", repr(value), allowed)])
        return choices[value]

    def map(self, name: str) -> Fields:
        """The fields of a mapping within this one; none if it is missing."""
        below = Fields(f"{self.where}: {name}", self.take(name, "map", {}))
        self._below.append(below)
        return below

    def maps(self, name: str) -> list[Fields]:
        """The fields of each mapping of a list within this one; none if it is missing."""
        below = [
            Fields(f"{self.where}: {name}[{i}]", mapping)
            for i, mapping in enumerate(self.take(name, "list", []))
        ]
        self._below += below
        return below

    def drop(self, *names: str) -> None:
        """Takes fields that say nothing about the behavior, such as `kind`."""
        self._taken.update(names)

    @property
    def taken(self) -> set[str]:
        """The names of the fields here that are present and were taken."""
        return self._taken & self.values.keys()

    def rest(self, reason: str = no_counterpart) -> list[Unread]:
        """The fields that were not taken, here and below."""
        return [
            *(
                Unread(f"{self.where}: {name}", value, reason)
                for name, value in self.values.items()
                if name not in self._taken
            ),
            *(unread for below in self._below for unread in below.rest(reason)),
        ]


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|us|µs|ns|m|s)")


def seconds(text: str, where: str) -> float:
    """The seconds of a duration as Go and Protocol Buffers write it: 1m30s, 0.5s, 200ms."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise config_error([(where, repr(text), "must be a duration such as 60s, 0.5s or 200ms")])
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration(value_s: float) -> str:
    """Seconds as such a duration, in whole nanoseconds: 60s, 0.5s."""
    return f"{value_s:.9f}".rstrip("0").rstrip(".") + "s"
