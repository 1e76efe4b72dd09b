"""The engine against its slow twin: every stamp, latency and gap to the nanosecond."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples, trials
from support.twins import instance as oracle
from support.watchdog import watched

from spillway import (
    Result,
    Simulation,
    gateway,
    instance,
    metrics,
    profiles,
    router,
    simulate,
    trace,
    workload,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

SEEDS = trials(300)

# Equal priorities, zero and negative ones all occur.
CLASSES = tuple(
    workload.SloClass(name=name, priority=priority)
    for name, priority in (("chat", 7), ("api", 0), ("bulk", -2), ("spare", -2))
)
PRIORITY = {one.name: one.priority for one in CLASSES}
ADDED = (
    "hits",
    "misses",
    "lookups",
    "evictions",
    "rolled_back",
    "whole_prompts",
    "gave_way",
    "unfinished_victims",
)
PRIORITIES = ("slo_class", "constant", "age", "inverted_age")
FEATURES = (
    "preempted",
    "preempted twice",
    "refused",
    "max_model_len",
    "chunked prefill",
    "capped prefill",
    "one token per step",
    "simultaneous",
    "no output",
    "one output token",
    "no entry delay",
    "no overhead",
    "large overhead",
    "context",
    "fcfs",
    "sjf",
    *(f"{kind} by {by}" for kind in ("priority_fcfs", "reverse_priority") for by in PRIORITIES),
)


def randoms() -> SearchStrategy[random.Random]:
    """Sources of randomness that hypothesis steers, so that cases are built as in seeded tests."""
    return st.randoms(use_true_random=False)


# Cases


def random_requests(rng: random.Random) -> list[oracle.Request]:
    n = rng.choice((rng.randint(1, 5), rng.randint(6, 20), rng.randint(6, 20)))
    # Ids out of order and of different lengths, so that only their text orders them ("10" < "9").
    ids = [str(number) for number in rng.sample(range(2 * n + 8), n)]
    scale_ns = rng.choice((0, 2, 50_000, 20_000_000))
    requests = []
    now_ns = rng.choice((0, rng.randint(0, 10**9)))
    for request_id in ids:
        requests.append(
            oracle.Request(
                request_id=request_id,
                arrival_ns=now_ns,
                input_tokens=rng.choice((1, rng.randint(1, 12), rng.randint(1, 80))),
                output_tokens=rng.choice((0, 1, rng.randint(2, 12), *[rng.randint(2, 60)] * 3)),
                priority=rng.choice(CLASSES).priority,
            )
        )
        # With a delay of so many tenths per token, a later request may enter at the same instant.
        now_ns += rng.choice((0, rng.randint(0, scale_ns), 100 * rng.randint(0, 20)))
    return requests


def random_latency(rng: random.Random) -> instance.Linear:
    # Sums of tenths are whole nanoseconds or just below, as the order of summation has it.
    style = rng.choice(("published", "any", "tenths"))

    def some(published: float) -> float:
        other = {
            "published": published,
            "any": rng.uniform(0, 40),
            "tenths": rng.randint(1, 99) / 10,
        }
        return rng.choice((0.0, other[style], other[style], other[style]))

    default = instance.Linear()
    return instance.Linear(
        alpha0_us=rng.choice((0.0, some(default.alpha0_us), 1e6)),
        alpha_input_us=rng.choice((0.0, 0.1, some(default.alpha_input_us), 1e4)),
        alpha_output_us=rng.choice((0.0, some(default.alpha_output_us), 1e5)),
        beta0_us=some(default.beta0_us),
        beta_prefill_us=some(default.beta_prefill_us),
        beta_decode_us=some(default.beta_decode_us),
        beta_context_us=rng.choice((0.0, some(0.3))),
    )


def random_scheduler(rng: random.Random) -> Any:
    kind = rng.choice(
        (instance.Fcfs, instance.Sjf, instance.PriorityFcfs, instance.ReversePriority)
    )
    if kind in (instance.Fcfs, instance.Sjf):
        return kind()
    return kind(priority=rng.choice(PRIORITIES))


def random_priorities(rng: random.Random) -> instance.PriorityFcfs:
    """By class, with everything that priorities may decide."""
    named = [(name, rng.randint(-3, 10)) for name in ("chat", "api", "bulk")]
    # `spare` counts as much as `bulk`, as the oracle knows priorities only.
    named.append(("spare", named[-1][1]))
    return instance.PriorityFcfs(
        class_priorities=rng.choice(
            ((), [instance.ClassPriority(name=name, priority=value) for name, value in named])
        ),
        age_weight_per_s=rng.choice((0, 0, 1e-6, 10, 10 ** rng.uniform(-2, 5))),
        victim=rng.choice(("last", "lowest_priority")),
        preemption_margin=rng.choice((None, 1, 2, 5, 9)),
        max_preemptions_per_step=rng.choice((1, 2, 3)),
    )


def random_group(rng: random.Random, requests: list[oracle.Request]) -> instance.InstanceGroup:
    block = rng.choice((1, 4, 16, rng.randint(1, 20)))
    totals = [request.input_tokens + request.output_tokens for request in requests]
    blocks = [max(1, math.ceil(total / block)) for total in totals]
    largest = max(blocks)
    tight = largest + rng.randint(0, 1 + sum(blocks) // 8)
    some = rng.choice(requests)
    limit = some.input_tokens + rng.choice((0, 1, some.output_tokens + rng.randint(-1, 1)))
    return instance.InstanceGroup(
        max_num_seqs=rng.choice((1, 256, 256, rng.randint(2, 8), rng.randint(2, 8))),
        max_num_batched_tokens=rng.choice(
            (1, 2048, 2048, rng.randint(2, 16), rng.randint(16, 128))
        ),
        long_prefill_token_threshold=rng.choice((0, 0, 1, rng.randint(2, 20))),
        max_model_len=rng.choice((0, 0, 0, 0, 0, max(2, limit))),
        block_size_tokens=block,
        num_kv_blocks=rng.choice((tight, tight, tight, tight, sum(blocks), max(1, largest - 1))),
        scheduler=random_scheduler(rng),
        latency=random_latency(rng),
    )


def random_kv_cache(rng: random.Random) -> dict[str, Any]:
    return {
        "instances[0].kv_cache.prefix_caching": rng.choice((True, True, True, False)),
        "instances[0].kv_cache.allocation": rng.choice(("check_then_act", "roll_back")),
        "instances[0].kv_cache.stores_last_token": rng.choice((True, False)),
    }


def trace_of(requests: list[oracle.Request], rng: random.Random) -> workload.Trace:
    names = [
        rng.choice([one.name for one in CLASSES if one.priority == request.priority])
        for request in requests
    ]
    # A trace knows at most one segment.
    groups = [request.shared[0] if request.shared else ("", 0) for request in requests]
    return trace(
        arrival_s=[request.arrival_ns * 1e-9 for request in requests],
        input_tokens=[request.input_tokens for request in requests],
        output_tokens=[request.output_tokens for request in requests],
        slo_class=names,
        request_id=[request.request_id for request in requests],
        prefix_group=[name for name, _ in groups],
        prefix_tokens=[tokens for _, tokens in groups],
    )


def random_case(rng: random.Random, profile: str | None) -> tuple[Simulation, list[oracle.Request]]:
    """One instance under a profile; without one, several instances and every choice for itself."""
    requests = random_requests(rng)
    group = random_group(rng, requests)
    simulation = Simulation(
        workload=trace_of(requests, rng), slo_classes=CLASSES, instances=(group,)
    )
    if profile is None:
        simulation = simulation.replace(
            instances=(
                group.replace(
                    count=rng.choice((1, 1, 1, 2, 3)),
                    completion=rng.choice(("step_end", "step_start")),
                    preemption=rng.choice(("keep_emitted", "restart")),
                    output_overhead=rng.choice(("in_step", "reported")),
                ),
            ),
            metrics=metrics.Metrics(accounting=rng.choice(("clock", "blis"))),
            quantum_ns=rng.choice((1, 300, 700, 1000, rng.randint(2, 10**6))),
        ).with_(random_kv_cache(rng))
    else:
        simulation = profiles.apply(profile, simulation)
        # The profiles differ in the priority too; under both, any priority can be chosen.
        simulation = simulation.with_({"instances[0].scheduler": group.scheduler})
    return simulation, requests


def server_of(simulation: Simulation) -> oracle.Server:
    (group,) = simulation.instances
    latency = group.latency
    return oracle.Server(
        max_num_seqs=group.max_num_seqs,
        max_num_batched_tokens=group.max_num_batched_tokens,
        long_prefill_token_threshold=group.long_prefill_token_threshold,
        max_model_len=group.max_model_len,
        block_size_tokens=group.block_size_tokens,
        num_kv_blocks=group.num_kv_blocks,
        scheduler=group.scheduler.kind,
        priority=getattr(group.scheduler, "priority", "constant"),
        alpha0_us=latency.alpha0_us,
        alpha_input_us=latency.alpha_input_us,
        alpha_output_us=latency.alpha_output_us,
        beta0_us=latency.beta0_us,
        beta_prefill_us=latency.beta_prefill_us,
        beta_decode_us=latency.beta_decode_us,
        beta_context_us=latency.beta_context_us,
        completion=group.completion,
        preemption=group.preemption,
        output_overhead=group.output_overhead,
        accounting=simulation.metrics.accounting,
        quantum_ns=simulation.quantum_ns,
        prefix_caching=group.kv_cache.prefix_caching,
        allocation=group.kv_cache.allocation,
        stores_last_token=group.kv_cache.stores_last_token,
        age_weight_per_s=getattr(group.scheduler, "age_weight_per_s", 0),
        victim=getattr(group.scheduler, "victim", "last"),
        preemption_margin=getattr(group.scheduler, "preemption_margin", None),
        max_preemptions_per_step=getattr(group.scheduler, "max_preemptions_per_step", 3),
    )


def with_priorities(simulation: Simulation, requests: list[oracle.Request]) -> list[oracle.Request]:
    """The requests with the priorities that their classes have in the scheduler."""
    named = getattr(simulation.instances[0].scheduler, "class_priorities", ())
    told = {PRIORITY[one.name]: one.priority for one in named}
    return [
        dataclasses.replace(request, priority=told.get(request.priority, request.priority))
        for request in requests
    ]


# Comparison


def expected_row(
    request: oracle.Request, outcome: oracle.Outcome, accounting: str
) -> dict[str, Any]:
    if outcome.outcome == "rejected":
        return {
            "outcome": "rejected",
            "reason": "unservable",
            "preemptions": 0,
            "output_tokens": 0,
            "scheduling_delay_ns": None,
            "ttft_ns": None,
            "e2e_ns": None,
            "tpot_ns": None,
            "itl_mean_ns": None,
        }
    assert outcome.scheduled_ns is not None
    assert outcome.first_token_ns is not None
    assert outcome.finished_ns is not None
    gaps = request.output_tokens - 1
    if accounting == "clock":
        ttft = outcome.first_token_ns - request.arrival_ns
        decode = outcome.finished_ns - outcome.first_token_ns
        itl_mean = decode / gaps if gaps > 0 else None
    else:
        ttft = outcome.reported_ttft_ns
        decode = outcome.reported_decode_ns
        itl_mean = decode / max(gaps, 1)
    return {
        "outcome": "completed",
        "reason": "",
        "preemptions": outcome.preemptions,
        "output_tokens": request.output_tokens,
        "scheduling_delay_ns": outcome.scheduled_ns - request.arrival_ns,
        "ttft_ns": ttft,
        "e2e_ns": ttft + decode,
        "tpot_ns": decode / gaps if gaps > 0 else None,
        "itl_mean_ns": itl_mean,
    }


def reported_row(result: Result, row: int) -> dict[str, Any]:
    requests = result.requests
    told: dict[str, Any] = {
        name: requests[name][row].item()
        for name in ("outcome", "reason", "preemptions", "output_tokens")
    }
    for name in ("scheduling_delay", "ttft", "e2e", "tpot", "itl_mean"):
        seconds = requests[f"{name}_s"][row].item()
        told[f"{name}_ns"] = None if math.isnan(seconds) else seconds * 1e9
    return told


def approximately(row: dict[str, Any]) -> dict[str, Any]:
    """`row` with room for the rounding of seconds: the spans here stay far below 2**50 ns."""
    return {
        name: pytest.approx(value, rel=1e-15, abs=1e-4)
        if name.endswith("_ns") and value is not None
        else value
        for name, value in row.items()
    }


def assert_same_gaps(summary: Any, gaps: Counter[int]) -> None:
    assert summary["num_itl"] == gaps.total()
    names = ("mean_itl_ms", "std_itl_ms", *(f"p{p}_itl_ms" for p in (50, 90, 95, 99)))
    if not gaps:
        assert {summary[name] for name in names} == {None}
        return
    every = np.repeat(np.array(list(gaps), dtype=float), list(gaps.values()))
    expected = (every.mean(), every.std(), *np.percentile(every, (50, 90, 95, 99)))
    for name, value_ns in zip(names, expected, strict=True):
        assert summary[name] == pytest.approx(value_ns / 1e6, rel=1e-12, abs=1e-9), name


def assert_same(simulation: Simulation, requests: list[oracle.Request]) -> oracle.Run:
    """Runs both, compares what both know; returns the oracle's run, of all instances together."""
    result = simulate(simulation)
    server = server_of(simulation)
    requests = with_priorities(simulation, requests)
    whole = oracle.Run([], Counter(), 0, 0)
    ran_on = result.requests["instance"]
    # The default router takes turns.
    assert ran_on.tolist() == [i % len(result.instances) for i in range(len(requests))]
    waited_s = 0.0
    shares = []
    for index, report in enumerate(result.instances):
        rows = np.flatnonzero(ran_on == index).tolist()
        run = oracle.simulate(server, [requests[row] for row in rows])
        for row, outcome in zip(rows, run.outcomes, strict=True):
            expected = expected_row(requests[row], outcome, server.accounting)
            assert reported_row(result, row) == approximately(expected), requests[row]
        outcomes = Counter(outcome.outcome for outcome in run.outcomes)
        assert report["completed"] == outcomes["completed"]
        assert report["refused"] == outcomes["rejected"]
        assert report["preemptions"] == sum(outcome.preemptions for outcome in run.outcomes)
        assert report["steps"] == run.steps
        for name in ("hits", "misses", "lookups"):
            assert report[f"kv_{name}"] == getattr(run, name), name
        waited_s += report["mean_waiting"]
        whole.outcomes += run.outcomes
        whole.gaps += run.gaps
        whole.steps += run.steps
        whole.end_ns = max(whole.end_ns, run.end_ns)
        for name in ADDED:
            setattr(whole, name, getattr(whole, name) + getattr(run, name))
        shares.append(run.hits / max(run.hits + run.misses, 1))

    summary = result.summary()
    if server.accounting == "blis":
        assert summary["cache_hit_rate"] == pytest.approx(sum(shares) / len(shares), rel=1e-12)
    elif whole.lookups > 0:
        assert summary["cache_hit_rate"] == pytest.approx(whole.hits / whole.lookups, rel=1e-12)
    else:
        assert summary["cache_hit_rate"] is None
    assert result.steps == whole.steps
    assert summary["preemptions"] == sum(outcome.preemptions for outcome in whole.outcomes)
    assert_same_gaps(summary, whole.gaps)
    if all(outcome.outcome == "completed" for outcome in whole.outcomes):
        if server.accounting == "blis":
            assert summary["duration"] == pytest.approx(whole.end_ns * 1e-9, rel=1e-15)
            assert summary["total_output_tokens"] == whole.gaps.total()
        if summary["preemptions"] == 0:
            # The only trace that the entry to the engine's queue leaves: the time spent in it.
            waited_ns = sum(
                outcome.scheduled_ns - outcome.enqueued_ns
                for outcome in whole.outcomes
                if outcome.scheduled_ns is not None and outcome.enqueued_ns is not None
            )
            assert waited_s * whole.end_ns == pytest.approx(waited_ns, rel=1e-9, abs=1e-3)
    return whole


