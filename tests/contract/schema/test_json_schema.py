"""The JSON Schema allows what the core allows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from support.effort import few_of
from support.paths import ROOT
from support.settings import LEAVES, RICH, SCHEMA, VALIDATOR, at, is_number

from spillway import ConfigError, Simulation, instance, loading
from spillway.config import classes

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_schema_is_one_and_takes_what_exists() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    VALIDATOR.validate(Simulation().to_dict())
    VALIDATOR.validate({"schema": 1, "profile": "blis_0_6", **RICH.to_dict()})
    VALIDATOR.validate({})
    for example in ROOT.glob("examples/*.yaml"):
        settings = yaml.safe_load(example.read_text())
        if "simulation" not in settings:  # of a study or a sweep
            VALIDATOR.validate(settings)
    for preset in instance.Linear.presets():
        latency = {"kind": "linear", "preset": preset}
        VALIDATOR.validate({"instances": {"latency": latency}})


def test_schema_refuses_what_the_core_refuses() -> None:
    refused: list[dict[str, Any]] = [
        {"schema": 2},
        {"profile": "vlm"},
        {"router": "lest_loaded"},
        {"router": {"ties": "first"}},
        {"router": {"kind": "least_loaded", "ties": "last"}},
        {"tenants": [{"name": 1}]},
        {"instances": {"latency": {"kind": "linear", "preset": "none"}}},
        {"quantum_ns": True},
        {"warm_up_s": None},
    ]
    for settings in refused:
        assert not VALIDATOR.is_valid(settings), settings
        with pytest.raises(ConfigError):
            loading.from_settings(settings)


def mappings(written: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the mappings of a written form are."""
    if isinstance(written, dict):
        yield path
    items = (
        written.items()
        if isinstance(written, dict)
        else enumerate(written)
        if isinstance(written, list)
        else ()
    )
    for key, below in items:
        yield from mappings(below, (*path, key))


def test_schema_refuses_unknown_keys_everywhere() -> None:
    places = list(mappings(RICH.to_dict()))
    assert len(places) > 30
    for place in places:
        changed = RICH.to_dict()
        below = changed
        for key in place:
            below = below[key]
        below["unknown"] = 1
        assert not VALIDATOR.is_valid(changed), place
        with pytest.raises(ConfigError, match="unknown setting"):
            Simulation.from_dict(changed)


@pytest.mark.parametrize("path", few_of([path for path, field, _ in LEAVES if is_number(field)], 3))
def test_schema_has_the_ranges(path: str) -> None:
    field = next(field for found, field, _ in LEAVES if found == path)
    index = "[0]" if field.get("sequence") else ""
    candidates = [-math.inf, 0.5, math.inf]
    for word in classes.BOUNDS:
        if word in field:
            candidates += [field[word] + delta for delta in (-1, 0, 1)]
    for candidate in candidates:
        number = candidate
        if math.isinf(number):
            number = math.copysign(1e300, number)
        inside = (
            field.get("at_least", -math.inf) <= number <= field.get("at_most", math.inf)
            and field.get("more_than", -math.inf) < number < field.get("less_than", math.inf)
            and (field["type"] == "float" or number == int(number))
        )
        changed = RICH.to_dict()
        place, _, last = (path + index).rpartition(".")
        below = at(changed, place) if place else changed
        if index:
            below[last.removesuffix(index)][0] = number
        else:
            below[last] = number
        assert VALIDATOR.is_valid(changed) is inside, number
