"""Every configuration class of the core keeps the same contract; so does the file form."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import json
import math
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.paths import ROOT

import spillway
from spillway import (
    ConfigError,
    Simulation,
    _core,
    gateway,
    instance,
    loading,
    router,
    signals,
    workload,
)
from spillway.config import classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hypothesis.strategies import SearchStrategy


CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for name in classes.CORE_MODULES
    for cls in classes.config_classes(getattr(_core, name))
}
MODULE_OF = {
    cls.__name__: name
    for name in classes.CORE_MODULES
    for cls in classes.config_classes(getattr(_core, name))
}
KINDED = [cls for cls in CLASSES.values() if "kind" in cls._describe()]
WITH_FIELDS = [cls for cls in CLASSES.values() if cls._describe()["fields"]]

each_class = pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
each_class_with_fields = pytest.mark.parametrize(
    "cls", WITH_FIELDS, ids=[cls.__name__ for cls in WITH_FIELDS]
)

FUZZ = settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# The columns of a table: lists of one length.
TABLE = ("concurrency", "e2e_s", "ttft_s")
# Numbers of which every finite one makes sense: a term may count against the score.
UNBOUNDED: set[str] = set()

# Kinds whose header has another name.
HEADERS = {
    # `fixed` is a kind of workload/lengths too; the class is FixedLimit, and so is its file.
    "FixedLimit": "gateway/limit/fixed_limit.h",
    # `static` is a word of the language.
    "StaticLimit": "gateway/controller/static_limit.h",
    "StaticCeilings": "gateway/usage_limit/static_ceilings.h",
    # `round_robin` is a router too; here it goes over the tenants.
    "TenantRoundRobin": "gateway/fairness/tenant_round_robin.h",
    # The transports are a few lines each and share a file.
    "Live": "signals/transports.h",
    # Likewise these.
    "NoAutoscaler": "fleet/config.h",
    "QueueScaler": "fleet/config.h",
    "OnRead": "signals/transports.h",
    "Scraped": "signals/transports.h",
    # Saturation is detected by the same rule; the class is UtilizationFilter, and so is its file.
    "UtilizationFilter": "router/filters/utilization_filter.h",
}


def fields_of(cls: type[Any]) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in cls._describe()["fields"]}


def is_number(field: Mapping[str, Any]) -> bool:
    return field["type"] in ("int", "float")


NUMBERS = [
    (cls, name) for cls in CLASSES.values() for name, field in fields_of(cls).items()
    if is_number(field)
]  # fmt: skip
SCALAR_NUMBERS = [(cls, name) for cls, name in NUMBERS if "sequence" not in fields_of(cls)[name]]


def each_number(numbers: list[tuple[type[Any], str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("cls", "name"), numbers, ids=[f"{cls.__name__}.{name}" for cls, name in numbers]
    )


# Where a field bounds another one: a value of that one which allows any of its own.
OTHER_BOUND = {
    "min_tokens": {"max_tokens": 10**8},
    "max_tokens": {"min_tokens": 0},
    "min_ceiling": {"max_ceiling": 1000},
    "max_ceiling": {"min_ceiling": 0},
}


def companions(cls: type[Any], name: str, value: Any) -> dict[str, Any]:
    """Settings that a valid `value` of a field needs beside itself."""
    if name == "prefix_tokens" and value:
        return {"prefix_group": "group"}
    if name in OTHER_BOUND:
        return OTHER_BOUND[name]
    if f"{cls.__name__}.{name}" == "Empirical.weights":
        return {"values": [1, 2]}
    if cls is instance.ProcessorSharing and name in TABLE:
        return {column: [1] for column in TABLE if column != name}
    return {}


def built(cls: type[Any], name: str, value: Any) -> Any:
    """An object in which one field, or each entry of it, has a value."""
    given = [value, 1] if f"{cls.__name__}.{name}" == "Empirical.weights" else value
    if "sequence" in fields_of(cls)[name] and not isinstance(given, list):
        given = [value]
    return cls(**{name: given, **companions(cls, name, value)})


# --- valid settings at random ---------------------------------------------------------------------

NAMES = ("default", "gold", "größe", "a.b[0]", 'it\'s "quoted"\n', "")


def value_of(field: Mapping[str, Any]) -> SearchStrategy[Any]:
    kind = field["type"]
    value: SearchStrategy[Any]
    low = field.get("at_least", field.get("more_than"))
    high = field.get("at_most", field.get("less_than"))
    if kind == "int":
        value = st.integers(int(low) if low is not None else -(2**53), int(high or 2**53))
    elif kind == "float":
        value = st.floats(
            low,
            high,
            allow_nan=False,
            allow_infinity=False,
            exclude_min="more_than" in field,
            exclude_max="less_than" in field,
        )
    elif kind == "bool":
        value = st.booleans()
    elif kind == "choice":
        value = st.sampled_from(field["choices"])
    elif kind == "str":
        value = st.sampled_from(NAMES) | st.text(max_size=5)
    elif kind == "struct":
        value = settings_of(field["of"])
    else:
        value = st.one_of([settings_of(one) for one in field["alternatives"]])
    if field.get("sequence"):
        value = st.lists(value, min_size=1, max_size=3)
    if kind in ("struct", "variant"):  # half of the nouns stay as they are: all at once is too much
        drawn, default = value, st.just(field["default"])
        value = st.booleans().flatmap(lambda draws: drawn if draws else default)
    return st.none() | value if field.get("optional") else value


def settings_of(description: Mapping[str, Any]) -> SearchStrategy[dict[str, Any]]:
    """Complete valid settings of a class in their written form."""
    entries = {field["name"]: value_of(field) for field in description["fields"]}
    if "kind" in description:
        entries = {"kind": st.just(description["kind"]), **entries}
    return st.fixed_dictionaries(entries).map(lambda drawn: repaired(description["name"], drawn))


def repaired(name: str, drawn: dict[str, Any]) -> dict[str, Any]:
    """The settings, changed where two of them contradict each other."""
    if "min_tokens" in drawn:
        drawn["min_tokens"], drawn["max_tokens"] = sorted(
            (drawn["min_tokens"], drawn["max_tokens"])
        )
    if name == "Empirical":
        drawn["weights"] = (drawn["weights"] * 3)[: len(drawn["values"])]
        if not sum(drawn["weights"]):
            drawn["weights"] = []
    if name == "ProcessorSharing":
        drawn["concurrency"] = sorted(set(drawn["concurrency"]))
        for column in TABLE:
            drawn[column] = (drawn[column] * 3)[: len(drawn["concurrency"])]
    if name == "Client" and drawn["arrivals"]["kind"] == "closed_loop":
        drawn |= {"requests_per_s": None, "num_requests": drawn["num_requests"] or 9}
    if name == "Client" and (drawn["requests_per_s"] or drawn["arrivals"]["kind"] == "closed_loop"):
        drawn["rate_fraction"] = 1.0
    if name == "Client" and not (drawn["prefix_group"] and drawn["prefix_tokens"]):
        drawn |= {"prefix_group": "", "prefix_tokens": 0}
    if name == "InstanceGroup" and drawn["max_model_len"] == 1:
        drawn["max_model_len"] = 0
    if name == "InstanceGroup" and drawn["ingress"]["kind"] == "dual_limit_gate":
        drawn["completion"] = "step_end"
    if name == "Simulation" and drawn["busy_monitor"]["track_output_blocks"]:
        for group in drawn["instances"]:
            group["preemption"] = "keep_emitted"
    if name == "Synthetic":
        drawn["clients"] = unique(drawn["clients"], "name")
        for client in drawn["clients"]:
            if client["prefix_group"]:
                client["prefix_tokens"] = 7
    if name == "PriorityFcfs":
        drawn["class_priorities"] = unique(drawn["class_priorities"], "name")
        if drawn["age_weight_per_s"] < 1e-6:
            drawn["age_weight_per_s"] = 0.0
        if drawn["class_priorities"] or drawn["age_weight_per_s"] or drawn["preemption_margin"]:
            drawn["priority"] = "slo_class"
    if name == "QueueScaler":
        drawn["min_instances"], drawn["max_instances"] = sorted(
            (drawn["min_instances"], drawn["max_instances"])
        )
    if name == "PredictiveTtft":
        drawn["budgets"] = unique(drawn["budgets"], "slo_class")
        if drawn["estimator"] in ("queue_depth", "priority_aware", "exact"):
            drawn["calibration"]["forgetting"] = None
    if name == "TenantBudget":
        drawn["budgets"] = unique(drawn["budgets"], "tenant")
    if name == "TenantTokenBucket":
        drawn["own"] = unique(drawn["own"], "tenant")
        drawn["reserves"] = unique(drawn["reserves"], "slo_class")
    if name == "PriorityHoldback":
        drawn["min_ceiling"], drawn["max_ceiling"] = sorted(
            (drawn["min_ceiling"], drawn["max_ceiling"])
        )
    if name == "Guard":
        drawn["floor"], drawn["ceiling"] = sorted((drawn["floor"], drawn["ceiling"]))
    if name == "Gateway":
        drawn["bands"] = unique(drawn["bands"], "priority")
        drawn["split"] = "tenant_hash"  # the one that goes with every cost
        drawn["limit"] = [*drawn["limit"], {"kind": "fixed", "max_in_flight": 9}]  # can be moved
        if drawn["dispatch"] == "one_per_attempt":
            drawn["drain_latency_s"] = 0.0
        if all(one["kind"] != "saturation" for one in drawn["limit"]):
            drawn["eviction"]["max_victims"] = 0
    if name == "Weighted":
        drawn["scorers"] = unique(drawn["scorers"], "kind")
    if name == "Simulation":
        if drawn["metrics"]["streaming"]:
            drawn["metrics"]["traced_candidates"] = 0
        drawn["gateway"]["sensor"]["scope"] = "pooled"
        for policy in drawn["gateway"]["admission"]:  # whom they name must exist
            policy |= {key: [] for key in ("budgets", "own", "reserves") if key in policy}
            if policy.get("estimator") == "exact":  # not for every fleet
                policy["estimator"] = "seats_and_memory"
        drawn["fleet"] |= {"initial_instances": None, "schedule": []}
        drawn["fleet"]["autoscaler"] = {"kind": "none"}
        drawn["tenants"] = unique(drawn["tenants"], "name") or [{"name": "default"}]
        drawn["slo_classes"] = unique(drawn["slo_classes"], "name")
        if drawn["horizon_s"] is not None:
            drawn["warm_up_s"] = drawn["horizon_s"] / 2
            if drawn["warm_up_s"] == drawn["horizon_s"]:
                drawn["warm_up_s"] = 0.0
        for client in drawn["workload"].get("clients", ()):
            client["tenant"] = drawn["tenants"][-1]["name"]
            client["slo_class"] = drawn["slo_classes"][-1]["name"]
    return drawn


def unique(entries: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return list({entry[key]: entry for entry in entries}.values())


def valid(cls: type[Any]) -> SearchStrategy[Any]:
    return settings_of(cls._describe()).map(cls.from_dict)


# A simulation with something at every place that a path can lead to.
RICH = Simulation(
    workload=workload.Synthetic(
        duration_s=30,
        clients=[
            workload.Client(name="chat", tenant="gold", slo_class="critical", arrivals="gamma"),
            workload.Client(
                name="crawl",
                tenant="free",
                arrivals={"kind": "weibull", "cv": 2},
                input_tokens="lognormal",
                output_tokens=workload.Empirical(values=[3, 5], weights=[0.5, 1.5]),
                prefix_group="system",
                prefix_tokens=20,
            ),
        ],
    ),
    tenants=[workload.Tenant(name="gold", weight=3), workload.Tenant(name="free")],
    slo_classes=[
        workload.SloClass(name="critical", target_ttft_s=0.5, target_tpot_s=0.05, target_e2e_s=9),
        workload.SloClass(),
    ],
    reaction=workload.Reaction(timeout_s=30, retries=[workload.Retry(on=["saturated"])]),
    gateway=gateway.Gateway(
        admission=[gateway.TokenBucket(), gateway.AlwaysAdmit()],
        admission_latency_s=0.001,
        bands=[
            gateway.Band(priority=2, fairness=gateway.DeficitRoundRobin()),
            gateway.Band(fairness=gateway.VirtualTokenCounter()),
        ],
        limit=gateway.FixedLimit(),
        routing_latency_s=0.002,
    ),
    router=router.Weighted(
        filters=[router.PrefixCacheAffinity(), router.UtilizationFilter()],
        scorers=[router.QueueDepth(), router.PrefixAffinity()],
        picker=router.Softmax(),
    ),
    signals=signals.Scraped(),
    instances=[
        instance.InstanceGroup(count=2, scheduler="priority_fcfs", ingress="engine_request_limit"),
        instance.InstanceGroup(
            max_model_len=4096, plant="processor_sharing", ingress="vllm_queue_limits"
        ),
    ],
    horizon_s=60,
    warm_up_s=5,
)


def leaves(
    description: Mapping[str, Any], written: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Dotted path, descriptor and value of every setting that holds no other ones."""
    for field in description["fields"]:
        here = f"{path}.{field['name']}".lstrip(".")
        value = written[field["name"]]
        if value is None:
            yield here, field, value
        elif field["type"] in ("struct", "variant"):
            entries = {here: value} if not isinstance(value, list) else {
                f"{here}[{i}]": entry for i, entry in enumerate(value)
            }  # fmt: skip
            for place, entry in entries.items():
                below = field.get("of") or next(
                    one for one in field["alternatives"] if one["kind"] == entry["kind"]
                )
                yield from leaves(below, entry, place)
        else:
            yield here, field, value


