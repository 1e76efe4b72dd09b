"""Bursty arrivals, rates over time, heavy tails, correlated lengths and Zipf tenants, by theory.

The seeds are fixed. A band of four standard errors would refuse a true value once in 16,000 cases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from spillway import ConfigError, traffic, workload

SIGMAS = 4.0


def arrivals_s(seed: int = 0, *, duration_s: float, **client: Any) -> np.ndarray:
    synthetic = workload.Synthetic(duration_s=duration_s, clients=[workload.Client(**client)])
    return traffic.generated(synthetic, seed)._columns()["arrival_ns"] / 1e9


def assert_mean(samples: list[float], expected: float) -> None:
    error = np.std(samples, ddof=1) / math.sqrt(len(samples))
    assert abs(np.mean(samples) - expected) <= SIGMAS * error, (np.mean(samples), expected, error)


def mmpp_dispersion(rate: float, states: list[tuple[float, float]], window_s: float) -> float:
    """Variance of a count over its mean, of two states (relative rate, mean time)."""
    (low, low_s), (high, high_s) = states
    share = low_s / (low_s + high_s)
    unit = rate / (share * low + (1 - share) * high)
    leave = 1 / low_s + 1 / high_s
    x = leave * window_s
    swing = 2 * share * (1 - share) * (unit * (high - low)) ** 2 / (rate * leave)
    return 1 + swing * (1 - (1 - math.exp(-x)) / x)


def hawkes_dispersion(ratio: float, decay_s: float, window_s: float) -> float:
    """Da Fonseca and Zaatour (2014), for an exponential kernel."""
    square = 1 / (1 - ratio) ** 2
    x = (1 - ratio) / decay_s * window_s
    return square + (1 - square) * (1 - math.exp(-x)) / x


MMPP = [(1.0, 3.0), (6.0, 1.0)]
ON_OFF = [(0.0, 4.0), (1.0, 2.0)]
BURSTY = {
    "mmpp": lambda w: mmpp_dispersion(20, MMPP, w),
    "on/off": lambda w: mmpp_dispersion(20, ON_OFF, w),
    "hawkes": lambda w: hawkes_dispersion(0.6, 0.5, w),
}


def process(name: str) -> Any:
    if name == "hawkes":
        return workload.Hawkes(branching_ratio=0.6, decay_s=0.5)
    states = [
        workload.MmppState(rate_factor=factor, mean_s=mean_s)
        for factor, mean_s in (MMPP if name == "mmpp" else ON_OFF)
    ]
    return workload.Mmpp(states=states)


@pytest.mark.slow
@pytest.mark.parametrize("window_s", [0.2, 2.0, 20.0])
@pytest.mark.parametrize("name", BURSTY)
def test_rate_and_dispersion_are_those_of_theory(name: str, window_s: float) -> None:
    windows = 500
    runs = [
        arrivals_s(seed, duration_s=window_s * windows, requests_per_s=20, arrivals=process(name))
        for seed in range(40)
    ]
    counts = [np.histogram(run, windows, (0, window_s * windows))[0] for run in runs]
    assert_mean([count.mean() / window_s for count in counts], 20)
    # The variance around the true mean, which has no bias however the windows depend.
    mean = 20 * window_s
    assert_mean([((count - mean) ** 2).mean() / mean for count in counts], BURSTY[name](window_s))


def test_a_process_without_memory_is_poisson() -> None:
    equal = [workload.MmppState(rate_factor=2, mean_s=1), workload.MmppState(rate_factor=2)]
    for arrivals in (workload.Mmpp(states=equal), workload.Hawkes(branching_ratio=0)):
        times = arrivals_s(duration_s=2000, requests_per_s=10, arrivals=arrivals)
        assert stats.kstest(np.diff(times) * 10, "expon").pvalue > 1e-4


def test_a_burst_is_the_clients_own() -> None:
    """Two clients with one process do not share its state, nor do two runs."""
    clients = [workload.Client(name=name, tenant=name, arrivals=process("on/off")) for name in "ab"]
    synthetic = workload.Synthetic(requests_per_s=20, duration_s=3000, clients=clients)
    columns = traffic.generated(synthetic, 3)._columns()
    counts = [
        np.histogram(columns["arrival_ns"][columns["tenant"] == i] / 1e9, 500, (0, 3000))[0]
        for i in (0, 1)
    ]
    assert abs(np.corrcoef(counts)[0, 1]) < 0.2
    assert traffic.generated(synthetic, 3) == traffic.generated(synthetic, 3)


PROFILES: dict[str, tuple[list[tuple[float, float]], float | None]] = {
    "ramp": ([(0, 0.2), (500, 2)], None),
    "late ramp": ([(100, 0.5), (300, 3)], None),
    "spike": ([(0, 1), (200, 1), (200, 8), (230, 8), (230, 1)], None),
    "drain": ([(0, 1), (400, 1), (500, 0)], None),
    "day": ([(20, 0.2), (80, 2)], 100),
    "sawtooth": ([(0, 0), (50, 2)], 50),
}


def factor_of(points: list[tuple[float, float]], period_s: float | None, t: np.ndarray) -> Any:
    """The rate by its definition, on a fine grid; a step is the limit of a steep line."""
    at, factors = np.array(points, float).T
    if period_s is not None:
        at = np.concatenate([at - period_s, at, at + period_s])
        factors, t = np.tile(factors, 3), t % period_s
    return np.interp(t, at + np.arange(len(at)) * 1e-9, factors)


@pytest.mark.parametrize("name", PROFILES)
def test_a_rate_over_time_is_that_of_the_profile(name: str) -> None:
    """On the clock of the integrated rate the arrivals are Poisson with rate 1."""
    points, period_s = PROFILES[name]
    profile = [workload.RatePoint(at_s=at, factor=factor) for at, factor in points]
    times = arrivals_s(
        duration_s=1000 + 7, requests_per_s=20, start_s=7, rate_profile=profile,
        rate_period_s=period_s,
    )  # fmt: skip
    grid = np.linspace(0, 1000, 2_000_001)
    factors = factor_of(points, period_s, grid)
    clock = 20 * np.append(0, np.cumsum((factors[1:] + factors[:-1]) / 2 * np.diff(grid)))
    gaps = np.diff(np.interp(times - 7, grid, clock), prepend=0)
    assert abs(len(times) - clock[-1]) <= SIGMAS * math.sqrt(clock[-1])
    assert stats.kstest(gaps, "expon").pvalue > 1e-4
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) <= SIGMAS / math.sqrt(len(gaps))


def test_a_drained_client_sends_nothing_more() -> None:
    points = [workload.RatePoint(at_s=0), workload.RatePoint(at_s=50, factor=0)]
    assert arrivals_s(duration_s=10_000, requests_per_s=100, rate_profile=points).max() < 50


@pytest.mark.parametrize("alpha", [0.8, 1.5, 3.0])
def test_a_pareto_tail_falls_as_a_power(alpha: float) -> None:
    law = workload.Pareto(alpha=alpha, min_tokens=100, max_tokens=20_000)
    synthetic = workload.Synthetic(
        num_requests=100_000, clients=[workload.Client(input_tokens=law)]
    )
    lengths = traffic.generated(synthetic)._columns()["input_tokens"]
    assert lengths.min() >= 100
    assert lengths.max() <= 20_000
    for x in (150, 400, 3000):
        above = ((100 / (x + 0.5)) ** alpha - (1 / 200) ** alpha) / (1 - (1 / 200) ** alpha)
        error = math.sqrt(above * (1 - above) / len(lengths))
        assert abs((lengths > x).mean() - above) <= SIGMAS * error


@pytest.mark.parametrize("correlation", [-1.0, -0.6, 0.3, 0.9, 1.0])
@pytest.mark.parametrize(
    "output",
    [
        workload.Exponential(mean_tokens=5000, max_tokens=10**6),
        workload.Lognormal(mu=7, sigma=1),
        workload.Gaussian(mean_tokens=10_000, std_dev_tokens=2000, max_tokens=30_000),
        workload.Uniform(min_tokens=1, max_tokens=20_000),
        workload.Pareto(alpha=1.1, min_tokens=1000, max_tokens=10**6),
        workload.Empirical(values=[*range(9000, 1000, -1)]),
    ],
    ids=lambda generator: generator.kind,
)
def test_lengths_have_their_rank_correlation(output: Any, correlation: float) -> None:
    def lengths(correlation: float) -> tuple[np.ndarray, np.ndarray]:
        client = workload.Client(
            input_tokens=workload.Lognormal(mu=8, sigma=1.2),
            output_tokens=output,
            length_correlation=correlation,
        )
        synthetic = workload.Synthetic(num_requests=20_000, clients=[client])
        columns = traffic.generated(synthetic, 5)._columns()
        return columns["input_tokens"], columns["output_tokens"]

    joint, alone = lengths(correlation), lengths(0)
    assert abs(stats.spearmanr(*joint).statistic - correlation) <= SIGMAS / math.sqrt(20_000)
    # Each length keeps its law.
    for together, other in zip(joint, alone, strict=True):
        assert stats.ks_2samp(together, other).pvalue > 1e-4


def test_zipf_tenants_have_their_shares() -> None:
    shared = workload.Client(name="app", tenant="team", output_tokens=workload.Fixed(tokens=9))
    clients = traffic.zipf_clients(5, exponent=1.5, client=shared)
    columns = traffic.generated(workload.Synthetic(num_requests=50_000, clients=clients))._columns()
    assert columns["tenants"] == [f"team-{k}" for k in range(1, 6)]
    weights = np.arange(1, 6) ** -1.5
    counts = np.bincount(columns["tenant"])
    assert stats.chisquare(counts, 50_000 * weights / weights.sum()).pvalue > 1e-4
    with pytest.raises(ConfigError, match=r"count = 0: must be >= 1"):
        traffic.zipf_clients(0)


def test_invalid_generators_are_refused() -> None:
    point = workload.RatePoint

    def refused(text: str, **client: Any) -> None:
        with pytest.raises(ConfigError, match=text):
            workload.Client(**client)

    refused("branching_ratio", arrivals={"kind": "hawkes", "branching_ratio": 1})
    with pytest.raises(ConfigError, match=r"states = 1 states: must be at least two"):
        workload.Mmpp(states=[workload.MmppState()])
    with pytest.raises(ConfigError, match=r"must have a state with rate_factor > 0"):
        workload.Mmpp(states=[workload.MmppState(rate_factor=0)] * 2)
    refused(r"rate_profile\[1\].at_s = 1: must be >= that of the point before \(2\)",
            rate_profile=[point(at_s=2), point(at_s=1)])  # fmt: skip
    refused(r"rate_profile\[0\].at_s = 2: must be <= rate_period_s \(1\)",
            rate_profile=[point(at_s=2)], rate_period_s=1)  # fmt: skip
    refused("rate_period_s = 1: requires a rate_profile", rate_period_s=1)
    refused("must have a point with factor > 0", rate_profile=[point(factor=0)])
    refused("rate_profile = 1 points: does not apply to closed_loop",
            rate_profile=[point()], arrivals="closed_loop")  # fmt: skip
    users = workload.Synthetic(clients=[workload.Client(arrivals="closed_loop", num_requests=9)])
    with pytest.raises(ConfigError, match=r"clients\[0\].arrivals = closed_loop"):
        traffic.generated(users)
