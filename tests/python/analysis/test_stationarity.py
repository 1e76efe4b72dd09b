"""Whether a system keeps up with its load, for queues with a known answer."""

from __future__ import annotations

import collections
import heapq
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


def several_servers(
    load: float, servers: int, n: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Arrivals and departures of M/M/c with mean service time 1, empty at first.

    A request that leaves after the last arrival is still there at the end.
    """
    arrival = np.cumsum(rng.exponential(1 / (load * servers), n))
    free = [0.0] * servers
    left = np.empty(n)
    for i, service in enumerate(rng.exponential(1, n)):
        left[i] = max(arrival[i], free[0]) + service
        heapq.heapreplace(free, left[i])
    return arrival, np.where(left < arrival[-1], left, np.inf)


def share_flagged(load: float, n: int, *, runs: int, trials: int) -> float:
    rng = np.random.default_rng(round(1000 * load) + n)
    flagged = 0
    for _ in range(trials):
        of_runs = [
            stationarity.of_run(stationarity.in_system(*single_server(load, n, rng)))
            for _ in range(runs)
        ]
        growth = stationarity.growth(of_runs)
        flagged += growth.is_growing
    return flagged / trials


@pytest.mark.slow
@pytest.mark.parametrize(("load", "n"), [(0.5, 1000), (0.9, 3000), (0.9, 30_000)])
@pytest.mark.parametrize("runs", [1, 4])
def test_a_server_that_keeps_up_is_rarely_flagged(load: float, n: int, runs: int) -> None:
    assert share_flagged(load, n, runs=runs, trials=60) <= 0.02


@pytest.mark.parametrize(("load", "n", "runs"), [(1.5, 400, 1), (1.1, 4000, 1), (1.02, 100_000, 1)])
def test_overload_shows_in_a_run_that_is_long_enough(load: float, n: int, runs: int) -> None:
    assert share_flagged(load, n, runs=runs, trials=30) >= 0.85


def test_several_seeds_show_it_sooner() -> None:
    alone = share_flagged(1.02, 10_000, runs=1, trials=60)
    four = share_flagged(1.02, 10_000, runs=4, trials=60)
    assert alone < 0.6
    assert four > 0.8


@pytest.mark.parametrize("load", [1.02, 1.25, 2.0])
def test_growth_is_the_share_that_is_not_served(load: float) -> None:
    rng = np.random.default_rng(5)
    growth = stationarity.growth(
        stationarity.of_run(stationarity.in_system(*single_server(load, 40_000, rng)))
        for _ in range(4)
    )
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
    assert all(math.isnan(value) for value in stationarity.of_run(np.arange(299)))
    assert stationarity.growth([(math.nan, math.nan)]) is None
    known = stationarity.growth([(math.nan, math.nan), stationarity.of_run(np.arange(300))])
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


# --- the verdict on a run -------------------------------------------------------------------------


def verdicts(load: float, servers: int, n: int, trials: int) -> collections.Counter[str]:
    rng = np.random.default_rng([round(1000 * load), servers, n])
    tally: collections.Counter[str] = collections.Counter()
    for _ in range(trials):
        arrival, left = several_servers(load, servers, n, rng)
        counts = stationarity.in_system(arrival, left)
        tally[stationarity.saturation_of(counts, arrival).verdict] += 1
    return tally


@pytest.mark.parametrize(
    ("load", "n", "expected"),
    [(0.5, 10_000, "unsaturated"), (0.9, 10_000, "unsaturated"), (1.2, 5000, "saturated")],
)
def test_the_verdict_follows_the_load(load: float, n: int, expected: str) -> None:
    assert verdicts(load, 4, n, 10)[expected] >= 9


@pytest.mark.parametrize("servers", [1, 8])
def test_short_runs_with_little_load_are_decided(servers: int) -> None:
    assert verdicts(0.5, servers, 1000, 60)["unsaturated"] >= 54
    assert verdicts(1.02, servers, 1000, 60)["unsaturated"] <= 3


def test_the_level_is_tested_in_units_of_its_own_spread() -> None:
    rng = np.random.default_rng(2)
    level = rng.normal(50, 5, 1200)
    steady = stationarity.trend(level)
    assert (steady.is_steady, steady.is_steady_late) == (True, True)
    assert stationarity.of_trends([steady])[1] == "unsaturated"
    # A random walk without drift may return to its start, but its parts follow each other.
    walk = stationarity.trend(np.cumsum(rng.normal(0, 1, 1200)))
    assert (walk.is_steady, walk.is_steady_late) == (False, False)
    # A fill of 2% of the arrivals is no transient, one of 12% is.
    level = rng.normal(50, 5, 12_000)
    for height, expected in ((240, "unsaturated"), (1440, "transient")):
        filling = level + height * np.minimum(np.arange(12_000) / 3000, 1)
        assert stationarity.of_trends([stationarity.trend(filling)])[1] == expected


def test_runs_under_several_seeds_are_judged_together() -> None:
    rng = np.random.default_rng(3)
    runs = [
        stationarity.trend(stationarity.in_system(*single_server(1.05, 10_000, rng)))
        for _ in range(8)
    ]
    alone = [stationarity.of_trends([run])[1] for run in runs]
    assert "undecided" in alone
    growth, verdict = stationarity.of_trends(runs)
    assert verdict == "saturated"
    assert growth.low < 1 - 1 / 1.05 < growth.high
    assert stationarity.of_trends([]) == (None, "undecided")


@pytest.mark.long
@pytest.mark.parametrize("servers", [1, 8])
def test_the_error_rates_of_the_verdict(servers: int) -> None:
    for load in (0.5, 0.9):
        for n in (1000, 10_000):
            counts = verdicts(load, servers, n, 400)
            print(f"M/M/{servers}, load {load}, {n} arrivals: {dict(counts)}")
            assert counts["saturated"] <= 20
    for n in (1000, 10_000):
        counts = verdicts(1.05, servers, n, 400)
        print(f"M/M/{servers}, load 1.05, {n} arrivals: {dict(counts)}")
        assert counts["unsaturated"] <= 20
    for load in (1.05, 1.2):
        counts = verdicts(load, servers, 40_000, 200)
        print(f"M/M/{servers}, load {load}, 40000 arrivals: {dict(counts)}")
        assert counts["saturated"] >= 190


def test_a_backlog_that_fills_or_drains_is_transient() -> None:
    rng = np.random.default_rng(4)
    arrival, left = several_servers(1.5, 1, 3000, rng)
    overload = stationarity.in_system(arrival, left)
    later = np.full(12_000, overload[-1]) + rng.normal(0, 3, 12_000)
    filled = np.concatenate([overload, later])
    times = np.arange(len(filled), dtype=float)
    assert stationarity.saturation_of(filled, times).verdict == "transient"
    drained = np.linspace(4000, 0, 10_000) + rng.normal(0, 10, 10_000)
    assert stationarity.saturation_of(drained, times[:10_000]).verdict == "transient"


def test_the_drift_is_per_second() -> None:
    saturation = stationarity.saturation_of(np.arange(1000) / 10, np.arange(1000) / 20)
    assert saturation.verdict == "saturated"
    assert saturation.drift_per_s == pytest.approx(2, rel=0.01)
    assert saturation.low_per_s < 2.01
    assert saturation.high_per_s > 1.99
    assert (saturation.span_s, saturation.arrivals) == ((0.0, 49.95), 1000)


@pytest.mark.parametrize("n", [0, 1, 299])
def test_few_arrivals_leave_the_verdict_undecided(n: int) -> None:
    saturation = stationarity.saturation_of(np.arange(n), np.arange(n, dtype=float))
    assert saturation.verdict == "undecided"
    assert (saturation.drift_per_s, saturation.arrivals) == (None, n)
    assert str(saturation) == f"undecided: {n} arrivals after the warm-up are too few"


def test_a_saturated_run_says_so() -> None:
    rate = {"workload.requests_per_s": 10_000.0, "workload.num_requests": 3000}
    result = simulate(Simulation().with_(rate))
    assert result.saturation().verdict == "saturated"
    assert f"note: {result.saturation()}." in str(result)
    calm = simulate(Simulation().with_({"workload.num_requests": 3000}))
    assert calm.saturation().verdict == "unsaturated"
    assert "unsaturated" not in str(calm)