LEAVES = list(leaves(Simulation._describe(), RICH.to_dict()))


def at(written: Any, path: str) -> Any:
    """What stands at a dotted path of a written form."""
    for key in path.replace("]", "").replace("[", ".").split("."):
        written = written[int(key)] if key.isdigit() else written[key]
    return written


# --- the fields -----------------------------------------------------------------------------------


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
    assert len(described - nouns - names) < 0.4 * len(described)


def test_class_names_are_unique() -> None:
    names = Counter(
        cls.__name__
        for name in classes.CORE_MODULES
        for cls in classes.config_classes(getattr(_core, name))
    )
    assert names.most_common(1)[0][1] == 1


@each_class
def test_class_is_public(cls: type[Any]) -> None:
    if cls is Simulation:
        assert spillway.Simulation is cls
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
    full_name = f"{cls.__name__}.{name}"
    assert bool(field["unit"]) != ("dimensionless" in field)
    bounds = set(classes.BOUNDS) & set(field)
    assert bool(bounds) != (full_name in UNBOUNDED)
    units = {"tokens": "tokens", "us": "us", "ns": "ns", "s": "/s" if "_per_s" in name else "s"}
    suffix = name.rpartition("_")[2]
    if suffix in units:
        assert units[suffix] in field["unit"]


