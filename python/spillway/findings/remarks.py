"""Diagnoses of runs: what was measured, on which servers, and which mechanisms never acted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from spillway._core.instance import InstanceGroup, Jittered, StepLoop
from spillway._core.workload import Trace
from spillway.config import profiles
from spillway.config.formatting import counted, number
from spillway.config.provenance import notes_on_servers, notes_on_verdicts
from spillway.data.extrapolation import extrapolations
from spillway.data.figures import LATENCIES, SMALL_SAMPLE
from spillway.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.data.result_data import ResultData
    from spillway.findings.finding import Severity
    from spillway.findings.parts import Parts
    from spillway.findings.run import Run

_FAR_LOWER = 0.2  # goodput of a group below that of all requests
_FEWEST = 100  # values of a percentile of a group
_UNUSED_MEMORY = 0.03
_MOST_SHOWN = 3
# Categories of reasons that do not concern overload.
_NOT_OVERLOAD = ("unservable", "timeout")


def failed_calls(run: Run) -> Iterator[Finding]:
    """Calls that failed where they were recorded."""
    reasons = run.result.activity["not_completed"]
    lost = reasons.get("instance_lost", 0) + reasons.get("gateway_lost", 0)
    if count := run.ledger["failed"] - lost:
        yield Finding(
            "workload.empty_outputs",
            f"{count:,} of {run.ledger['attempts']:,} requests failed: the trace records no "
            "output for them, or its log another status than success. They count as failed, and "
            "take no time of the servers; workload.empty_outputs = served computes their prompts.",
            severity="medium",
            evidence=(
                Evidence(
                    "share_failed", count / run.ledger["attempts"], "requests without an output"
                ),
            ),
            remedies=({"workload.empty_outputs": "served"},),
        )


def cached_prompts(run: Run) -> Iterator[Finding]:
    """Prompts of a trace that its server had cached before."""
    workload = run.simulation.workload
    if not isinstance(workload, Trace) or not workload.has_requests:
        return
    columns = workload._columns()
    cached = int(columns["warm_tokens"].sum()) if "warm_tokens" in columns else 0
    if cached:
        share = cached / int(columns["input_tokens"].sum())
        yield Finding(
            "workload",
            f"{share:.0%} of the prompt tokens are in every prefix cache from the start, as the "
            "trace records them as cached (warm_tokens); fewer servers, or other servers, would "
            "not have had all of them.",
            severity="info",
            evidence=(Evidence("share_cached", share, "prompt tokens recorded as cached"),),
        )


def no_targets(run: Run) -> Iterator[Finding]:
    """No class with traffic has a latency target."""
    if run.summary["offered"] and run.summary["goodput"] is None:
        yield Finding(
            "slo_classes",
            "no class with traffic has a latency target, so there is no goodput; set one, "
            "e.g. slo_classes[standard].target_ttft_s.",
            severity="info",
        )


def unvalidated_servers(run: Run) -> Iterator[Finding]:
    """Servers whose step times are computed, or that a recording has refuted."""
    refuted = notes_on_verdicts([run.simulation])
    for text in notes_on_servers([run.simulation]):
        severity: Severity = "medium" if text in refuted else "info"
        yield Finding("instances", text, severity=severity)


def extrapolated(run: Run) -> Iterator[Finding]:
    """Servers that ran outside the batches that they were fitted to."""
    for text in extrapolations(run.result):
        yield Finding("instances", text, severity="low")


def few_values(run: Run) -> Iterator[Finding]:
    """Percentiles of few values."""
    if any(0 < int(run.summary[f"num_{name}"] or 0) < SMALL_SAMPLE for name in LATENCIES):
        yield Finding(
            "",
            f"* p99 is unreliable with fewer than {SMALL_SAMPLE:,} values.",
            severity="info",
        )


def approximate(run: Run) -> Iterator[Finding]:
    """Percentiles from a histogram."""
    if run.summary.get("approximate"):
        yield Finding(
            "metrics.streaming",
            "percentiles are approximate: each lies within 0.4% of its true value.",
            severity="info",
        )


def slow_stepping(run: Run) -> Iterator[Finding]:
    """Instances whose every step was simulated separately."""
    # Ranks in lockstep also step singly, which takes hardly longer than jumps.
    groups = [group for group in run.simulation.instances for _ in range(group.count)]
    plain = sum(
        instance["stepping"] == "plain" and isinstance(group.latency, Jittered)
        for instance, group in zip(run.result.instances, groups, strict=True)
    )
    if plain:
        yield Finding(
            "instances",
            f"{plain} of {counted(len(run.result.instances), 'instance')} simulated every step "
            "separately, because their latency model distinguishes steps; such runs take longer.",
            severity="info",
        )


def default_servers(run: Run) -> Iterator[Finding]:
    """What the servers are that have neither step times nor KV memory of their own.

    Not in BLIS's books, and not of servers that were named, whose provenance says it.
    """
    simulation = run.simulation
    remedy = "state yours, e.g. instances: {server: {model: qwen3-14b, gpu: h200, tp: 2}}."
    unnamed = {
        (group.latency, group.num_kv_blocks)
        for group in simulation.instances
        if group.plant == StepLoop() and not group.provenance
    }
    default, blis = InstanceGroup(), profiles.BLIS_SERVER
    if (default.latency, default.num_kv_blocks) in unnamed:
        yield Finding(
            "instances",
            f"the servers are Spillway's default, an H100 that serves Llama 3.1 8B; {remedy}",
            severity="info",
        )
    is_causal = simulation.metrics.accounting == "clock"
    if is_causal and (blis.latency, blis.num_kv_blocks) in unnamed:
        yield Finding(
            "instances",
            "the servers are those of BLIS's experiments, in which context costs nothing and KV "
            f"memory is hardly ever short; {remedy}",
            severity="info",
        )


_FIGURES = (("ttft", "ttft"), ("tpot", "tpot"), ("e2e", "e2el"))


def hidden_group(run: Run) -> Iterator[Finding]:
    """The class or tenant that misses most what the figures of all requests meet."""
    result, summary = run.result, run.summary
    classes = {slo_class.name: slo_class for slo_class in result.simulation.slo_classes}
    by_class, by_tenant = result.by_class(), result.by_tenant()
    used = [classes.get(name) for name, figures in by_class.items() if figures["offered"]]
    late: list[tuple[float, str, float]] = []
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
                late.append((own / target_ms, note, float(values["goodput"] or 0)))
    if late:
        over, text, share = max(late)
        yield Finding(
            "slo_classes",
            text,
            severity="high" if share < 1 - _FAR_LOWER / 2 else "medium",
            evidence=(Evidence("p99_over_target", over, "of the group that misses most"),),
        )
        return
    goodput = summary["goodput"]
    shares = [(values["goodput"], tenant) for tenant, values in by_tenant.items()]
    known = [(share, tenant) for share, tenant in shares if share is not None]
    if meet and all(meet) and goodput is not None and known:
        lowest, worst = min(known, key=lambda pair: pair[0])
        if lowest < goodput - _FAR_LOWER:
            yield Finding(
                "slo_classes",
                f"goodput of tenant {worst} is {number(lowest)}, of all requests "
                f"{number(goodput)}, whose p99 meets the targets; goodput[worst tenant] shows it "
                "in constraints and tables.",
                severity="high",
                evidence=(Evidence("goodput", lowest, f"of tenant {worst}"),),
            )


# ---- mechanisms that never acted -----------------------------------------------------------------


class _Idle(NamedTuple):
    what: str
    never: str

    @property
    def path(self) -> str:
        return self.what.partition(" = ")[0]

    def __str__(self) -> str:
        return f"{self.what} never {self.never}."


def idle_mechanism(run: Run) -> Iterator[Finding]:
    """Limits, policies, thresholds and controllers that never acted."""
    if not run.ledger["attempts"] or not run.activity["limit_held"]:
        return
    result, parts = run.result, run.parts
    idle = [
        *_idle_limits(result, parts),
        *_idle_thresholds(result, parts),
        *_idle_reasons(result, parts),
        *_idle_controller(result, parts),
    ]
    for mechanism in idle[:_MOST_SHOWN]:
        yield Finding(mechanism.path, str(mechanism), severity="low")
    if more := [mechanism.path for mechanism in idle[_MOST_SHOWN:]]:
        yield Finding("", f"also without effect: {', '.join(more)}.", severity="low")


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
        if noun.path == "router":  # has a reason only for requests that no server is left for
            continue
        reasons = noun.description.get("reasons", ())
        if "kind" in noun.description and reasons:
            held = any(entered[i] for i in _instances_of(result, noun.path) if i in entered)
            if not held and not any(reason["name"] in counts for reason in reasons):
                idle[_Idle(str(noun), "refused a request")] = None
            continue
        # The first refuses only where its router does; what fails is no mechanism.
        if noun.path in ("disaggregation", "fleet.health"):
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


def unused_memory(run: Run) -> Iterator[Finding]:
    """KV memory that is hardly used."""
    has_memory = any(group.plant.kind == "step_loop" for group in run.simulation.instances)
    peak = run.activity["peak_kv_utilization"]
    if has_memory and peak <= _UNUSED_MEMORY:
        blocks = run.parts.setting_text("instances[].num_kv_blocks")
        yield Finding(
            "instances[0].num_kv_blocks",
            f"at most {peak:.1%} of the KV blocks were in use ({blocks}).",
            severity="low",
            evidence=(Evidence("peak_kv_utilization", peak, "largest share of KV blocks in use"),),
        )
