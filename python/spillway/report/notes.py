"""Remarks on a result, the most important first."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from spillway._core.cluster import Simulation
from spillway._core.instance import InstanceGroup, Jittered, StepLoop
from spillway.config import profiles
from spillway.config.formatting import number, setting
from spillway.config.provenance import notes_on_servers
from spillway.data.extrapolation import extrapolations
from spillway.data.figures import LATENCIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spillway.data.result_data import ResultData


SMALL_SAMPLE = 1000
"""Percentiles p99 of fewer values than this are flagged."""

_HEAVY_SHEDDING = 0.5
_NOTEWORTHY = 0.1  # share of a reason in heavy shedding
_LONG_AT_FLOOR = 0.2  # share of the ticks
_FAR_LOWER = 0.2  # goodput of a group below that of all requests
_FEWEST = 100  # values of a percentile of a group
_UNUSED_MEMORY = 0.03
_LEARNS = {
    "predictive_ttft": "predicted_ttft",
    "latency_slo": "latency_slo",
    "early_rejection": "early_rejection",
    "bouncer": "bouncer",
}  # policies that learn from what they admit, and the reason of their rejections
_MOST_SHOWN = 3
_MOST_SETTINGS = 4
# Categories of reasons that do not concern overload.
_NOT_OVERLOAD = ("unservable", "timeout")


def notes(result: ResultData) -> list[str]:
    """Why requests were lost, which figures are uncertain, and which mechanisms never acted."""
    parts = Parts(result.simulation)
    found = [*_losses(result, parts), *_failed(result)]
    found += [*_at_floor(result, parts), *_unfinished(result)]
    found += [*_stopped_learning(result), *_stopped_tenants(result)]
    found += _small_index(result, parts)
    summary = result.summary()
    if summary["offered"] and summary["goodput"] is None:
        found.append(
            "no class with traffic has a latency target, so there is no goodput; set one, "
            "e.g. slo_classes[standard].target_ttft_s."
        )
    found += _hidden_group(result)
    found += [*_short_list(_idle(result, parts)), *_unused_memory(result, parts)]
    found += notes_on_servers([result.simulation])
    found += extrapolations(result)
    found += _default_servers(result.simulation)
    if any(0 < int(summary[f"num_{name}"] or 0) < SMALL_SAMPLE for name in LATENCIES):
        found.append(f"* p99 is unreliable with fewer than {SMALL_SAMPLE:,} values.")
    if summary.get("approximate"):
        found.append("percentiles are approximate: each lies within 0.4% of its true value.")
    # Ranks in lockstep also step singly, which takes hardly longer than jumps.
    groups = [group for group in result.simulation.instances for _ in range(group.count)]
    plain = sum(
        instance["stepping"] == "plain" and isinstance(group.latency, Jittered)
        for instance, group in zip(result.instances, groups, strict=True)
    )
    if plain:
        found.append(
            f"{plain} of {len(result.instances)} instances simulated every step separately, "
            "because their latency model distinguishes steps; such runs take longer."
        )
    return found


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


def _default_servers(simulation: Simulation) -> Iterator[str]:
    """What the servers are that have neither step times nor KV memory of their own.

    Not in BLIS's books, and not of servers that were named, whose provenance says it.
    """
    remedy = "state yours, e.g. instances: {server: {model: qwen3-14b, gpu: h200, tp: 2}}."
    unnamed = {
        (group.latency, group.num_kv_blocks)
        for group in simulation.instances
        if group.plant == StepLoop() and not group.provenance
    }
    default, blis = InstanceGroup(), profiles.BLIS_SERVER
    if (default.latency, default.num_kv_blocks) in unnamed:
        yield f"the servers are Spillway's default, an H100 that serves Llama 3.1 8B; {remedy}"
    is_causal = simulation.metrics.accounting == "clock"
    if is_causal and (blis.latency, blis.num_kv_blocks) in unnamed:
        yield (
            "the servers are those of BLIS's experiments, in which context costs nothing and KV "
            f"memory is hardly ever short; {remedy}"
        )


def _losses(result: ResultData, parts: Parts) -> Iterator[str]:
    """The reason for heavy shedding, and the settings that decided it."""
    attempts = result.ledger["attempts"]
    counts = result.activity["not_completed"]
    if sum(counts.values()) <= _HEAVY_SHEDDING * attempts:
        return
    whole = "requests" if attempts == result.ledger["logical_requests"] else "attempts"
    for reason, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        if count < _NOTEWORTHY * attempts:
            break
        who = deciders(parts, reason)
        shown = ", ".join(who[:_MOST_SHOWN])
        if len(who) > _MOST_SHOWN:
            shown += f" and {len(who) - _MOST_SHOWN} more"
        yield (
            f"{count / attempts:.1%} of the {whole} were not completed: {reason}, "
            f"decided by {shown}."
        )


def _failed(result: ResultData) -> Iterator[str]:
    """Calls that failed where they were recorded."""
    if count := result.ledger["failed"]:
        yield (
            f"{count:,} of {result.ledger['attempts']:,} requests failed: the trace records no "
            "output for them, as of calls that failed. They count as failed, and take no time of "
            "the servers; workload.empty_outputs = served serves them."
        )


def _stopped_learning(result: ResultData) -> Iterator[str]:
    """Policies that learn from what they admit and have admitted nothing for long."""
    policies = result.simulation.gateway.admission
    learners = {
        _LEARNS[policy.kind]: i for i, policy in enumerate(policies) if policy.kind in _LEARNS
    }
    if not learners or not result.has_requests:
        return
    columns = result.requests
    last = np.flatnonzero(columns["admitted"])
    after = int(last[-1]) + 1 if len(last) else 0
    reasons = columns["reason"][after:]
    for reason, i in learners.items():
        count = int(np.count_nonzero(reasons == reason))
        if count >= _FEWEST:
            since_s = columns["arrival_s"][after]
            yield (
                f"gateway.admission[{i}] = {policies[i].kind} has stopped learning: it learns from "
                f"what it admits, and has rejected all {count:,} requests since {since_s:.4g} s."
            )


def _stopped_tenants(result: ResultData) -> Iterator[str]:
    """Tenants that waited behind one at its own limit."""
    if not result.activity["tenant_limit_stopped_others"]:
        return
    gateway = result.simulation.gateway
    bands = [
        f"gateway.bands[{i}].fairness = {band.fairness.kind}"
        for i, band in enumerate(gateway.bands)
        if getattr(band.fairness, "semantics", "") == "verbatim"
    ]
    own = next(
        f"gateway.limit[{i}] = {limit.kind}"
        for i, limit in enumerate(gateway.limit)
        if limit.kind in ("per_tenant", "group")
    )
    yield (
        f"requests within every limit waited behind a tenant at its own ({own}): "
        f"{', '.join(bands[:_MOST_SHOWN])}, verbatim; with a fairness such as global_fifo or "
        "round_robin a tenant waits for its own limit only."
    )


def _small_index(result: ResultData, parts: Parts) -> Iterator[str]:
    """A record of prompts that forgets what the instances still have."""
    index, groups = result.simulation.prefix_index, result.simulation.instances
    if index.capacity_blocks is None or not result.activity["prefix_index_forgot"]:
        return
    held = index.capacity_blocks * index.block_size_tokens
    caching = [group for group in groups if group.kv_cache.prefix_caching]
    sizes = (group.num_kv_blocks * group.block_size_tokens for group in caching)
    cached = max(sizes, default=0)
    if held < cached and result.simulation.metrics.accounting == "clock":
        capacity = parts.setting_text("prefix_index.capacity_blocks")
        yield (
            f"the gateway's record of prompts was full: {capacity} holds {held:,} tokens per rank, "
            f"the KV memory up to {cached:,}; unset, it holds as many."
        )


def _unfinished(result: ResultData) -> Iterator[str]:
    summary = result.summary()
    offered = summary["offered"] or 0
    unfinished = summary["unfinished"] or 0
    if unfinished > _HEAVY_SHEDDING * offered:
        yield (
            f"{unfinished / offered:.1%} of the requests had not finished when the run ended "
            f"(horizon_s = {setting(result.simulation.horizon_s)})."
        )


def _at_floor(result: ResultData, parts: Parts) -> Iterator[str]:
    """A controller that cut the limit to its floor and left it there."""
    control, floor = result.control, result.simulation.gateway.guard.floor
    ticks = control.num_ticks()
    at_floor = control.num_ticks(lambda columns: columns["setting"] <= floor)
    if not control.count("decrease") or at_floor <= _LONG_AT_FLOOR * ticks:
        return
    (controller,) = parts.below("gateway.controller")
    yield (
        f"the limit was at gateway.guard.floor = {setting(floor)} after {at_floor / ticks:.0%} of "
        f"{ticks:,} ticks; {controller} cut it."
    )


_FIGURES = (("ttft", "ttft"), ("tpot", "tpot"), ("e2e", "e2el"))


def _hidden_group(result: ResultData) -> Iterator[str]:
    """The class or tenant that misses most what the figures of all requests meet."""
    summary = result.summary()
    classes = {slo_class.name: slo_class for slo_class in result.simulation.slo_classes}
    by_class, by_tenant = result.by_class(), result.by_tenant()
    used = [classes.get(name) for name, figures in by_class.items() if figures["offered"]]
    late: list[tuple[float, str]] = []
    meet: list[bool] = []
    for metric, name in _FIGURES:
        figure = f"p99_{name}_ms"
        of_all = summary[figure]
        class_targets = [getattr(slo_class, f"target_{metric}_s", None) for slo_class in used]
        if of_all is None or not any(class_targets):
            continue
        # Requests of a tenant may be of any class: it misses for certain what exceeds all targets.
        targets = [target for target in class_targets if target is not None]
        of_tenants = max(targets) if len(targets) == len(class_targets) else None
        meet.append(of_tenants is not None and of_all <= of_tenants * 1e3)
        groups = [
            ("class", group, getattr(classes.get(group), f"target_{metric}_s", None), values)
            for group, values in by_class.items()
        ] + [("tenant", group, of_tenants, values) for group, values in by_tenant.items()]
        for noun, group, target_s, values in groups:
            own = values[figure]
            if target_s is None or own is None or (values[f"num_{name}"] or 0) < _FEWEST:
                continue
            target_ms = target_s * 1e3
            if of_all <= target_ms < own:
                note = (
                    f"{figure} of all requests, {number(of_all)}, meets the target of "
                    f"{number(target_ms)}, but that of {noun} {group} is {number(own)} "
                    f"(goodput {number(values['goodput'])}); {figure}[worst {noun}] shows it in "
                    "constraints and tables."
                )
                late.append((own / target_ms, note))
    if late:
        yield max(late)[1]
        return
    goodput = summary["goodput"]
    shares = [(values["goodput"], tenant) for tenant, values in by_tenant.items()]
    known = [(share, tenant) for share, tenant in shares if share is not None]
    if meet and all(meet) and goodput is not None and known:
        lowest, worst = min(known, key=lambda pair: pair[0])
        if lowest < goodput - _FAR_LOWER:
            yield (
                f"goodput of tenant {worst} is {number(lowest)}, of all requests "
                f"{number(goodput)}, whose p99 meets the targets; goodput[worst tenant] shows it "
                "in constraints and tables."
            )


# ---- mechanisms that never acted -----------------------------------------------------------------


class _Idle(NamedTuple):
    what: str
    never: str

    def __str__(self) -> str:
        return f"{self.what} never {self.never}."


def _short_list(idle: Sequence[_Idle]) -> list[str]:
    shown = [str(mechanism) for mechanism in idle[:_MOST_SHOWN]]
    if more := [mechanism.what.partition(" = ")[0] for mechanism in idle[_MOST_SHOWN:]]:
        shown.append(f"also without effect: {', '.join(more)}.")
    return shown


def _idle(result: ResultData, parts: Parts) -> list[_Idle]:
    """The mechanisms of a run that never acted."""
    if not result.ledger["attempts"] or not result.activity["limit_held"]:
        return []
    return [
        *_idle_limits(result, parts),
        *_idle_thresholds(result, parts),
        *_idle_reasons(result, parts),
        *_idle_controller(result, parts),
    ]


def _idle_limits(result: ResultData, parts: Parts) -> Iterator[_Idle]:
    activity = result.activity
    for noun, held in zip(parts.below("gateway.limit["), activity["limit_held"], strict=True):
        if noun.description["fields"] and not held:
            most = activity["peak_in_flight"]
            yield _Idle(str(noun), f"held a request back: at most {most} were in flight at once")


def _idle_reasons(result: ResultData, parts: Parts) -> list[_Idle]:
    """Policies and settings that can reject requests, and rejected none."""
    counts = result.activity["not_completed"]
    entered = {
        ingress["instance"]: ingress["entered_from_queue"] + ingress["queued"]
        for ingress in result.ingresses
    }
    idle: dict[_Idle, None] = {}
    for noun in parts.nouns:
        reasons = noun.description.get("reasons", ())
        if "kind" in noun.description and reasons:
            held = any(entered[i] for i in _instances_of(result, noun.path) if i in entered)
            if not held and not any(reason["name"] in counts for reason in reasons):
                idle[_Idle(str(noun), "refused a request")] = None
            continue
        for reason in reasons:
            if reason["word"] in _NOT_OVERLOAD or reason["name"] in counts:
                continue
            for what in filter(None, map(parts.setting_text, reason["decided_by"])):
                idle[_Idle(what, "shed a request")] = None
    return list(idle)


def _instances_of(result: ResultData, path: str) -> range:
    """The numbers of the instances of the group that a path belongs to."""
    group = re.match(r"instances\[(\d+)\]", path)
    if not group:
        return range(0)
    counts = [entry.count for entry in result.simulation.instances]
    first = sum(counts[: int(group[1])])
    return range(first, first + counts[int(group[1])])


def _idle_thresholds(result: ResultData, parts: Parts) -> Iterator[_Idle]:
    if result.activity["busy_threshold_exceeded"]:
        return
    for at in parts.settings:
        if re.match(r"busy_monitor\..*_threshold", at.path) and at.is_on:
            yield _Idle(str(at), "was exceeded")


def _idle_controller(result: ResultData, parts: Parts) -> Iterator[_Idle]:
    (controller,) = parts.below("gateway.controller")
    if not controller.description["fields"]:
        return
    control = result.control
    moves = control.count("increase") + control.count("decrease")
    if moves or control.num_ticks(lambda columns: columns["setting"] != columns["setting"][:1]):
        return
    seen = f"{control.num_ticks()} ticks, {control.count('no_signal')} with too few samples"
    yield _Idle(str(controller), f"moved the limit: {seen}")


def _unused_memory(result: ResultData, parts: Parts) -> Iterator[str]:
    has_memory = any(group.plant.kind == "step_loop" for group in result.simulation.instances)
    peak = result.activity["peak_kv_utilization"]
    if has_memory and peak <= _UNUSED_MEMORY:
        blocks = parts.setting_text("instances[].num_kv_blocks")
        yield f"at most {peak:.1%} of the KV blocks were in use ({blocks})."


# ---- the parts of a simulation -------------------------------------------------------------------


class _Noun(NamedTuple):
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
        self.nouns: list[_Noun] = []
        self.settings: list[_Setting] = []
        self._by_pattern: defaultdict[str, list[_Setting]] = defaultdict(list)
        self._add("", _description(), simulation.to_dict())

    def below(self, path: str) -> list[_Noun]:
        """Structures whose path begins with a prefix, without those inside them."""
        found = [noun for noun in self.nouns if noun.path.startswith(path)]
        return [noun for noun in found if "." not in noun.path[len(path) :]]

    def setting_text(self, pattern: str) -> str:
        """The settings at a path in which `[]` matches every entry; empty: all are off."""
        found = [entry for entry in self._by_pattern.get(pattern, ()) if entry.is_on]
        if len(found) > 1:
            return f"{pattern} = {setting([entry.value for entry in found])}"
        return str(found[0]) if found else ""

    def _add(self, path: str, description: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.nouns.append(_Noun(path, description, values))
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