def test_what_may_change_under_way_is_what_the_schedules_change() -> None:
    changed = {name for name in fields_of(signals.BusyThresholdChange) if name != "at_s"}
    fields = fields_of(signals.BusyMonitor)
    assert {name for name, field in fields.items() if "runtime" in field} == changed


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
    assert good or f"{cls.__name__}.{name}" in UNBOUNDED
    for value in good:
        built(cls, name, value)
    for value, sign in bad:
        with pytest.raises(ConfigError) as caught:
            built(cls, name, value)
        path, shown, allowed = next(
            one for one in caught.value.violations if one[0].startswith(name)
        )
        assert path in (name, f"{name}[0]")
        assert float(shown) == value
        assert sign in allowed
        assert field["unit"] in allowed


# --- values ---------------------------------------------------------------------------------------


@each_class
def test_default_is_valid(cls: type[Any]) -> None:
    one = cls()
    assert cls.from_dict(one.to_dict()) == one
    assert cls.from_dict({}) == one
    for name, field in fields_of(cls).items():
        assert one.to_dict()[name] == field["default"]


@each_class
@FUZZ
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
@FUZZ
@given(data=st.data())
def test_any_difference_counts(cls: type[Any], data: st.DataObject) -> None:
    one, other = data.draw(valid(cls)), data.draw(valid(cls))
    same = one._identity() == other._identity()
    if cls not in (workload.Trace, Simulation):  # of a trace, the digest alone counts
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
    described = fields_of(cls)
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
    with pytest.raises(ConfigError, match="is not a setting"):
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
    assert list(parameters) == list(fields_of(cls))
    one = cls()
    for name, parameter in parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == getattr(one, name)
        assert parameter.annotation == classes.annotation(fields_of(cls)[name])
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
            assert allowed == f"is not a setting; did you mean '{name}'?"
        with pytest.raises(ConfigError) as caught:
            make("entirely_different_thing")
        if names:
            assert all(name in str(caught.value) for name in names)
        else:
            assert "there are none here" in str(caught.value)


