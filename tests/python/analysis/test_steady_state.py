"""Steady-state figures of one run: warm-up, intervals, and how often they hold the truth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

import spillway
from spillway import ConfigError, Simulation, UsageError, instance, workload
from spillway.analysis.stationarity import in_system
from spillway.analysis.steady_state import mser5, of_values, utilization_seen

if TYPE_CHECKING:
    from numpy.typing import NDArray


def single_server(load: float, arrivals: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Times in system of M/M/1 from an empty start; mean service time 1."""
    arrival = np.cumsum(rng.exponential(1 / load, arrivals))
    service = rng.exponential(1, arrivals)
    work = np.cumsum(service)
    return work + np.maximum.accumulate(arrival - (work - service)) - arrival


def test_a_transient_is_left_out_and_a_steady_run_is_not() -> None:
    rng = np.random.default_rng(1)
    steady = rng.normal(1, 0.1, 5000)
    assert mser5(steady) < 500
    warming = np.concatenate([np.linspace(5, 1, 400), steady])
    assert 350 <= mser5(warming) <= 500
    growing = np.arange(1000.0)
    assert mser5(growing) == 500  # half, not more
    assert mser5([]) == mser5([1, 2, 3]) == 0


def test_truncation_minimizes_the_error_of_the_rest() -> None:
    rng = np.random.default_rng(2)
    values = rng.exponential(1, 200) + np.exp(-np.arange(200) / 20)
    means = values.reshape(40, 5).mean(axis=1)
    errors = [means[d:].var() / (40 - d) for d in range(21)]
    assert mser5(values) == 5 * int(np.argmin(errors))


@pytest.mark.parametrize("percentile", [None, 90])
def test_independent_values_have_the_textbook_interval(percentile: float | None) -> None:
    values = np.random.default_rng(3).normal(5, 2, 40_000)
    value, low, high, reason = of_values(values, percentile)
    assert reason == ""
    expected = values.mean() if percentile is None else np.percentile(values, 90)
    assert value == expected
    density = 0.17550 / 2  # of the normal law at its 90th percentile
    error = 2 / 200 if percentile is None else math.sqrt(0.09) / density / 200
    assert (high - low) / 2 == pytest.approx(2.26 * error, rel=0.6)
    reason = "all batches have the same value, 7: nothing varies"
    assert of_values(np.full(1000, 7.0)) == (7, None, None, reason)


def test_a_run_that_is_too_short_has_no_interval() -> None:
    rng = np.random.default_rng(4)
    assert "needs 500 requests" in of_values(rng.normal(size=300))[3]
    assert "needs 5,000 requests" in of_values(rng.normal(size=3000), 99)[3]
    walk = np.cumsum(rng.normal(size=20_000))
    value, low, high, reason = of_values(walk)
    assert (low, high) == (None, None)
    assert value == walk.mean()
    assert "depend on others" in reason


def run(num_requests: int = 6000) -> spillway.Result:
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=15, num_requests=num_requests),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.05)],
        instances=instance.InstanceGroup(latency=instance.Linear()),
    )
    return spillway.simulate(simulation)


def test_figures_of_a_run() -> None:
    result = run()
    requests = result.requests
    mean = result.steady_state(warm_up_s=20)
    kept = requests["arrival_s"] >= 20
    assert mean.value == requests["ttft_s"][kept].mean()
    assert mean.requests == kept.sum()
    assert mean.low < mean.value < (mean.high or 0)
    assert str(mean).endswith("requests from 20 s on)")
    goodput = result.steady_state("goodput", warm_up_s=0)
    assert goodput.value == pytest.approx(result.summary()["goodput"])
    assert 0.1 < goodput.value < 0.95
    tail = result.steady_state("e2e_s", 90)
    assert tail.warm_up_s < requests["arrival_s"][-1] / 2
    after = requests["arrival_s"] >= tail.warm_up_s
    assert tail.value == np.percentile(requests["e2e_s"][after], 90)
    short = run(100).steady_state()
    assert "no interval: needs 500 requests" in str(short)


def test_what_has_no_steady_state_is_refused() -> None:
    result = run(100)
    with pytest.raises(ConfigError, match="figure = 'rank': must be goodput or one of ttft_s"):
        result.steady_state("rank")
    with pytest.raises(ConfigError, match="percentile = 100: must be > 0 and < 100"):
        result.steady_state("ttft_s", 100)
    with pytest.raises(ConfigError, match="percentile = 50"):
        result.steady_state("goodput", 50)
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigError, match=r"confidence = .*: must be > 0 and < 1"):
            result.steady_state(confidence=confidence)
    with pytest.raises(UsageError, match="no request with a ttft_s arrives after 1e"):
        result.steady_state(warm_up_s=1e6)
    without = spillway.simulate(result.simulation.with_({"slo_classes[0].target_ttft_s": None}))
    with pytest.raises(UsageError, match="no request has a goodput"):
        without.steady_state("goodput")


