"""The engine against its slow twin: every stamp, latency and gap to the nanosecond."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instance.specimens_of_schedulers import PRIORITIES
from support.effort import examples, often, trials
from support.engine_trials import (
    CLASSES,
    assert_same,
    depends_on_context,
    random_kv_cache,
    random_latency,
    random_preemption,
    random_scheduler,
    trace_of,
    with_async_scheduling,
    with_spare_memory,
)
from support.twins import instance as oracle
from support.watchdog import watched

from spillway import ConfigError, Simulation, gateway, instance, metrics, profiles, router, simulate
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

SEEDS = trials(300)

AHEAD = ("async", "async and preempted", "full prompt reserved", "watermark")
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
    "roofline",
    "step table",
    "fcfs",
    "sjf",
    "longest_prefix",
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
        # With a delay of N tenths per token, a later request may enter at the same instant.
        now_ns += rng.choice((0, rng.randint(0, scale_ns), 100 * rng.randint(0, 20)))
    return requests


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
        **random_preemption(rng, (1, 2, 5, 9)),
        max_preemptions_per_step=rng.choice((1, 2, 3)),
    )


def random_group(rng: random.Random, requests: list[oracle.Request]) -> instance.InstanceGroup:
    block = rng.choice((1, 4, 16, rng.randint(1, 20)))
    totals = [request.input_tokens + request.output_tokens for request in requests]
    blocks = [max(1, math.ceil(total / block)) for total in totals]
    largest = max(blocks)
    tight = largest + rng.randint(0, 1 + sum(blocks) // 8)
    pick = rng.choice(requests)
    limit = pick.input_tokens + rng.choice((0, 1, pick.output_tokens + rng.randint(-1, 1)))
    return BLIS_SERVER.replace(
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


def random_case(rng: random.Random, profile: str | None) -> tuple[Simulation, list[oracle.Request]]:
    """One instance under a profile; without one, several instances and independent choices."""
    requests = random_requests(rng)
    group = random_group(rng, requests)
    simulation = Simulation(workload=trace_of(requests, rng), slo_classes=CLASSES, instances=group)
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
    return with_spare_memory(with_async_scheduling(simulation, rng), rng), requests


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


def test_an_urgent_head_is_no_victim_of_the_requests_that_it_preempts() -> None:
    """With few tokens it would be, and both could preempt each other forever."""
    scheduler = instance.PriorityFcfs(preemption_margin=1)
    with pytest.raises(ConfigError, match="victim = least_computed: must be last or lowest_prio"):
        scheduler.replace(victim="least_computed")
    requests = [
        oracle.Request("large", 0, input_tokens=43, output_tokens=16, priority=0),
        oracle.Request("urgent", 1000, input_tokens=12, output_tokens=23, priority=7),
    ]
    for victim, preemption in product(("last", "lowest_priority"), ("keep_emitted", "restart")):
        group = BLIS_SERVER.replace(
            num_kv_blocks=4,
            scheduler=scheduler.replace(victim=victim),
            preemption=preemption,
            async_scheduling=False,
        )
        simulation = Simulation(
            workload=trace_of(requests, random.Random(0)), slo_classes=CLASSES, instances=[group]
        )
        run = assert_same(simulation, requests)
        assert [outcome.outcome for outcome in run.outcomes] == ["completed"] * 2
        assert sum(outcome.preemptions for outcome in run.outcomes) > 0


def test_seeded_cases_of_priorities_reach_what_they_are_meant_to() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        simulation, requests = random_case_of_priorities(random.Random(seed))
        run = assert_same(simulation, requests)
        scheduler = simulation.instances[0].scheduler
        preemptions = sum(outcome.preemptions for outcome in run.outcomes)
        reached["yielded"] += run.yielded > 0
        reached["yielded to an aged one"] += run.yielded > 0 < scheduler.age_weight_per_s
        reached["memory was short"] += preemptions > run.yielded
        reached["lost a part of a step"] += run.unfinished_victims > 0
        by_priority = scheduler.victim == "lowest_priority"
        reached["memory was short for one of low priority"] += (
            by_priority and preemptions > run.yielded
        )
        reached["memory was short for one with few tokens"] += (
            scheduler.victim == "least_computed" and preemptions > run.yielded
        )
    assert len(reached) == 6
    assert min(reached.values()) >= often(12), reached


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
        "context": depends_on_context(group.latency),
        "full prompt reserved": group.kv_cache.reserve_full_prompt,
        "watermark": group.kv_cache.watermark > 0,
        "async": group.async_scheduling,
        "async and preempted": group.async_scheduling and most > 0,
        "roofline": isinstance(group.latency, instance.Roofline),
        "step table": isinstance(group.latency, instance.StepTable),
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
    assert reached["preempted"] >= often(60)
    expected = FEATURES if profile == "blis_0_6" else (*FEATURES, *AHEAD)
    rare = {name: reached[name] for name in expected if reached[name] < often(9)}
    assert not rare, reached


# Ranks in lockstep


def random_case_of_ranks(rng: random.Random) -> tuple[Simulation, list[oracle.Request]]:
    simulation, requests = random_case(rng, rng.choice((None, *profiles.NAMES)))
    (group,) = simulation.instances
    group = group.replace(data_parallel_size=rng.randint(2, 4), lockstep_ranks=rng.random() < 0.8)
    return simulation.replace(instances=group), requests


@examples(600)
@given(rng=randoms())
def test_ranks(rng: random.Random) -> None:
    assert_same(*random_case_of_ranks(rng))


def test_seeded_cases_of_ranks_reach_what_they_are_meant_to() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        simulation, requests = random_case_of_ranks(random.Random(seed))
        run = assert_same(simulation, requests)
        (group,) = simulation.instances
        if not group.lockstep_ranks:
            continue
        reached["lockstep"] += 1
        reached.update(f"lockstep, {feature}" for feature in features_of(simulation, requests, run))
        reached["lockstep, effects at the start"] += group.completion == "step_start"
        reached["lockstep, several instances"] += group.count > 1
        apart = simulation.with_({"instances[0].lockstep_ranks": False})
        reached["it matters"] += simulate(apart).digest != simulate(simulation).digest
    expected = [f"lockstep, {feature}" for feature in ("preempted", "async", "chunked prefill")]
    expected += ["lockstep, effects at the start", "lockstep, several instances"]
    assert min(reached[feature] for feature in expected) >= often(9), reached
    assert reached["it matters"] >= often(60), reached


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