@pytest.mark.parametrize("cls", KINDED, ids=lambda cls: cls.__name__)
def test_kind_must_be_its_own(cls: type[Any]) -> None:
    assert cls.from_dict({"kind": cls.kind}) == cls()
    for wrong in ("another", 1, None):
        with pytest.raises(ConfigError, match=f"kind = .*must be '{cls.kind}' here"):
            cls.from_dict({"kind": wrong})


# --- traces ---------------------------------------------------------------------------------------

TRACE = spillway.trace(
    arrival_s=[0, 0.5, 0.5],
    input_tokens=[10, 20, 30],
    output_tokens=[1, 2, 0],
    tenant=["gold", "free", "gold"],
    slo_class=["critical", "batch", "batch"],
    request_id=["a", "b", "c"],
    prefix_group=["system", None, "system"],
    prefix_tokens=[5, 0, 5],
)


@pytest.mark.parametrize(
    "way",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_of_a_trace_keep_its_requests(way: Any) -> None:
    for copied in (way(TRACE), way(Simulation(workload=TRACE)).workload):
        assert copied == TRACE
        assert copied.has_requests
        before, after = TRACE._columns(), copied._columns()
        assert list(after) == list(before)
        for name, column in before.items():
            assert np.array_equal(after[name], column), name


def test_changed_simulations_keep_the_requests_of_their_trace() -> None:
    one = Simulation(workload=TRACE)
    for other in (
        one.replace(warm_up_s=0.1),
        one.with_({"router": "least_loaded"}),
        dataclasses.replace(one, quantum_ns=1000),
    ):
        assert other.workload.has_requests
        assert other.workload == TRACE


def test_written_form_of_a_trace_is_its_digest() -> None:
    assert TRACE.to_dict() == {"kind": "trace", "file": "", "sha256": TRACE.sha256, "rows": 3}
    assert len(TRACE.sha256) == 64
    bare = workload.Trace.from_dict(TRACE.to_dict())
    assert bare == TRACE
    assert hash(bare) == hash(TRACE)
    assert not bare.has_requests
    with pytest.raises(ConfigError, match="holds no requests"):
        spillway.simulate(Simulation(workload=bare))


# --- numbers --------------------------------------------------------------------------------------


@each_number(SCALAR_NUMBERS)
def test_what_passes_for_a_number(cls: type[Any], name: str) -> None:
    field = fields_of(cls)[name]
    low = field.get("at_least", field.get("more_than", 0))
    high = field.get("at_most", field.get("less_than", math.inf))
    good: float = int(min(low + 2, high))  # 1 is not for max_model_len
    kind = int if field["type"] == "int" else float
    given_values: list[Any] = [np.int32(good)]
    if good < low or good == field.get("less_than"):  # no whole number will do
        good, given_values = (low + high) / 2, []
    for given_value in (good, float(good), np.float64(good), np.array(good), *given_values):
        value = getattr(built(cls, name, given_value), name)
        assert type(value) is kind
        assert value == good
    refused: list[Any] = [True, False, np.True_, "3", b"3", [good], {}, np.array([good])]
    refused += [math.nan, math.inf, -math.inf, np.float32("nan")]
    if kind is int:
        refused += [good + 0.5, np.float64(good + 0.5), 1e30, 10**30]
    if not field.get("optional"):
        refused.append(None)
    for bad in refused:
        with pytest.raises(ConfigError) as caught:
            built(cls, name, bad)
        assert any(path == name and allowed for path, _, allowed in caught.value.violations), bad
    for bad in (1j, object(), print):
        with pytest.raises(ConfigError) as caught:
            built(cls, name, bad)
        ((path, value, allowed),) = caught.value.violations
        assert (path, value) == (name, repr(bad))
        assert allowed.startswith("must be a number, text, ")


@pytest.mark.parametrize("digits", [18, 19, 20, 30, 400])
def test_huge_whole_numbers_are_out_of_range(digits: int) -> None:
    for name in ("num_requests", "requests_per_s"):
        for huge in (10**digits, -(10**digits)):
            with pytest.raises(ConfigError, match=f"{name} = .*must be"):
                workload.Synthetic(**{name: huge})


def test_message_about_infinity_is_true() -> None:
    with pytest.raises(ConfigError) as caught:
        workload.Tenant(weight=math.inf)  # inf > 0, so "must be > 0" alone says nothing
    assert "finite" in str(caught.value)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_text_that_is_no_unicode_is_refused(text: str) -> None:
    for attempt in (
        lambda: workload.Tenant(name=text),
        lambda: workload.Tenant.from_dict({text: 1}),
        lambda: workload.Tenant().with_({text: 1}),
    ):
        with pytest.raises(ConfigError, match="Unicode"):
            attempt()


def test_lists_of_numbers() -> None:
    assert workload.Empirical(values=np.arange(3), weights=(1, 2.5, np.float32(0.5))).weights == (
        1.0, 2.5, 0.5,
    )  # fmt: skip
    assert workload.Empirical(values=range(3)).values == (0, 1, 2)
    with pytest.raises(ConfigError) as caught:
        workload.Empirical(values=[1, 2.5, "3", None, True, -1])
    assert [path for path, _, _ in caught.value.violations] == [
        "values[1]", "values[2]", "values[3]", "values[4]", "values[5]",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="must be a list"):
        workload.Empirical(values=5)


# --- violations -----------------------------------------------------------------------------------


def test_all_violations_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Simulation.from_dict(
            {
                "workload": {"kind": "synthetic", "requests_per_s": -1, "clients": [{"nme": 1}]},
                "tenants": [{"name": "gold", "weight": 0}, {"weight": "heavy"}],
                "gateway": {"admission": [{"kind": "tokenbucket"}], "limit": {"kind": "fixed"}},
                "router": {"kind": "least_loaded", "ties": "last"},
                "instances": [{"count": 0, "latency": {"kind": "linear", "beta0_us": -2}}],
                "routr": "round_robin",
                "quantum_ns": 0.5,
                "horizon_s": float("nan"),
            }
        )
    violations = {path: (value, allowed) for path, value, allowed in caught.value.violations}
    assert violations == {
        "workload.requests_per_s": ("-1", "must be > 0 and <= 1000000000 (requests/s)"),
        "workload.clients[0].nme": ("1", "is not a setting; did you mean 'name'?"),
        "tenants[0].weight": ("0", "must be >= 1e-09 and <= 1000000000"),
        "tenants[1].weight": ("'heavy'", "must be a number"),
        "gateway.admission[0].kind": (
            "'tokenbucket'", "is no known kind; did you mean 'token_bucket'?",
        ),
        "router.ties": ("'last'", "must be one of first, random"),
        "instances[0].count": ("0", "must be >= 1 and <= 100000 (instances)"),
        "instances[0].latency.beta0_us": ("-2", "must be >= 0 and <= 1000000000000 (us)"),
        "routr": ("'round_robin'", "is not a setting; did you mean 'router'?"),
        "quantum_ns": ("0.5", "must be a whole number"),
        "horizon_s": ("nan", "must be a finite number > 0 and <= 3200000000 (s)"),
    }  # fmt: skip
    lines = str(caught.value).splitlines()
    assert len(lines) == len(violations)
    for (path, value, allowed), line in zip(caught.value.violations, lines, strict=True):
        assert line == f"{path} = {value}: {allowed}"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("cls", "given_settings", "path"),
    [
        (workload.Gaussian, {"min_tokens": 5, "max_tokens": 1}, "max_tokens"),
        (workload.Exponential, {"min_tokens": 5, "max_tokens": 1}, "max_tokens"),
        (workload.Lognormal, {"min_tokens": 5, "max_tokens": 1}, "max_tokens"),
        (workload.Empirical, {"values": []}, "values"),
        (workload.Empirical, {"values": [1], "weights": [1, 2]}, "weights"),
        (workload.Empirical, {"weights": [0]}, "weights"),
        (workload.Client, {"prefix_group": "a"}, "prefix_tokens"),
        (workload.Client, {"prefix_tokens": 4}, "prefix_tokens"),
        (workload.Synthetic, {"clients": []}, "clients"),
        (workload.Synthetic, {"clients": [{"name": "a"}, {"name": "a"}]}, "clients[1].name"),
        (
            workload.Synthetic,
            {
                "clients": [
                    {"name": "a", "prefix_group": "g", "prefix_tokens": 1},
                    {"name": "b", "prefix_group": "g", "prefix_tokens": 2},
                ]
            },
            "clients[1].prefix_tokens",
        ),
        (gateway.Gateway, {"admission": []}, "admission"),
        (gateway.Gateway, {"bands": []}, "bands"),
        (gateway.Gateway, {"bands": [{"priority": 1}] * 2}, "bands[1].priority"),
        (instance.InstanceGroup, {"max_model_len": 1}, "max_model_len"),
        (instance.ProcessorSharing, {"ttft_s": [1]}, "ttft_s"),
        (
            instance.ProcessorSharing,
            {"concurrency": [1, 1], "e2e_s": [1, 1], "ttft_s": [1, 1]},
            "concurrency[1]",
        ),
        (Simulation, {"instances": []}, "instances"),
        (Simulation, {"tenants": [{"name": "default"}] * 2}, "tenants[1].name"),
        (Simulation, {"slo_classes": [{}, {}]}, "slo_classes[1].name"),
        (Simulation, {"horizon_s": 1, "warm_up_s": 1}, "warm_up_s"),
        (Simulation, {"tenants": [{"name": "gold"}]}, "workload.clients[0].tenant"),
        (Simulation, {"slo_classes": [{"name": "gold"}]}, "workload.clients[0].slo_class"),
    ],
)
def test_settings_that_contradict_each_other(
    cls: type[Any], given_settings: dict[str, Any], path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        cls.from_dict(given_settings)
    ((found, _, allowed),) = caught.value.violations
    assert found.removeprefix(".") == path
    assert allowed


def test_path_of_a_contradiction_begins_with_a_name() -> None:
    with pytest.raises(ConfigError) as caught:
        gateway.Gateway(admission=[])
    assert caught.value.violations[0][0] == "admission"


@pytest.mark.parametrize("bad", [None, 1, "router: round_robin", [1], [{}]])
def test_only_mappings_are_settings(bad: Any) -> None:
    with pytest.raises(ConfigError, match="must be a mapping of settings"):
        Simulation.from_dict(bad)


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "changed"),
    [
        ("tenants[gold].weight", 7, "tenants[0].weight"),
        ("tenants[1].weight", 0.5, "tenants[1].weight"),
        ("slo_classes[critical].target_ttft_s", None, "slo_classes[0].target_ttft_s"),
        (
            "gateway.admission[token_bucket].capacity_tokens",
            5000,
            "gateway.admission[0].capacity_tokens",
        ),
        ("gateway.admission[0].refill_tokens_per_s", 1, "gateway.admission[0].refill_tokens_per_s"),
        ("workload.clients[crawl].arrivals.cv", 3, "workload.clients[1].arrivals.cv"),
        ("workload.clients[crawl].output_tokens.values[1]", 9,
         "workload.clients[1].output_tokens.values[1]"),
        ("metrics.fitness[0].weight", -1, "metrics.fitness[0].weight"),
        ("instances[1].latency.beta0_us", 12, "instances[1].latency.beta0_us"),
        ("signals.when_stale", "fail_open", "signals.when_stale"),
        ("horizon_s", None, "horizon_s"),
        ("gateway.limit.max_in_flight", np.int64(3), "gateway.limit[0].max_in_flight"),
    ],
)  # fmt: skip
def test_path_changes_one_setting(path: str, value: Any, changed: str) -> None:
    found = RICH.with_({path: value})
    expected = RICH.to_dict()
    place, _, last = changed.rpartition(".")
    if last.endswith("]"):
        last, _, index = last[:-1].partition("[")
        at(expected, f"{place}.{last}")[int(index)] = value
    else:
        (at(expected, place) if place else expected)[last] = value
    assert found.to_dict() == expected
    assert found != RICH


