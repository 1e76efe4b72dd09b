"""Random valid simulations: any alternative of any seam, under a chosen pressure, run in ms.

Everything is drawn from the field descriptors, so a new setting, policy or seam takes part as soon
as it exists. What stands here beside them: sizes that keep a run small (`RANGES`), settings that
make a run shed nothing or nearly all (`LENIENT`, `WALLS`, `HARSH`), and the few settings that mean
something only together (`_together`). What concerns one policy is in its specimen. What contradicts
itself all the same is drawn anew, at the paths that the error names.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from support.descriptions import (
    CHOICES,
    DESCRIPTION,
    ELSEWHERE,
    PRESENT,
    VARIANTS,
    Alternative,
    Force,
    agree,
)
from support.specimens import at, merged, specimens

from spillway import Change, ConfigError, Simulation, instance, profiles, router, trace, traffic
from spillway._core.sim import exp, log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from spillway import workload

Pressure = Literal["none", "half", "all"]
"""How much of the load a simulation sheds, roughly: see `LENIENT` and `WALLS`."""
PRESSURES: tuple[Pressure, ...] = get_args(Pressure)


def alternatives_of(simulation: Simulation) -> set[Alternative]:
    """Every alternative that occurs in a simulation."""
    alternatives: set[Alternative] = set()

    def look(noun: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        for field in noun["fields"]:
            value = values[field["name"]]
            for item in value if isinstance(value, list) else [value]:
                seam = f"{noun['name']}.{field['name']}"
                if item is None:
                    continue
                if field["type"] in ("choice", "bool"):
                    alternatives.add(Alternative(seam, str(item)))
                elif field["type"] == "struct":
                    look(field["of"], item)
                elif field["type"] == "variant":
                    alternatives.add(Alternative(seam, item["kind"]))
                    look(_alternative(field, item["kind"]), item)

    look(DESCRIPTION, simulation.to_dict())
    return alternatives


def _alternative(field: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next(alternative for alternative in field["alternatives"] if alternative["kind"] == kind)


# --- what keeps a run small -----------------------------------------------------------------------

LONGEST_S = 20.0
SHORTEST_S = 0.002

# Where the range of the search, or one around the default, makes a run long, or nothing happen.
RANGES: Mapping[str, tuple[float, float]] = {
    **merged("ranges"),
    "Client.rate_fraction": (0.2, 5),
    "Retry.max_attempts": (1, 4),
    "Retry.backoff_s": (0.01, 2),
    "Retry.max_backoff_s": (0.1, 5),
    "SloClass.priority": (-3, 5),
    "SloClass.target_ttft_s": (0.005, 3),
    "SloClass.target_tpot_s": (0.005, 0.2),
    "SloClass.target_e2e_s": (0.05, 10),
    "Band.priority": (-3, 5),
    "Gateway.replicas": (1, 3),
    "Gateway.max_queued": (1, 60),
    "Gateway.attempt_period_s": (0.001, 0.1),
    "Gateway.admission_latency_s": (0.0005, 0.1),
    "Gateway.drain_latency_s": (0.0005, 0.1),
    "Gateway.routing_latency_s": (0.0005, 0.1),
    "Band.max_requests": (1, 60),
    "Queue.max_requests": (1, 30),
    "Queue.timeout_s": (0.01, 10),
    "Queue.timeout_without_servers_s": (0.01, 10),
    "Gateway.retry_after_s": (0.01, 3),
    "Tenant.weight": (0.25, 8),
    "Tenant.queue_max": (1, 30),
    "Tenant.max_in_flight": (1, 30),
    "Eviction.max_victims": (1, 5),
    "Guard.floor": (1, 8),
    "Guard.ceiling": (8, 64),
    "Guard.cooldown_ticks": (1, 5),
    "Sensor.tick_s": (0.05, 3),
    "Sensor.window_s": (0.1, 20),
    "Sensor.min_samples": (1, 10),
    "PrefixIndex.capacity_blocks": (10, 10_000),
    "PrefixIndex.block_size_tokens": (8, 64),
    "BusyMonitor.active_prefill_tokens_threshold": (10, 5000),
    "BusyMonitor.active_prefill_tokens_threshold_frac": (0.1, 4),
    "InstanceGroup.count": (1, 3),
    "InstanceGroup.data_parallel_size": (1, 3),
    "InstanceGroup.max_num_seqs": (1, 48),
    "InstanceGroup.max_num_batched_tokens": (16, 2048),
    "InstanceGroup.long_prefill_token_threshold": (8, 256),
    "InstanceGroup.max_model_len": (64, 2000),
    "InstanceGroup.block_size_tokens": (4, 64),
    "InstanceGroup.num_kv_blocks": (8, 4000),
    "KvLink.max_transfers": (1, 4),
    "Disaggregation.prefill_max_retries": (1, 3),
    "Disaggregation.prefill_retry_after_s": (0.0005, 0.5),
    "Fleet.initial_instances": (1, 3),
    "Fleet.target_instances": (1, 3),
    "Fleet.max_pool_instances": (2, 6),
    "PoolSize.initial_instances": (1, 2),
    "PoolSize.target_instances": (0, 2),
    "FitnessTerm.weight": (0.1, 10),
    "Metrics.traced_candidates": (1, 4),
    "Metrics.timeline_step_s": (0.02, 2),
    "Simulation.quantum_ns": (1, 1_000_000),
}

# At the bounds of these a run is long, or asks for another mechanism.
_NOT_AT_ITS_BOUND = re.compile(r".*(period_s|tick_s|poll_s|step_s|quantum_ns|\.cv|beta\w+_us)")
_INSIDE = {
    f"{specimen.policy.__name__}.{name}"
    for specimen in specimens().values()
    for name in specimen.inside
}

# How often an optional setting is stated, where that is not one in two.
_STATED: Mapping[str, float] = {
    **merged("probabilities"),
    "Gateway.max_queued": 0.2,
    "Band.max_requests": 0.2,
    "Queue.codel_target_s": 0.3,
    "Tenant.reaction": 0.2,
    "Fleet.initial_instances": 0.25,
    "Fleet.target_instances": 0.25,
    "PoolSize.initial_instances": 0.25,
    "PoolSize.target_instances": 0.25,
    "BusyMonitor.active_decode_blocks_threshold": 0.25,
    "BusyMonitor.active_prefill_tokens_threshold": 0.25,
    "BusyMonitor.active_prefill_tokens_threshold_frac": 0.25,
    "Reaction.timeout_s": 0.3,
    "Reaction.first_token_timeout_s": 0.2,
    "Reaction.deadline_s": 0.2,
    "Simulation.horizon_s": 0.3,
    "Client.requests_per_s": 0.2,
}

# Numbers of entries, one of which is drawn, where the usual ones leave too few of an alternative.
_LENGTHS: Mapping[str, tuple[int, ...]] = {"Gateway.admission": (1, 2, 2, 3, 4)}

# --- what makes it shed nothing, or nearly all ----------------------------------------------------

LENIENT: Mapping[str, Any] = {
    "Gateway.admission": [{"kind": "always_admit"}],
    "Gateway.limit": [{"kind": "unlimited"}],
    "Gateway.max_queued": None,
    "Gateway.queue_shedding": False,
    "Band.max_requests": None,
    "Queue.max_requests": None,
    "Queue.timeout_s": None,
    "Queue.timeout_without_servers_s": None,
    "Queue.codel_target_s": None,
    "Eviction.max_victims": 0,
    "Tenant.queue_max": None,
    "Tenant.max_in_flight": None,
    "Reaction.timeout_s": None,
    "Reaction.first_token_timeout_s": None,
    "Reaction.deadline_s": None,
    "InstanceGroup.ingress": {"kind": "open"},
    "InstanceGroup.max_model_len": 0,
    "InstanceGroup.num_kv_blocks": 10_000,
    "Fleet.initial_instances": None,
    "Fleet.target_instances": None,
    "Fleet.autoscaler": {"kind": "none"},
    "SloClass.priority": 4,
    "Simulation.horizon_s": None,
    "Simulation.changes": [],
}


def _walls(seam: str) -> list[Mapping[str, Any]]:
    policies = [
        {"kind": specimen.policy.kind} | specimen.wall
        for specimen in at(seam)
        if specimen.wall is not None
    ]
    return [{seam: [policy] if seam == "Gateway.admission" else policy} for policy in policies]


_ONE_AT_A_TIME = {"Gateway.limit": [{"kind": "fixed", "max_in_flight": 1}]}
WALLS: tuple[Mapping[str, Any], ...] = (
    *_walls("Gateway.admission"),
    {**_ONE_AT_A_TIME, "Queue.timeout_s": SHORTEST_S},
    {**_ONE_AT_A_TIME, "Queue.max_requests": 1},
    {**_ONE_AT_A_TIME, "Tenant.queue_max": 1, "Queue.timeout_s": 0.1},
    {**_ONE_AT_A_TIME, "Gateway.max_queued": 1},
    {**_ONE_AT_A_TIME, "Gateway.queue_shedding": True, "Band.max_requests": 2},
    *_walls("InstanceGroup.ingress"),
    {"InstanceGroup.num_kv_blocks": 1, "InstanceGroup.block_size_tokens": 1},
    {"InstanceGroup.max_model_len": 2},
    {"Reaction.timeout_s": SHORTEST_S, "Reaction.retries": []},
    {"Reaction.first_token_timeout_s": SHORTEST_S, "Reaction.retries": []},
    {"Reaction.deadline_s": SHORTEST_S, "Reaction.retries": []},
)

# The seams whose alternatives reject requests for reasons of their own; of the routers, one does.
REFUSING = frozenset({"Gateway.admission", "InstanceGroup.ingress"})

# With these every policy that can refuse nearly everything does.
HARSH: Mapping[str, Any] = {
    **merged("strict"),
    "InstanceGroup.count": 1,
    "SloClass.priority": -1,
    "SloClass.target_ttft_s": 1e-5,
    "SloClass.target_e2e_s": 1e-4,
    "Simulation.changes": [],
}

_TENANTS = ("a", "b", "default", "gold", "team/x")
_ODD_NAMES = ("größe", "a.b[0]", 'it\'s "quoted"\n', "$x^", "_hidden", "a,b", "<&>", "%s{}", "-1")
_CLASSES = ("critical", "standard", "batch", "sheddable", "odd class")
_PREFIX_TOKENS = {"system": 32, "documents": 100}


# --- drawing --------------------------------------------------------------------------------------


class Drawing:
    """One simulation in the making, in its written form."""

    def __init__(self, rng: random.Random, force: Force, pressure: Pressure | None) -> None:
        self.rng = rng
        self.force = force
        self.met: set[str] = set()  # seams at which what is forced occurs already
        names = list(_TENANTS) + (list(_ODD_NAMES) if rng.random() < 0.15 else [])
        self.tenants = rng.sample(names, rng.randint(1, 4))
        self.classes = rng.sample(_CLASSES, rng.randint(1, 3))
        self.preferred = self._preferred(pressure)
        low, high = {"none": (1, 8), "half": (20, 300), "all": (50, 3000)}.get(
            pressure or "", (1, 1000)
        )
        most = 60 if pressure == "none" else 200
        for specimen in specimens().values() if pressure == "all" else ():
            if specimen.late and specimen.policy.kind in force.values():
                low, high, most = specimen.late
        self.requests_per_s = self._between(low, high)
        self.num_requests = int(self._between(most / 2 if most > 200 else 10, most))
        self.duration_s = self.num_requests / self.requests_per_s

    def _preferred(self, pressure: Pressure | None) -> Mapping[str, Any]:
        if pressure == "none":
            return LENIENT
        if pressure == "all":
            is_router = self.force.get("Simulation.router") == "weighted"
            if REFUSING & self.force.keys() or is_router:  # only the policy in question refuses
                return {**LENIENT, **HARSH}
            return HARSH if self.rng.random() < 0.4 else self.rng.choice(WALLS)
        return {}

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _between(self, low: float, high: float) -> float:
        """Uniform in the logarithm, where there is one."""
        if low <= 0:
            return self.rng.uniform(low, high)
        return exp(self.rng.uniform(log(low), log(high)))

    def noun(self, description: Mapping[str, Any]) -> dict[str, Any]:
        written = {"kind": description["kind"]} if "kind" in description else {}
        for field in description["fields"]:
            written[field["name"]] = self.value(description["name"], field)
        _together(description["name"], written, self)
        return written

    def value(self, owner: str, field: Mapping[str, Any]) -> Any:
        seam = f"{owner}.{field['name']}"
        forced = self.force.get(seam)
        if forced is None and seam in self.preferred and self.chance(0.95):
            return self._preferred_value(field, self.preferred[seam])
        if (draw := _OWN.get(seam) or _OWN.get(field["name"])) and forced in (None, PRESENT):
            return draw(self)
        if field.get("optional") and forced is None and not self.chance(_STATED.get(seam, 0.5)):
            return None
        if not field.get("sequence"):
            return self.one(seam, field)
        least = 1 if field["default"] or forced else 0
        lengths = _LENGTHS.get(seam, (least, 1, 1, 2, 3))
        return [self.one(seam, field) for _ in range(self.rng.choice(lengths))]

    def _preferred_value(self, field: Mapping[str, Any], value: Any) -> Any:
        """The value, with the settings that it leaves open as they come."""
        if isinstance(value, list):
            return [self._preferred_value(field, item) for item in value]
        if isinstance(value, dict):
            return self.noun(_alternative(field, value["kind"])) | value
        return value

    def one(self, seam: str, field: Mapping[str, Any]) -> Any:
        forced = self.force.get(seam)
        if forced is not None and (seam not in self.met or self.chance(0.5)):
            self.met.add(seam)
        else:
            forced = None
        match field["type"]:
            case "struct":
                drawn: Any = self.noun(field["of"])
            case "variant":
                drawable = [kind for kind in field["alternatives"] if kind["kind"] not in ELSEWHERE]
                weights = [getattr(specimens().get(kind["name"]), "weight", 1) for kind in drawable]
                kind = self.rng.choices(drawable, weights)[0]["kind"]
                drawn = self.noun(_alternative(field, forced or kind))
            case "choice":
                drawn = forced or self.rng.choice(field["choices"])
            case "bool":
                drawn = forced == "True" if forced else self.chance(0.6) is field["default"]
            case "str":
                drawn = field["default"]
            case _:
                drawn = self._number(seam, field)
        return drawn

    def _number(self, seam: str, field: Mapping[str, Any]) -> float:
        least = field.get("at_least", field.get("more_than", -math.inf))
        most = field.get("at_most", math.inf)
        default = field["default"]
        if isinstance(default, list):
            default = default[0] if default else None
        elif default is not None and seam not in RANGES and self.chance(0.4):
            return default
        is_inside = seam in _INSIDE or _NOT_AT_ITS_BOUND.fullmatch(seam)
        if "at_least" in field and not is_inside and self.chance(0.08):
            return self._typed(field, least)
        if seam in RANGES:
            low, high = RANGES[seam]
        elif "search" in field:
            low, high = field["search"]["low"], field["search"]["high"]
        elif default:
            low, high = sorted((default / 2, default * 2))
        else:
            low, high = SHORTEST_S, min(1.0, most)
        if field["unit"] == "s":
            low, high = max(low, SHORTEST_S), min(high, LONGEST_S)
        value = min(max(self._between(low, max(low, high)), least), most)
        if value == field.get("more_than"):
            value = high
        return self._typed(field, value)

    @staticmethod
    def _typed(field: Mapping[str, Any], value: float) -> float:
        return round(value) if field["type"] == "int" else float(value)

    def redraw(self, written: dict[str, Any], path: str, *, default: bool) -> None:
        """Draws the deepest setting on a path anew, or gives it its default."""
        noun, place = DESCRIPTION, written
        steps = deque(re.findall(r"[^.\[\]]+", path))
        while steps:
            field = next(candidate for candidate in noun["fields"] if candidate["name"] == steps[0])
            name = steps.popleft()
            seam = f"{noun['name']}.{name}"
            value, entry = place[name], None
            if steps and steps[0].isdigit():
                entry = int(steps.popleft())
                if entry >= len(value):
                    return  # drawn anew already
                value = value[entry]
            has_fields = field["type"] in ("struct", "variant") and isinstance(value, dict)
            if has_fields and steps and steps[0] != "kind":
                inner = field["of"] if field["type"] == "struct" else None
                below = inner or _alternative(field, value["kind"])
                if any(other["name"] == steps[0] for other in below["fields"]):
                    noun, place = below, value
                    continue
            if default and seam not in self.force:
                place[name] = copy.deepcopy(field["default"])
            elif entry is None:
                self.met.discard(seam)
                place[name] = self.value(noun["name"], field)
            else:
                place[name][entry] = self.one(seam, field)
            return


def _named(drawing: Drawing, seam: str, names: list[str]) -> list[dict[str, Any]]:
    owner, _, name = seam.partition(".")
    field = next(f for f in DESCRIPTION["fields"] if f"{owner}.{f['name']}" == f"{owner}.{name}")
    return [drawing.noun(field["of"]) | {"name": name} for name in names]


def _changed_settings(drawing: Drawing) -> dict[str, Any]:
    """What can change in every simulation with enough instances, or nothing."""
    if drawing.chance(0.25):
        return {}
    thresholds = {
        "active_decode_blocks_threshold": drawing.rng.choice((0, 0.5, 0.9)),
        "active_prefill_tokens_threshold": drawing.rng.choice((10, 500, 5000)),
        "active_prefill_tokens_threshold_frac": drawing.rng.choice((0.1, 1, 4)),
    }
    name, threshold = drawing.rng.choice(list(thresholds.items()))
    busy = {f"busy_monitor.{name}": threshold if drawing.chance(0.8) else None}
    target = {"fleet.target_instances": drawing.rng.choice((0, 1, 1, 2, 2, 3, 3))}
    return drawing.rng.choice((target, busy, target | busy))


def _instants(drawing: Drawing) -> float:
    return drawing.rng.uniform(0, 1.2) * drawing.duration_s


def _optionally(value: Any, probability: float) -> Any:
    return lambda drawing: value(drawing) if drawing.chance(probability) else None


_CORNERS = ((0, 0), (20, 0), (20, 30_000))
_TRIANGLE = [{"running_requests": running, "kv_tokens": tokens} for running, tokens in _CORNERS]

_RULES = [
    *[instance.EngineRules().to_dict()] * 3,
    *(instance.EngineRules.preset(name).to_dict() for name in instance.EngineRules.presets()),
]


# Settings that follow from what else there is, instead of from their own range.
def _pool_scaler(drawing: Drawing) -> dict[str, Any]:
    """Most have an autoscaler: pools are drawn too seldom to leave them without."""
    (of_fleet,) = (field["of"] for field in DESCRIPTION["fields"] if field["name"] == "fleet")
    (scaler,) = (field for field in of_fleet["fields"] if field["name"] == "autoscaler")
    none, *others = scaler["alternatives"]
    return drawing.noun(none if drawing.chance(0.05) else drawing.rng.choice(others))


_OWN: Mapping[str, Any] = {
    **merged("own"),
    "tenant": lambda d: d.rng.choice(d.tenants),
    "slo_class": lambda d: d.rng.choice(d.classes),
    "Simulation.tenants": lambda d: (
        _named(d, "Simulation.tenants", d.tenants)
        if d.chance(0.7) or {"Simulation.tenants", "Tenant.reaction"} & d.force.keys()
        else []
    ),
    "Simulation.slo_classes": lambda d: _named(d, "Simulation.slo_classes", d.classes),
    "Simulation.horizon_s": _optionally(lambda d: d.duration_s * d.rng.uniform(0.3, 3), 0.3),
    "Simulation.warm_up_s": lambda d: d.duration_s * d.rng.choice((0, 0, 0, 0.2)),
    "Simulation.quantum_ns": lambda d: d.rng.choice((1, 1, 1, 1000, 10**6)),
    "Metrics.streaming": lambda d: d.chance(0.15),
    "Client.requests_per_s": _optionally(lambda d: d.requests_per_s / 2, 0.15),
    "Client.start_s": lambda d: d.duration_s * d.rng.choice((0, 0, 0.3)),
    "Client.duration_s": _optionally(lambda d: d.duration_s * d.rng.uniform(0.2, 1), 0.2),
    "Client.num_requests": _optionally(lambda d: d.num_requests, 0.2),
    "Client.name": lambda d: f"client {d.rng.randrange(1000)}",
    "Client.prefix_group": lambda d: d.rng.choice(("", *_PREFIX_TOKENS)),
    "InstanceGroup.role": lambda _: "both",
    "InstanceGroup.transfer_domain": lambda _: "",  # of all of these: see _make_pools
    # Drawn by `extended`:
    "InstanceGroup.notices_departure_after_s": lambda _: 0.0,
    "InstanceGroup.cost_per_hour": lambda _: 0.0,
    "InstanceGroup.models": lambda _: [],
    "Tenant.model": lambda _: "",
    "Reaction.hedge": lambda _: None,
    "RoundRobin.per_model": lambda d: d.chance(0.6),
    "InstanceGroup.engine_rules": lambda d: (
        d.noun(instance.EngineRules._describe())
        if d.chance(0.25) or any(name.startswith("EngineRules.") for name in d.force)
        else dict(d.rng.choice(_RULES))
    ),
    "SpeculativeDecoding.num_drafts": lambda d: d.rng.choice((0, 0, 0, 0, 1, 3)),
    "SpeculativeDecoding.acceptance": lambda d: d.rng.choice(([0.7], [1], [0.9, 0.4], [0])),
    "InstanceGroup.prefill_schedule_interval": lambda d: d.rng.choice((1, 1, 1, 2, 5)),
    "InstanceGroup.max_num_active_seqs": _optionally(lambda d: d.rng.randint(1, 20), 0.2),
    "InstanceGroup.fitted_states": lambda d: d.rng.choice(([], _TRIANGLE)),
    "Change.at_s": _instants,
    "Change.set": _changed_settings,
    "Change.cancel": lambda _: [],
    "Change.hand_off": lambda _: [],  # see _hand_off
    "Change.faults": lambda _: [],
    "PoolSize.autoscaler": _pool_scaler,
    "Fleet.breakdowns": lambda d: _breakdowns(d) if "Fleet.breakdowns" in d.force else None,
    "Submission.segments": lambda _: [],
    "Submission.instance": lambda _: None,
    "Submission.prefill_only": lambda _: False,  # see _hand_off
    "Submission.input_tokens": lambda d: d.rng.randint(1, 400),
    "Submission.output_tokens": lambda d: d.rng.randint(0, 150),
    "Submission.max_tokens": lambda d: d.rng.choice((None, 150, 400)),
    "Submission.model": lambda _: "",  # of all of these: see random_experiments.with_models
    "Client.model": lambda _: "",
    "GroupLimit.models": lambda _: [],
    "KeyRate.model": lambda d: d.rng.choice((None, "")),
    "Client.max_tokens": _optionally(lambda d: d.rng.randint(1, 200), 0.3),
    "LengthPrediction.prior_tokens": lambda d: d.rng.randint(1, 200),
    "LengthPrediction.sigma": lambda d: d.rng.choice((0, 0.3, 2)),
    "Retry.min_concurrent_retries": lambda d: d.rng.choice((0, 1, 3)),
}


def _together(name: str, drawn: dict[str, Any], drawing: Drawing) -> None:
    """Settings of one noun that are valid, or do something, only together."""
    if (specimen := specimens().get(name)) and specimen.together:
        specimen.together(drawn, drawing)
    if name == "InstanceGroup":
        kv_cache = drawn["kv_cache"]
        if {"InstanceGroup.completion", "InstanceGroup.preemption", "KvCache.allocation"} & set(
            drawing.force
        ):
            drawn["async_scheduling"] = kv_cache["reserve_full_prompt"] = False
            kv_cache["watermark"] = 0.0
            kv_cache["generated_tokens"] = False
            drawn["engine_rules"] = instance.EngineRules().to_dict()
            drawn["speculative_decoding"]["num_drafts"] = 0
        if "InstanceGroup.lockstep_ranks" in drawing.force:
            drawn["plant"] = {"kind": "step_loop"}
            drawn["data_parallel_size"] = max(2, drawn["data_parallel_size"])
    if name == "Disaggregation" and drawing.force.get(f"{name}.order") == "prefill_first":
        drawn["decider"] = router.AlwaysRemote().to_dict()
    if f"{name}.ends_at_first_token" in drawing.force:
        drawn |= {"order": "prefill_first", "handoff": "after_prefill"}
        drawn["decider"] = router.AlwaysRemote().to_dict()
    if f"{name}.prefill_max_retries" in drawing.force:
        drawn |= {"order": "decode_first", "handoff": "after_prefill"}
    if name == "Simulation":
        sizes = {name: drawn["fleet"].pop(name) for name in _SIZES_OF_POOLS}
        drawn["fleet"] |= {name: Simulation().fleet.to_dict()[name] for name in _SIZES_OF_POOLS}
        if _has_pools(drawing):
            _make_pools(drawn, drawing)
            _size_pools(drawn, sizes)
    if name == "Simulation" and drawn["metrics"]["accounting"] != "clock":
        for group in drawn["instances"]:
            group["async_scheduling"] = False
    if name == "Client":
        drawn["prefix_tokens"] = _PREFIX_TOKENS.get(drawn["prefix_group"], 0)
    agree(name, drawn)
    if name == "Gateway":
        movable = {specimen.policy.kind for specimen in at("Gateway.limit") if specimen.movable}
        if drawn["controller"]["kind"] != "static" and not any(
            limit["kind"] in movable for limit in drawn["limit"]
        ):
            drawn["limit"] = [*drawn["limit"], {"kind": "fixed", "max_in_flight": 20}]


def _has_pools(drawing: Drawing) -> bool:
    """If what is forced is about pools, or at times if it goes with them."""
    if drawing.force.get("InstanceGroup.role", "both") != "both":
        return True
    of_pools = ("Disaggregation.", "KvLink.", "PoolSize.", _HANDED_OFF)
    if any(seam.startswith(of_pools) for seam in drawing.force):
        return True
    is_of_traffic = "Simulation.workload" in drawing.force
    return (is_of_traffic or not drawing.force) and drawing.chance(0.35)


def _make_pools(drawn: dict[str, Any], drawing: Drawing) -> None:
    """Two groups or more as prefill and decode pools, with settings that go with that."""
    groups = drawn["instances"]
    groups += [copy.deepcopy(groups[0]) for _ in range(2 - len(groups))]
    plain = instance.InstanceGroup().to_dict()
    apart = ("prefill", "decode")
    roles = drawing.rng.choice((apart, apart, apart, ("both", "decode"), ("prefill", "both")))
    for i, group in enumerate(groups):
        role = roles[i] if i < 2 else drawing.rng.choice(apart)
        if group["scheduler"]["kind"] not in ("fcfs", "sjf", "reverse_priority"):
            group["scheduler"] = plain["scheduler"]
        if group["plant"]["kind"] != "step_loop":
            group["plant"] = plain["plant"]
        group |= {name: plain[name] for name in _NOT_IN_POOLS}
        group |= {name: groups[0][name] for name in ("block_size_tokens", "kv_bytes_per_token")}
        group["role"] = role
        if "both" in roles:
            # Little memory lets requests on mixed instances wait for each other.
            blocks = 200_000 // group["block_size_tokens"]
            group["num_kv_blocks"] = max(group["num_kv_blocks"], blocks)
        if drawn["disaggregation"]["decider"]["kind"] == "conditional":
            group["data_parallel_size"] = 1
        group["kv_cache"]["allocation"] = "check_then_act"
        group["speculative_decoding"]["num_drafts"] = 0
    if drawn["disaggregation"]["topology"] != "any":
        for group in groups:
            group["transfer_domain"] = drawing.rng.choice(("rack 1", "rack 2"))
    drawn["gateway"]["decision_latency_s"] = 0.0
    drawn["metrics"]["accounting"] = "clock"
    drawn["fleet"] = Simulation().fleet.to_dict()
    for change in drawn["changes"]:
        kept = {at: to for at, to in change["set"].items() if at.startswith("busy_monitor.")}
        change["set"] = kept
        for request in change["submit"]:
            request["instance"] = None
    if _HANDED_OFF in drawing.force:
        _hand_off(drawn, drawing)


_HANDED_OFF = "Submission.prefill_only"


def _hand_off(drawn: dict[str, Any], drawing: Drawing) -> None:
    """Requests from outside are computed in one pool and go on in the other."""
    drawn["disaggregation"]["handoff"] = "after_prefill"
    roles = [group["role"] for group in drawn["instances"] for _ in range(group["count"])]
    first, second = (
        [i for i, role in enumerate(roles) if role != other] for other in ("decode", "prefill")
    )
    changes = drawn["changes"]
    requests = [request for change in changes for request in change["submit"]]
    for request in requests:
        request |= {"instance": drawing.rng.choice(first), "prefill_only": True}
    handed_off = [
        {
            "request": i,
            "instance": drawing.rng.choice(second),
            "output_tokens": drawing.rng.randint(1, 150),
            "max_tokens": drawing.rng.choice((None, 400)),
        }
        for i in range(len(requests))
    ]
    at_s = max(change["at_s"] for change in changes) + drawing.rng.choice((0.001, 0.5))
    changes.append(Change(at_s=at_s).to_dict() | {"hand_off": handed_off})


_NOT_IN_POOLS = (
    "lockstep_ranks",
    "front_end",
    "ingress",
    "completion",
    "preemption",
    "chunked_prefill",
    "prefill_schedule_interval",
    "long_prefill_token_threshold_adaptive",
    "engine_rules",
)


_SIZES_OF_POOLS = ("prefill", "decode", "max_pool_instances")


def _size_pools(drawn: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Pools change their sizes, where no instance is in both."""
    counts = dict.fromkeys(("prefill", "decode", "both"), 0)
    for group in drawn["instances"]:
        counts[group["role"]] += group["count"]
    if counts["both"]:
        return
    least = 0
    for pool in ("prefill", "decode"):
        size = sizes[pool]
        for name in ("initial_instances", "target_instances"):
            if size[name] is not None:
                size[name] = min(size[name], counts[pool])
        scaler = size["autoscaler"]
        if "max_instances" in scaler:
            scaler["max_instances"] = min(scaler["max_instances"], counts[pool])
            scaler["min_instances"] = min(scaler["min_instances"], scaler["max_instances"])
            least += scaler["min_instances"]
        if scaler.get("metric") in ("sensor", "limit_decreases"):
            scaler["metric"] = "running"
    if sizes["max_pool_instances"] is not None:
        sizes["max_pool_instances"] = max(sizes["max_pool_instances"], least, 1)
    drawn["fleet"] |= sizes