@examples(600)
@given(rng=randoms())
def test_vllm_profile(rng: random.Random) -> None:
    assert_same(*random_case(rng, "vllm"))


@examples(600)
@given(rng=randoms())
def test_blis_0_6_profile(rng: random.Random) -> None:
    assert_same(*random_case(rng, "blis_0_6"))


@examples(600)
@given(rng=randoms())
def test_any_combination_on_several_instances(rng: random.Random) -> None:
    assert_same(*random_case(rng, None))


def random_case_of_priorities(rng: random.Random) -> tuple[Simulation, list[oracle.Request]]:
    simulation, requests = random_case(rng, rng.choice((None, *profiles.NAMES)))
    return simulation.with_({"instances[0].scheduler": random_priorities(rng)}), requests


@examples(600)
@given(rng=randoms())
def test_priorities_that_grow_and_preempt(rng: random.Random) -> None:
    assert_same(*random_case_of_priorities(rng))


def test_seeded_cases_of_priorities_reach_what_they_are_meant_to() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        simulation, requests = random_case_of_priorities(random.Random(seed))
        run = assert_same(simulation, requests)
        scheduler = simulation.instances[0].scheduler
        preemptions = sum(outcome.preemptions for outcome in run.outcomes)
        reached["gave way"] += run.gave_way > 0
        reached["gave way to an aged one"] += run.gave_way > 0 < scheduler.age_weight_per_s
        reached["memory was short"] += preemptions > run.gave_way
        reached["lost a part of a step"] += run.unfinished_victims > 0
        by_priority = scheduler.victim == "lowest_priority"
        reached["memory was short for one of low priority"] += (
            by_priority and preemptions > run.gave_way
        )
    assert len(reached) == 5
    assert min(reached.values()) >= 0.05 * len(SEEDS), reached