def test_entries_without_a_name_go_by_their_first_setting() -> None:
    policy = gateway.TenantTokenBucket(
        own=[gateway.TenantRate(tenant="gold"), gateway.TenantRate(tenant="silver")],
        reserves=[gateway.ClassReserve(slo_class="standard", share=0.2)],
    )
    base = Simulation(
        workload=workload.Synthetic(clients=[workload.Client(tenant="gold")]),
        tenants=[{"name": "gold"}, {"name": "silver"}],
        gateway=gateway.Gateway(admission=policy),
    )
    changed = base.with_(
        {
            "gateway.admission[0].own[silver].refill_tokens_per_s": 7,
            "gateway.admission[0].reserves[standard].share": 0.3,
            "metrics.fitness[throughput].weight": 9,
        }
    )
    assert [one.refill_tokens_per_s for one in changed.gateway.admission[0].own][1] == 7
    assert changed.gateway.admission[0].reserves[0].share == 0.3
    assert changed.metrics.fitness[0].weight == 9
    with pytest.raises(ConfigError, match=r"there is no 'chat' here; one of gold, silver"):
        base.with_({"gateway.admission[0].own[chat].refill_tokens_per_s": 7})


def test_preset_is_a_path() -> None:
    name = "llama-3.1-8b-h100-tp4"
    wanted = instance.Linear.preset(name)
    path = "instances[0].latency"
    for changes, latency in (
        ({f"{path}.preset": name}, wanted),
        ({f"{path}.preset": name, f"{path}.beta0_us": 5}, wanted.replace(beta0_us=5)),
        ({f"{path}.beta0_us": 5, f"{path}.preset": name}, wanted.replace(beta0_us=5)),
        ({path: {"kind": "linear", "beta0_us": 5}, f"{path}.preset": name}, wanted),
    ):
        assert Simulation().with_(changes).instances[0].latency == latency
    for changes, message in (
        ({f"{path}.preset": "gpt"}, r"latency.preset = 'gpt': is no known preset; one of llama"),
        ({f"{path}.preset": name, f"{path}.beta": 5}, r"latency.beta = 5: is not a setting"),
        ({"router.preset": name}, "router.preset = .*: is not a setting"),
        ({"slo_classes[batch].presets": name}, "there is no 'presets' here"),
    ):
        with pytest.raises(ConfigError, match=message):
            Simulation().with_(changes)