def _random_trace(drawing: Drawing) -> workload.Trace:
    rng = np.random.default_rng(drawing.rng.getrandbits(64))
    size = drawing.num_requests
    prompts: dict[str, Any] = {}
    input_tokens = rng.integers(1, 400, size)
    if drawing.chance(0.3):
        groups = drawing.rng.choices(("", *_PREFIX_TOKENS), k=size)
        prompts["prefix_group"] = groups
        prompts["prefix_tokens"] = [_PREFIX_TOKENS.get(group, 0) for group in groups]
        input_tokens += [_PREFIX_TOKENS.get(group, 0) for group in groups]
    elif drawing.chance(0.3):
        prompts["hash_ids"] = [
            [int(block) for block in rng.integers(0, 4, math.ceil(tokens / 64))]
            for tokens in input_tokens
        ]
        prompts["block_size_tokens"] = 64
    if drawing.chance(0.5):
        prompts["request_id"] = [f"r{i}" for i in rng.permutation(size)]
    arrival_s = np.sort(rng.uniform(0, drawing.duration_s, size))
    if drawing.chance(0.3):  # several at the same instant
        arrival_s = np.floor(arrival_s / drawing.duration_s * 8) * drawing.duration_s / 8
    return trace(
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=rng.integers(0, 150, size),
        tenant=drawing.rng.choices(drawing.tenants, k=size),
        slo_class=drawing.rng.choices(drawing.classes, k=size),
        **prompts,
    )