def near(requests_per_s: float, num_requests: int = 6000, **client: object) -> Simulation:
    """A server that is full at about 20 requests/s."""
    exponential = {"kind": "exponential"}
    sender = workload.Client(
        requests_per_s=requests_per_s,
        num_requests=num_requests,
        input_tokens=exponential | {"mean_tokens": 1000},
        output_tokens=exponential | {"mean_tokens": 250},
        **client,
    )
    return Simulation(
        workload=workload.Synthetic(clients=[sender]),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=1)],
    )


FIGURES = ("goodput", "ttft_s", "e2e_s")


@pytest.mark.slow
def test_near_saturation_a_run_has_no_interval() -> None:
    """Of ten runs at 93%, seven had a goodput of "1 (1 to 1)", where the truth is 0.995."""
    reasons = []
    for seed in range(6):
        for num_requests in (6000, 20_000):
            result = spillway.simulate(near(19, num_requests), seed)
            for figure in FIGURES:
                steady = result.steady_state(figure)
                assert (steady.low, steady.high, steady.batches) == (None, None, 0)
                assert "no interval: " in str(steady)
                reasons.append(steady.reason)
    assert any("near saturation (a utilization of about" in reason for reason in reasons)
    assert any("same value, 1: nothing varies" in reason for reason in reasons)


@pytest.mark.slow
@pytest.mark.parametrize("client", [{}, {"arrivals": {"kind": "gamma", "cv": 3}}])
def test_at_moderate_load_a_run_has_one(client: dict[str, object]) -> None:
    """Bursts alone are no saturation."""
    for seed in range(6):
        steady = spillway.simulate(near(10, 20_000, **client), seed).steady_state("e2e_s")
        assert steady.low < steady.value


def test_goodput_of_1_has_no_interval_at_any_load() -> None:
    steady = spillway.simulate(near(5), 1).steady_state("goodput")
    assert (steady.value, steady.low, steady.high) == (1, None, None)
    assert steady.reason == "all batches have the same value, 1: nothing varies"


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8, 0.9])
def test_utilization_is_seen_in_the_number_of_requests(load: float) -> None:
    """M/M/1: the variance of the number in the system is its mean over 1 - load."""
    rng = np.random.default_rng(5)
    arrivals = 400_000
    arrival = np.cumsum(rng.exponential(1 / load, arrivals))
    service = rng.exponential(1, arrivals)
    work = np.cumsum(service)
    left = work + np.maximum.accumulate(arrival - (work - service))
    seen = utilization_seen(arrival, in_system(arrival, left))
    assert seen == pytest.approx(load, abs=0.07)
    assert utilization_seen(arrival, np.zeros(arrivals, dtype=np.int64)) == 0


@pytest.mark.long
@pytest.mark.parametrize(("load", "arrivals"), [(0.5, 40_000), (0.9, 1_600_000)])
def test_intervals_of_one_run_cover(load: float, arrivals: int) -> None:
    """M/M/1 from an empty start: the truth is that of the steady state."""
    truths = {
        "mean": 1 / (1 - load),
        "p99": math.log(100) / (1 - load),
        "goodput": 1 - math.exp(-2),
    }
    held = dict.fromkeys(truths, 0)
    counts = dict.fromkeys(truths, 0)
    rng = np.random.default_rng(round(100 * load))
    for _ in range(1000):
        stay = single_server(load, arrivals, rng)
        stay = stay[mser5(stay) :]
        good = (stay <= 2 / (1 - load)).astype(float)
        for name, values, percentile in (
            ("mean", stay, None),
            ("p99", stay, 99),
            ("goodput", good, None),
        ):
            _, low, high, _ = of_values(values, percentile)
            if low is not None and high is not None:
                counts[name] += 1
                held[name] += low <= truths[name] <= high
    for name, truth in truths.items():
        share = held[name] / counts[name]
        print(f"M/M/1, load {load}, {name}: {share:.1%} of {counts[name]}, truth {truth:.4g}")
    assert min(counts.values()) >= 990
    assert all(0.93 <= held[name] / counts[name] <= 0.97 for name in truths)