def test_list_of_one_needs_no_index() -> None:
    one = Simulation(gateway=gateway.Gateway(admission="token_bucket"))
    assert one.with_({"instances.count": 3}).instances[0].count == 3
    assert one.with_({"gateway.admission.capacity_tokens": 3}).gateway.admission == (
        gateway.TokenBucket(capacity_tokens=3),
    )


@pytest.mark.parametrize(
    "noun",
    [
        router.LeastLoaded(ties="random"),
        {"kind": "least_loaded", "ties": "random"},
        "least_loaded",
        "always_busiest",
    ],
)
def test_policy_is_replaced_as_a_whole(noun: Any) -> None:
    expected = Simulation(router=noun).router
    assert RICH.with_({"router": noun}).router == expected
    assert RICH.replace(router=noun).router == expected
    changed = RICH.with_({"gateway.admission[1]": "reject_all", "gateway.limit": "unlimited"})
    assert changed.gateway.admission == (gateway.TokenBucket(), gateway.RejectAll())
    assert changed.gateway.limit == (gateway.Unlimited(),)
    whole = RICH.with_({"gateway.admission": [gateway.RejectAll(), "always_admit"]})
    assert [policy.kind for policy in whole.gateway.admission] == ["reject_all", "always_admit"]


def test_changes_apply_in_order() -> None:
    changed = RICH.with_({"router": router.AlwaysBusiest(), "warm_up_s": 2})
    assert (changed.router.kind, changed.warm_up_s) == ("always_busiest", 2.0)
    later = RICH.with_({"gateway.limit": gateway.FixedLimit(), "gateway.limit.max_in_flight": 9})
    assert later.gateway.limit[0].max_in_flight == 9