def features_of(
    simulation: Simulation, requests: list[oracle.Request], run: oracle.Run
) -> Iterator[str]:
    (group,) = simulation.instances
    most = max(outcome.preemptions for outcome in run.outcomes)
    served = [
        request
        for request, outcome in zip(requests, run.outcomes, strict=True)
        if outcome.outcome == "completed"
    ]
    longest = max((request.input_tokens for request in served), default=0)
    arrivals = [request.arrival_ns for request in requests]
    scheduler = group.scheduler.kind
    reached = {
        "preempted": most > 0,
        "preempted twice": most > 1,
        "refused": len(served) < len(requests),
        "max_model_len": group.max_model_len > 0 and len(served) < len(requests),
        "chunked prefill": longest > group.max_num_batched_tokens,
        "capped prefill": longest > group.long_prefill_token_threshold > 0,
        "one token per step": group.max_num_batched_tokens == 1,
        "simultaneous": len(set(arrivals)) < len(arrivals),
        "no output": any(request.output_tokens == 0 for request in served),
        "one output token": any(request.output_tokens == 1 for request in served),
        "no entry delay": group.latency.alpha0_us == group.latency.alpha_input_us == 0,
        "no overhead": group.latency.alpha_output_us == 0,
        "large overhead": group.latency.alpha_output_us == 1e5,
        "context": group.latency.beta_context_us > 0,
    }
    yield from (name for name, is_reached in reached.items() if is_reached)
    by = getattr(group.scheduler, "priority", None)
    yield f"{scheduler} by {by}" if by else scheduler


