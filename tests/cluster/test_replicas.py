"""Replicas of a gateway, each with its own requests, queues, permits and controller."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials
from support.random_gateways import random_simulation
from support.runs import SECOND, fixed, flat, ns, outcomes, peak, run, ways

from spillway import Result, gateway, instance, metrics, signals, simulate


def replicated(n: int, *limits: Any, **settings: Any) -> gateway.Gateway:
    return gateway.Gateway(replicas=n, limit=list(limits) or ["unlimited"], **settings)


def groups(result: Result) -> list[set[int]]:
    """The rows that each replica had: with one permit each, the first to go opened a replica, and
    every other request started as one of the same replica ended.

    Spans of service must be such that no two replicas are ever done at the same instant.
    """
    replicas: list[set[int]] = []
    ends: list[int] = []
    them = ways(result)
    for row in sorted(range(len(them)), key=lambda row: (them[row].dispatched, row)):
        way = them[row]
        if way.dispatched == 0:
            replicas.append({row})
            ends.append(way.ended)
        else:
            assert ends.count(way.dispatched) == 1
            which = ends.index(way.dispatched)
            replicas[which].add(row)
            ends[which] = way.ended
    return replicas


def backlog(n: int, split: str, tenants: int = 1, seed: int = 0) -> Result:
    """Sixty requests at once; no sum of their service times equals another's."""
    rng = random.Random(1)
    rows = 60
    return run(
        [0.0] * rows,
        output_tokens=[rng.randint(10_000, 20_000) for _ in range(rows)],
        tenant=[f"t{rng.randrange(tenants)}" for _ in range(rows)],
        instances=flat(0.1, 0.001, reference_output_tokens=10_000),
        gateway=replicated(n, fixed(1), split=split),
        seed=seed,
    )


# --- assignment of requests -----------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_round_robin_follows_the_order_of_arrival(n: int) -> None:
    assert sorted(map(sorted, groups(backlog(n, "round_robin")))) == [
        list(range(first, 60, n)) for first in range(n)
    ]


@pytest.mark.parametrize("n", [2, 3])
def test_tenant_hash_keeps_a_tenant_together(n: int) -> None:
    result = backlog(n, "tenant_hash", tenants=12)
    tenants = result.requests["tenant"]
    shares = [set(tenants[sorted(rows)].tolist()) for rows in groups(result)]
    assert len(shares) == n
    assert sum(map(len, shares)) == len(set.union(*shares)) == 12
    assert len(groups(backlog(n, "tenant_hash"))) == 1
    # The seed has no say in it.
    assert groups(backlog(n, "tenant_hash", tenants=12, seed=1)) == groups(result)


def test_random_split_follows_the_seed() -> None:
    first = groups(backlog(3, "random"))
    assert len(first) == 3
    assert min(map(len, first)) > 8
    assert groups(backlog(3, "random")) == first
    assert groups(backlog(3, "random", seed=1)) != first


def test_random_split_is_even() -> None:
    n, rows = 4, 4000
    result = run(
        [0.001 * i for i in range(rows)],
        instances=flat(0.001, 0.001),
        gateway=replicated(
            n,
            fixed(1000),
            split="random",
            controller="aimd",
            sensor=signals.Sensor(aggregation="mean", tick_s=4.5, window_s=100, min_samples=1),
        ),
    )
    samples = result.control["samples"]
    assert samples.sum() == rows
    # Binomial, with a standard deviation of 27.
    assert np.abs(samples - rows / n).max() < 5 * np.sqrt(rows * (1 / n) * (1 - 1 / n))


@pytest.mark.parametrize("split", ["tenant_hash", "random"])
def test_one_replica_has_everything(split: str) -> None:
    assert backlog(1, split).digest == backlog(1, "round_robin").digest


# --- what each has by itself ----------------------------------------------------------------------