def _breakdowns(drawing: Drawing) -> dict[str, Any]:
    """Few failures: in most other runs instances work."""
    hangs = drawing.force.get("Breakdowns.hangs", drawing.rng.choice(("True", "False")))
    return {
        "mttf_s": drawing.rng.uniform(1, 10),
        "mttr_s": drawing.rng.uniform(0.01, 1),
        "hangs": hangs == "True",
    }


@dataclass(frozen=True)
class Drawn:
    """A simulation, and how many drawings before it were refused."""

    simulation: Simulation
    refused: int


def random_simulation(
    seed: object, *, force: Alternative | None = None, pressure: Pressure | None = None
) -> Drawn:
    """A valid simulation, equal for equal arguments, in which `force` occurs."""
    ways = VARIANTS | CHOICES
    rng = random.Random(f"{seed} {force} {pressure}")
    for refused in range(50):
        drawing = Drawing(rng, ways[force].force if force else {}, pressure)
        simulation = _valid(drawing)
        if simulation is not None and (force is None or force in alternatives_of(simulation)):
            return Drawn(simulation, refused)
    raise AssertionError(f"nothing valid with {force} was found")


_CHANGES_OF_TRACES = ("transforms", "session_segments", "empty_outputs")


def _changed(requests: workload.Trace, drawn: workload.Trace) -> workload.Trace:
    """The requests with the drawn changes, if these leave some under the first seeds."""
    changed: workload.Trace = requests.replace(
        **{name: getattr(drawn, name) for name in _CHANGES_OF_TRACES}
    )
    try:
        for seed in range(4):
            traffic.applied(changed, seed)
    except ConfigError:
        return requests
    return changed


