"""The structures of a simulation and their settings, by dotted path, as findings name them."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from spillway._core.cluster import Simulation
from spillway.config.formatting import setting

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST_SETTINGS = 4


class Noun(NamedTuple):
    """A structure: its path, description and values."""

    path: str
    description: Mapping[str, Any]
    values: Mapping[str, Any]

    def __str__(self) -> str:
        pairs = [(field, self.values[field["name"]]) for field in self.description["fields"]]
        known = [(field, value) for field, value in pairs if value is not None]
        known.sort(key=lambda pair: bool(pair[1] == pair[0]["default"]))  # first what was changed
        shown = [f"{field['name']} = {setting(value)}" for field, value in known]
        if len(shown) > _MOST_SETTINGS:
            shown[_MOST_SETTINGS:] = ["…"]
        kind = self.values["kind"]
        return f"{self.path} = {kind}" + (f" ({', '.join(shown)})" if shown else "")


class _Setting(NamedTuple):
    path: str
    default: Any
    value: Any
    is_unlimited: bool

    @property
    def pattern(self) -> str:
        """The path with `[]` for every entry of a list."""
        return re.sub(r"\[\d+\]", "[]", self.path)

    @property
    def is_on(self) -> bool:
        """Whether the setting has an effect; a setting whose default is null is off by default."""
        return not self.is_unlimited and (bool(self.default) or self.value != self.default)

    def __str__(self) -> str:
        return f"{self.path} = {setting(self.value)}"


class Parts:
    """The structures of a simulation and their settings, by dotted path."""

    def __init__(self, simulation: Simulation) -> None:
        self.nouns: list[Noun] = []
        self.settings: list[_Setting] = []
        self._by_pattern: defaultdict[str, list[_Setting]] = defaultdict(list)
        self._add("", _description(), simulation.to_dict())

    def below(self, path: str) -> list[Noun]:
        """Structures whose path begins with a prefix, without those inside them."""
        found = [noun for noun in self.nouns if noun.path.startswith(path)]
        return [noun for noun in found if "." not in noun.path[len(path) :]]

    def setting_text(self, pattern: str) -> str:
        """The settings at a path in which `[]` matches every entry; empty: all are off."""
        for noun in self.nouns:
            if noun.path == pattern and "kind" in noun.description:
                return str(noun)
        found = [entry for entry in self._by_pattern.get(pattern, ()) if entry.is_on]
        if len(found) > 1:
            return f"{pattern} = {setting([entry.value for entry in found])}"
        return str(found[0]) if found else ""

    def _add(self, path: str, description: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.nouns.append(Noun(path, description, values))
        for field in description["fields"]:
            at = f"{path}.{field['name']}" if path else field["name"]
            value = values.get(field["name"], field["default"])
            is_unlimited = value == 0 and "0: unlimited" in field["doc"]
            entry = _Setting(at, field["default"], value, is_unlimited)
            self.settings.append(entry)
            self._by_pattern[entry.pattern].append(entry)
            if field["type"] not in ("struct", "variant") or value is None:
                continue
            for i, element in enumerate(value if field.get("sequence") else [value]):
                inner = f"{at}[{i}]" if field.get("sequence") else at
                self._add(inner, _described(field, element), element)


def _described(field: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    if field["type"] == "struct":
        return cast("Mapping[str, Any]", field["of"])
    return next(known for known in field["alternatives"] if known["kind"] == value["kind"])


@functools.cache
def _description() -> dict[str, Any]:
    return Simulation._describe()


def deciders(parts: Parts, reason: str) -> list[str]:
    """The settings of a simulation by which a request is lost for this reason, as text.

    The policies that list the reason, then the settings that the reason names.
    """
    found: dict[str, None] = {}
    for noun in parts.nouns:
        for entry in noun.description.get("reasons", ()):
            if entry["name"] != reason:
                continue
            if "kind" in noun.description:
                found[str(noun)] = None
            found |= dict.fromkeys(filter(None, map(parts.setting_text, entry["decided_by"])))
    return list(found)