@pytest.mark.parametrize(
    ("path", "clue"),
    [
        ("gatway", "did you mean 'gateway'?"),
        ("gateway.admision", "did you mean 'admission'?"),
        ("tenants[gld].weight", "did you mean 'gold'?"),
        ("tenants[silver].weight", "gold"),
        ("gateway.admission[reject_all]", "token_bucket"),
        ("gateway.admission[token_bucket].capacity", "capacity_tokens"),
        ("instances[2].count", "'2'"),
        ("instances[-1].count", "'-1'"),
        ("tenants.weight", "'weight'"),
        ("warm_up_s.deeper", "'deeper'"),
        ("", "is no dotted path such as"),
        (".router", "is no dotted path such as"),
        ("gateway..limit", "is no dotted path such as"),
        ("instances[0", "is no dotted path such as"),
        ("instances[]", "is no dotted path such as"),
    ],
)
def test_unknown_paths_are_refused(path: str, clue: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RICH.with_({path: 1})
    ((found, _, allowed),) = caught.value.violations
    assert found == path
    assert clue in allowed


def test_with_reports_every_path_and_value() -> None:
    with pytest.raises(ConfigError) as caught:
        RICH.with_({"gatway": 1, "tenants[gld].weight": 1})
    assert len(caught.value.violations) == 2
    with pytest.raises(ConfigError) as caught:
        RICH.with_({"warm_up_s": -1, "instances[1].count": 0})
    assert {path for path, _, _ in caught.value.violations} == {"warm_up_s", "instances[1].count"}


@pytest.mark.parametrize("bad", [[1], "router", None])
def test_changes_are_a_mapping(bad: Any) -> None:
    with pytest.raises(TypeError):
        RICH.with_(bad)


def test_paths_are_text() -> None:
    for bad in (1, None, ("router",)):
        with pytest.raises(ConfigError, match="a key must be text"):
            RICH.with_({bad: 2})


# --- short forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "short",
    [
        "token_bucket",
        {"kind": "token_bucket"},
        gateway.TokenBucket(),
        ["token_bucket"],
        ("token_bucket",),
        [{"kind": "token_bucket"}],
        (gateway.TokenBucket(),),
        (kind for kind in ["token_bucket"]),
        np.array(["token_bucket"]),
    ],
    ids=lambda short: type(short).__name__,
)
def test_short_forms_of_a_chain(short: Any) -> None:
    assert gateway.Gateway(admission=short).admission == (gateway.TokenBucket(),)


def test_short_forms_of_nouns() -> None:
    one = Simulation(
        instances={"count": 2, "latency": "linear"},
        tenants=({"name": "default", "weight": 2},),
        gateway={"bands": gateway.Band(priority=1), "limit": "fixed"},
    )
    assert one.instances == (instance.InstanceGroup(count=2),)
    assert one.tenants == (workload.Tenant(weight=2),)
    assert one.gateway == gateway.Gateway(
        bands=[gateway.Band(priority=1)], limit=gateway.FixedLimit()
    )


@pytest.mark.parametrize(
    ("given_settings", "path", "clue"),
    [
        ({"router": {}}, "router", "must name its kind; one of round_robin, least_loaded"),
        ({"router": 3}, "router", "must name its kind"),
        ({"router": None}, "router", "must name its kind"),
        ({"router": "lest_loaded"}, "router.kind", "did you mean 'least_loaded'?"),
        ({"router": {"kind": "zzz"}}, "router.kind", "one of round_robin, least_loaded"),
        ({"router": gateway.TokenBucket()}, "router.kind", "is no known kind"),
        ({"router": ["round_robin"]}, "router", "must name its kind"),
        ({"gateway": {"admission": None}}, "gateway.admission", "must be a list"),
        ({"gateway": "token_bucket"}, "gateway", "must be a mapping of settings"),
        ({"gateway": gateway.Band()}, "gateway.priority", "is not a setting"),
        ({"workload": {"clients": []}}, "workload", "must name its kind"),
        ({"tenants": ["gold"]}, "tenants[0]", "must be a mapping of settings"),
    ],
)
def test_long_forms_are_checked(given_settings: dict[str, Any], path: str, clue: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Simulation.from_dict(given_settings)
    found, _, allowed = caught.value.violations[0]
    assert found == path
    assert clue in allowed


def test_class_in_place_of_an_object_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"^router = .*LeastLoaded") as caught:
        Simulation(router=router.LeastLoaded)
    assert "_to_value" not in str(caught.value)


# --- presets --------------------------------------------------------------------------------------


def test_presets() -> None:
    presets = instance.Linear.presets()
    assert list(presets) == instance.Linear._describe()["presets"]
    assert len(set(presets.values())) == len(presets) > 10
    for name, values in presets.items():
        assert instance.Linear.preset(name) == values
        assert instance.Linear(preset=name) == values
        assert instance.Linear.from_dict({"kind": "linear", "preset": name}) == values
        # Settings that are given win over the preset's, wherever they stand.
        for mixed in ({"preset": name, "beta0_us": 7}, {"beta0_us": 7, "preset": name}):
            assert instance.Linear.from_dict(mixed) == values.replace(beta0_us=7)
    group = RICH.with_(
        {"instances[0].latency": {"kind": "linear", "preset": "llama-3.1-8b-h100-tp1"}}
    ).instances[0]
    assert group.latency == presets["llama-3.1-8b-h100-tp1"]
    assert instance.Linear() == presets["llama-3.1-8b-h100-tp2"]


@pytest.mark.parametrize("bad", ["llama-3.1-8b-h100-tp3", "", 1, None])
def test_unknown_presets_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"^latency\.preset = .*is no known preset") as caught:
        instance.InstanceGroup(latency={"kind": "linear", "preset": bad})
    if isinstance(bad, str):
        assert "llama-3.1-8b-h100-tp2" in str(caught.value)


def survives(code: str) -> None:
    """Runs code in a process of its own, because what it does may end the process."""
    path = str(Path(spillway.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-500:])


def test_preset_of_a_class_without_presets() -> None:
    names = [
        f"{cls.__module__}.{cls.__name__}"
        for cls in CLASSES.values()
        if "presets" not in cls._describe()
    ]
    survives(
        "import spillway\n"
        f"for cls in ({', '.join(names)}):\n"
        "    try:\n"
        "        cls(preset='a')\n"
        "    except spillway.ConfigError as error:\n"
        "        assert 'is not a setting' in str(error)\n"
        "    else:\n"
        "        raise AssertionError(cls)\n"
    )


@pytest.mark.parametrize(
    "value",
    [
        "value = []; value.append(value)",
        "value = {}; value['router'] = value",
        "value = []\nfor _ in range(100_000): value = [value]",
    ],
    ids=["list in itself", "mapping in itself", "deep"],
)
def test_bottomless_values_are_refused(value: str) -> None:
    survives(
        f"import spillway\n{value}\n"
        "try:\n"
        "    spillway.Simulation(tenants=value)\n"
        "except spillway.ConfigError:\n"
        "    pass\n"
    )


