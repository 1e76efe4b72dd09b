"""Diagnoses of runs: what the gateway and its clients did."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.formatting import number, setting
from spillway.findings.finding import Evidence, Finding
from spillway.findings.parts import deciders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.data.arrays import Booleans, Floats
    from spillway.findings.run import Run

_NOTEWORTHY = 0.01  # share of the attempts that is said
_HEAVY = 0.05  # share of the attempts whose loss is of high severity
_MOST_SHOWN = 3
_LONG = 0.2  # share of the ticks at a bound
_FEWEST = 100  # rejections without an admission
_MOST_HALF = 0.5
_NEARLY_ALL = 0.9
_CALM = 0.1  # share of requests that are lost or late
_BURST = 1.3  # rate of a burst over that before
_WINDOWS = 20
_LEAST_IN_WINDOW = 20
_LEAST_REFUSED = 20
_STORM = 1.3  # attempts per request
_SHORT_S = 1e-3  # a wait that is none
_LONG_WAIT_S = 1.0  # in front of idle servers
_LEAST_STALE = 0.02
_LONGER = 2.0  # tokens of output per token of input that a limit must not leave out
_LEARNS = {
    "predictive_ttft": "predicted_ttft",
    "latency_slo": "latency_slo",
    "early_rejection": "early_rejection",
    "bouncer": "bouncer",
}  # policies that learn from what they admit, and the reason of their rejections
# Reasons of policies that count requests or tokens, and do not look at the fleet.
_COUNTED = {
    "rate_limit_requests": "rate_limit",
    "rate_limit_parallel": "rate_limit",
    "rate_limit_tokens": "rate_limit",
    "insufficient_tokens": "token_bucket",
}


def shedding(run: Run) -> Iterator[Finding]:
    """Requests that were lost, the reason, and the settings that decided it."""
    attempts, counts = run.ledger["attempts"], run.activity["not_completed"]
    if run.lost_share <= _NOTEWORTHY:
        return
    whole = "requests" if attempts == run.ledger["logical_requests"] else "attempts"
    largest = sorted(counts.items(), key=lambda entry: -entry[1])[:_MOST_SHOWN]
    for reason, count in largest:
        share = count / attempts
        if share < _NOTEWORTHY:
            break
        who = deciders(run.parts, reason)
        shown = ", ".join(who[:_MOST_SHOWN])
        if len(who) > _MOST_SHOWN:
            shown += f" and {len(who) - _MOST_SHOWN} more"
        yield Finding(
            who[0].partition(" = ")[0] if who else "",
            f"{share:.1%} of the {whole} were not completed: {reason}, decided by {shown}.",
            severity="high" if run.lost_share > _HEAVY else "medium",
            evidence=(Evidence("share_of_attempts", share, f"attempts that ended by {reason}"),),
            remedies=_more_patience(run) if reason == "client_timeout" else (),
        )


def _more_patience(run: Run) -> tuple[dict[str, Any], ...]:
    """Clients that wait longer: a timeout below the time of whole answers loses what is served."""
    timeout_s = run.simulation.reaction.timeout_s
    return ({"reaction.timeout_s": 4 * timeout_s},) if timeout_s else ()


def unfinished(run: Run) -> Iterator[Finding]:
    """Most requests were still there when the run ended."""
    offered, left = run.summary["offered"] or 0, run.summary["unfinished"] or 0
    if left > _MOST_HALF * offered:
        yield Finding(
            "horizon_s",
            f"{left / offered:.1%} of the requests had not finished when the run ended "
            f"(horizon_s = {setting(run.simulation.horizon_s)}).",
            severity="high",
            evidence=(Evidence("share_unfinished", left / offered, "requests without an end"),),
        )


def saturated(run: Run) -> Iterator[Finding]:
    """The backlog grew until the end of the run, or for a part of it."""
    found = run.saturation
    if found is None or found.drift_per_s is None:
        return
    if found.verdict in ("transient", "saturated"):
        yield Finding(
            "",
            f"{found}.",
            severity="high" if found.verdict == "saturated" else "medium",
            evidence=(
                Evidence("drift_per_s", found.drift_per_s, "growth of the requests in the system"),
            ),
        )


def unbounded_queue(run: Run) -> Iterator[Finding]:
    """More arrives than the fleet serves, and nothing bounds the queue."""
    if not run.is_saturated or run.lost_share > _NOTEWORTHY:
        return
    group, lowest = run.simulation.instances[0], run.summary["p50_ttft_ms"]
    if lowest is None:
        return
    seats = max(1, min(group.max_num_seqs, _typical_batch(run)))
    ingress = {"kind": "engine_request_limit", "max_requests": seats, "queue_size": 1}
    targets = [known.target_ttft_s for known in run.simulation.slo_classes if known.target_ttft_s]
    permits = {"kind": "fixed", "max_in_flight": seats * run.num_instances}
    remedies: list[dict[str, Any]] = [
        {"instances[0].ingress": ingress},
        {
            "gateway.limit": permits,
            "gateway.bands[0].queue.timeout_s": min(targets, default=1.0),
        },
    ]
    if group.ingress.kind != "open":
        remedies = remedies[1:]
    yield Finding(
        "gateway.limit",
        f"the fleet cannot serve the load, and nothing refuses it: every request waits, half of "
        f"them {number(lowest)} ms or more for a first token, and longer in a longer run.",
        severity="high",
        evidence=(
            Evidence("p50_ttft_ms", float(lowest), "median time to the first token"),
            Evidence("share_lost", run.lost_share, "attempts that were refused or dropped"),
        ),
        remedies=tuple(remedies),
    )


def _typical_batch(run: Run) -> int:
    """Requests per server that fit: a third of its seats, or of those that its memory holds."""
    group = run.simulation.instances[0]
    tokens = (run.summary["total_input_tokens"] or 0) + (run.summary["total_output_tokens"] or 0)
    each = tokens / max(run.summary["completed"] or 0, 1)
    room = group.num_kv_blocks * group.block_size_tokens / max(each, 1.0)
    return int(min(group.max_num_seqs / 3, room / 3, 96))


def limit_at_floor(run: Run) -> Iterator[Finding]:
    """A controller that cut the limit to its floor and left it there."""
    gateway = run.simulation.gateway
    controller: Any = gateway.controller
    control = run.result.control
    floor, path = gateway.guard.floor, "gateway.guard.floor"
    lower = float(getattr(controller, "min_concurrency", 0.0))
    if lower > floor:
        floor, path = lower, "gateway.controller.min_concurrency"
    ticks = control.num_ticks()
    at_floor = control.num_ticks(lambda columns: columns["setting"] <= floor)
    if at_floor <= _LONG * ticks or not (control.count("decrease") or lower):
        return
    (noun,) = run.parts.below("gateway.controller")
    remedies: list[dict[str, Any]] = [{path: 3}] if floor > 3 else []
    remedies.append({"gateway.controller": "static"})
    yield Finding(
        path,
        f"the limit was at {path} = {setting(floor)} after {at_floor / ticks:.0%} of "
        f"{ticks:,} ticks, by {noun}.",
        severity=run.severity_of(),
        evidence=(Evidence("share_of_ticks", at_floor / ticks, "ticks at the floor"),),
        remedies=tuple(remedies),
    )


def limit_at_ceiling(run: Run) -> Iterator[Finding]:
    """A controller that raised the limit to its ceiling, where it still held requests back."""
    gateway = run.simulation.gateway
    ceiling, control = gateway.guard.ceiling, run.result.control
    ticks = control.num_ticks()
    if gateway.controller.kind == "static" or not any(run.activity["limit_held"]):
        return
    at_ceiling = control.num_ticks(lambda columns: columns["setting"] >= ceiling)
    if at_ceiling <= _MOST_HALF * ticks:
        return
    yield Finding(
        "gateway.guard.ceiling",
        f"the limit was at gateway.guard.ceiling = {setting(ceiling)} after "
        f"{at_ceiling / ticks:.0%} of {ticks:,} ticks, and held requests back.",
        severity="medium",
        evidence=(Evidence("share_of_ticks", at_ceiling / ticks, "ticks at the ceiling"),),
        remedies=({"gateway.guard.ceiling": max(1.0, 2 * ceiling)},),
    )


def probe_refuses(run: Run) -> Iterator[Finding]:
    """Refusals within the few permits of a measurement of the minimum latency."""
    controller = run.simulation.gateway.controller
    if controller.kind != "envoy_gradient" or not run.has_times:
        return
    if controller.fixed_min_rtt_s or run.simulation.gateway.replicas > 1:
        return
    probe = controller.probe_concurrency or controller.min_concurrency
    refused = np.flatnonzero(run.lost & run.counts)
    if len(refused) < max(_LEAST_REFUSED, _NOTEWORTHY * int(run.counts.sum())):
        return
    control = run.result.control
    if not control.num_ticks():
        return
    tick = np.searchsorted(control["time_s"], run.arrival_s[refused], side="right") - 1
    during = float((control["setting"][tick.clip(min=0)] <= probe + 0.5).mean())
    if during < _MOST_HALF:
        return
    served = ~np.isnan(run.column("e2e_s"))
    latencies_s = run.column("e2e_s")[served]
    if not len(latencies_s):
        return
    in_flight = float(latencies_s.sum()) / max(run.result.end_s, 1e-9)
    higher = max(2 * probe, math.ceil(2 * in_flight))
    fastest_s = float(np.quantile(latencies_s, 0.1))
    yield Finding(
        "gateway.controller.probe_concurrency",
        f"{during:.0%} of the {len(refused):,} requests that were lost came while the limit was at "
        f"{setting(probe)}, at which the controller measures the minimum latency: on average "
        f"{in_flight:.3g} requests are in flight, so each measurement refuses what a short burst "
        "brings; a higher probe_concurrency, or a known fixed_min_rtt_s, avoids it.",
        severity=run.severity_of(),
        evidence=(
            Evidence("share_of_losses", during, "lost requests that came during a measurement"),
            Evidence("mean_in_flight", in_flight, "requests in flight over the run"),
        ),
        remedies=(
            {"gateway.controller.probe_concurrency": higher},
            {"gateway.controller.fixed_min_rtt_s": fastest_s},
        ),
    )


def expired_without_servers(run: Run) -> Iterator[Finding]:
    """Requests that expired while no server was ready."""
    expired = run.activity["not_completed"].get("queue_timeout", 0)
    if not run.has_times or expired < max(_LEAST_REFUSED, _NOTEWORTHY * run.ledger["attempts"]):
        return
    dispatched = run.dispatched_s[~np.isnan(run.dispatched_s)]
    first_s = float(dispatched.min()) if len(dispatched) else run.result.end_s
    reason = list(run.result._names()["reasons"]).index("queue_timeout")
    of_start = (run.column("reason") == reason) & (run.arrival_s < first_s)
    share = int(of_start.sum()) / expired
    fleet = run.simulation.fleet
    if share < _MOST_HALF or fleet.initial_instances is None:
        return
    enough_s = 2 * max(first_s, fleet.startup_s)
    yield Finding(
        "gateway.bands[0].queue.timeout_without_servers_s",
        f"{int(of_start.sum()):,} of {expired:,} expired requests arrived before the first server "
        f"was ready, at {first_s:.4g} s: a queue without servers needs a time to live of its own.",
        severity=run.severity_of(),
        evidence=(
            Evidence("share_of_expired", share, "expired requests that met no server"),
            Evidence("first_dispatch_s", first_s, "instant of the first dispatch"),
        ),
        remedies=(
            {"gateway.bands[0].queue.timeout_without_servers_s": enough_s},
            {"fleet.initial_instances": fleet.target_instances or 1},
        ),
    )


def refuses_while_idle(run: Run) -> Iterator[Finding]:
    """A count of requests or tokens that refuses although the fleet has room."""
    counts = run.activity["not_completed"]
    found = {name: counts[name] for name in _COUNTED if counts.get(name)}
    attempts = run.ledger["attempts"]
    if not run.has_times or sum(found.values()) <= _NOTEWORTHY * attempts:
        return
    waits_s = run.engine_wait_s[run.counts & ~np.isnan(run.engine_wait_s)]
    if not len(waits_s) or np.quantile(waits_s, 0.9) > 0.1 or run.is_saturated:
        return
    if run.activity["peak_kv_utilization"] > 0.8:
        return
    reason = max(found, key=lambda name: found[name])
    policies = run.simulation.gateway.admission
    kind = _COUNTED[reason]
    i = next((i for i, policy in enumerate(policies) if policy.kind == kind), None)
    if i is None:
        return
    policy: Any = policies[i]
    remedies: list[dict[str, Any]]
    if reason == "rate_limit_parallel" and policy.max_parallel:
        limit = {"kind": "per_tenant", "max_in_flight": policy.max_parallel}
        queues = {f"gateway.admission[{i}]": "always_admit", "gateway.limit": limit}
        # No controller moves a limit of this kind.
        if run.simulation.gateway.controller.kind != "static":
            queues["gateway.controller"] = "static"
        remedies = [queues]
        remedies.append({f"gateway.admission[{i}].max_parallel": 2 * policy.max_parallel})
    elif reason == "insufficient_tokens":
        more = {
            f"gateway.admission[{i}].{name}": 2 * getattr(policy, name)
            for name in ("capacity_tokens", "refill_tokens_per_s")
        }
        remedies = [more]
    else:
        name = "max_requests" if reason == "rate_limit_requests" else "max_tokens"
        remedies = [{f"gateway.admission[{i}].{name}": 2 * (getattr(policy, name, None) or 1)}]
    share = sum(found.values()) / attempts
    yield Finding(
        f"gateway.admission[{i}]",
        f"{share:.1%} of the requests were refused by a count ({reason}) although the servers had "
        f"room: nine in ten of the others waited at most {np.quantile(waits_s, 0.9) * 1e3:.3g} ms "
        "there; a limit in flight would queue them.",
        severity=run.severity_of(),
        evidence=(
            Evidence("share_refused", share, "attempts that the count refused"),
            Evidence(
                "peak_kv_utilization",
                run.activity["peak_kv_utilization"],
                "largest share of KV blocks in use",
            ),
        ),
        remedies=tuple(remedies),
    )


def waits_while_idle(run: Run) -> Iterator[Finding]:
    """A limit that holds requests back although the servers have room.

    It holds nearly all of them, or most of those that are late, which are late only for it.
    """
    gateway, held = run.simulation.gateway, run.activity["limit_held"]
    if not run.has_times or not any(held) or gateway.controller.kind != "static":
        return  # a controller moves the limit: limit_at_floor, limit_at_ceiling
    started = run.counts & ~np.isnan(run.queue_s) & ~np.isnan(run.column("ttft_s"))
    if int(started.sum()) < _FEWEST:
        return
    share = float((run.queue_s[started] > _SHORT_S).mean())
    at_server_s = (run.column("ttft_s") - run.queue_s)[started]
    wait_s, peak = float(run.queue_s[started].mean()), run.activity["peak_kv_utilization"]
    late = run.missed & started
    to_blame = float(run.missed_by_queue[late].mean()) if run.is_harmed and late.any() else 0.0
    holds_all = share >= _NEARLY_ALL and wait_s >= float(at_server_s.mean())
    if not (holds_all or to_blame > _MOST_HALF) or peak > _MOST_HALF:
        return
    seats = sum(
        group.max_num_seqs * group.data_parallel_size * group.count
        for group in run.simulation.instances
        if group.plant.kind == "step_loop"
    )
    running = float(np.median(run.running_at(run.dispatched_s[started])))
    if running > _MOST_HALF * seats or not _has_room(run, at_server_s, started):
        return
    limits = [i for i, holds in enumerate(held) if holds]
    wider = {
        f"gateway.limit[{i}].max_in_flight": 2 * permits
        for i in limits
        if (permits := getattr(gateway.limit[i], "max_in_flight", None))
    }
    (path, *_) = [f"gateway.limit[{i}]" for i in limits]
    yield Finding(
        path,
        f"{share:.0%} of the requests waited for gateway.limit, {number(wait_s * 1e3)} ms in the "
        f"mean, although the servers had room: {running:.3g} requests ran on {seats:,} seats, and "
        f"at most {peak:.0%} of the KV memory was in use.",
        severity=run.severity_of(),
        evidence=(
            Evidence("share_waiting", share, "requests that the limit held back"),
            Evidence("mean_wait_s", wait_s, "the mean wait at the gateway"),
            Evidence("late_for_it", to_blame, "share of the late that only that wait made late"),
            Evidence("running", running, "requests in batches at the median instant of dispatch"),
        ),
        remedies=(wider,) if wider else ({"gateway.limit": "unlimited"},),
    )


def _has_room(run: Run, at_server_s: Floats, rows: Booleans) -> bool:
    """Whether nine in ten are at most half of their targets away once they are dispatched."""
    tpot_s = run.column("tpot_s")[rows]
    known = {of.name: of for of in run.simulation.slo_classes}
    names = run.result._names()["slo_classes"]
    codes = run.column("slo_class")[rows]
    for code in np.unique(codes):
        target = known.get(str(names[code]))
        for of, values in (("ttft", at_server_s), ("tpot", tpot_s)):
            most_s = getattr(target, f"target_{of}_s", None)
            own = values[(codes == code) & ~np.isnan(values)]
            if most_s and len(own) and np.quantile(own, 0.9) > _MOST_HALF * most_s:
                return False
    return True


def stale_as_saturated(run: Run) -> Iterator[Finding]:
    """A limit that holds requests while servers idle: old metrics count as saturated."""
    signals: Any = run.simulation.signals
    known: Any = enumerate(run.simulation.gateway.limit)
    limits = [
        i
        for i, limit in known
        if (limit.kind, getattr(limit, "detector", "")) == ("saturation", "utilization")
        and limit.staleness_policy == "saturated"
    ]
    if not limits or signals.kind != "scraped" or not signals.stale_after_s or not run.has_times:
        return
    waits_s = run.queue_s[run.counts & ~np.isnan(run.queue_s)]
    busy_s = run.engine_wait_s[run.counts & ~np.isnan(run.engine_wait_s)]
    if not len(busy_s) or np.quantile(busy_s, 0.9) > 0.1:
        return
    if run.activity["peak_kv_utilization"] > 0.8:
        return
    held = float((waits_s > _SHORT_S).mean())
    stale = _share_stale(signals)
    if stale < _LEAST_STALE or held < _HEAVY:
        return
    wait_s = float(np.quantile(waits_s, 0.99))
    yield Finding(
        f"gateway.limit[{limits[0]}].staleness_policy",
        f"{held:.1%} of the requests waited in the gateway, the slowest hundredth {wait_s:.3g} s "
        "or more, although the servers were idle: metrics are older than "
        f"{setting(signals.stale_after_s)} s {stale:.0%} of the time, and count as saturated then.",
        severity=run.severity_of() if wait_s < _LONG_WAIT_S else "high",
        evidence=(
            Evidence("share_stale", stale, "expected share of the time with stale metrics"),
            Evidence("share_held", held, "requests that waited for a permit over a millisecond"),
            Evidence("p99_queue_s", wait_s, "wait in the gateway"),
        ),
        remedies=(
            {f"gateway.limit[{limits[0]}].staleness_policy": "ignore"},
            {"signals.stale_after_s": 10 * signals.period_s},
        ),
    )


def _share_stale(signals: Any) -> float:
    """The expected share of the time in which the last scrape is too old."""
    stale_s = gaps_s = 0.0
    for scrapes in range(1, 1000):
        share = (1 - signals.loss_probability) * signals.loss_probability ** (scrapes - 1)
        gap_s = scrapes * signals.period_s
        gaps_s += share * gap_s
        stale_s += share * min(gap_s, max(0.0, gap_s + signals.delay_s - signals.stale_after_s))
    return stale_s / gaps_s


def output_uncounted(run: Run) -> Iterator[Finding]:
    """A limit of prompt tokens where most tokens are generated."""
    for i, policy in enumerate(run.simulation.gateway.admission):
        if policy.kind != "rate_limit" or policy.tokens != "prompt" or not policy.max_tokens:
            continue
        tenants = run.result.by_tenant()
        heavy = {
            name: (figures["total_output_tokens"] or 0) / max(figures["total_input_tokens"] or 0, 1)
            for name, figures in tenants.items()
        }
        worst = max(heavy, key=lambda name: heavy[name], default=None)
        if worst is None or heavy[worst] < _LONGER or not run.is_harmed:
            continue
        figures = tenants[worst]
        each = math.ceil((figures["total_output_tokens"] or 0) / max(figures["completed"] or 0, 1))
        path = f"gateway.admission[{i}]"
        yield Finding(
            f"{path}.tokens",
            f"{path}.tokens = prompt does not count what tenant {worst} costs: it gets "
            f"{heavy[worst]:.3g} output tokens for each prompt token; count total tokens, and "
            "reserve the output at admission.",
            severity=run.severity_of(),
            evidence=(
                Evidence("output_per_prompt_token", heavy[worst], f"of tenant {worst}"),
                Evidence("share_harmed", run.harm(), "requests that were lost or late"),
            ),
            remedies=(
                {
                    f"{path}.tokens": "total",
                    f"{path}.charge": "reserve",
                    f"{path}.reserved_output_tokens": each,
                },
            ),
        )


def blocked_by_tenant(run: Run) -> Iterator[Finding]:
    """Tenants that waited behind one at its own limit."""
    if not run.activity["tenant_limit_stopped_others"]:
        return
    gateway = run.simulation.gateway
    verbatim = [
        i
        for i, band in enumerate(gateway.bands)
        if getattr(band.fairness, "semantics", "") == "verbatim"
    ]
    bands = [f"gateway.bands[{i}].fairness = {gateway.bands[i].fairness.kind}" for i in verbatim]
    own = next(
        (
            f"gateway.limit[{i}] = {limit.kind}"
            for i, limit in enumerate(gateway.limit)
            if limit.kind in ("per_tenant", "group")
        ),
        "gateway.limit",
    )
    yield Finding(
        "gateway.bands[0].fairness",
        f"requests within every limit waited behind a tenant at its own ({own}): "
        f"{', '.join(bands[:_MOST_SHOWN])}, verbatim; with a fairness such as global_fifo or "
        "round_robin a tenant waits for its own limit only.",
        severity=run.severity_of(),
        remedies=({f"gateway.bands[{i}].fairness": "round_robin" for i in verbatim},)
        if verbatim
        else (),
    )


def stopped_learning(run: Run) -> Iterator[Finding]:
    """Policies that learn from what they admit and have admitted nothing for long."""
    policies = run.simulation.gateway.admission
    learners = {
        _LEARNS[policy.kind]: i for i, policy in enumerate(policies) if policy.kind in _LEARNS
    }
    if not learners or not run.result.has_requests:
        return
    columns = run.result.requests
    last = np.flatnonzero(columns["admitted"])
    after = int(last[-1]) + 1 if len(last) else 0
    reasons = columns["reason"][after:]
    for reason, i in learners.items():
        count = int(np.count_nonzero(reasons == reason))
        if count >= _FEWEST:
            since_s = columns["arrival_s"][after]
            yield Finding(
                f"gateway.admission[{i}]",
                f"gateway.admission[{i}] = {policies[i].kind} has stopped learning: it learns from "
                f"what it admits, and has rejected all {count:,} requests since {since_s:.4g} s.",
                severity="high",
                evidence=(Evidence("rejected_since", count, "requests since the last admission"),),
                remedies=({f"gateway.admission[{i}]": "always_admit"},),
            )


def partial_view(run: Run) -> Iterator[Finding]:
    """Several replicas of the gateway, each of which counts only its own requests."""
    simulation = run.simulation
    replicas, monitor = simulation.gateway.replicas, simulation.busy_monitor
    threshold = monitor.active_decode_blocks_threshold
    if replicas < 2:
        return
    peak = run.activity["peak_kv_utilization"]
    if threshold is not None and not monitor.decode_latch and peak > threshold:
        refused = run.activity["not_completed"].get("all_workers_busy", 0)
        share = refused / max(run.ledger["attempts"], 1)
        if not run.is_harmed:
            return
        yield Finding(
            "busy_monitor.decode_latch",
            f"each of {replicas:,} replicas of the gateway counts only the requests that it sent: "
            f"up to {peak:.0%} of the KV memory was in use, beyond busy_monitor."
            f"active_decode_blocks_threshold = {threshold:g}, and {share:.1%} of the attempts were "
            "refused for it; decode_latch = true also reads the engines' own count.",
            severity=run.severity_of(),
            evidence=(
                Evidence("peak_kv_utilization", peak, "largest share of KV blocks in use"),
                Evidence("share_refused", share, "attempts refused because all workers are busy"),
            ),
            remedies=({"busy_monitor.decode_latch": True},),
        )
    for i, limit in enumerate(simulation.gateway.limit):
        if limit.kind == "fixed" and not run.activity["limit_held"][i] and run.is_harmed:
            yield Finding(
                f"gateway.limit[{i}].max_in_flight",
                f"each of {replicas:,} replicas of the gateway has its own gateway.limit[{i}] of "
                f"{limit.max_in_flight:,}, and none ever held a request back: together they allow "
                f"{replicas * limit.max_in_flight:,}.",
                severity=run.severity_of(),
                evidence=(
                    Evidence("peak_in_flight", run.activity["peak_in_flight"], "of one replica"),
                ),
                remedies=(
                    {f"gateway.limit[{i}].max_in_flight": max(1, limit.max_in_flight // replicas)},
                ),
            )


def retry_storm(run: Run) -> Iterator[Finding]:
    """Clients that retry make most of the load."""
    attempts, requests = run.ledger["attempts"], run.ledger["logical_requests"]
    if not requests or attempts < _STORM * requests:
        return
    goodput = run.summary["goodput"]
    wasted = 1 - (run.summary["completed"] or 0) / attempts
    if wasted < _MOST_HALF / 2 and (goodput is None or goodput > 0.9):
        return
    places = _retrying(run)
    yield Finding(
        f"{places[0]}.retries" if places else "reaction.retries",
        f"clients made {attempts / requests:.2f} attempts per request, and {wasted:.0%} of the "
        "attempts were in vain: retries feed the overload that they answer; a budget of retries, "
        "or a timeout of the queue shorter than the clients' patience, breaks the circle.",
        severity="high",
        evidence=(
            Evidence("attempts_per_request", attempts / requests, "attempts per logical request"),
            Evidence("share_in_vain", wasted, "attempts that did not complete"),
        ),
        remedies=_fewer_retries(places),
    )


def _retrying(run: Run) -> list[str]:
    """The paths of the reactions with retries."""
    simulation = run.simulation
    places = ["reaction"] if simulation.reaction.retries else []
    return places + [
        f"tenants[{i}].reaction"
        for i, tenant in enumerate(simulation.tenants)
        if tenant.reaction is not None and tenant.reaction.retries
    ]


def _fewer_retries(places: list[str]) -> tuple[dict[str, Any], ...]:
    if not places:
        return ()
    budget = {f"{place}.retries[0].budget_ratio": 0.1 for place in places}
    return budget, {f"{place}.retries": [] for place in places}


def metastable(run: Run) -> Iterator[Finding]:
    """An overload that outlives the burst that started it."""
    if not run.has_times:
        return
    arrival_s = run.arrival_s
    rows = arrival_s >= run.simulation.warm_up_s
    if int(rows.sum()) < _WINDOWS * _LEAST_IN_WINDOW:
        return
    ends = np.linspace(arrival_s[rows].min(), arrival_s[rows].max(), _WINDOWS + 1)
    counts, _ = np.histogram(arrival_s[rows], ends)
    missed, _ = np.histogram(arrival_s[rows & run.missed], ends)
    part = _WINDOWS // 5
    before, after = float(counts[:part].mean()), float(counts[-part:].mean())
    late_before = missed[:part].sum() / max(counts[:part].sum(), 1)
    late_after = missed[-part:].sum() / max(counts[-part:].sum(), 1)
    (burst,) = np.nonzero(counts[part:-part] > _BURST * max(before, after))
    has_ended = len(burst) and after < before * (1 + _CALM)
    if not has_ended or late_before > _CALM or late_after < _MOST_HALF:
        return
    over_s = float(ends[part + burst[-1] + 1])
    since_s = float(ends[-1]) - over_s
    places = _retrying(run)
    yield Finding(
        f"{places[0]}.retries" if places else "gateway",
        f"the burst was over at {over_s:.4g} s, and {since_s:.3g} s later {late_after:.0%} of the "
        f"requests were still lost or late, at a rate at which it had been {late_before:.0%} "
        "before: the overload outlives its cause.",
        severity="high",
        evidence=(
            Evidence("missed_before", float(late_before), "share lost or late before the burst"),
            Evidence("missed_after", float(late_after), "share lost or late at the end"),
            Evidence("since_s", since_s, "from the end of the burst to the last arrival"),
        ),
        remedies=_fewer_retries(places),
    )
