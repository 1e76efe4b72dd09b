"""Diagnoses of runs: what happened on the servers, and how the router spread the load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.formatting import counted
from spillway.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.data.arrays import Booleans, Floats
    from spillway.findings.run import Run

_FEWEST = 100  # requests from which the load of servers is compared
_FEWEST_OF_CLASS = 20
_LEAST_WAIT_S = 0.1
_NOTEWORTHY = 0.05  # share of the requests of a class
_MOST_HALF = 0.5
_HOT = 1.5  # load of a server over the mean
_SLOWER = 1.5
_HERD = 0.3  # excess of pairs of requests that went to one server, 0: at random, 1: all
_LONG = 1.25  # steps that a long prompt fills
_NEEDED = 0.75  # share of the KV memory that the running requests need
_MOST_MOVED = 0.1  # share of the requests that may have gone on at other instances
_MOST_LONG = 0.4  # share of the requests that may be long
_STARVED = 5  # wait of a class over that of a higher one
_PASSES = 50  # steps in which a request gains the prompt of another one
_TAX = 0.05  # preemptions per request
_WASTED = 0.1  # share of the time of a front end
_GATE_REASONS = ("queued_requests", "queued_tokens")  # of vllm_queue_limits
_OF_PROMPTS = ("prefix_affinity", "precise_prefix_cache")
_OF_SIGNALS = (
    *("queue_depth", "kv_utilization", "running_requests", "load_balance", "load_aware"),
    *("vllm_dp", "no_hit_lru"),
)


def priority_blocked(run: Run) -> Iterator[Finding]:
    """Requests of the highest class that wait while those of lower classes hold the servers."""
    if not run.has_times:
        return
    rows = run.counts
    if not rows.any() or len(np.unique(run.priorities[rows])) < 2:
        return
    high = rows & (run.priorities == run.priorities[rows].max())
    lower = run.priorities < run.priorities[rows].max()
    if int(high.sum()) < _FEWEST_OF_CLASS:
        return
    names = run.class_names(high)
    targets = [
        known.target_ttft_s
        for known in run.simulation.slo_classes
        if known.name in names.split(", ") and known.target_ttft_s is not None
    ]
    least_s = max(_LEAST_WAIT_S, 0.2 * min(targets, default=0.0))
    waits_s = run.column("scheduling_delay_s")
    waited = high & ((waits_s > least_s) | np.isnan(waits_s) | run.lost)
    share = float(waited.sum() / high.sum())
    at_s = run.arrival_s[waited]
    beside = run.running_at(at_s)
    held = run.running_at(at_s, lower)[beside > 0] / beside[beside > 0]
    if share < _NOTEWORTHY or not len(held) or held.mean() < _MOST_HALF:
        return
    queued = np.nansum(run.column("queue_s")[waited])
    total = np.nansum(waits_s[waited])
    in_gateway = float(queued / total) if total > 0 else 0.0
    where = "in the gateway" if in_gateway > _MOST_HALF else "at the servers"
    yield Finding(
        "gateway.usage_limit" if in_gateway > _MOST_HALF else "instances[0].scheduler",
        f"{share:.0%} of the requests of {names}, the highest class, waited more than "
        f"{least_s * 1e3:.3g} ms, mostly {where}, while {held.mean():.0%} of the running requests "
        f"were of lower classes ({run.class_names(lower & rows)}).",
        severity="high" if run.harm(high) > _NOTEWORTHY else "medium",
        evidence=(
            Evidence("share_waiting", share, f"requests of {names} that waited so long"),
            Evidence("share_held", float(held.mean()), "running requests of lower classes"),
            Evidence("share_in_gateway", in_gateway, "of their wait that was in the gateway"),
        ),
        remedies=_room_for(run, min(targets, default=0.5)),
    )


def _room_for(run: Run, target_s: float) -> tuple[dict[str, Any], ...]:
    """Settings that give the highest class room among others."""
    simulation = run.simulation
    found: list[dict[str, Any]] = []
    limits = {limit.kind for limit in simulation.gateway.limit}
    if "saturation" in limits and simulation.gateway.usage_limit.kind == "static":
        holdback = {"kind": "priority_holdback", "min_ceiling": 0.5}
        found.append({"gateway.usage_limit": holdback})
    if "group" in limits and simulation.gateway.controller.kind == "static":
        aimd = {"kind": "aimd", "target_s": 0.3 * target_s, "decrease_factor": 0.7}
        found.append({"gateway.controller": aimd})
    preempting = {"kind": "priority_fcfs", "preemption_margin": 1}
    schedulers: dict[str, Any] = {}
    for i, group in enumerate(simulation.instances):
        if group.plant.kind != "step_loop" or group.scheduler.kind == "python":
            continue
        if getattr(group.scheduler, "preemption_margin", None) is None:
            schedulers[f"instances[{i}].scheduler"] = preempting
    if schedulers:
        found.append(schedulers)
    return tuple(found)


def starvation(run: Run) -> Iterator[Finding]:
    """A lower class that waits long behind a steady load of higher ones, without aging."""
    if not run.has_times:
        return
    groups = [
        i
        for i, group in enumerate(run.simulation.instances)
        if group.scheduler.kind == "priority_fcfs" and not group.scheduler.age_weight_per_s
    ]
    # What was refused at once never waited.
    refused = [i for i, name in enumerate(run.result._names()["outcomes"]) if "rejected" in name]
    rows = run.counts & ~np.isin(run.column("outcome"), refused)
    if not groups or not rows.any():
        return
    lowest, highest = run.priorities[rows].min(), run.priorities[rows].max()
    low, high = rows & (run.priorities == lowest), rows & (run.priorities == highest)
    if lowest == highest:
        return
    waits_s = _starved(run, low, high)
    if waits_s is None:
        return
    low_s, high_s = waits_s
    targets = [
        known.target_ttft_s
        for known in run.simulation.slo_classes
        if known.name in run.class_names(low).split(", ") and known.target_ttft_s is not None
    ]
    weight = float(highest - lowest) / (0.25 * min(targets, default=20.0))
    yield Finding(
        f"instances[{groups[0]}].scheduler.age_weight_per_s",
        f"requests of {run.class_names(low)} waited {low_s:.3g} s on average, those of "
        f"{run.class_names(high)} {high_s:.3g} s: the scheduler priority_fcfs has no aging, so a "
        "steady load of higher classes starves lower ones.",
        severity="high" if run.harm(low) > 0.2 else "medium",
        evidence=(
            Evidence("mean_wait_s", low_s, "time to the first step of the lowest class"),
            Evidence("mean_wait_of_highest_s", high_s, "that of the highest class"),
        ),
        remedies=({f"instances[{i}].scheduler.age_weight_per_s": weight for i in groups},),
    )


def _starved(run: Run, low: Booleans, high: Booleans) -> tuple[float, float] | None:
    """The mean waits of two kinds of requests; None unless the second starves the first.

    A request waits until its first step, or until the end.
    """
    if min(low.sum(), high.sum()) < _FEWEST_OF_CLASS:
        return None
    delays_s = run.column("scheduling_delay_s")
    waits_s = np.where(np.isnan(delays_s), run.result.end_s - run.arrival_s, delays_s)
    low_s, high_s = float(waits_s[low].mean()), float(waits_s[high].mean())
    return None if low_s < max(1.0, _STARVED * high_s) else (low_s, high_s)


def passed_by_prefixes(run: Run) -> Iterator[Finding]:
    """Prompts that share no beginning wait behind those that do, without aging."""
    groups = [
        i
        for i, group in enumerate(run.simulation.instances)
        if group.scheduler.kind == "longest_prefix" and not group.scheduler.aging_tokens_per_step
    ]
    if not groups or not run.has_times:
        return
    shares = run.result._offered()["prefix_group"] >= 0
    hot, cold = run.counts & shares, run.counts & ~shares
    waits_s = _starved(run, cold, hot)
    if waits_s is None:
        return
    cold_s, hot_s = waits_s
    aging = max(1, int(np.median(run.column("input_tokens")[hot])) // _PASSES)
    yield Finding(
        f"instances[{groups[0]}].scheduler.aging_tokens_per_step",
        f"requests whose prompts share no beginning waited {cold_s:.3g} s on average, the others "
        f"{hot_s:.3g} s: the scheduler longest_prefix has no aging, so a steady load of cached "
        "prefixes starves what is not cached.",
        severity="high" if run.harm(cold) > 0.2 else "medium",
        evidence=(
            Evidence("mean_wait_s", cold_s, "time to the first step without a shared beginning"),
            Evidence("mean_wait_of_shared_s", hot_s, "that of prompts with a shared beginning"),
        ),
        remedies=({f"instances[{i}].scheduler.aging_tokens_per_step": aging for i in groups},),
    )


def long_prompts(run: Run) -> Iterator[Finding]:
    """Long prompts that make all others on their server wait for their first token."""
    if not run.has_times:
        return
    groups = [
        i
        for i, group in enumerate(run.simulation.instances)
        if group.plant.kind == "step_loop" and not group.long_prefill_token_threshold
    ]
    if not groups:
        return
    budget = min(run.simulation.instances[i].max_num_batched_tokens for i in groups)
    tokens = run.column("input_tokens")
    served = run.counts & ~np.isnan(run.first_token_s) & ~run.moved
    if int(served.sum()) < _FEWEST:
        return
    least = max(_LONG * budget, 4 * float(np.median(tokens[served])))
    long, short = served & (tokens >= least), served & (tokens < least)
    if run.num_choices < run.num_instances:  # only one pool computes what comes behind them
        short &= np.isin(run.computed_at, run.computed_at[long])
    if not long.any() or long.sum() > _MOST_LONG * served.sum() or short.sum() < _FEWEST:
        return
    # One axis for all servers: each has a span of its own.
    shift = run.computed_at * (2 * run.result.end_s + 1)
    starts = np.sort((run.scheduled_s + shift)[long])
    ends = np.sort((run.computed_s + shift)[long])
    begun = np.searchsorted(starts, (run.computed_s + shift)[short], side="left")
    over = np.searchsorted(ends, (run.dispatched_s + shift)[short], side="right")
    behind = begun > over
    ttft_s = run.column("ttft_s")[short]
    if behind.sum() < _FEWEST_OF_CLASS or behind.mean() < 0.02 or behind.all():
        return
    with_s, without_s = float(np.median(ttft_s[behind])), float(np.median(ttft_s[~behind]))
    if with_s < max(3 * without_s, _LEAST_WAIT_S):
        return
    threshold = max(256, budget // 8)
    yield Finding(
        f"instances[{groups[0]}].long_prefill_token_threshold",
        f"{int(long.sum()):,} prompts of at least {least:,.0f} tokens fill whole steps: while one "
        f"is computed, others wait {with_s * 1e3:.3g} ms for a first token (median; "
        f"{without_s * 1e3:.3g} ms otherwise), and that meets {behind.mean():.0%} of them.",
        severity=run.severity_of(short),
        evidence=(
            Evidence("share_behind", float(behind.mean()), "other requests that met a long prompt"),
            Evidence("median_ttft_behind_s", with_s, "their median time to first token"),
            Evidence("median_ttft_s", without_s, "that of the rest"),
        ),
        remedies=(
            {f"instances[{i}].long_prefill_token_threshold": threshold for i in groups},
            *_apart(run, int(least)),
        ),
    )


def _apart(run: Run, least: int) -> Iterator[dict[str, Any]]:
    """Where nothing is limited: hold prompts in the gateway, and let short ones pass long ones."""
    gateway = run.simulation.gateway
    if {limit.kind for limit in gateway.limit} != {"unlimited"} or len(gateway.bands) != 1:
        return
    quantum = max(1, least // 3)
    classes = [
        {"name": "short", "quantum_tokens": quantum},
        {"name": "long", "min_uncached_tokens": quantum, "quantum_tokens": quantum},
    ]
    yield {
        "gateway.limit": [{"kind": "prefill_busy", "threshold": 1}],
        "gateway.bands[0].fairness": {"kind": "policy_classes", "classes": classes},
    }


def hot_spot(run: Run) -> Iterator[Finding]:
    """Equal servers that get unequal load, of which the loaded ones are slower."""
    if not run.has_times or not run.is_equal_fleet or run.num_instances < 2:
        return
    routed = run.counts & (run.column("instance") >= 0) & ~np.isnan(run.column("e2e_s"))
    if int(routed.sum()) < _FEWEST:
        return
    held_s = (run.left_s - run.dispatched_s)[routed]
    where = run.column("instance")[routed]
    load = np.bincount(where, held_s, minlength=run.num_instances)
    ratio = float(load.max() / load.mean()) if load.mean() > 0 else 1.0
    hottest = int(load.argmax())
    if ratio < _HOT or not _is_slow(run, routed, hottest):
        return
    used = int((np.bincount(where, minlength=run.num_instances) > 0.05 * len(where)).sum())
    simulation = run.simulation
    cause = f"router = {simulation.router.kind}"
    remedies: list[dict[str, Any]] = [{"router": "least_loaded"}]
    evidence = [
        Evidence("hottest_over_mean", ratio, "time of requests on the busiest server, over mean"),
        Evidence("servers_used", used, "servers with more than a twentieth of the requests"),
    ]
    if simulation.router.kind == "weighted":
        scorers: list[dict[str, Any]] = list(simulation.to_dict()["router"]["scorers"])
        heaviest = max(scorers, key=lambda scorer: scorer["weight"], default=None)
        if heaviest is not None:
            scorer = f"the scorer {heaviest['kind']} (weight {heaviest['weight']:g})"
            cause = f"{scorer} outweighs the others" if len(scorers) > 1 else f"{scorer} decides"
            remedies.insert(0, _counting_requests(scorers))
        if prompts := _concentration(run, routed):
            share, _ = prompts
            cause += f", and {share:.0%} of the requests begin with the same prompt"
            evidence.append(Evidence("share_of_one_prompt", share, "requests with one beginning"))
    yield Finding(
        "router.scorers" if simulation.router.kind == "weighted" else "router",
        f"{used} of {run.num_instances} equal servers get the load: the busiest has {ratio:.3g} "
        f"times the mean, and is slower; {cause}.",
        severity=run.severity_of(),
        evidence=tuple(evidence),
        remedies=tuple(remedies),
    )


def _counting_requests(scorers: list[dict[str, Any]]) -> dict[str, Any]:
    """A remedy: these scorers with the heaviest for requests in flight."""
    weight = max(4.0, *(scorer["weight"] + 1 for scorer in scorers))
    own = {"kind": "active_requests", "weight": weight}
    return {"router.scorers": [*(of for of in scorers if of["kind"] != own["kind"]), own]}


def _is_slow(run: Run, routed: Booleans, instance: int) -> bool:
    """Whether requests on an instance are slower than those of an idle one."""
    on = routed & (run.column("instance") == instance)
    tpot_s, waits_s = run.column("tpot_s"), run.engine_wait_s
    known = routed & ~np.isnan(tpot_s)
    if (known & on).any():
        fastest = float(np.quantile(tpot_s[known], 0.1))
        if float(np.quantile(tpot_s[known & on], 0.9)) > _SLOWER * fastest:
            return True
    others = waits_s[routed & ~on]
    least_s = float(np.nanmean(others)) if len(others) else 0.0
    return float(np.nanmean(waits_s[on])) > max(_LEAST_WAIT_S / 2, 2 * least_s)


def _concentration(run: Run, routed: Booleans) -> tuple[float, int] | None:
    """The share of the requests that begin with the most frequent prompt, and its group."""
    kinds = {scorer.kind for scorer in getattr(run.simulation.router, "scorers", ())}
    groups = run.result._offered()["prefix_group"][routed]
    shared = groups[groups >= 0]
    if kinds.isdisjoint(_OF_PROMPTS) or not len(shared):
        return None
    counts = np.bincount(shared)
    share = float(counts.max() / len(groups))
    return (share, int(counts.argmax())) if share >= 0.3 else None


def concentrated_prompts(run: Run) -> Iterator[Finding]:
    """A prompt shared by many requests, which a router by prompts sends to few servers."""
    if not run.has_times or not run.is_equal_fleet or run.num_instances < 2:
        return
    routed = run.counts & (run.column("instance") >= 0)
    if int(routed.sum()) < _FEWEST or (found := _concentration(run, routed)) is None:
        return
    share, group = found
    of_group = routed & (run.result._offered()["prefix_group"] == group)
    sent = np.bincount(run.column("instance")[of_group], minlength=run.num_instances)
    top = float(sent.max() / sent.sum())
    if top * run.num_instances < _HOT:
        return
    router = run.simulation.to_dict()["router"]
    yield Finding(
        "router.scorers",
        f"{share:.0%} of the requests begin with the same prompt, and {top:.0%} of them went to "
        f"one of {run.num_instances} servers.",
        severity="medium",
        evidence=(
            Evidence("share_of_one_prompt", share, "requests with one beginning"),
            Evidence("share_at_one_server", top, "of these, those at the server that has most"),
        ),
        remedies=(
            {"router.filters": [*router["filters"], {"kind": "load_imbalance"}]},
            _counting_requests(router["scorers"]),
        ),
    )


def stale_signals(run: Run) -> Iterator[Finding]:
    """Requests between two readings of the servers that follow the same, old one."""
    signals = run.simulation.signals
    if not run.has_times or signals.kind != "scraped" or run.num_choices < 2:
        return
    kinds = [scorer.kind for scorer in getattr(run.simulation.router, "scorers", ())]
    read = [kind for kind in kinds if kind in _OF_SIGNALS]
    if not read and run.simulation.router.kind != "least_loaded":
        return
    routed = (run.column("instance") >= 0) & ~np.isnan(run.dispatched_s)
    period = np.floor((run.dispatched_s[routed] - signals.phase_s) / signals.period_s)
    where = run.column("instance")[routed]
    if len(where) < _FEWEST:
        return
    _, of_period = np.unique(period, return_inverse=True)
    each = np.bincount(of_period).astype(float)
    pairs = float((each * (each - 1)).sum())
    _, together = np.unique(of_period * run.num_instances + where, return_counts=True)
    same = float((together * (together - 1.0)).sum())
    # Half of the requests come in periods with at least this many.
    typical = float(np.median(each[of_period]))
    if pairs < _FEWEST or typical < 2:
        return
    by_chance = 1 / run.num_choices
    herding = (same / pairs - by_chance) / (1 - by_chance)
    if herding < _HERD:
        return
    remedies: list[dict[str, Any]] = [{"signals.period_s": signals.period_s / 15}]
    if read:
        remedies.insert(0, {"router.scorers": [{"kind": "active_requests"}]})
    text = ", ".join(read) or "least_loaded"
    yield Finding(
        "signals.period_s",
        f"two requests between the same two readings (signals.period_s = {signals.period_s:g}) go "
        f"to the same of {run.num_choices} servers in {same / pairs:.0%} of all cases, at random "
        f"in {by_chance:.0%}: {text} {'see' if len(read) > 1 else 'sees'} what was, not what the "
        "gateway has sent since; its own count, active_requests, is never old.",
        severity=run.severity_of(),
        evidence=(
            Evidence("share_of_pairs", same / pairs, "pairs within a period at the same server"),
            Evidence("requests_per_period", typical, "requests in a typical period"),
        ),
        remedies=tuple(remedies),
    )


def busy_ignored(run: Run) -> Iterator[Finding]:
    """Servers beyond a threshold of the busy monitor that the router does not skip."""
    monitor = run.simulation.busy_monitor
    if monitor.router_skips_busy or not run.activity["busy_threshold_exceeded"]:
        return
    if run.num_instances < 2:
        return
    yield Finding(
        "busy_monitor.router_skips_busy",
        "servers exceeded a threshold of busy_monitor, and the router sent them requests all the "
        "same: busy_monitor.router_skips_busy = false.",
        severity=run.severity_of(),
        evidence=(Evidence("threshold_exceeded", 1, "1: a rank was busy during the run"),),
        remedies=({"busy_monitor.router_skips_busy": True},),
    )


def preemption_tax(run: Run) -> Iterator[Finding]:
    """Requests that lose their KV memory and are computed again."""
    preemptions = run.summary["preemptions"] or 0
    # Preemptions that a loss of KV memory explains say nothing of its size.
    preemptions -= sum(fault.get("preempted_requests", 0) for fault in run.result.faults)
    started = run.ledger["dispatched"]
    if not started or preemptions < _TAX * started:
        return
    peak = run.activity["peak_kv_utilization"]
    remedies: list[dict[str, Any]] = []
    whole = {
        f"instances[{i}].kv_cache.reserve_full_prompt": True
        for i, group in enumerate(run.simulation.instances)
        if not group.kv_cache.reserve_full_prompt and group.kv_cache.allocation != "roll_back"
    }
    remedies += [whole] if whole else []
    most = run.activity["peak_in_flight"]
    if run.simulation.gateway.limit[0].kind == "unlimited" and most > 1:
        remedies.append({"gateway.limit": {"kind": "fixed", "max_in_flight": max(1, most // 2)}})
    yield Finding(
        "instances[0].num_kv_blocks",
        f"{preemptions:,} preemptions of {started:,} requests: KV memory, in use up to {peak:.0%}, "
        "is short, and what a preempted request had computed is computed again.",
        severity="high" if run.is_harmed and preemptions > 4 * _TAX * started else "medium",
        evidence=(
            Evidence("preemptions_per_request", preemptions / started, "per dispatched request"),
            Evidence("peak_kv_utilization", peak, "largest share of KV blocks in use"),
        ),
        remedies=tuple(remedies),
    )


def refused_after_front_end(run: Run) -> Iterator[Finding]:
    """Requests that are refused only after the front end has worked on them."""
    if len(run.simulation.instances) != 1:
        return  # the counts are those of the whole fleet
    (group,) = run.simulation.instances
    front, gate = group.front_end, group.ingress
    if gate.kind != "vllm_queue_limits" or front.counts_on_arrival:
        return
    counts = run.activity["not_completed"]
    refused = sum(counts.get(reason, 0) for reason in _GATE_REASONS)
    summary: Any = run.summary
    tokens = summary["total_input_tokens"] / max(summary["completed"], 1)
    each_s = (front.us_per_request + front.us_per_token * tokens) / 1e6
    share = refused * each_s / (run.result.end_s * group.count * front.workers or 1.0)
    if share < _WASTED:
        return
    yield Finding(
        "instances[0].front_end.counts_on_arrival",
        f"The instances refused {refused:,} requests, many after the front end had worked on them, "
        f"for up to {share:.0%} of the time of its {counted(front.workers, 'worker')}: others wait "
        "for it, and requests in it are not counted when a burst arrives.",
        severity=run.severity_of(),
        evidence=(
            Evidence("share_of_front_end", share, "its time for requests that were refused"),
            Evidence("refused", refused, "requests that the gate of the instances refused"),
        ),
        remedies=(
            {"instances[0].front_end.counts_on_arrival": True},
            {"instances[0].front_end.workers": 2 * front.workers},
        ),
    )


def seats_binding(run: Run) -> Iterator[Finding]:
    """Requests that wait for a seat in the batch while KV memory is free."""
    yield from _binding(run, of_seats=True)


def memory_binding(run: Run) -> Iterator[Finding]:
    """Requests that wait for KV memory while seats in the batch are free."""
    yield from _binding(run, of_seats=False)


def _binding(run: Run, *, of_seats: bool) -> Iterator[Finding]:
    groups = run.simulation.instances
    if not run.has_times or any(group.plant.kind != "step_loop" for group in groups):
        return
    known = run.counts & ~np.isnan(run.engine_wait_s) & ~run.moved
    if run.moved.sum() > _MOST_MOVED * known.sum():
        return
    waited = known & (run.engine_wait_s > _LEAST_WAIT_S)
    if int(known.sum()) < _FEWEST or waited.sum() < 0.1 * known.sum():
        return
    seats = np.repeat(
        [group.max_num_seqs * group.data_parallel_size for group in groups],
        [group.count for group in groups],
    )
    # One axis for all servers: each has a span of its own.
    span_s = 2 * run.result.end_s + 1
    where, stays = run.computed_at, run.stays
    began = ~np.isnan(stays.seated_s)
    starts = np.sort((stays.seated_s + stays.instance * span_s)[began])
    ends = np.sort((stays.left_s + stays.instance * span_s)[began])
    at_s = (run.dispatched_s + where * span_s)[waited] + 0.5 * run.engine_wait_s[waited]
    beside = np.searchsorted(starts, at_s, side="right") - np.searchsorted(ends, at_s, "right")
    if not of_seats and _held_tokens(run, at_s) < _NEEDED:
        return
    filled = float(np.median(beside / seats[where[waited]]))
    peak = run.activity["peak_kv_utilization"]
    share = float(waited.sum() / known.sum())
    evidence = (
        Evidence("share_waiting", share, "requests that waited in an engine for over 0.1 s"),
        Evidence("seats_filled", filled, "running requests over max_num_seqs, while they waited"),
        Evidence("peak_kv_utilization", peak, "largest share of KV blocks in use"),
    )
    if of_seats and filled > 0.9 and peak < 0.8:
        yield Finding(
            "instances[0].max_num_seqs",
            f"{share:.0%} of the requests waited for a seat: batches were full "
            f"(instances[0].max_num_seqs = {groups[0].max_num_seqs:,}) while at most {peak:.0%} of "
            "the KV memory was in use.",
            severity=run.severity_of(),
            evidence=evidence,
            remedies=(
                {
                    f"instances[{i}].max_num_seqs": 2 * group.max_num_seqs
                    for i, group in enumerate(groups)
                },
            ),
        )
    if not of_seats and filled < 0.9 and peak > 0.95:
        yield Finding(
            "instances[0].num_kv_blocks",
            f"{share:.0%} of the requests waited for KV memory, which was in use up to {peak:.0%}, "
            f"while {filled:.0%} of the seats (instances[0].max_num_seqs) were taken.",
            severity=run.severity_of(),
            evidence=evidence,
            remedies=_for_memory(run, float(np.median(beside))),
        )


def _held_tokens(run: Run, at_s: Floats) -> float:
    """The median share of the KV memory that running requests need, at instants on the axis.

    They need their prompts and half of their answers. Peaks alone do not show what is needed: the
    prefix cache fills the memory.
    """
    span_s, stays = 2 * run.result.end_s + 1, run.stays
    began = ~np.isnan(stays.seated_s)
    tokens = (run.column("input_tokens") + 0.5 * run.column("output_tokens"))[stays.row[began]]
    held = np.zeros(len(at_s))
    for sign, ends_s in ((1, stays.seated_s), (-1, stays.left_s)):
        instants_s = (ends_s + stays.instance * span_s)[began]
        order = np.argsort(instants_s)
        total = np.concatenate([[0.0], np.cumsum(tokens[order])])
        held += sign * total[np.searchsorted(instants_s[order], at_s, side="right")]
    groups = run.simulation.instances
    rooms = np.repeat(
        [of.num_kv_blocks * of.block_size_tokens * of.data_parallel_size for of in groups],
        [of.count for of in groups],
    )
    return float(np.median(held / rooms[(at_s / span_s).astype(int)]))


def _for_memory(run: Run, running: float) -> tuple[dict[str, Any], ...]:
    """More memory, or a gateway that sends what fits and drops what would be late.

    `running`: requests per server while others wait for memory.
    """
    groups = run.simulation.instances
    twice = {f"instances[{i}].num_kv_blocks": 2 * of.num_kv_blocks for i, of in enumerate(groups)}
    if run.simulation.gateway.limit[0].kind != "unlimited":
        return (twice,)
    targets = [known.target_ttft_s for known in run.simulation.slo_classes if known.target_ttft_s]
    held: dict[str, Any] = {
        "gateway.limit": {
            "kind": "fixed",
            "max_in_flight": max(1, round(running)) * run.num_instances,
        }
    }
    if targets:
        held["gateway.bands[0].queue.timeout_s"] = min(targets)
    return twice, held


def small_prefix_index(run: Run) -> Iterator[Finding]:
    """A record of prompts that forgets what the instances still have."""
    index, groups = run.simulation.prefix_index, run.simulation.instances
    if index.capacity_blocks is None or not run.activity["prefix_index_forgot"]:
        return
    held = index.capacity_blocks * index.block_size_tokens
    caching = [group for group in groups if group.kv_cache.prefix_caching]
    sizes = (group.num_kv_blocks * group.block_size_tokens for group in caching)
    cached = max(sizes, default=0)
    if held < cached and run.simulation.metrics.accounting == "clock":
        capacity = run.parts.setting_text("prefix_index.capacity_blocks")
        yield Finding(
            "prefix_index.capacity_blocks",
            f"the gateway's record of prompts was full: {capacity} holds {held:,} tokens per rank, "
            f"the KV memory up to {cached:,}; unset, it holds as many.",
            severity="medium",
            evidence=(
                Evidence("recorded_tokens", held, "prompt tokens that the record holds per rank"),
                Evidence("cached_tokens", cached, "tokens that the KV memory holds"),
            ),
            remedies=({"prefix_index.capacity_blocks": None},),
        )