def test_replace_takes_a_preset_or_refuses_it() -> None:
    name = "llama-3.1-8b-h100-tp4"
    try:
        changed = instance.Linear().replace(preset=name)
    except ConfigError:
        return
    assert changed == instance.Linear.preset(name)


# --- policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", KINDED, ids=lambda cls: cls.__name__)
def test_kind_is_the_name_of_its_header(cls: type[Any]) -> None:
    folder = ROOT / "cpp" / MODULE_OF[cls.__name__]
    if cls.__name__ in HEADERS:
        header = ROOT / "cpp" / HEADERS[cls.__name__]
        assert list(folder.rglob(f"{cls.kind}.h")) == []
    else:
        (header,) = folder.rglob(f"{cls.kind}.h")
        assert cls.kind.replace("_", "") == cls.__name__.lower()
    assert re.search(rf"struct {cls.__name__} (: [\w:]+ )?{{", header.read_text())


def alternatives(path: str) -> list[dict[str, Any]]:
    """What may stand at a path of settings."""
    place = Simulation._describe()
    for step in path.split("."):
        field = next(field for field in place["fields"] if field["name"] == step)
        place = field.get("of") or field
    return list(place["alternatives"])


def test_every_policy_occurs_in_the_tree() -> None:
    def kinds(description: Mapping[str, Any]) -> Iterator[str]:
        for field in description["fields"]:
            below = [field["of"]] if "of" in field else field.get("alternatives", [])
            for one in below:
                yield one["name"]
                yield from kinds(one)

    assert set(kinds(Simulation._describe())) | {"Simulation"} == set(CLASSES)


def test_admission_policies_and_their_reasons() -> None:
    policies = alternatives("gateway.admission")
    assert {one["kind"] for one in policies} >= {"always_admit", "reject_all", "token_bucket"}
    reasons = [reason for one in policies for reason in one.get("reasons", ())]
    names = [reason["name"] for reason in reasons]
    assert len(set(names)) == len(names)
    assert all(reason["doc"] for reason in reasons)
    for one in policies:
        assert bool(one.get("reasons")) == (one["kind"] != "always_admit")
        for reason in one.get("reasons", ()):
            assert reason["name"] in CLASSES[one["name"]].__doc__


# --- JSON Schema ----------------------------------------------------------------------------------

SCHEMA = loading.json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


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
    for one in refused:
        assert not VALIDATOR.is_valid(one), one
        with pytest.raises(ConfigError):
            loading.from_settings(one)


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
        with pytest.raises(ConfigError, match="is not a setting"):
            Simulation.from_dict(changed)


@pytest.mark.parametrize("path", [path for path, field, _ in LEAVES if is_number(field)])
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


# --- fuzz -----------------------------------------------------------------------------------------


# Settings that another one contradicts or refers to; they are tested one by one above.
_DEPENDENT = {
    "name", "tenant", "slo_class", "prefix_group", "prefix_tokens", "values", "weights",
    "min_tokens", "max_tokens", "max_model_len", "horizon_s", "warm_up_s", "priority", *TABLE,
    "initial_instances", "floor", "ceiling", "requests_per_s", "rate_fraction", "replicas",
    "max_victims",
}  # fmt: skip
INDEPENDENT = {
    path: field for path, field, _ in LEAVES if path.rsplit(".", 1)[-1] not in _DEPENDENT
}


@settings(FUZZ, max_examples=200)
@given(data=st.data())
def test_random_valid_changes(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(INDEPENDENT)))
    value = data.draw(value_of(INDEPENDENT[path]))
    changed = RICH.with_({path: value})
    assert at(changed.to_dict(), path) == value
    assert (changed == RICH) is (at(RICH.to_dict(), path) == value)
    assert changed.with_({path: at(RICH.to_dict(), path)}) == RICH
    assert Simulation.from_dict(changed.to_dict()) == changed
    assert eval(repr(changed), {"__builtins__": {}}, CLASSES) == changed
    assert pickle.loads(pickle.dumps(changed)) == changed
    assert VALIDATOR.is_valid(changed.to_dict())


KEYS = sorted({"kind", "preset", *(name for cls in CLASSES.values() for name in fields_of(cls))})
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, 10**400, -(10**400), 1e308, -1e308])
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.text(st.characters(categories=["Cs"]), min_size=1)
    | st.binary()
    | st.sampled_from([*(cls.kind for cls in KINDED), *NAMES])
    | st.sampled_from([object(), print, int, Simulation, Ellipsis, np.datetime64("2024-01-01")])
    | st.sampled_from([cls() for cls in CLASSES.values()]),
    lambda below: (
        st.lists(below, max_size=3)
        | st.lists(below, max_size=3).map(tuple)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=3) | st.integers(), below, max_size=4
        )
    ),
    max_leaves=8,
)


@each_class
@settings(FUZZ, max_examples=60)
@given(data=st.data())
def test_garbage_is_refused_in_an_orderly_way(cls: type[Any], data: st.DataObject) -> None:
    junk = data.draw(JUNK)
    paths = [*fields_of(cls), "kind", "preset", "a.b", "[0]"]
    path = data.draw(st.sampled_from(paths) | st.text("abk.[]01", max_size=6) | st.text(max_size=4))
    for attempt in (
        lambda: cls.from_dict(junk),
        lambda: cls(**{path: junk}),
        lambda: cls().replace(**{path: junk}),
        lambda: cls().with_({path: junk}),
        lambda: cls().with_(junk),
    ):
        made = cls()
        with contextlib.suppress(ConfigError, TypeError):
            made = attempt()
        assert cls.from_dict(made.to_dict()) == made
