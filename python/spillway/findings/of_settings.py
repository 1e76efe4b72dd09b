"""Diagnoses of settings: what cannot work, found from the configuration alone.

They compare settings with each other and with requests that arrive alone at an idle server. They
are bounds: each finding holds for every run of the simulation, under any seed.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.cluster import reads_output_lengths
from spillway._core.router import Weighted
from spillway._core.workload import LengthPrediction, Trace
from spillway.config.formatting import counted, setting
from spillway.findings.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation
    from spillway.findings.plan import Alone, Demand, Plan

# ---- controllers ---------------------------------------------------------------------------------

# Controllers that do nothing while the sensor has no value.
_NEED_A_SIGNAL = ("aimd", "mimd", "pid", "vegas", "gradient2")
# Sources that have a value without requests, and to which aggregation and window do not apply.
_READ_AT_TICKS = ("kv_utilization", "hit_rate")

BUCKET_EDGES_S = (
    *(0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5),
    *(7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600),
)
"""Upper edges of the buckets of a `bucketed_quantile` sensor, in seconds; those of the core."""


def _reads_samples(simulation: Simulation) -> bool:
    gateway = simulation.gateway
    return gateway.controller.kind in _NEED_A_SIGNAL and gateway.sensor.source not in _READ_AT_TICKS


def sensor_window(plan: Plan) -> Iterator[Finding]:
    """A sensor of histograms whose window is shorter than the interval of the controller."""
    sensor = plan.simulation.gateway.sensor
    interval_s = sensor.tick_s + sensor.tick_drift_s
    if not _reads_samples(plan.simulation) or sensor.aggregation != "bucketed_quantile":
        return
    if sensor.window_s < interval_s:
        yield Finding(
            "gateway.sensor.window_s",
            f"the controller never has a signal: the window of {setting(sensor.window_s)} s is "
            f"shorter than the interval between ticks, tick_s + tick_drift_s = "
            f"{interval_s:g} s, so the histogram at its start is always the one at its end.",
            remedies=({"gateway.sensor.window_s": 2 * interval_s},),
        )


def band_of_controller(plan: Plan) -> Iterator[Finding]:
    """A controller whose band lies beyond the buckets of the histogram, or within one of them."""
    gateway = plan.simulation.gateway
    controller = gateway.controller
    if controller.kind not in ("aimd", "mimd") or not _reads_samples(plan.simulation):
        return
    if gateway.sensor.aggregation != "bucketed_quantile":
        return
    low_s = controller.target_s * (1 - controller.band)
    high_s = controller.target_s * (1 + controller.band)
    band = (
        f"target_s {controller.target_s:g} and band {controller.band:g} hold the limit from "
        f"{low_s:g} to {high_s:g} s"
    )
    if high_s >= BUCKET_EDGES_S[-1]:
        yield Finding(
            "gateway.controller.target_s",
            f"the controller never cuts the limit: {band}, and no quantile of the histogram "
            f"exceeds its highest edge, {BUCKET_EDGES_S[-1]:g} s.",
        )
        return
    edges = (0.0, *BUCKET_EDGES_S)
    for lower_s, upper_s in itertools.pairwise(edges):
        if lower_s < low_s and high_s < upper_s:
            yield Finding(
                "gateway.controller.band",
                f"the sensor cannot resolve the band: {band}, inside one bucket of the histogram, "
                f"{lower_s:g} to {upper_s:g} s; where a reading lies within a bucket is "
                "interpolated.",
            )


def absorbing_floor(plan: Plan) -> Iterator[Finding]:
    """A floor of the limit at which the controller has no signal to raise the limit again."""
    gateway, guard = plan.simulation.gateway, plan.simulation.gateway.guard
    sensor = gateway.sensor
    if not _reads_samples(plan.simulation) or sensor.includes_refusals:
        return
    floor = guard.floor
    if guard.rounding != "none":
        floor = math.floor(floor if guard.rounding == "floor" else floor + 0.5)
    if floor < 1 and (floor == 0 or guard.rounding != "none"):
        yield Finding(
            "gateway.guard.floor",
            f"the floor is absorbing: {guard.floor:g} permits, rounding {guard.rounding}, let the "
            f"limit fall to 0; then no request gives the sensor a value (source {sensor.source}), "
            "and nothing raises the limit again.",
        )
        return
    least_s = _least_hold_s(plan.simulation, plan.alone)
    kinds = {limit.kind for limit in gateway.limit}
    if kinds != {"fixed"} or least_s <= 0 or sensor.scope == "max_over_tenants":
        return
    permits = math.ceil(floor)
    most = permits * gateway.replicas * (math.floor(sensor.window_s / least_s) + 1)
    if most < sensor.min_samples:
        yield Finding(
            "gateway.guard.floor",
            f"the floor is absorbing: at {permits:,} permits, each held for at least "
            f"{least_s:.4g} s, a window of {sensor.window_s:g} s has at most {most:,} samples, "
            f"fewer than min_samples = {sensor.min_samples:,}, and nothing raises the limit again.",
        )


def _least_hold_s(simulation: Simulation, alone: dict[str, Alone]) -> float:
    """The least time between two samples of a permit."""
    least_s = min((latencies.ttft_s for latencies in alone.values()), default=0.0)
    # A request that ends early leaves its permit after its first token at any time.
    if not _ends_early(simulation):
        least_s += min(
            (latencies.e2e_s - latencies.ttft_s for latencies in alone.values()), default=0.0
        )
    return least_s


def _ends_early(simulation: Simulation) -> bool:
    """Whether a request in flight may end before its last token."""
    reactions = [simulation.reaction, *(tenant.reaction for tenant in simulation.tenants)]
    return simulation.gateway.eviction.max_victims > 0 or any(
        reaction is not None
        and (reaction.timeout_s, reaction.first_token_timeout_s, reaction.deadline_s)
        != (None, None, None)
        for reaction in reactions
    )


def target_below_latency(plan: Plan) -> Iterator[Finding]:
    """A target of a controller below the latency of a request alone."""
    gateway = plan.simulation.gateway
    source = gateway.sensor.source
    controller = gateway.controller
    if controller.kind not in ("aimd", "mimd") or source not in ("ttft", "e2e"):
        return
    if not plan.alone or gateway.sensor.includes_refusals or gateway.sensor.quantile == 0:
        return
    shortest = min(plan.alone.values(), key=lambda latencies: latencies.of(source))
    least_s = shortest.of(source)
    high_s = controller.target_s * (1 + controller.band)
    # A reading of a histogram is no lower than the lower edge of the bucket of its least sample.
    if gateway.sensor.aggregation == "bucketed_quantile":
        floor_s = max((edge_s for edge_s in BUCKET_EDGES_S if edge_s < least_s), default=0.0)
    else:
        floor_s = least_s
    if floor_s > high_s:
        yield Finding(
            "gateway.controller.target_s",
            f"the controller always cuts the limit, down to guard.floor = "
            f"{gateway.guard.floor:g}: it cuts above {high_s:g} s, and {shortest.request} "
            f"{least_s:.4g} s ({source}).",
        )


def controller_chases_its_queue(plan: Plan) -> Iterator[Finding]:
    """A controller of latencies since arrival that cuts at less than the timeout of the queue.

    Under overload the wait alone exceeds its target, and cuts prolong the wait.
    """
    gateway = plan.simulation.gateway
    controller, sensor = gateway.controller, gateway.sensor
    if controller.kind not in ("aimd", "mimd") or sensor.source not in ("ttft", "e2e"):
        return
    is_least = sensor.aggregation == "min" or (
        sensor.aggregation.endswith("quantile") and sensor.quantile == 0
    )
    if is_least or gateway.limit[0].kind == "unlimited":
        return
    # A bound on the queue also bounds the wait, by an amount that the settings do not show.
    if gateway.max_queued is not None or any(
        tenant.queue_max is not None for tenant in plan.simulation.tenants
    ):
        return
    high_s = controller.target_s * (1 + controller.band)
    for i, band in enumerate(gateway.bands):
        queue = band.queue
        is_bounded = queue.max_requests is not None or queue.codel_target_s is not None
        if is_bounded or "lifo" in queue.ordering or queue.timeout_s is None:
            continue
        if queue.timeout_s > high_s:
            yield Finding(
                "gateway.controller.target_s",
                "under overload the controller cuts the limit whatever the servers do: it cuts "
                f"above {high_s:g} s ({sensor.source}, which includes the wait in the gateway), "
                f"and requests wait up to gateway.bands[{i}].queue.timeout_s = "
                f"{queue.timeout_s:g} s. Each cut prolongs the wait, down to guard.floor = "
                f"{gateway.guard.floor:g}.",
                remedies=({f"gateway.bands[{i}].queue.timeout_s": high_s},),
            )
            return


# ---- targets and timeouts ------------------------------------------------------------------------


def targets_out_of_reach(plan: Plan) -> Iterator[Finding]:
    """A target of a class below the latency of a request alone."""
    for slo_class in plan.simulation.slo_classes:
        if slo_class.name not in plan.alone:
            continue
        least = plan.alone[slo_class.name]
        for metric in ("ttft", "tpot", "e2e"):
            target_s = getattr(slo_class, f"target_{metric}_s")
            if target_s is not None and target_s < least.of(metric):
                yield Finding(
                    f"slo_classes[{slo_class.name}].target_{metric}_s",
                    f"no request meets the target of {target_s:g} s: {least.request} "
                    f"{least.of(metric):.4g} s.",
                    severity="high",
                )


def budgets_out_of_reach(plan: Plan) -> Iterator[Finding]:
    """A budget of a predictor below the latency of a request alone, or none at all."""
    for i, policy in enumerate(plan.simulation.gateway.admission):
        if policy.kind != "predictive_ttft":
            continue
        budgets = {budget.slo_class for budget in policy.budgets}
        budgets |= {
            slo_class.name
            for slo_class in plan.simulation.slo_classes
            if slo_class.target_ttft_s is not None
        }
        if plan.alone and budgets.isdisjoint(plan.alone):
            yield Finding(
                f"gateway.admission[{i}].budgets",
                "every request is admitted: no class with requests has a budget or, without one, a "
                f"target_ttft_s ({', '.join(sorted(plan.alone))}).",
                severity="high",
            )
        for budget in policy.budgets:
            least = plan.alone.get(budget.slo_class)
            if least is not None and budget.budget_s < least.ttft_s:
                yield Finding(
                    f"gateway.admission[{i}].budgets[{budget.slo_class}].budget_s",
                    f"no request meets the budget of {budget.budget_s:g} s: {least.request} "
                    f"{least.ttft_s:.4g} s to its first token.",
                    severity="high",
                )


def bucket_below_prompt(plan: Plan) -> Iterator[Finding]:
    """A token bucket or a rate limit that no request passes."""
    prompts = plan.demand.least_prompt
    for i, policy in enumerate(plan.simulation.gateway.admission):
        path = f"gateway.admission[{i}]"
        if policy.kind == "token_bucket" and prompts:
            least = min(prompts.values())
            if policy.capacity_tokens < least:
                yield Finding(
                    f"{path}.capacity_tokens",
                    f"no request is admitted: the bucket holds {policy.capacity_tokens:,g} tokens, "
                    f"and every prompt has at least {least:,}.",
                    is_refused=True,
                    severity="high",
                    remedies=({f"{path}.capacity_tokens": _roomy(plan, least)},),
                )
        elif policy.kind == "tenant_token_bucket":
            for j, own in enumerate(policy.own):
                least_own = min(
                    (tokens for (tenant, _), tokens in prompts.items() if tenant == own.tenant),
                    default=0,
                )
                if own.capacity_tokens < least_own:
                    yield Finding(
                        f"{path}.own[{j}].capacity_tokens",
                        f"no request of tenant {own.tenant} is admitted: its bucket holds "
                        f"{own.capacity_tokens:,g} tokens, and every prompt has at least "
                        f"{least_own:,}.",
                        is_refused=True,
                        severity="high",
                        remedies=({f"{path}.own[{j}].capacity_tokens": _roomy(plan, least_own)},),
                    )
        elif policy.kind == "rate_limit" and policy.charge == "reserve" and policy.max_tokens:
            reserved = {entry.slo_class: entry.output_tokens for entry in policy.reserved_of_class}
            is_fixed = policy.output_length == "fixed"  # else a request may state 1 token
            least = min(
                (
                    (policy.tokens != "output") * tokens
                    + (policy.tokens != "prompt")
                    * (reserved.get(slo_class, policy.reserved_output_tokens) if is_fixed else 1)
                    for (_, slo_class), tokens in prompts.items()
                ),
                default=0,
            )
            if not policy.own and policy.max_tokens < least:
                yield Finding(
                    f"{path}.max_tokens",
                    f"no request is admitted: a window has {policy.max_tokens:,} tokens, and every "
                    f"request reserves at least {least:,} (its output included).",
                    is_refused=True,
                    severity="high",
                    remedies=({f"{path}.max_tokens": _roomy(plan, least)},),
                )


def _roomy(plan: Plan, least: int) -> int:
    """Tokens of a bucket that holds every request, and ten of the smallest."""
    return max(10 * least, plan.demand.max_tokens)


def clients_give_up(plan: Plan) -> Iterator[Finding]:
    """A client timeout below the latency of a request alone."""
    reactions = {tenant.name: tenant.reaction for tenant in plan.simulation.tenants}
    for tenant, slo_classes in plan.demand.tenants.items():
        reaction, where = reactions.get(tenant), f"tenants[{tenant}].reaction"
        if reaction is None:
            reaction, where = plan.simulation.reaction, "reaction"
        limits = (("timeout_s", "e2e"), ("first_token_timeout_s", "ttft"), ("deadline_s", "e2e"))
        for name, metric in limits:
            limit_s = getattr(reaction, name)
            least = min(
                (plan.alone[slo_class] for slo_class in slo_classes),
                key=lambda latencies: latencies.of(metric),
            )
            if limit_s is not None and limit_s < least.of(metric):
                yield Finding(
                    f"{where}.{name}",
                    f"every client of tenant {tenant} gives up: after {limit_s:g} s, and "
                    f"{least.request} {least.of(metric):.4g} s.",
                    severity="high",
                )


# ---- limits and thresholds -----------------------------------------------------------------------


def limit_cannot_bind(plan: Plan) -> Iterator[Finding]:
    """A limit above what can be in the system at once, or above the other part of a dual limit."""
    gateway = plan.simulation.gateway
    if gateway.usage_limit.kind != "static":
        return
    controlled = gateway.controller.kind != "static"
    share = min(1.0, *(band.ceiling for band in gateway.bands))
    for i, limit in enumerate(gateway.limit):
        path = f"gateway.limit[{i}]"
        for name, moves, per_permit, meaning in _permits(plan.simulation, limit, plan.demand):
            value = getattr(limit, name)
            least = min(value, gateway.guard.floor if controlled and moves else math.inf)
            if least * per_permit * share >= plan.demand.max_concurrent:
                floor = f", and no less than guard.floor = {gateway.guard.floor:g}"
                yield Finding(
                    f"{path}.{name}",
                    f"the limit cannot bind: it is {setting(value)}{meaning}"
                    f"{floor if controlled and moves else ''}, and {plan.demand.concurrent_by}.",
                    severity="low",
                )
        if limit.kind == "dual_limit" and not controlled:
            first, total = limit.max_awaiting_first_token, limit.max_in_flight
            if total <= first < plan.demand.max_concurrent:
                yield Finding(
                    f"{path}.max_awaiting_first_token",
                    f"the limit cannot bind: it is {first:,}, and max_in_flight is {total:,}.",
                    severity="low",
                )


def unread_predictions(plan: Plan) -> Iterator[Finding]:
    """Predictions of output lengths that no policy reads."""
    simulation = plan.simulation
    if simulation.length_prediction == LengthPrediction():
        return
    if not reads_output_lengths(simulation):
        yield Finding(
            "length_prediction",
            "no policy reads predicted output lengths: an output_length or output_estimate of "
            "predicted, the ordering shortest_output, or the scheduler sjf by its length would.",
            severity="low",
        )


def _permits(
    simulation: Simulation, limit: Any, demand: Demand
) -> Iterator[tuple[str, bool, float, str]]:
    """The settings of a limit: name, whether a controller moves it, requests per unit, remark."""
    if limit.kind in ("fixed", "per_tenant", "dual_limit"):
        yield "max_in_flight", True, 1, ""
    if limit.kind == "dual_limit":
        yield "max_awaiting_first_token", False, 1, ""
    if limit.kind == "token_budget" and demand.max_tokens and limit.output_length == "fixed":
        tokens = demand.max_tokens + limit.assumed_output_tokens
        remark = f" tokens for requests of at most {tokens:,} (assumed_output_tokens included)"
        yield "max_tokens_in_flight", True, 1 / tokens, remark
    workers = _num_instances(simulation)
    if limit.kind == "worker_budget":
        workers = workers if limit.workers is None else limit.workers
        if workers is not None:
            yield "cap_per_worker", True, workers, f" x {counted(workers, 'worker')}"
    elif limit.kind == "saturation" and limit.detector == "concurrency" and workers is not None:
        yield "max_concurrency", False, workers, f" x {counted(workers, 'instance')}"


def _num_instances(simulation: Simulation) -> int | None:
    """The number of instances; None if it changes during the run."""
    fleet = simulation.fleet
    sizes = (fleet.initial_instances, fleet.target_instances)
    changes = any("fleet.target_instances" in change.set for change in simulation.changes)
    if fleet.autoscaler.kind != "none" or sizes != (None, None) or changes:
        return None
    return sum(group.count for group in simulation.instances)


def threshold_out_of_reach(plan: Plan) -> Iterator[Finding]:
    """A threshold of the KV utilization that `max_num_seqs` requests cannot fill."""
    if not plan.demand.max_tokens:
        return
    highest, arithmetic = 0.0, ""
    for group in plan.simulation.instances:
        if group.plant.kind != "step_loop":
            return
        tokens = min(plan.demand.max_tokens, group.max_model_len or plan.demand.max_tokens)
        blocks = -(-tokens // group.block_size_tokens)
        share = group.max_num_seqs * blocks / group.num_kv_blocks
        if share > highest:
            highest = share
            arithmetic = (
                f"max_num_seqs {group.max_num_seqs:,} x {blocks:,} blocks (at most {tokens:,} "
                f"tokens in blocks of {group.block_size_tokens}) fill at most {share:.1%} of "
                f"{group.num_kv_blocks:,} blocks"
            )
    for path, threshold in _thresholds(plan.simulation):
        if threshold > highest:
            yield Finding(
                path,
                f"the KV threshold {threshold:g} is never reached by requests: {arithmetic}.",
                severity="low",
            )


def _thresholds(simulation: Simulation) -> Iterator[tuple[str, float]]:
    """The thresholds of the KV utilization, with their paths."""
    gateway = simulation.gateway
    for name in ("admission", "limit"):
        for i, policy in enumerate(getattr(gateway, name)):
            if getattr(policy, "detector", "") == "utilization":
                yield (
                    f"gateway.{name}[{i}].kv_utilization_threshold",
                    policy.kv_utilization_threshold,
                )
    if gateway.controller.kind == "concur":
        yield "gateway.controller.high_kv_utilization", gateway.controller.high_kv_utilization
    for i, filter_ in enumerate(getattr(simulation.router, "filters", ())):
        if filter_.kind == "utilization":
            path = f"router.filters[{i}].kv_utilization_threshold"
            yield path, filter_.kv_utilization_threshold * (1 + filter_.headroom)


def busy_threshold_out_of_reach(plan: Plan) -> Iterator[Finding]:
    """A threshold of `busy_monitor` that the requests in flight cannot exceed.

    The gateway's count of blocks includes requests that wait in the engine: `max_num_seqs` does
    not bound it.
    """
    most, why = _most_in_flight(plan.simulation, plan.demand)
    if not plan.demand.max_tokens or most == math.inf:
        return
    share, arithmetic = max(
        (
            most * -(-plan.demand.max_tokens // group.block_size_tokens) / group.num_kv_blocks,
            group.num_kv_blocks,
        )
        for group in plan.simulation.instances
    )
    for path, threshold in _busy_thresholds_over_time(plan.simulation):
        if threshold is not None and threshold >= share:
            yield Finding(
                path,
                f"no rank ever exceeds the threshold {threshold:g}: {why}, and {most:,} requests "
                f"of at most {plan.demand.max_tokens:,} tokens are at most {share:.1%} of "
                f"{arithmetic:,} blocks.",
                severity="low",
            )


def _busy_thresholds_over_time(simulation: Simulation) -> Iterator[tuple[str, float | None]]:
    """The threshold of KV blocks at the start and as it is changed to, with their paths."""
    path = "busy_monitor.active_decode_blocks_threshold"
    yield path, simulation.busy_monitor.active_decode_blocks_threshold
    for i, change in enumerate(simulation.changes):
        yield f"changes[{i}].set[{path}]", change.set.get(path)


def _most_in_flight(simulation: Simulation, demand: Demand) -> tuple[float, str]:
    """The most requests that the gateway has sent to instances at once, and why."""
    gateway = simulation.gateway
    most, why = demand.max_concurrent, demand.concurrent_by
    if gateway.controller.kind != "static" or _ends_early(simulation):
        return most, why
    for i, limit in enumerate(gateway.limit):
        if limit.kind in ("fixed", "dual_limit"):
            permits = limit.max_in_flight * gateway.replicas
            if permits < most:
                most, why = permits, f"gateway.limit[{i}].max_in_flight is {limit.max_in_flight:,}"
                if gateway.replicas > 1:
                    why += f" in each of {gateway.replicas:,} replicas"
    return most, why


# ---- signals that only tests script --------------------------------------------------------------

_TIERS = ("host_cache_hit_weight", "disk_cache_hit_weight")


def signal_not_simulated(plan: Plan) -> Iterator[Finding]:
    """A policy, or a changed weight, of a signal that no simulated instance has."""
    policy = plan.simulation.router
    if isinstance(policy, Weighted):
        yield from _adapters_not_simulated(policy)
    if policy.kind != "kv_cost":
        return
    plain = type(policy)()
    paths = [f"router.{name}" for name in _TIERS if getattr(policy, name) != getattr(plain, name)]
    for i, change in enumerate(plan.simulation.changes):
        paths += [f"changes[{i}].set[router.{n}]" for n in _TIERS if f"router.{n}" in change.set]
    for path in paths:
        yield Finding(
            path,
            "the weight has no effect: simulated instances hold no blocks in the memory of their "
            "host or on disk; tests script such tiers.",
            severity="low",
        )


def _adapters_not_simulated(policy: Weighted) -> Iterator[Finding]:
    for i, scorer in enumerate(policy.scorers):
        if scorer.kind != "lora_affinity" or scorer.weight == 0:
            continue
        rest = [other for k, other in enumerate(policy.scorers) if k != i]
        yield Finding(
            f"router.scorers[{i}]",
            "the scorer gives every instance 0, so it has no effect: simulated instances load no "
            "adapters; tests script them.",
            severity="low",
            remedies=({"router.scorers": rest},) if rest else (),
        )


# ---- models --------------------------------------------------------------------------------------


def model_not_served(plan: Plan) -> Iterator[Finding]:
    """A model that requests of the trace name, and no group of instances serves."""
    simulation = plan.simulation
    trace = simulation.workload
    groups = [set(group.models) for group in simulation.instances]
    if not isinstance(trace, Trace) or not all(groups) or not trace.has_requests:
        return
    columns = trace._columns()
    if "model" not in columns:
        return
    names, served = columns["models"], set().union(*groups)
    requests = np.bincount(columns["model"], minlength=len(names) + 1)[1:]
    for name, number in zip(names, requests.tolist(), strict=True):
        if name in served or not number:
            continue
        share = number / len(columns["model"])
        yield Finding(
            "workload",
            f"no group of instances serves the model {name!r}, which {number:,} requests of the "
            f"trace ({share:.1%}) name: they are rejected with the reason no_candidate. "
            f"instances[].models has {', '.join(map(repr, sorted(served)))}.",
            severity="high" if share > 0.01 else "low",
        )


# ---- pools ---------------------------------------------------------------------------------------


def domain_of_one_role(plan: Plan) -> Iterator[Finding]:
    """Required transfer domains in which the instance that is chosen first has no partner."""
    simulation = plan.simulation
    groups, rule = simulation.instances, simulation.disaggregation
    if rule.topology != "require" or all(group.role == "both" for group in groups):
        return
    prefills = [group for group in groups if group.role == "prefill"]
    decodes = [group for group in groups if group.role != "prefill"]
    if rule.order == "prefill_first":
        first, partners, partner = prefills, decodes, "decode"
        outcome = "requests whose prompts they compute are rejected"
    else:
        first = [group for group in decodes if group.role == "decode"]
        partners, partner = prefills, "prefill"
        outcome = "they serve all of their requests alone"
    near = {group.transfer_domain for group in partners}
    for i, group in enumerate(groups):
        if group not in first or group.transfer_domain in near:
            continue
        yield Finding(
            f"instances[{i}].transfer_domain",
            f"no {partner} instance is in the domain {group.transfer_domain!r}, which "
            f"disaggregation.topology: require asks for: {outcome}.",
            severity="medium",
            remedies=({"disaggregation.topology": "prefer"},),
        )