@pytest.mark.parametrize("profile", profiles.NAMES)
def test_seeded_cases_reach_what_they_are_meant_to(profile: str) -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        case = random_case(random.Random(seed), profile)
        reached.update(features_of(*case, assert_same(*case)))
    assert reached["preempted"] >= 0.2 * len(SEEDS)
    rare = {name: reached[name] for name in FEATURES if reached[name] < 0.03 * len(SEEDS)}
    assert not rare, reached


# Every run ends


@examples(600)
@given(rng=randoms())
def test_every_run_drains_and_conserves_requests(rng: random.Random) -> None:
    simulation, requests = random_case(rng, None)
    simulation = simulation.replace(
        gateway=gateway.Gateway(
            admission=rng.choice(
                (
                    gateway.AlwaysAdmit(),
                    gateway.TokenBucket(
                        capacity_tokens=100, refill_tokens_per_s=rng.choice((1, 1e4))
                    ),
                )
            ),
            admission_latency_s=rng.choice((0, 1e-3)),
            bands=(gateway.Band(priority=1), gateway.Band(priority=-1000)),
            limit=rng.choice((gateway.Unlimited(), gateway.FixedLimit(max_in_flight=1))),
            routing_latency_s=rng.choice((0, 1e-3)),
        ),
        router=rng.choice((router.RoundRobin(), router.LeastLoaded(), router.AlwaysBusiest())),
    )
    with watched(60):
        result = simulate(simulation)

    outcomes = Counter(result.requests["outcome"].tolist())
    assert set(outcomes) <= {"completed", "rejected"}
    ledger = result.ledger
    by_gateway = sum(ledger["rejected"].values())
    by_workers = sum(ledger["worker_rejected"].values())
    unfinished = ("at_admission", "queued", "in_transit", "running")
    gone = ("expired", "evicted", "failed", "cancelled")
    assert {name: ledger[name] for name in unfinished + gone} == dict.fromkeys(unfinished + gone, 0)
    assert ledger["logical_requests"] == ledger["attempts"] == len(requests)
    assert ledger["attempts"] == ledger["admitted"] + by_gateway
    assert ledger["admitted"] == ledger["dispatched"] == ledger["completed"] + by_workers
    assert ledger["completed"] == outcomes["completed"]
    assert by_gateway + by_workers == outcomes["rejected"]
    reasons = Counter(result.requests["reason"].tolist())
    for reason, count in {**ledger["rejected"], **ledger["worker_rejected"]}.items():
        assert reasons[reason] == count
    is_completed = result.requests["outcome"] == "completed"
    asked = np.array([request.output_tokens for request in requests])
    assert (result.requests["output_tokens"] == np.where(is_completed, asked, 0)).all()
