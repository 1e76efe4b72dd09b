"""Hedged requests against a slow twin, on random cases."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials
from support.engine_trials import group_of, plain_trace_of
from support.runs import ns
from support.twins.hedging import Copy, Hedging, Job, Setup
from support.twins.instance import PLAIN, Request

from spillway import Result, Simulation, gateway, metrics, router, simulate, workload


def seconds(span_ns: int | None) -> float | None:
    return None if span_ns is None else span_ns / 1e9


@dataclass(frozen=True)
class Case:
    setup: Setup
    requests: list[Request]

    def simulation(self, **settings: Any) -> Simulation:
        own = self.setup
        queue = gateway.Queue(max_requests=own.queue_places)
        limit: Any = "unlimited"
        if own.permits is not None:
            limit = [gateway.FixedLimit(max_in_flight=own.permits)]
        return Simulation(
            workload=plain_trace_of(self.requests),
            gateway=gateway.Gateway(limit=limit, bands=[gateway.Band(queue=queue)]),
            instances=[
                group_of(server).replace(notices_departure_after_s=seconds(delay_ns))
                for server, delay_ns in zip(own.servers, own.notices_ns, strict=True)
            ],
            router=router.RoundRobin(),
            reaction=workload.Reaction(
                timeout_s=seconds(own.timeout_ns),
                first_token_timeout_s=seconds(own.first_token_timeout_ns),
                hedge=workload.Hedge(
                    after_s=own.after_ns / 1e9,
                    budget_ratio=own.budget_ratio,
                    budget_burst=own.budget_burst,
                ),
            ),
            horizon_s=seconds(own.horizon_ns),
        ).replace(**settings)


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    span_us = rng.choice((50_000, 200_000, 500_000))
    plain = replace(
        PLAIN,
        quantum_ns=1,
        max_num_seqs=rng.randint(1, 6),
        max_num_batched_tokens=rng.choice((8, 32, 256)),
        num_kv_blocks=rng.randint(16, 60),
        scheduler=rng.choice(("fcfs", "fcfs", "sjf")),
        alpha0_us=rng.choice((0.0, 0.0, 1500.0)),
        alpha_output_us=rng.choice((0.0, 30.0)),
        prefix_caching=rng.random() < 0.5,
        async_scheduling=rng.random() < 0.5,
        reserve_full_prompt=rng.random() < 0.5,
    )
    count = rng.randint(2, 4)
    # Equal servers whose steps end at the same instants, or of different speeds.
    is_alike = rng.random() < 0.3
    servers = [
        replace(plain, beta0_us=7000.0 if is_alike else float(rng.randint(500, 15_000)))
        for _ in range(count)
    ]
    late_ns = rng.choice((0, 0, None, rng.randrange(1, 100_000) * 1000 + 5))
    shared = [("a", rng.randint(4, 20)), ("b", rng.randint(4, 20))]
    requests = []
    for at_us in sorted(rng.randrange(span_us) for _ in range(rng.randint(3, 14))):
        prompt = rng.randint(1, 50)
        usable = [group for group in shared if group[1] <= prompt]
        group = rng.choice([None, *usable])
        requests.append(
            Request(
                f"request_{len(requests)}",
                at_us * 1000,
                prompt,
                rng.choice((0, 1, 1, rng.randint(2, 40))),
                shared=() if group is None else (group,),
            )
        )
    first_ns = rng.choice((None, None, rng.randrange(20_000, 200_000) * 1000 + 77))
    return Case(
        Setup(
            servers=servers,
            notices_ns=[rng.choice((0, late_ns)) for _ in servers],
            after_ns=rng.choice((0, rng.randrange(1, 60_000) * 1000 + 13, 7_000_000)),
            budget_ratio=rng.choice((None, None, 0.0, 0.3)),
            budget_burst=rng.choice((1, 1.5, 3)),
            timeout_ns=rng.choice((None, None, rng.randrange(10_000, 300_000) * 1000 + 177)),
            first_token_timeout_ns=first_ns,
            permits=rng.choice((None, None, 1, rng.randint(2, 6))),
            queue_places=rng.choice((None, 1, 3)),
            horizon_ns=rng.choice((None, None, rng.randrange(span_us // 2, span_us) * 1000 + 999)),
        ),
        requests,
    )


def same_as_twin(case: Case, seed: int) -> Counter[str]:
    twin = Hedging(case.setup)
    jobs = twin.run(case.requests)
    result = simulate(case.simulation())
    requests = result.requests
    assert len(requests["outcome"]) == len(jobs), seed
    for row, job in enumerate(jobs):
        same_row(result, row, job, seed)
    for i, (known, seen) in enumerate(zip(twin.instances, result.instances, strict=True)):
        at = (seed, i)
        assert seen["steps"] == known.steps, at
        assert seen["tokens_wasted"] == known.wasted, at
        assert seen["tokens_recomputed"] == known.recomputed, at
        assert seen["kv_hits"] == known.hits, at
        assert seen["kv_lookups"] == known.lookups, at
    copies = [copy for job in jobs for copy in job.copies]
    same_counts(result, jobs, copies, seed)
    assert result.ledger.get("completed_in_vain", 0) == twin.in_vain, seed
    assert result.summary()["wasted_tokens"] == sum(each.wasted for each in twin.instances), seed
    same_otherwise(case, result, seed)
    return twin.seen


def same_row(result: Result, row: int, job: Job, seed: int) -> None:
    at, requests, copy = (seed, row), result.requests, job.standing
    assert requests["outcome"][row] == copy.outcome, at
    assert requests["reason"][row] == copy.reason, at
    assert requests["attempts"][row] == len(job.copies), at
    assert requests["hedge"][row] == job.hedge, at
    assert requests["instance"][row] == copy.instance, at
    if copy.outcome != "completed":
        return
    times = copy.live.outcome
    assert times.first_token_ns is not None
    assert times.finished_ns is not None
    since_ns = job.request.arrival_ns
    assert ns(requests["ttft_s"])[row] == times.first_token_ns - since_ns, at
    assert ns(requests["e2e_s"])[row] == times.finished_ns - since_ns, at


def same_counts(result: Result, jobs: list[Job], copies: list[Copy], seed: int) -> None:
    ledger, outcomes = result.ledger, Counter(copy.outcome for copy in copies)
    assert ledger["logical_requests"] == len(jobs), seed
    assert ledger["attempts"] == len(copies), seed
    for name in ("completed", "cancelled", "queued", "in_transit", "running"):
        assert ledger[name] == outcomes[name], (seed, name)
    assert ledger["hedges"] == len(copies) - len(jobs), seed
    assert ledger["hedge_wins"] == sum(job.hedge == "second" for job in jobs), seed


def same_otherwise(case: Case, result: Result, seed: int) -> None:
    """Step by step, and with rows that are reused, the run is the same."""
    plain = simulate(case.simulation(), reference=True)
    for name in plain.requests:
        same = np.array_equal(
            plain.requests[name],
            result.requests[name],
            equal_nan=plain.requests[name].dtype.kind == "f",
        )
        assert same, (seed, name)
    assert plain.ledger == result.ledger, seed
    for alone, other in zip(plain.instances, result.instances, strict=True):
        assert alone | {"stepping": ""} == pytest.approx(other | {"stepping": ""}), seed
    streamed = simulate(case.simulation(metrics=metrics.Metrics(streaming=True)))
    assert streamed.ledger == result.ledger, seed
    assert streamed.instances == result.instances, seed
    for name in ("wasted_tokens", "completed", "num_ttft"):
        if name in streamed.summary():
            assert streamed.summary()[name] == result.summary()[name], (seed, name)


def test_hedged_requests_are_as_in_the_twin() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(2400):
        seen.update(same_as_twin(random_case(seed), seed))
    for what in (
        "copy 1 won",
        "copy 2 won",
        "lost while queued",
        "lost while in_transit",
        "lost while running",
        "hedge while queued",
        "hedge while running",
        "over budget",
        "in vain",
        "late when it entered",
        "rejected, and the other goes on",
        "cancelled, and the other goes on",
    ):
        assert seen[what] >= often(5), (what, seen)
