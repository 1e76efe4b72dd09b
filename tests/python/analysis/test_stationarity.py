"""Whether a system keeps up with its load, for queues with a known answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.runs import flat, run

from spillway import Simulation, gateway, metrics, simulate, workload
from spillway.analysis import stationarity

if TYPE_CHECKING:
    from numpy.typing import NDArray


def single_server(
    load: float, n: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Arrivals and departures of M/M/1 with mean service time 1, empty at first."""
    arrival = np.cumsum(rng.exponential(1 / load, n))
    work = np.cumsum(service := rng.exponential(1, n))
    return arrival, work + np.maximum.accumulate(arrival - (work - service))


def share_flagged(load: float, n: int, *, runs: int, trials: int) -> float:
    rng = np.random.default_rng(round(1000 * load) + n)
    flagged = 0
    for _ in range(trials):
        of_runs = [
            stationarity.of_run(stationarity.in_system(*single_server(load, n, rng)))
            for _ in range(runs)
        ]
        growth = stationarity.growth(of_runs)
        assert growth is not None
        flagged += growth.is_growing
    return flagged / trials


@pytest.mark.parametrize(("load", "n"), [(0.5, 1000), (0.9, 3000), (0.9, 30_000)])
@pytest.mark.parametrize("runs", [1, 4])
def test_a_server_that_keeps_up_is_rarely_flagged(load: float, n: int, runs: int) -> None:
    assert share_flagged(load, n, runs=runs, trials=60) <= 0.02


@pytest.mark.parametrize(("load", "n", "runs"), [(1.5, 400, 1), (1.1, 4000, 1), (1.02, 100_000, 1)])
def test_overload_shows_in_a_run_that_is_long_enough(load: float, n: int, runs: int) -> None:
    assert share_flagged(load, n, runs=runs, trials=30) >= 0.85


def test_several_seeds_show_it_sooner() -> None:
    one = share_flagged(1.02, 10_000, runs=1, trials=60)
    four = share_flagged(1.02, 10_000, runs=4, trials=60)
    assert one < 0.6
    assert four > 0.8


@pytest.mark.parametrize("load", [1.02, 1.25, 2.0])
def test_growth_is_the_share_that_is_not_served(load: float) -> None:
    rng = np.random.default_rng(5)
    growth = stationarity.growth(
        stationarity.of_run(stationarity.in_system(*single_server(load, 40_000, rng)))
        for _ in range(4)
    )
    assert growth is not None
    assert growth.low < 1 - 1 / load < growth.high


def test_in_system_counts_requests_between_arrival_and_end() -> None:
    rng = np.random.default_rng(1)
    arrival, left = single_server(0.8, 200, rng)
    left[rng.random(200) < 0.1] = math.nan  # never entered
    left[rng.random(200) < 0.1] = math.inf  # still there at the end
    expected = [
        sum(1 for j in range(i) if not math.isnan(left[j]) and left[j] >= arrival[i])
        for i in range(200)
    ]
    assert stationarity.in_system(arrival, left).tolist() == expected


def test_few_arrivals_have_no_verdict() -> None:
    assert all(math.isnan(one) for one in stationarity.of_run(np.arange(299)))
    assert stationarity.growth([(math.nan, math.nan)]) is None
    known = stationarity.growth([(math.nan, math.nan), stationarity.of_run(np.arange(300))])
    assert known is not None
    assert known.mean == pytest.approx(1, rel=0.01)


def test_backlog_of_a_run_agrees_with_its_timeline() -> None:
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=30, num_requests=600),
        gateway=gateway.Gateway(
            limit=gateway.FixedLimit(max_in_flight=8),
            admission=gateway.TokenBucket(capacity_tokens=20_000, refill_tokens_per_s=10_000),
        ),
        instances=flat(e2e_s=0.5, ttft_s=0.1),
        metrics=metrics.Metrics(timeline_step_s=0.01),
    )
    result = simulate(simulation)
    counts = stationarity.backlog(result.requests)
    timeline = result.timeline
    there = timeline["in_flight"] + timeline["queued"].sum(axis=1)
    seen = np.searchsorted(timeline["time_s"], result.requests["arrival_s"]) - 1
    inside = seen >= 0
    assert np.abs(counts[inside] - there[seen[inside]]).mean() < 0.5
    assert counts.max() > 20


def test_requests_under_way_at_the_end_are_still_there() -> None:
    result = run(np.linspace(0, 1, 11), instances=flat(e2e_s=100), horizon_s=2)
    assert stationarity.backlog(result.requests).tolist() == list(range(11))
    assert stationarity.backlog(result.requests, 0.5).tolist() == list(range(5, 11))
