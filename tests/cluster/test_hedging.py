"""Hedged requests: theory, gain, harm, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.runs import flat, run, steady

from spillway import ConfigError, Result, Simulation, instance, router, simulate, workload

HEDGED = workload.Tenant(name="a", reaction=workload.Reaction(hedge=workload.Hedge(after_s=0)))


def hedge(after_s: float = 0, **settings: float) -> workload.Reaction:
    return workload.Reaction(hedge=workload.Hedge(after_s=after_s, **settings))


def one_seat(us_per_token: float = 500) -> instance.InstanceGroup:
    """Prompts one after another, each in a step whose time is proportional to its length."""
    latency = steady(0.001, beta_prefill_us=us_per_token)
    return instance.InstanceGroup(latency=latency, max_num_batched_tokens=10**6, max_num_seqs=1)


def test_the_wait_is_the_smaller_of_two_exponential_times() -> None:
    """At each of two servers, a request in front takes an exponential time of mean 1 s."""
    n = 2500
    rng = np.random.default_rng(5)
    ahead = np.maximum(1, rng.exponential(2000, (n, 2)).astype(int))
    times_s = np.repeat(np.arange(n) * 1000.0, 3) + np.tile([0, 1e-6, 2e-6], n)
    result = run(
        times_s,
        input_tokens=np.column_stack([ahead, np.ones(n, int)]).ravel(),
        output_tokens=1,
        tenant=["other", "other", "a"] * n,
        instances=[one_seat(), one_seat()],
        router=router.RoundRobin(),
        tenants=[workload.Tenant(name="other"), HEDGED],
    )
    ttft_s = result.requests["ttft_s"].reshape(n, 3)
    # In front of the first copy is the first of the others, and of the second copy the second.
    assert ttft_s[:, 2] == pytest.approx(ttft_s[:, :2].min(axis=1) + 0.5e-3, abs=5e-6)
    assert ttft_s[:, :2].mean() == pytest.approx(1, abs=4 / np.sqrt(2 * n))
    assert ttft_s[:, 2].mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(n))
    assert result.ledger["hedges"] == n
    won = (result.requests["hedge"] == "second").sum()
    assert result.ledger["hedge_wins"] == won == pytest.approx(n / 2, abs=4 * np.sqrt(n) / 2)
    # The other copy has no seat yet, unless both get one at almost the same time.
    at_once = np.abs(ttft_s[:, 0] - ttft_s[:, 1]) < 0.502e-3
    assert result.summary()["wasted_tokens"] == at_once.sum() < n / 500


def poisson(per_s: float, n: int, **settings: Any) -> Result:
    rng = np.random.default_rng(1)
    return run(
        np.cumsum(rng.exponential(1 / per_s, n)),
        input_tokens=np.maximum(1, rng.exponential(400, n)).astype(int),
        output_tokens=1,
        tenant="default",
        router=router.RoundRobin(),
        **settings,
    )


def test_a_copy_avoids_the_slow_server() -> None:
    """One of eight servers is ten times slower: the tail is its own, unless requests are hedged."""
    fleet = [one_seat(5000), *(one_seat() for _ in range(7))]
    alone = poisson(0.8, 4000, instances=fleet)
    hedged = poisson(0.8, 4000, instances=fleet, reaction=hedge(0.6))
    assert hedged.summary()["p99_ttft_ms"] < 0.4 * alone.summary()["p99_ttft_ms"]
    # At the price of some copies.
    share = hedged.ledger["hedges"] / 4000
    assert 0.02 < share < 0.2
    assert hedged.ledger["hedge_wins"] > 0.5 * hedged.ledger["hedges"]


def test_without_a_budget_copies_feed_an_overload() -> None:
    """Servers that go on with what is late: at 80 % load each copy is load, which makes copies."""
    fleet = [one_seat().replace(notices_departure_after_s=None) for _ in range(4)]
    load = {"per_s": 0.8 * 4 / 0.2, "n": 6000, "instances": fleet}
    alone = poisson(**load).summary()["p99_ttft_ms"]
    free = poisson(**load, reaction=hedge(0.2))
    bounded = poisson(**load, reaction=hedge(0.2, budget_ratio=0.02, budget_burst=2))
    assert free.ledger["attempts"] > 1.5 * 6000
    assert free.summary()["p99_ttft_ms"] > 5 * alone
    assert bounded.ledger["attempts"] <= 1.02 * 6000 + 2
    assert bounded.summary()["p99_ttft_ms"] < 2 * alone


def test_a_budget_bounds_the_copies() -> None:
    n, ratio, burst = 200, 0.25, 4
    result = run(
        np.arange(n) * 10.0,
        tenant="default",
        instances=flat().replace(count=2),
        reaction=hedge(0, budget_ratio=ratio, budget_burst=burst),
    )
    budget, copies = float(burst), 0
    for _ in range(n):
        budget = min(burst, budget + ratio)
        if budget >= 1:
            budget -= 1
            copies += 1
    assert result.ledger["hedges"] == copies
    assert result.ledger["attempts"] == n + copies


def test_without_hedges_there_is_no_trace_of_them() -> None:
    result = run([0], tenant="default")
    assert "hedge" not in result.requests
    assert not {"hedges", "hedge_wins"} & result.ledger.keys()
    late = run([0], tenant="default", instances=flat().replace(count=2), reaction=hedge(50))
    assert late.requests["hedge"].tolist() == [""]
    assert late.ledger["hedges"] == 0


def test_the_causes_of_a_request_that_its_copy_answered_add_up() -> None:
    result = run(
        [0.0, 0.1],
        input_tokens=[4000, 100],
        output_tokens=5,
        tenant="default",
        instances=[one_seat(), one_seat()],
        router=router.RoundRobin(),
        reaction=hedge(0.25),
    )
    assert result.requests["hedge"].tolist() == ["first", ""]
    slow = run(
        [0.0],
        input_tokens=[4000],
        output_tokens=5,
        tenant="default",
        instances=[one_seat(5000), one_seat()],
        router=router.RoundRobin(),
        reaction=hedge(0.25),
    )
    assert slow.requests["hedge"].tolist() == ["second"]
    for found in (result, slow):
        for row, e2e_s in enumerate(found.requests["e2e_s"]):
            why = found.why(row)
            assert sum(why.causes_s.values()) == pytest.approx(e2e_s, abs=1e-9)
    assert slow.why(0).causes_s["client"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"instances[0].count": 1}, "at least 2 instances"),
        ({"reaction.retries": [workload.Retry()]}, r"reaction\.retries"),
        ({"gateway.decision_latency_s": 0.1}, r"decision_latency_s"),
        ({"fleet.initial_instances": 1}, "keep all instances ready"),
    ],
)
def test_what_hedging_does_not_support_is_refused(changes: dict[str, Any], said: str) -> None:
    simulation = Simulation(instances=flat().replace(count=2), reaction=hedge(1))
    with pytest.raises(ConfigError, match=said):
        simulation.with_(changes)


def test_closed_loops_need_streaming() -> None:
    users = workload.Client(arrivals=workload.ClosedLoop(users=2))
    simulation = Simulation(
        workload=workload.Synthetic(duration_s=20, clients=[users]),
        instances=flat().replace(count=2),
        reaction=hedge(0.1),
        metrics={"streaming": True},
    )
    result = simulate(simulation)
    assert result.ledger["hedges"] == result.ledger["logical_requests"] > 20
    with pytest.raises(ConfigError, match=r"metrics\.streaming = false"):
        simulation.with_({"metrics.streaming": False})
