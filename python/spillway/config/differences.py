"""What differs between two sets of settings, path by path."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.config.yaml import to_flow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class _Absent(enum.Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""The value of a setting that one side does not have, e.g. of the second of two bands."""


class Difference(NamedTuple):
    """A setting that differs: its dotted path, and its value before and after."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {in_words(self.before)} -> {in_words(self.after)}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The settings that differ, in the order of the settings.

    Both are complete settings, as `to_dict()` returns them. Entries of lists with a `name` are
    compared by name, others by position. An alternative of another kind, and a list with other
    kinds or another order, count as one difference.
    """
    return list(_compared("", before, after))


def in_words(value: Any) -> str:
    """A value of a setting on one line."""
    if value is ABSENT:
        return "(absent)"
    if isinstance(value, dict):
        return to_flow(value)
    if isinstance(value, list):
        return f"[{', '.join(in_words(element) for element in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _compared(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict) and _kind(before) == _kind(after):
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{path}.{key}" if path else key
            yield from _compared(place, before.get(key, ABSENT), after.get(key, ABSENT))
    elif _are_named(before) and _are_named(after):
        yield from _named(path, before, after)
    elif _are_settings(before) and _are_settings(after) and _kinds(before, after):
        for i in range(max(len(before), len(after))):
            sides = (side[i] if i < len(side) else ABSENT for side in (before, after))
            yield from _compared(f"{path}[{i}]", *sides)
    elif before != after:
        yield Difference(path, before, after)


def _named(
    path: str, before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> Iterator[Difference]:
    old, new = ({entry["name"]: entry for entry in side} for side in (before, after))
    for name in [*old, *(name for name in new if name not in old)]:
        yield from _compared(f"{path}[{name}]", old.get(name, ABSENT), new.get(name, ABSENT))
    common = [name for name in old if name in new]
    moved = [name for name in new if name in old]
    if common != moved:
        yield Difference(path, common, moved)


def _are_settings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _are_named(values: Any) -> bool:
    return (
        _are_settings(values)
        and all("name" in value for value in values)
        and len({value["name"] for value in values}) == len(values)
    )


def _kind(values: dict[str, Any]) -> Any:
    return values.get("kind")


def _kinds(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Whether both lists hold the same kinds in the same order, or structures without a kind."""
    kinds = [[_kind(value) for value in side] for side in (before, after)]
    return kinds[0] == kinds[1] or not any(any(side) for side in kinds)