def _valid(drawing: Drawing) -> Simulation | None:
    written = drawing.noun(DESCRIPTION)
    requests = None
    if written["workload"]["kind"] == "trace":
        requests = _random_trace(drawing)
        changes = {name: written["workload"][name] for name in _CHANGES_OF_TRACES}
        written["workload"] = {"kind": "trace", **changes}
    for attempt in range(30):
        try:
            simulation = Simulation.from_dict(written)
            if requests is not None:
                simulation = simulation.replace(workload=_changed(requests, simulation.workload))
            break
        except ConfigError as error:
            stage = attempt // 6  # 1: defaults; 3: those of the nouns around; else drawn anew
            for path in dict.fromkeys(path for path, _, _ in error.violations):
                place = path.rpartition(".")[0] or path if stage == 3 else path
                drawing.redraw(written, place, default=stage in (1, 3))
    else:
        return None
    if drawing.chance(0.2):
        try:
            return profiles.blis_0_6(simulation)
        except ConfigError:  # its values contradict some of these settings
            return simulation
    return simulation


# --- less of it -----------------------------------------------------------------------------------


def simpler(simulation: Simulation) -> Iterator[Simulation]:
    """The same simulation with one setting fewer that is not at its default."""
    written = simulation.to_dict()
    workload = simulation.workload
    is_trace = written["workload"]["kind"] == "trace"

    def rebuilt() -> Simulation | None:
        settings = {k: v for k, v in written.items() if not (k == "workload" and is_trace)}
        try:
            made = Simulation.from_dict(settings)
            return made.replace(workload=workload) if is_trace else made
        except ConfigError:
            return None

    def changed(noun: Mapping[str, Any], values: dict[str, Any]) -> Iterator[Simulation]:
        for field in noun["fields"]:
            name = field["name"]
            if (noun is DESCRIPTION and name == "workload" and is_trace) or (
                values[name] == field["default"]
            ):
                continue
            before = values[name]
            options = [field["default"]]
            if isinstance(before, list) and len(before) > 1:
                options += [before[:i] + before[i + 1 :] for i in range(len(before))]
            for option in options:
                values[name] = option
                if (made := rebuilt()) is not None:
                    yield made
                values[name] = before
            for item in before if isinstance(before, list) else [before]:
                if field["type"] == "struct" and item is not None:
                    yield from changed(field["of"], item)
                elif field["type"] == "variant":
                    yield from changed(_alternative(field, item["kind"]), item)

    yield from changed(DESCRIPTION, written)


def minimal(
    simulation: Simulation, fails: Callable[[Simulation], bool], most_trials: int
) -> Simulation:
    """The simplest simulation found, one setting after another, for which `fails` still holds."""
    trials = needed = 0
    has_changed = True
    while has_changed:
        has_changed, needed = False, 0  # of the settings so far, those that cannot be spared
        while candidate := next(itertools.islice(simpler(simulation), needed, None), None):
            if trials == most_trials:
                return simulation
            trials += 1
            if fails(candidate):
                simulation, has_changed = candidate, True
            else:
                needed += 1
    return simulation


def settings_of(simulation: Simulation) -> dict[str, Any]:
    """The settings that are not at their defaults, in their written form."""

    def different(noun: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        changed = {"kind": values["kind"]} if "kind" in values else {}
        for field in noun["fields"]:
            value = values[field["name"]]
            if value == field["default"]:
                continue
            many = value if isinstance(value, list) else [value]
            if field["type"] == "struct" and value is not None:
                many = [different(field["of"], item) for item in many]
            elif field["type"] == "variant":
                many = [different(_alternative(field, item["kind"]), item) for item in many]
            changed[field["name"]] = many if isinstance(value, list) else many[0]
        return changed

    return different(DESCRIPTION, simulation.to_dict())
