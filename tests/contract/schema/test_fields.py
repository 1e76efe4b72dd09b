"""The descriptor of each setting: documentation, unit, range, default."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from support.settings import (
    CLASSES,
    LEAVES,
    MODULE_OF,
    NUMBERS,
    built,
    each_class,
    each_number,
    fields_of,
)

import spillway
from spillway import ConfigError, _core
from spillway.config import classes


def test_the_walk_reaches_most_settings() -> None:
    assert len(CLASSES) > 25
    names = {path.rsplit(".", 1)[-1] for path, _, _ in LEAVES}
    described = {name for cls in CLASSES.values() for name in fields_of(cls)}
    nouns = {
        name
        for cls in CLASSES.values()
        for name, field in fields_of(cls).items()
        if field["type"] in ("struct", "variant")
    }
    assert len(described - nouns - names) < 0.44 * len(described)


def test_class_names_are_unique() -> None:
    names = Counter(
        cls.__name__
        for name in classes.CORE_MODULES
        for cls in classes.config_classes(getattr(_core, name))
    )
    assert names.most_common(1)[0][1] == 1


@each_class
def test_class_is_public(cls: type[Any]) -> None:
    if MODULE_OF[cls.__name__] == "cluster":
        assert getattr(spillway, cls.__name__) is cls
        assert cls.__name__ in spillway.__all__
        return
    public = getattr(spillway, MODULE_OF[cls.__name__])
    assert getattr(public, cls.__name__) is cls
    assert cls.__name__ in public.__all__
    assert cls.__module__ == f"spillway.{MODULE_OF[cls.__name__]}"


@each_class
def test_fields_are_documented(cls: type[Any]) -> None:
    assert cls._describe()["doc"].endswith(".")
    assert cls._describe()["doc"] in cls.__doc__
    for name, field in fields_of(cls).items():
        assert field["doc"].endswith((".", ")")), name
        assert f"{name} : " in cls.__doc__
        assert field["doc"] in cls.__doc__
        assert "  " not in field["doc"], "two strings were joined badly"


@each_number(NUMBERS)
def test_number_has_unit_and_range(cls: type[Any], name: str) -> None:
    field = fields_of(cls)[name]
    assert bool(field["unit"]) != ("dimensionless" in field)
    assert set(classes.BOUNDS) & set(field)
    units = {"tokens": "tokens", "us": "us", "ns": "ns", "s": "/s" if "_per_s" in name else "s"}
    suffix = name.rpartition("_")[2]
    if suffix in units:
        assert units[suffix] in field["unit"]


@each_number(NUMBERS)
def test_defaults_and_search_lie_in_range(cls: type[Any], name: str) -> None:
    field = fields_of(cls)[name]
    default = field["default"]
    values = list(default) if isinstance(default, list) else [default]
    if "search" in field:
        search = field["search"]
        assert search["low"] < search["high"]
        assert search["low"] > 0 or not search["log"]
        values += [search["low"], search["high"]]
    for value in values:
        if value is not None:
            assert field.get("at_least", -math.inf) <= value <= field.get("at_most", math.inf)
            assert field.get("more_than", -math.inf) < value < field.get("less_than", math.inf)


@each_number(NUMBERS)
def test_bounds_are_enforced_and_named(cls: type[Any], name: str) -> None:
    field = fields_of(cls)[name]
    whole = field["type"] == "int"

    def beyond(bound: float, direction: int) -> float:
        return int(bound) + direction if whole else math.nextafter(bound, direction * math.inf)

    good, bad = [], []
    if "at_least" in field:
        good.append(field["at_least"])
        bad.append((beyond(field["at_least"], -1), ">="))
    if "more_than" in field:
        good.append(beyond(field["more_than"], 1))
        bad.append((field["more_than"], ">"))
    if "at_most" in field:
        good.append(field["at_most"])
        bad.append((beyond(field["at_most"], 1), "<="))
    if "less_than" in field:
        good.append(beyond(field["less_than"], -1))
        bad.append((field["less_than"], "<"))
    assert good
    for value in good:
        built(cls, name, value)
    for value, sign in bad:
        with pytest.raises(ConfigError) as caught:
            built(cls, name, value)
        path, shown, allowed = next(
            violation for violation in caught.value.violations if violation[0].startswith(name)
        )
        assert path in (name, f"{name}[0]")
        assert float(shown) == value
        assert sign in allowed
        assert field["unit"] in allowed