@pytest.mark.parametrize("split", ["round_robin", "random"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_each_has_a_budget_of_its_own(n: int, split: str) -> None:
    for limit, budget in (
        (fixed(3), 3),
        (gateway.WorkerBudget(cap_per_worker=2), 4),
        (gateway.DualLimit(max_in_flight=2), 2),
    ):
        result = run(
            [0.0] * 100,
            instances=flat().replace(count=2),
            gateway=replicated(n, limit, split=split),
            metrics=metrics.Metrics(timeline_step_s=0.5),
        )
        assert peak(result) == n * budget
        assert result.timeline["permits"].tolist()[0] == n * budget
        assert result.timeline["in_flight"].max() == n * budget
        assert set(outcomes(result)) == {"completed"}


def test_each_has_queues_of_its_own() -> None:
    """Twelve at once on three replicas: each serves one, queues two, and rejects one."""
    queue = gateway.Queue(max_requests=2, timeout_s=1.5)
    result = run([0.0] * 12, gateway=replicated(3, fixed(1), bands=[gateway.Band(queue=queue)]))
    expected = ["completed"] * 6 + ["expired"] * 3 + ["rejected"] * 3
    assert outcomes(result) == expected
    assert [way.dispatched for way in ways(result)[:6]] == [0] * 3 + [SECOND] * 3
    ledger = result.ledger
    assert ledger["attempts"] == 12
    assert ledger["admitted"] == 9
    assert ledger["expired"] == 3
    assert ledger["rejected"] == {"queue_full": 3}


def test_each_has_a_bucket_of_its_own() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    result = run([0.0] * 9, input_tokens=50, gateway=replicated(3, admission=bucket))
    assert outcomes(result) == ["completed"] * 6 + ["rejected"] * 3


def test_each_has_a_router_of_its_own() -> None:
    """Both routers start with the first instance."""
    result = run(
        [0.0] * 8, instances=flat().replace(count=3), gateway=replicated(2), router="round_robin"
    )
    assert result.requests["instance"].tolist() == [0, 0, 1, 1, 2, 2, 0, 0]


def test_each_controls_its_limit_by_what_it_measured() -> None:
    """First tokens are quick, but those of every other request wait for a permit: the second
    replica, with answers of 0.8 s, cuts, the first, with answers of 0.2 s, climbs."""
    rows = 120
    result = run(
        [0.05 * (i // 2) for i in range(rows)],
        output_tokens=[20, 80] * (rows // 2),
        instances=flat(1, 0.001, reference_output_tokens=100),
        gateway=replicated(
            2,
            fixed(4),
            controller=gateway.Aimd(target_s=0.2, increase_step=2, decrease_factor=0.5),
            sensor=signals.Sensor(
                aggregation="mean", tick_s=0.5, tick_drift_s=0, window_s=0.5, min_samples=1
            ),
        ),
    )
    control, them = result.control, ways(result)
    assert control["replica"].tolist() == [0, 1] * (len(control["replica"]) // 2)
    times = ns(control["time_s"])
    assert times == sorted(times)
    for now, replica, value, samples, in_flight in zip(
        times,
        control["replica"],
        control["value"],
        control["samples"],
        control["in_flight"],
        strict=True,
    ):
        mine = [way for row, way in enumerate(them) if row % 2 == replica]
        seen = [way for way in mine if now - SECOND // 2 < way.first_token <= now]
        assert samples == len(seen)
        mean = np.mean([(way.first_token - way.arrived) / 1e9 for way in seen] or [np.nan])
        assert value == pytest.approx(mean, nan_ok=True)
        inside = sum(way.dispatched < now and way.in_flight(now) for way in mine)
        assert in_flight == inside
    first, second = (control["setting"][control["replica"] == replica] for replica in (0, 1))
    assert first.max() > 6
    assert second.min() < 3


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["round_robin", "tenant_hash", "random"])
def test_books_balance_over_all(split: str) -> None:
    """Every second gateway has queues of little patience."""
    losses = 0
    for seed in trials(30):
        simulation = random_simulation(seed, charge_at="first_token").with_(
            {"gateway.replicas": 2 + seed % 3, "gateway.split": split}
        )
        if seed % 2 == 0:
            bands = [
                band.replace(queue=band.queue.replace(timeout_s=0.03))
                for band in simulation.gateway.bands
            ]
            simulation = simulation.with_({"gateway.bands": bands})
        result = simulate(simulation, seed)
        assert result.digest == simulate(simulation, seed, reference=True).digest
        streamed = simulate(simulation.with_({"metrics.streaming": True}), seed)
        assert streamed.ledger == result.ledger, seed
        ends = outcomes(result)
        for name in ("completed", "queued", "running", "in_transit", "expired", "evicted"):
            assert result.ledger[name] == ends.count(name), (seed, name)
        assert result.ledger["attempts"] == len(ends)
        losses += result.ledger["expired"] + result.ledger["evicted"]
    assert losses > often(100)


def test_decisions_are_logged_in_the_order_in_which_they_were_made() -> None:
    """One replica has the longer queue and latency, so its decisions come in between."""
    result = run(
        [0.0] * 40,
        output_tokens=[5, 50, 20, 1] * 10,
        instances=instance.InstanceGroup(count=3),
        gateway=replicated(3, fixed(2), routing_latency_s=0.001),
        metrics=metrics.Metrics(traced_candidates=2),
    )
    decisions = result.decisions
    times = ns(decisions["time_s"])
    assert times == sorted(times)
    rows = decisions["row"].tolist()
    assert sorted(rows) == list(range(40))
    assert rows != sorted(rows)
    them = ways(result)
    assert times == [them[row].dispatched + SECOND // 1000 for row in rows]
    assert decisions["instance"].tolist() == result.requests["instance"][rows].tolist()
    # At one instant in the order of dispatch: replica by replica once permits return.
    turns = [
        (at, row % 3 if at > times[0] else 0, row) for at, row in zip(times, rows, strict=True)
    ]
    assert turns == sorted(turns)


def test_replicas_do_not_shift_the_workload() -> None:
    single = random_simulation(0, charge_at="completion").with_({"gateway.replicas": 1})
    more = single.with_({"gateway.replicas": 3, "gateway.split": "random"})
    first, second = (simulate(simulation, 3).requests for simulation in (single, more))
    for name in ("arrival_s", "input_tokens", "tenant"):
        assert np.array_equal(first[name], second[name])
