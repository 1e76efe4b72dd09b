"""Every configuration class of the core, and valid settings of each at random."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import strategies as st
from support.descriptions import agree

from spillway import (
    Simulation,
    _core,
    fleet,
    gateway,
    instance,
    loading,
    metrics,
    router,
    signals,
    workload,
)
from spillway.config import classes
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hypothesis.strategies import SearchStrategy


CLASSES: dict[str, type[Any]] = {}
MODULE_OF: dict[str, str] = {}
for _name in classes.CORE_MODULES:
    for _cls in classes.config_classes(getattr(_core, _name)):
        CLASSES[_cls.__name__], MODULE_OF[_cls.__name__] = _cls, _name
KINDED = [cls for cls in CLASSES.values() if "kind" in cls._describe()]
WITH_FIELDS = [cls for cls in CLASSES.values() if cls._describe()["fields"]]

each_class = pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
each_class_with_fields = pytest.mark.parametrize("cls", WITH_FIELDS, ids=lambda cls: cls.__name__)


# The columns of a table: lists of one length.
TABLE = ("concurrency", "e2e_s", "ttft_s")
STEP_AXES = ("decode_requests", "prefill_tokens", "context_tokens")
COLUMNS = {instance.ProcessorSharing: TABLE, instance.StepTable: (*STEP_AXES, "step_us")}


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


_NEEDED: dict[str, dict[str, Any]] = {
    "Disaggregation.prefill_max_retries": {"order": "decode_first"},
    "prefix_tokens": {"prefix_group": "group"},
    "rate_period_s": {"rate_profile": [{}]},
    "Empirical.weights": {"values": [1, 2]},
    "HandOff.max_tokens": {"output_tokens": 1},
    "Submission.max_tokens": {"output_tokens": 0},
}


def companions(cls: type[Any], name: str, value: Any) -> dict[str, Any]:
    """Settings that a valid `value` of a field needs beside itself."""
    if name in _NEEDED and value:
        return _NEEDED[name]
    if (known := f"{cls.__name__}.{name}") in _NEEDED:
        return _NEEDED[known]
    end, _, what = name.partition("_")
    if end == "min" and (most := fields_of(cls).get(f"max_{what}")):
        return {f"max_{what}": most.get("at_most", 10**8)}
    if end == "max" and (least := fields_of(cls).get(f"min_{what}")):
        return {f"min_{what}": least["at_least"]}
    columns = COLUMNS.get(cls, ())
    return {column: [1] for column in columns if column != name} if name in columns else {}


def built(cls: type[Any], name: str, value: Any) -> Any:
    """An object in which one field, or each entry of it, has a value."""
    valid = [value, 1] if f"{cls.__name__}.{name}" == "Empirical.weights" else value
    if "sequence" in fields_of(cls)[name] and not isinstance(valid, list):
        valid = [value]
    return cls(**{name: valid, **companions(cls, name, value)})


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
    elif kind == "mapping":  # of changes: valid in every simulation
        value = st.sampled_from([{}, {"fleet.target_instances": 1}])
    elif kind == "struct":
        value = settings_of(field["of"])
    else:
        value = st.one_of([settings_of(alternative) for alternative in field["alternatives"]])
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


# Bounds, of which the lower may not exceed the upper.
BOUNDS = (
    ("min_tokens", "max_tokens"),
    ("min_input_tokens", "max_input_tokens"),
    ("min_instances", "max_instances"),
    ("min_ceiling", "max_ceiling"),
    ("floor", "ceiling"),
)


def repaired(name: str, drawn: dict[str, Any]) -> dict[str, Any]:
    """The settings, changed where two of them contradict each other."""
    for low, high in BOUNDS:
        if low in drawn and drawn.get(high) is not None:
            drawn[low], drawn[high] = sorted((drawn[low], drawn[high]))
    if name == "Empirical":
        drawn["weights"] = (drawn["weights"] * 3)[: len(drawn["values"])]
        if not sum(drawn["weights"]):
            drawn["weights"] = []
    if name == "ProcessorSharing":
        drawn["concurrency"] = sorted(set(drawn["concurrency"]))
        for column in TABLE:
            drawn[column] = (drawn[column] * 3)[: len(drawn["concurrency"])]
    if name == "StepTable":
        for axis in STEP_AXES:
            drawn[axis] = sorted(set(drawn[axis]))
        cells = math.prod(len(drawn[axis]) for axis in STEP_AXES)
        drawn["step_us"] = (drawn["step_us"] * cells)[:cells]
    if name == "InstanceGroup" and drawn["fitted_states"]:
        corners = ((0, 0), (len(drawn["fitted_states"]), 0), (1, 1))
        drawn["fitted_states"] = [{"running_requests": x, "kv_tokens": y} for x, y in corners]
    agree(name, drawn)
    if name == "Client":
        is_closed = drawn["arrivals"]["kind"] == "closed_loop"
        if is_closed:
            drawn["num_requests"] = drawn["num_requests"] or 9
        if not (drawn["prefix_group"] and drawn["prefix_tokens"]):
            drawn |= {"prefix_group": "", "prefix_tokens": 0}
        profile = sorted(drawn["rate_profile"], key=lambda point: point["at_s"])
        if is_closed or not any(point["factor"] for point in profile):
            profile = []
        if not profile or (drawn["rate_period_s"] or 0) < profile[-1]["at_s"]:
            drawn["rate_period_s"] = None
        drawn["rate_profile"] = profile
    if name == "Mmpp":
        drawn["states"] = [*drawn["states"], {"rate_factor": 1.0, "mean_s": 10.0}]
    if name == "InstanceGroup" and drawn["max_model_len"] == 1:
        drawn["max_model_len"] = 0
    if name == "InstanceGroup" and drawn["ingress"]["kind"] == "dual_limit_gate":
        drawn["completion"] = "step_end"
    if name == "Submission":
        drawn["segments"] = [part | {"tokens": 1} for part in drawn["segments"][:1]]
    if name in ("Submission", "HandOff") and drawn["max_tokens"] is not None:
        drawn["max_tokens"] = max(drawn["max_tokens"], drawn["output_tokens"])
    if name == "Reaction" and drawn["retries"]:
        drawn["hedge"] = None
    if name == "Simulation":
        tenants = [tenant["name"] for tenant in drawn["tenants"]] or ["default"]
        for request in (request for change in drawn["changes"] for request in change["submit"]):
            request["tenant"], request["slo_class"] = tenants[0], drawn["slo_classes"][0]["name"]
            request["instance"] = None if request["instance"] is None else 0
            request["prefill_only"] = False
        for change in drawn["changes"]:
            change["hand_off"] = []
            change["cancel"] = []
            change["faults"] = []
        drawn["fleet"]["breakdowns"] = None
    if name == "Simulation":
        for group in drawn["instances"]:
            group["role"] = "both"
            group["notices_departure_after_s"] = 0.0
            group["models"] = []
        for tenant in drawn["tenants"]:
            tenant["model"] = ""
        for holder in (drawn, *drawn["tenants"]):
            if holder["reaction"]:
                holder["reaction"]["hedge"] = None
    if name == "Simulation" and drawn["busy_monitor"]["track_output_blocks"]:
        for group in drawn["instances"]:
            group["preemption"] = "keep_emitted"
    if name == "Synthetic":
        drawn["clients"] = unique(drawn["clients"], "name")
        for client in drawn["clients"]:
            if client["prefix_group"]:
                client["prefix_tokens"] = 7
    if name == "Trace" and drawn["transforms"]:
        drawn["max_in_flight"] = 0
    if name == "PriorityFcfs":
        drawn["class_priorities"] = unique(drawn["class_priorities"], "name")
        if drawn["age_weight_per_s"] < 1e-6:
            drawn["age_weight_per_s"] = 0.0
        if drawn["class_priorities"] or drawn["age_weight_per_s"] or drawn["preemption_margin"]:
            drawn["priority"] = "slo_class"
        if drawn["preemption_margin"] and drawn["victim"] == "least_computed":
            drawn["victim"] = "last"
    if name == "PredictiveTtft":
        drawn["budgets"] = unique(drawn["budgets"], "slo_class")
        if drawn["estimator"] in ("queue_depth", "priority_aware", "exact"):
            drawn["calibration"]["forgetting"] = None
    if name == "PolicyClasses":
        drawn["classes"] = unique(unique(drawn["classes"], "name"), "min_uncached_tokens")
        drawn["requests"] = unique(drawn["requests"], "slo_class")
    if name == "TenantBudget":
        drawn["budgets"] = unique(drawn["budgets"], "tenant")
    if name == "TenantTokenBucket":
        drawn["own"] = unique(drawn["own"], "tenant")
        drawn["reserves"] = unique(drawn["reserves"], "slo_class")
    if name == "Gateway":
        drawn["bands"] = unique(drawn["bands"], "priority")
        drawn["split"] = "tenant_hash"  # the one that goes with every cost
        drawn["limit"] = [*drawn["limit"], {"kind": "fixed", "max_in_flight": 9}]  # can be moved
        if drawn["dispatch"] != "all":
            drawn["drain_latency_s"] = 0.0
        if all(limit["kind"] != "saturation" for limit in drawn["limit"]):
            drawn["eviction"]["max_victims"] = 0
    if name == "Weighted":
        drawn["scorers"] = unique(drawn["scorers"], "kind")
    if name == "Simulation":
        if drawn["metrics"]["streaming"]:
            drawn["metrics"]["traced_candidates"] = 0
        if any(group["async_scheduling"] for group in drawn["instances"]):
            drawn["metrics"]["accounting"] = "clock"
        drawn["gateway"]["sensor"]["scope"] = "pooled"
        for limit in drawn["gateway"]["limit"]:
            limit |= {key: [] for key in ("tenants", "slo_classes", "models") if key in limit}
        for band in drawn["gateway"]["bands"]:
            band["fairness"] |= {"requests": []} if "requests" in band["fairness"] else {}
        for policy in drawn["gateway"]["admission"]:  # the tenants and classes named must exist
            lists = ("budgets", "own", "reserves", "reserved_of_class")
            policy |= {key: [] for key in lists if key in policy}
            if policy.get("estimator") == "exact":  # not for every fleet
                policy["estimator"] = "seats_and_memory"
        drawn["fleet"] |= {"initial_instances": None, "target_instances": None}
        whole = fleet.Fleet().to_dict()
        drawn["fleet"] |= {key: whole[key] for key in ("prefill", "decode", "max_pool_instances")}
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
        filters=[
            router.PrefixCacheAffinity(),
            router.UtilizationFilter(),
            router.Thresholds(),
            router.ConcurrencyFilter(),
            router.ContextLength(ranges=[router.ContextRange()]),
        ],
        scorers=[
            router.QueueDepth(),
            router.PrefixAffinity(),
            router.TokenLoad(),
            router.PredictedLatency(),
            router.SessionAffinity(),
        ],
        picker=router.Softmax(),
    ),
    signals=signals.Scraped(),
    instances=[
        BLIS_SERVER.replace(
            count=2, scheduler="priority_fcfs", ingress="engine_request_limit", latency="roofline"
        ),
        instance.InstanceGroup(
            max_model_len=4096,
            plant="processor_sharing",
            latency="linear",
            ingress="vllm_queue_limits",
        ),
    ],
    horizon_s=60,
    warm_up_s=5,
)


# Odd names and extreme numbers, which files must keep; it runs.
ODD = Simulation(
    workload=workload.Synthetic(
        clients=[workload.Client(name="a", tenant="gold")], num_requests=40, duration_s=1e-3
    ),
    tenants=[workload.Tenant(name="gold", weight=0.1), workload.Tenant(name="größe: [a, b] #1")],
    gateway=gateway.Gateway(
        admission=[gateway.TokenBucket(refill_tokens_per_s=1e-300), "always_admit"],
        limit="fixed",
        bands=[gateway.Band(priority=3), gateway.Band()],
    ),
    router=router.LeastLoaded(ties="random"),
    instances=[BLIS_SERVER],
    metrics=metrics.Metrics(fitness=[]),
    horizon_s=3.2e9,
    warm_up_s=0.1 + 0.2,
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
                    alternative
                    for alternative in field["alternatives"]
                    if alternative["kind"] == entry["kind"]
                )
                yield from leaves(below, entry, place)
        else:
            yield here, field, value


LEAVES = list(leaves(Simulation._describe(), RICH.to_dict()))


def at(written: Any, path: str) -> Any:
    """The value at a dotted path of a written form."""
    for key in path.replace("]", "").replace("[", ".").split("."):
        written = written[int(key)] if key.isdigit() else written[key]
    return written


SCHEMA = loading.json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
