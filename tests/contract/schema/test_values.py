"""Values of configuration classes: equal, frozen, written, read and copied alike in every way."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples
from support.settings import CLASSES, KINDED, each_class, each_class_with_fields, fields_of, valid

from spillway import ConfigError, Simulation, instance, router, workload
from spillway.config import classes


@each_class
def test_default_is_valid(cls: type[Any]) -> None:
    one = cls()
    assert cls.from_dict(one.to_dict()) == one
    assert cls.from_dict({}) == one
    for name, field in fields_of(cls).items():
        assert one.to_dict()[name] == field["default"]


@each_class
@examples(20)
@given(data=st.data())
def test_round_trips(cls: type[Any], data: st.DataObject) -> None:
    one = data.draw(valid(cls))
    written = one.to_dict()
    read_back = {
        "from_dict": cls.from_dict(written),
        "JSON": cls.from_dict(json.loads(json.dumps(written, allow_nan=False))),
        "repr": eval(repr(one), {"__builtins__": {}}, CLASSES),
        "keywords": cls(**{name: getattr(one, name) for name in fields_of(cls)}),
        "replace": one.replace(),
        "with_": one.with_({}),
        "copy": copy.copy(one),
        "deepcopy": copy.deepcopy(one),
        "dataclasses.replace": dataclasses.replace(one),
        **{
            f"pickle {protocol}": pickle.loads(pickle.dumps(one, protocol))
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        },
    }
    for way, other in read_back.items():
        assert type(other) is cls, way
        assert other == one, way
        assert hash(other) == hash(one), way
        assert other.to_dict() == written, way
        assert repr(other) == repr(one), way


@each_class_with_fields
@examples(20)
@given(data=st.data())
def test_any_difference_counts(cls: type[Any], data: st.DataObject) -> None:
    one, other = data.draw(valid(cls)), data.draw(valid(cls))
    same = one._identity() == other._identity()
    # Of a trace the digest alone counts; of a group, not where its settings come from.
    if cls not in (workload.Trace, instance.InstanceGroup, Simulation):
        assert same is (one.to_dict() == other.to_dict())
    assert (one == other) is same
    assert (one != other) is not same
    assert len({one, other}) == (1 if same else 2)


@each_class
def test_other_types_are_unequal(cls: type[Any]) -> None:
    one = cls()
    assert one != one.to_dict()
    assert one != object()
    for other in CLASSES.values():
        assert (one == other()) is (other is cls)


@each_class
def test_written_form_names_kind_and_fields_in_order(cls: type[Any]) -> None:
    written = list(cls().to_dict())
    names = list(fields_of(cls))
    assert written == (["kind", *names] if cls in KINDED else names)
    if cls in KINDED:
        assert cls.kind == cls().kind == cls().to_dict()["kind"]


@each_class
def test_instances_are_frozen(cls: type[Any]) -> None:
    one = cls()
    before = one.to_dict()
    for name in [*fields_of(cls), "anything"]:
        with pytest.raises(AttributeError, match=r"frozen.*\.replace\("):
            setattr(one, name, 1)
        with pytest.raises(AttributeError):
            delattr(one, name)
    for name in fields_of(cls):
        assert not isinstance(getattr(one, name), (list, dict))
    assert one.to_dict() == before


@each_class
def test_dataclass_protocol(cls: type[Any]) -> None:
    one = cls()
    assert dataclasses.is_dataclass(cls)
    described = {field["name"]: field for field in cls._describe()["fields"]}
    found = {field.name: field for field in dataclasses.fields(cls)}
    assert list(found) == list(described)
    for name, field in found.items():
        assert field.default == getattr(one, name)
        assert field.metadata["doc"] == described[name]["doc"]
        assert field.metadata["unit"] == described[name]["unit"]
        assert field.metadata.get("at_least") == described[name].get("at_least")
    plain = dataclasses.asdict(one)
    assert list(plain) == list(described)
    for name, field in described.items():
        if field["type"] in ("struct", "variant"):
            continue
        value = plain[name]
        assert (list(value) if isinstance(value, tuple) else value) == field["default"]
    with pytest.raises(ConfigError, match="unknown setting"):
        dataclasses.replace(one, nothing_of_the_kind=1)


def test_structural_pattern_matching() -> None:
    match Simulation().router:
        case router.LeastLoaded():
            pytest.fail("another class")
        case router.RoundRobin(kind=kind):
            assert kind == "round_robin"
        case _:
            pytest.fail("no match")


@each_class
def test_signature_is_keywords_with_types_and_defaults(cls: type[Any]) -> None:
    parameters = inspect.signature(cls).parameters
    described = {field["name"]: field for field in cls._describe()["fields"]}
    assert list(parameters) == list(described)
    one = cls()
    for name, parameter in parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == getattr(one, name)
        assert parameter.annotation == classes.annotation(described[name])
    with pytest.raises(TypeError):
        cls({})
    with pytest.raises(TypeError):
        cls(*[1] * max(1, len(parameters)))


@each_class
def test_unknown_settings_are_refused_with_the_nearest_name(cls: type[Any]) -> None:
    names = list(fields_of(cls))
    for make in (
        lambda name: cls(**{name: 1}),
        lambda name: cls.from_dict({name: 1}),
        lambda name: cls().replace(**{name: 1}),
    ):
        for name in names:
            with pytest.raises(ConfigError) as caught:
                make(name + "x")
            ((path, value, allowed),) = caught.value.violations
            assert (path, value) == (name + "x", "1")
            assert allowed == f"unknown setting; did you mean '{name}'?"
        with pytest.raises(ConfigError) as caught:
            make("entirely_different_thing")
        if names:
            assert all(name in str(caught.value) for name in names)
        else:
            assert "this structure has no settings" in str(caught.value)


@pytest.mark.parametrize("cls", KINDED, ids=lambda cls: cls.__name__)
def test_kind_must_be_its_own(cls: type[Any]) -> None:
    assert cls.from_dict({"kind": cls.kind}) == cls()
    for wrong in ("another", 1, None):
        with pytest.raises(ConfigError, match=f"kind = .*must be '{cls.kind}' here"):
            cls.from_dict({"kind": wrong})
