"""Intervals over seeds are Student's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.effort import examples

from spillway import ConfigError, Simulation, simulate
from spillway.data import intervals


@pytest.mark.parametrize("dof", [*range(1, 40), 99, 100, 999, 1000])
def test_student_t(dof: int) -> None:
    for t in (-30.0, -2.0, -0.1, 0.0, 0.5, 1.0, 2.576, 12.0):
        ours = intervals.student_t_cdf(t, dof)
        assert ours == pytest.approx(stats.t.cdf(t, dof), rel=1e-11, abs=1e-15)
    for p in (0.6, 0.75, 0.9, 0.95, 0.975, 0.995, 0.9995, 0.99995):
        ours = intervals.student_t_quantile(p, dof)
        assert ours == pytest.approx(stats.t.ppf(p, dof), rel=1e-9)
    assert intervals.student_t_quantile(0.5, dof) == pytest.approx(0, abs=1e-12)


@examples(200)
@given(
    values=st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30),
    confidence=st.sampled_from((0.5, 0.9, 0.95, 0.99, 0.999)),
)
def test_interval_is_students(values: list[float], confidence: float) -> None:
    ours = intervals.interval(values, confidence)
    mean = float(np.mean(values))
    scale = max(1e-9, *map(abs, values))
    assert ours.n == len(values)
    assert ours.mean == pytest.approx(mean, abs=1e-12 * scale)
    half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * stats.sem(values)
    assert ours.half_width == pytest.approx(half, rel=1e-9, abs=1e-9 * scale)
    assert ours.low == pytest.approx(mean - half, rel=1e-9, abs=1e-9 * scale)
    assert ours.high == pytest.approx(mean + half, rel=1e-9, abs=1e-9 * scale)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5, float("nan")])
def test_a_confidence_out_of_range_is_refused(confidence: float) -> None:
    with pytest.raises(ConfigError, match=r"confidence = .*: must be > 0 and < 1"):
        intervals.interval([1.0, 2.0], confidence)


def test_one_value_has_no_interval() -> None:
    single = intervals.interval([3.5])
    assert single == intervals.Interval(3.5, None, None, 1)
    assert single.half_width is None


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_equal_shares_have_no_interval(value: float) -> None:
    """[1, 1] would state certainty, and ten runs without a miss do not show it."""
    equal = intervals.interval([value] * 10, is_share=True)
    assert (equal.mean, equal.low, equal.high, equal.half_width) == (value, None, None, None)
    assert equal.reaches == (0, 0)
    assert str(equal) == f"{value:.4g} (in all 10 runs)"
    resampled = intervals.interval([value] * 10, is_share=True, num_blocks=40)
    assert (resampled.low, resampled.high) == (None, None)
    assert intervals.interval([value] * 10).half_width == 0  # of a count or a time
    unequal = intervals.interval([value] * 9 + [0.5], is_share=True)
    assert unequal.low is not None


def test_interval_of_shares_stays_within_them() -> None:
    values = [0.05, 0.4, 0.99, 1.0]
    share = intervals.interval(values, is_share=True)
    assert (share.low, share.high) == (0, 1)
    gap = intervals.interval([-0.9, 0.9, 1.0], is_share=True, is_difference=True)
    assert (gap.low, gap.high) == (-1, 1)
    count = intervals.interval(values)
    assert count.low is not None
    assert count.high is not None
    assert count.low < 0
    assert count.high > 1
    latency = intervals.interval([0.1, 4.0, 9.0], is_signed=False)
    assert latency.low == 0
    change = intervals.interval([0.1, 4.0, 9.0], is_signed=False, is_difference=True)
    assert change.low is not None
    assert change.low < 0


def test_no_interval_of_a_figure_that_is_never_negative_reaches_below_0() -> None:
    simulation = Simulation(
        workload={"kind": "synthetic", "num_requests": 60, "requests_per_s": 40}
    )
    results = simulate(simulation, seeds=range(3))
    known = {name: of for name, of in results.summary().items() if of is not None}
    assert any(of.half_width for of in known.values())
    assert all(of.low is None or of.low >= 0 for of in known.values())


def test_a_goodput_of_1_in_all_runs_is_never_shown_with_an_interval() -> None:
    simulation = Simulation(slo_classes=[{"name": "standard", "target_ttft_s": 1000}])
    results = simulate(simulation, seeds=range(4))
    goodput = results.summary()["goodput"]
    assert goodput is not None
    assert (goodput.mean, goodput.low, goodput.high) == (1, None, None)
    for table in (repr(results), repr(results.summary())):
        (row,) = (line for line in table.splitlines() if line.startswith("goodput "))
        assert row.split()[2:] == ["-", "-", "4"]
    assert results.by_tenant()["default"]["goodput"] == goodput
    shed = results.interval(lambda result: result.ledger["expired"] / 1000)
    assert (shed.mean, shed.low) == (0, None)
    difference = results.minus(results)["goodput"]
    assert difference is not None
    assert (difference.mean, difference.low) == (0, None)


def test_results_summarise_over_their_seeds() -> None:
    results = simulate(Simulation(), seeds=range(5))
    each = [result.summary()["mean_ttft_ms"] for result in results]
    interval = results.summary(confidence=0.9)["mean_ttft_ms"]
    assert interval is not None
    low, high = stats.t.interval(0.9, 4, np.mean(each), stats.sem(each))
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-9)
    assert results.summary()["goodput"] is None  # no class has targets
    assert results.by_tenant(confidence=0.9)["default"]["mean_ttft_ms"] == interval


@pytest.mark.parametrize("draws", [19, 20, 40])
def test_central_intervals_hold_their_level_of_further_draws(draws: int) -> None:
    """Usual percentiles, which end at the first and the last draw, would hold 81% with 20."""
    rng = np.random.default_rng(draws)
    held = 0
    repeats = 1000
    for values in rng.exponential(size=(repeats, draws + 1)).tolist():
        summaries = [{"figure": value, "absent": None} for value in values[:draws]]
        central = intervals.central_intervals(summaries, 0.9)
        assert set(central) == {"figure"}
        low, high = central["figure"]
        held += low <= values[draws] <= high
    assert held / repeats == pytest.approx(0.9, abs=0.03)


def test_few_draws_give_their_range() -> None:
    summaries = [{"figure": value} for value in (3.0, 1.0, 2.0)]
    assert intervals.central_intervals(summaries, 0.9) == {"figure": (1.0, 3.0)}
