"""The settings of a simulation that can change during a run, with values to change them to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spillway import Simulation

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

Field = dict[str, Any]


def targets(*steps: tuple[float, int]) -> list[dict[str, Any]]:
    """Changes to a number of instances at a time, from (at_s, instances)."""
    return [{"at_s": at_s, "set": {"fleet.target_instances": number}} for at_s, number in steps]


def runtime_fields(simulation: Simulation) -> dict[str, tuple[Field, Any]]:
    """By path: the description of the field, and its value."""
    return dict(_walk(Simulation._describe(), simulation.to_dict(), ""))


def _walk(
    struct: Mapping[str, Any], values: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, tuple[Field, Any]]]:
    for field in struct["fields"]:
        name, value = field["name"], values.get(field["name"])
        path = f"{prefix}{name}"
        if field.get("runtime"):
            yield path, (field, value)
        items = enumerate(value) if isinstance(value, list) else [(None, value)]
        for i, item in items:
            place = path if i is None else f"{path}[{i}]"
            if field["type"] == "struct" and isinstance(item, dict):
                yield from _walk(field["of"], item, f"{place}.")
            if field["type"] == "variant" and isinstance(item, dict):
                (alternative,) = (a for a in field["alternatives"] if a["kind"] == item["kind"])
                yield from _walk(alternative, item, f"{place}.")


def another(field: Field, value: Any, rng: random.Random) -> Any:
    """Another valid value of a field, within an order of magnitude where it has a value."""
    if value is None:
        search = field["search"]
        low, high = search["low"], search["high"]
        drawn = low * (high / low) ** rng.random() if search["log"] else rng.uniform(low, high)
    else:
        drawn = value * math.exp(rng.uniform(-2, 2)) if value else rng.uniform(0, 2)
    low = field.get("at_least", field.get("more_than", -math.inf))
    high = field.get("at_most", field.get("less_than", math.inf))
    drawn = min(max(drawn, low), high)
    if field["type"] == "int":
        return round(drawn)
    inside = field.get("more_than") != drawn and field.get("less_than") != drawn
    return drawn if inside else value
