"""The timeline: every column follows from the requests' own timestamps."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import often, trials
from support.random_gateways import TENANTS, random_simulation
from support.runs import MS, SECOND, Way, fixed, flat, ns, run, steady, ways
from support.twins.gateway import Request, Server

from spillway import Result, UsageError, gateway, metrics, signals, simulate
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_NS = 10 * MS
# Every step takes as long, whichever requests are in it.
STEADY = steady(STEP_NS / MS)


def sampled(step_s: float) -> metrics.Metrics:
    return metrics.Metrics(timeline_step_s=step_s)


def counts(
    result: Result, holds: Callable[[Way, int], int], times: list[int], *, by_tenant: bool = False
) -> Any:
    """The number of requests in a state at each instant, of all or by tenant."""
    them = ways(result)
    names = result.timeline.tenants if by_tenant else [None]
    table = [
        [sum(holds(way, now) for way in them if name in {None, way.tenant}) for name in names]
        for now in times
    ]
    return table if by_tenant else [row[0] for row in table]


def is_before(at: int | None, now: int) -> bool:
    return at is not None and at < now


def is_in_flight(way: Way, now: int) -> bool:
    """A permit returns before a sample of its instant; one is taken after it."""
    return way.in_flight(now) and way.dispatched < now


def lost_at(way: Way, timeout_ns: int) -> int | None:
    at = {"rejected": way.arrived, "expired": way.arrived + timeout_ns}
    return at.get(way.outcome)


def check_gateway(result: Result, timeout_ns: int, permits: int) -> None:
    timeline = result.timeline
    times = ns(timeline["time_s"])

    def is_queued(way: Way, now: int) -> bool:
        left = way.dispatched if way.dispatched is not None else lost_at(way, timeout_ns)
        return way.arrived < now and way.outcome != "rejected" and not is_before(left, now)

    by_tenant: dict[str, Callable[[Way, int], int]] = {
        "submitted": lambda way, now: way.arrived < now,
        "dispatched": lambda way, now: is_before(way.dispatched, now),
        "shed": lambda way, now: is_before(lost_at(way, timeout_ns), now),
        "completed": lambda way, now: way.ended is not None and way.ended <= now,
        "queued": is_queued,
    }
    for name, holds in by_tenant.items():
        assert timeline[name].tolist() == counts(result, holds, times, by_tenant=True), name
    assert timeline["in_flight"].tolist() == counts(result, is_in_flight, times)
    assert timeline["permits"].tolist() == [permits] * len(times)


def offered(rng: random.Random, n: int) -> dict[str, Any]:
    gaps = [rng.choice((0, rng.randint(1, 30 * MS), rng.randint(1, 90 * MS))) for _ in range(n)]
    return {
        "arrival_s": (np.cumsum([333, *gaps[1:]]) / 1e9).tolist(),
        "input_tokens": [rng.randint(1, 200) for _ in range(n)],
        "output_tokens": [rng.randint(1, 40) for _ in range(n)],
        "tenant": [*TENANTS, *(rng.choice(TENANTS) for _ in range(n - 3))],
    }


def test_columns_of_engines_follow_from_the_timestamps() -> None:
    shed = waiting = 0
    blocks, count = 500, 2
    for seed in trials(25):
        rng = random.Random(seed)
        permits, timeout_s = rng.randint(4, 12), rng.choice((0.05, 0.2))
        queue = gateway.Queue(max_requests=3, timeout_s=timeout_s)
        result = run(
            **offered(rng, 80),
            instances=BLIS_SERVER.replace(
                latency=STEADY, max_num_seqs=3, count=count, num_kv_blocks=blocks
            ),
            gateway=gateway.Gateway(limit=fixed(permits), bands=[gateway.Band(queue=queue)]),
            metrics=sampled(0.05),
        )
        timeline = result.timeline
        times = ns(timeline["time_s"])
        assert times == [50 * MS * i for i in range(len(times))]
        check_gateway(result, round(timeout_s * SECOND), permits)

        them = ways(result)
        delays = ns(result.requests["scheduling_delay_s"])
        scheduled = {id(way): way.arrived + delay for way, delay in zip(them, delays, strict=True)}

        def emitted(way: Way, now: int) -> int:
            if way.first_token is None or way.first_token > now:
                return 0
            return min(1 + (now - way.first_token) // STEP_NS, way.output_tokens)

        def is_running(way: Way, now: int, scheduled: dict[int, int] = scheduled) -> bool:
            return way.ended is not None and scheduled[id(way)] < now < way.ended

        assert timeline["emitted_tokens"].tolist() == [
            [sum(emitted(w, now) for w in them if w.tenant == name) for name in timeline.tenants]
            for now in times
        ]
        running = [sum(is_running(way, now) for way in them) for now in times]
        assert timeline["running"].tolist() == running
        inside = [sum(is_in_flight(way, now) for way in them) for now in times]
        assert timeline["waiting"].tolist() == [a - b for a, b in zip(inside, running, strict=True)]
        held = [
            sum(-((w.input_tokens + emitted(w, now)) // -16) for w in them if is_running(w, now))
            for now in times
        ]
        expected = [blocks_held / (blocks * count) for blocks_held in held]
        assert timeline["kv_utilization"].tolist() == pytest.approx(expected, rel=1e-12)
        assert timeline["ready_instances"].tolist() == [count] * len(times)
        # The timeline ends with the first sample that finds nothing left to do.
        assert times[-2] < max(way.ended or 0 for way in them) <= times[-1]
        shed += int(timeline["shed"][-1].sum())
        waiting += int(timeline["waiting"].sum())
    assert shed > often(100)
    assert waiting > often(100)


def test_columns_of_a_processor_sharing_plant_follow_from_the_timestamps() -> None:
    server = Server()
    for seed in trials(25):
        rng = random.Random(seed)
        permits = rng.randint(1, 6)
        queue = gateway.Queue(max_requests=4, timeout_s=0.3)
        result = run(
            **offered(rng, 60),
            instances=flat(1, server.first_ns / 1e9, reference_output_tokens=100),
            gateway=gateway.Gateway(limit=fixed(permits), bands=[gateway.Band(queue=queue)]),
            metrics=sampled(0.07),
        )
        timeline = result.timeline
        times = ns(timeline["time_s"])
        check_gateway(result, 3 * SECOND // 10, permits)
        served = [
            (way.tenant, Request(way.arrived, 0, 0, way.output_tokens, dispatched=way.dispatched))
            for way in ways(result)
            if way.dispatched is not None
        ]
        assert timeline["emitted_tokens"].tolist() == [
            [
                sum(server.emitted(request, now) for name, request in served if name == tenant)
                for tenant in timeline.tenants
            ]
            for now in times
        ]
        assert timeline["running"].tolist() == timeline["in_flight"].tolist()
        assert timeline["kv_utilization"].tolist() == [0] * len(times)


def test_permits_are_those_of_the_tightest_limit() -> None:
    def permits(*limits: Any) -> list[float]:
        result = run([0], gateway=gateway.Gateway(limit=list(limits)), metrics=sampled(100))
        return result.timeline["permits"].tolist()[:1]

    budget = gateway.WorkerBudget(cap_per_worker=3, workers=5)
    assert permits(budget) == [15]
    assert permits(budget, fixed(14), gateway.DualLimit(max_in_flight=20)) == [14]
    assert permits(gateway.TokenBudget(), budget, gateway.PerTenant(max_in_flight=1)) == [15]
    assert np.isnan(permits(gateway.TokenBudget(), gateway.PerTenant()))
    assert np.isnan(permits(gateway.Unlimited()))


def test_tenants_columns_by_name() -> None:
    result = run(
        [0.1, 0.2, 0.3],
        tenant=["b", "a", "b"],
        gateway=gateway.Gateway(limit=fixed(100)),
        metrics=sampled(0.25),
    )
    assert set(result.timeline.tenants) == {"a", "b"}
    assert result.timeline.of("b")["submitted"].tolist()[:3] == [0, 1, 2]
    assert result.timeline.of("a")["submitted"].tolist()[:3] == [0, 1, 1]
    with pytest.raises(KeyError, match="unknown"):
        result.timeline.of("unknown")


def test_horizon_ends_the_timeline() -> None:
    result = run([0], instances=flat(1000), metrics=sampled(0.5), horizon_s=1.75)
    assert result.timeline["time_s"].tolist() == [0, 0.5, 1, 1.5]


def test_no_timeline_unless_asked_for() -> None:
    result = run([0, 0])
    with pytest.raises(UsageError, match="timeline_step_s"):
        _ = result.timeline


def test_looking_changes_nothing() -> None:
    """Jumps and streaming do not change the samples."""
    rows = 0
    for seed in trials(60):
        blind = random_simulation(seed)
        simulation = blind.with_({"metrics.timeline_step_s": 0.0471})
        result, before = simulate(simulation, seed), simulate(blind, seed)
        for name in before.requests:
            assert np.array_equal(result.requests[name], before.requests[name]) or np.array_equal(
                result.requests[name], before.requests[name], equal_nan=True
            ), (seed, name)
        assert result.ledger == before.ledger
        assert result.steps == before.steps
        rows += len(result.timeline["time_s"])
        for other in (
            simulate(simulation, seed, reference=True),
            simulate(simulation.with_({"metrics.streaming": True}), seed),
        ):
            for name, column in result.timeline.items():
                assert np.array_equal(column, other.timeline[name], equal_nan=True), (seed, name)
    assert rows > often(1000)


def test_a_sample_costs_one_event() -> None:
    arrivals = [0.0123 + 0.0789 * i for i in range(30)]
    settings: dict[str, Any] = {"gateway": gateway.Gateway(limit=fixed(2))}
    blind = run(arrivals, **settings)
    result = run(arrivals, **settings, metrics=sampled(0.5))
    assert result.events - blind.events == len(result.timeline["time_s"])


def test_samples_leave_scrapes_alone() -> None:
    """A scrape shows no work that an engine does between the scrape and a sample, although the
    scrape is first read after the sample brings the engine up to date."""
    shut = gateway.Saturation(detector="utilization", kv_utilization_threshold=0.5)
    queued = []
    for step_s in (None, 0.04):
        results = [
            run(
                [0.0, at],
                input_tokens=16,
                output_tokens=[250, 1],
                instances=BLIS_SERVER.replace(num_kv_blocks=20),
                gateway=gateway.Gateway(limit=shut),
                signals=signals.Scraped(period_s=0.1),
                metrics={"timeline_step_s": step_s},
            )
            for at in np.arange(0.05, 2, 0.01)
        ]
        queued.append([ns(result.requests["queue_s"])[1] for result in results])
    assert queued[0] == queued[1]
    assert 0 < sum(span > 0 for span in queued[0]) < len(queued[0])
