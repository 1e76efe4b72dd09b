"""Instances that crash, hang and slow down, against a slow twin, on random cases."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.effort import in_parts, often, trials
from support.engine_trials import group_of, plain_trace_of
from support.runs import ns
from support.twins.failures import Failures, Fault, Fleet, Job, Report
from support.twins.instance import PLAIN, Request

from spillway import Result, Simulation, fleet, metrics, router, simulate, workload

KINDS = {
    "crash": fleet.Crash,
    "hang": fleet.Hang,
    "slowdown": fleet.Slowdown,
    "kv_loss": fleet.KvLoss,
}


@dataclass(frozen=True)
class Case:
    fleet: Fleet
    faults: list[Fault]
    requests: list[Request]
    is_scraped: bool

    def simulation(self, **settings: Any) -> Simulation:
        own = self.fleet
        rule = workload.Retry(
            on=list(own.retries_on),
            max_attempts=own.max_attempts,
            backoff_s=own.wait_ns / 1e9,
            multiplier=1,
            jitter="none",
        )
        timeout_s = None if own.timeout_ns is None else own.timeout_ns / 1e9
        reported_s = None if own.reported_after_ns is None else own.reported_after_ns / 1e9
        return Simulation(
            workload=plain_trace_of(self.requests),
            instances=[group_of(server) for server in own.servers],
            router=router.RoundRobin(),
            reaction=workload.Reaction(timeout_s=timeout_s, retries=[rule]),
            fleet=fleet.Fleet(
                startup_s=own.startup_ns / 1e9,
                reported_ready_after_s=reported_s,
                health=fleet.Health(
                    detected_after_s=own.detected_after_ns / 1e9,
                    undetected="swallowed" if own.swallows else "refused",
                ),
                migration=fleet.Migration(
                    limit=own.migration_limit,
                    max_seq_len_tokens=own.migration_max_seq_len,
                    answered=own.migrates_answered,
                ),
            ),
            signals={"kind": "scraped", "period_s": 0.01} if self.is_scraped else {"kind": "live"},
            changes=[{"at_s": f.at_ns / 1e9, "faults": [setting_of(f)]} for f in self.faults],
        ).replace(**settings)


def setting_of(fault: Fault) -> Any:
    more: dict[str, Any] = {"for_s": None if fault.for_ns is None else fault.for_ns / 1e9}
    if fault.kind == "slowdown":
        more["factor"] = fault.factor
    if fault.kind == "kv_loss":
        more = {"cached_only": fault.cached_only}
    return KINDS[fault.kind](instance=fault.instance, **more)


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    server = replace(
        PLAIN,
        quantum_ns=1,
        max_num_seqs=rng.randint(1, 6),
        max_num_batched_tokens=rng.choice((8, 32, 256)),
        long_prefill_token_threshold=rng.choice((0, 0, 5)),
        num_kv_blocks=rng.randint(24, 60),
        scheduler=rng.choice(("fcfs", "fcfs", "sjf")),
        alpha0_us=rng.choice((0.0, 1500.0)),
        alpha_output_us=rng.choice((0.0, 30.0)),
        beta0_us=rng.choice((700.0, 7000.0)),
        beta_context_us=rng.choice((0.0, 0.0, 1.5)),
        prefix_caching=rng.random() < 0.7,
        async_scheduling=rng.random() < 0.5,
        reserve_full_prompt=rng.random() < 0.3,
    )
    count = rng.randint(1, 3)
    span_us = rng.choice((100_000, 500_000))

    def some_ns(most_us: int) -> int:
        # Half of them fall on ends of steps.
        return rng.randint(1, most_us) * rng.choice((1000, 700_000 // 700))

    shared = [("a", rng.randint(4, 30)), ("b", rng.randint(4, 30))]
    requests = [
        Request(
            f"request_{row}",
            at_us * 1000,
            rng.randint(1, 50),
            rng.choice((0, 1, rng.randint(2, 40))),
        )
        for row, at_us in enumerate(
            sorted(rng.randrange(span_us) for _ in range(rng.randint(4, 16)))
        )
    ]
    for row, request in enumerate(requests):
        name, tokens = rng.choice((("", 0), *shared))
        if name and tokens <= request.input_tokens:
            requests[row] = replace(request, shared=((name, tokens),))
    timeout_us = rng.choice((None, span_us // 20, span_us // 4))
    if timeout_us is not None:  # one that is late when it arrives may be in a step already
        server = replace(server, alpha0_us=0.0)
    own = Fleet(
        servers=[server] * count,
        detected_after_ns=rng.choice((0, some_ns(span_us // 3), some_ns(span_us))),
        swallows=rng.random() < 0.5,
        startup_ns=rng.choice((0, some_ns(span_us // 5))),
        reported_after_ns=rng.choice((None, None, some_ns(span_us // 5))),
        timeout_ns=None if timeout_us is None else timeout_us * 1000,
        wait_ns=some_ns(span_us // 10),
        max_attempts=rng.randint(1, 4),
    )
    faults = [
        Fault(
            rng.choice((some_ns(span_us), 7000 * 1000 * rng.randint(0, span_us // 7000))),
            rng.choice(("crash", "crash", "hang", "hang", "slowdown")),
            rng.randrange(count),
            rng.choice((None, some_ns(span_us // 3), some_ns(span_us // 3), some_ns(span_us // 3))),
            rng.choice((0.5, 1.5, 3)),
        )
        for _ in range(rng.randint(1, 6))
    ]
    is_scraped = rng.random() < 0.3
    # Half of them migrate; what is drawn for it comes last.
    if rng.random() < 0.5:
        own = replace(
            own,
            servers=[server] * max(count, 2),
            migration_limit=rng.choice((1, 1, 2, 5)),
            migration_max_seq_len=rng.choice((None, None, rng.randint(5, 60))),
            migrates_answered=rng.random() < 0.8,
        )
    faults += [
        Fault(some_ns(span_us), "kv_loss", rng.randrange(count), cached_only=rng.random() < 0.3)
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]
    return Case(own, faults, requests, is_scraped)


def same_as_twin(case: Case, seed: int) -> Counter[str]:
    twin = Failures(case.fleet, case.faults)
    jobs = twin.run(case.requests)
    result = simulate(case.simulation())
    requests = result.requests
    for row, job in enumerate(jobs):
        at = (seed, row)
        assert requests["outcome"][row] == job.outcome, at
        assert requests["reason"][row] == job.reason, at
        assert requests["attempts"][row] == job.attempts, at
        if job.dispatched_ns is not None and job.outcome != "queued":
            assert requests["instance"][row] == job.instance, at
        since_ns = job.arrival_ns - job.request.arrival_ns
        first_ns = job.live.outcome.first_token_ns
        if job.outcome == "completed":
            finished_ns = job.live.outcome.finished_ns
            assert finished_ns is not None
            assert ns(requests["e2e_s"])[row] == since_ns + finished_ns - job.arrival_ns, at
        if first_ns is not None and job.outcome == "completed":
            assert ns(requests["ttft_s"])[row] == since_ns + first_ns - job.arrival_ns, at
        if case.fleet.migration_limit > 0:
            assert requests["migrations"][row] == job.migrations, at
            recomputed = job.live.recomputed if job.attempts else 0
            assert requests["recomputed_tokens"][row] == recomputed, at
        if job.outcome == "completed":
            scheduled_ns = job.live.outcome.scheduled_ns
            assert scheduled_ns is not None
            waited_ns = scheduled_ns - job.request.arrival_ns
            assert ns(requests["scheduling_delay_s"])[row] == waited_ns, at
            assert requests["output_tokens"][row] == job.request.output_tokens, at
    for i, (known, seen) in enumerate(zip(twin.instances, result.instances, strict=True)):
        at = (seed, i)
        assert seen["steps"] == known.steps, at
        assert seen["tokens_wasted"] == known.wasted, at
        assert seen["tokens_recomputed"] == known.recomputed, at
        assert seen["kv_hits"] == known.hits, at
        assert seen["kv_misses"] == known.misses, at
        assert seen["kv_lookups"] == known.lookups, at
    migrated = ("migrated_requests",) if case.fleet.migration_limit > 0 else ()
    expected = [
        fault_of(report) | dict.fromkeys(migrated, report.migrated_requests)
        for report in twin.reports
    ]
    assert result.faults == expected, seed
    same_causes(result, jobs, seed)
    of_faults = sum(report.lost_requests - report.migrated_requests for report in twin.reports)
    if migrated:
        expected_counts = {
            name: twin.migrations[name] for name in ("new_request", "ongoing_request")
        }
        assert result.ledger["migrations"] == expected_counts, seed

    assert result.ledger["attempts"] == sum(job.attempts for job in jobs), seed
    assert result.ledger["failed"] == of_faults, seed
    assert result.summary()["wasted_tokens"] == sum(known.wasted for known in twin.instances), seed
    same_otherwise(case, result, seed)
    return twin.seen


def same_causes(result: Result, jobs: list[Job], seed: int) -> None:
    """The causes of each latency add up to it, and `failure` is that of the twin."""
    causes = result.time_by_cause()
    assert (causes.ns >= 0).all(), seed
    of_failure = causes.ns[:, causes.names.index("failure")]
    for row, job in enumerate(jobs):
        if job.outcome == "completed":
            assert causes.ns[row].sum() == ns(result.requests["e2e_s"])[row], (seed, row)
            assert of_failure[row] == job.failure_ns, (seed, row)
    assert causes.fleet_s["lockstep"] == 0, seed


def fault_of(report: Report) -> dict[str, Any]:
    """The fault as a result lists it."""
    return {
        "kind": report.kind,
        "instance": report.instance,
        "began_s": pytest.approx(report.began_ns / 1e9, abs=1e-12),
        "detected_s": seconds(report.detected_ns),
        "ended_s": seconds(report.ended_ns),
        "lost_requests": report.lost_requests,
        "lost_tokens": report.lost_tokens,
        "lost_time_s": pytest.approx(report.lost_ns / 1e9, abs=1e-12),
        **({"preempted_requests": report.preempted_requests} if report.kind == "kv_loss" else {}),
    }


def seconds(at_ns: int | None) -> Any:
    return None if at_ns is None else pytest.approx(at_ns / 1e9, abs=1e-12)


def same_otherwise(case: Case, result: Result, seed: int) -> None:
    """Step by step, with rows that are reused, and in a session, the run is the same."""
    simulation = case.simulation()
    plain = simulate(simulation, reference=True)
    assert plain.requests["outcome"].tolist() == result.requests["outcome"].tolist(), seed
    assert np.array_equal(plain.requests["e2e_s"], result.requests["e2e_s"], equal_nan=True), seed
    assert plain.ledger == result.ledger, seed
    assert plain.faults == result.faults, seed
    for alone, other in zip(plain.instances, result.instances, strict=True):
        assert alone | {"stepping": ""} == pytest.approx(other | {"stepping": ""}), seed
    streamed = simulate(case.simulation(metrics=metrics.Metrics(streaming=True)))
    assert streamed.ledger == result.ledger, seed
    assert streamed.faults == result.faults, seed


@pytest.mark.parametrize("part", range(3))
def test_failures_are_those_of_the_twin(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in in_parts(trials(1800), 3)[part]:
        seen += same_as_twin(random_case(seed), seed)
    for what in (
        "crash",
        "hang",
        "slowdown",
        "kv_loss",
        "lost",
        "lost in the batch",
        "refused",
        "swallowed",
    ):
        assert seen[what] >= often(30), (what, seen)
    for what in ("held hung", "held down", "held loading", "killed", "went on", "left while hung"):
        assert seen[what] >= often(12), (what, seen)
    for what in ("migrated with tokens", "too long", "above the limit"):
        assert seen[what] >= often(12), (what, seen)
    for what in (
        "crash while hung",
        "crash while loading",
        "left while held",
        "not missed",
        "answered",
        "migrated again",
        "lost while behind",
        "no other instance",
    ):
        assert seen[what] >= often(4), (what, seen)
