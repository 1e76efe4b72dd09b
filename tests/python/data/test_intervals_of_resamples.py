"""Intervals over block bootstrap resamples: their corrections, and what makes them doubtful."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from spillway.data import effective
from spillway.data.figures import usual_skewness
from spillway.data.intervals import (
    Interval,
    caveats,
    fewest,
    interval,
    of_resamples,
    student_t_quantile,
)

SYMMETRIC = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
SKEWED = [1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 11.0]


def test_symmetric_resamples_give_t_times_their_sd() -> None:
    """With 41 blocks: 30 degrees of freedom of the blocks and 6 of the resamples make 5."""
    interval = of_resamples(SYMMETRIC, 0.95, 41)
    sd = np.std(SYMMETRIC, ddof=1)
    reach = student_t_quantile(0.975, 5) * sd * math.sqrt((1 + 1 / 7) / (1 - 1 / 41))
    assert interval.mean == 4
    assert interval.reaches == pytest.approx((reach, reach))
    assert interval.half_width == pytest.approx(reach)
    assert interval.caveat == ""
    unknown = of_resamples(SYMMETRIC, 0.95, math.inf)
    reach = student_t_quantile(0.975, 6) * sd * math.sqrt(1 + 1 / 7)
    assert unknown.reaches == pytest.approx((reach, reach))


def test_degrees_of_freedom_need_not_be_whole() -> None:
    """11 of the resamples and 29.25 of 40 blocks make 7.99: nearly t with 8."""
    values = list(np.arange(12.0))
    reach = stats.t.ppf(0.975, 1 / (1 / 11 + 1 / 29.25)) * np.std(values, ddof=1)
    expected = reach * math.sqrt((1 + 1 / 12) / (1 - 1 / 40))
    assert of_resamples(values, 0.95, 40).reaches[1] == pytest.approx(expected, rel=1e-4)
    reach = stats.t.ppf(0.9, 1 / (1 / 11 + 1 / 3.0)) * np.std(values, ddof=1)
    expected = reach * math.sqrt((1 + 1 / 12) / (1 - 1 / 5))
    assert of_resamples(values, 0.8, 5).reaches[0] == pytest.approx(expected, rel=5e-3)


def test_fewer_blocks_make_intervals_wider() -> None:
    widths = [of_resamples(SYMMETRIC, 0.9, n).half_width or 0 for n in (1, 2, 5, 20, 100, math.inf)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == widths[1] > 2 * widths[-1]


def test_more_resamples_do_not_shrink_it() -> None:
    rng = np.random.default_rng(1)
    few, many = (of_resamples(list(rng.normal(size=n)), 0.95, 1e6) for n in (50, 5000))
    assert many.half_width == pytest.approx(1.96, rel=0.03)
    assert few.half_width == pytest.approx(many.half_width, rel=0.3)


def test_intervals_reach_further_to_the_side_of_the_skew() -> None:
    below, above = of_resamples(SKEWED, 0.95, 40).reaches
    assert above > 1.2 * below > 0
    mirrored = of_resamples([-value for value in SKEWED], 0.95, 40)
    assert mirrored.reaches == pytest.approx((above, below))
    assert str(mirrored) == f"{mirrored.mean:.4g} +{below:.2g} -{above:.2g}"
    assert of_resamples([0.0] * 9 + [1.0] * 9999, 0.95, 40).low is not None


def test_reaches_print_two_digits_without_exponent() -> None:
    assert str(Interval(269.5, 218.4, 372, 20)) == "269.5 +100 -51"
    assert str(Interval(3, 1.766, 4.234, 5)) == "3 ± 1.2"
    assert str(Interval(5e4, 5e4 - 1234, 5e4 + 1234, 5)) == "5e+04 ± 1200"


def test_the_usual_skewness_counts_as_24_resamples() -> None:
    few, many = (
        [of_resamples(SYMMETRIC * n, 0.95, 40, skewness).reaches for skewness in (0.0, 0.5, -0.5)]
        for n in (1, 100)
    )
    for plain, right, left in (few, many):
        assert right == pytest.approx(left[::-1])
        assert right[0] < plain[0] == pytest.approx(plain[1])
        assert right[1] > plain[1]
    assert few[1][1] / few[1][0] > 1.5
    assert many[1][1] / many[1][0] < 1.1
    assert of_resamples([3.0] * 5, 0.95, 40, 0.5) == Interval(3, 3, 3, 5)


def test_figures_have_a_usual_skewness() -> None:
    for name in ("mean_ttft_ms", "p99_e2el_ms", "p99_ttft_ms[critical]", "std_itl_ms"):
        assert usual_skewness(name) == 0.5
    assert usual_skewness("goodput") == usual_skewness("goodput[gold]") == -0.25
    for name in ("num_ttft", "request_throughput", "shed", "my own"):
        assert usual_skewness(name) == 0


def test_intervals_of_equal_or_two_values() -> None:
    assert of_resamples([3.0] * 5, 0.95, 40) == Interval(3, 3, 3, 5)
    two = of_resamples([1.0, 2.0], 0.95, 40)
    assert two.reaches[0] == pytest.approx(two.reaches[1])
    assert interval([1.0], num_blocks=40) == Interval(1, None, None, 1)
    assert interval(SYMMETRIC, is_replicated=False, num_blocks=40) == Interval(1, None, None, 1)
    assert interval([1.0], num_blocks=40).reaches == (0, 0)


def test_it_covers_where_the_theory_is_exact() -> None:
    """Means of 200 normal values, 20 resamples in 10 overlapping blocks: at least 95%, not 89%."""
    rng = np.random.default_rng(7)
    size, length, trials = 200, 20, 1200
    plain = corrected = 0
    for _ in range(trials):
        values = rng.normal(size=size)
        sums = np.convolve(np.tile(values, 2), np.ones(length), "valid")[:size]
        means = list(sums[rng.integers(0, size, (20, size // length))].sum(axis=1) / size)
        interval = of_resamples(means, 0.95, size / length)
        corrected += interval.low <= 0 <= interval.high  # type: ignore[operator]
        reach = student_t_quantile(0.975, 19) * np.std(means, ddof=1)
        plain += abs(np.mean(means)) <= reach
    assert plain / trials < 0.93
    assert 0.95 <= corrected / trials <= 0.98


def test_skewed_means_are_covered() -> None:
    """Means of 20 log-normal values: symmetric intervals miss more of them."""
    rng = np.random.default_rng(3)
    holds = np.zeros(2)
    for _ in range(1000):
        values = rng.lognormal(size=20)
        means = rng.choice(values, (100, 20)).mean(axis=1)
        interval = of_resamples(list(means), 0.95, 20)
        truth = math.exp(0.5)
        reach = student_t_quantile(0.975, 21) * means.std(ddof=1)
        holds += [interval.low <= truth <= interval.high, abs(means.mean() - truth) <= reach]  # type: ignore[operator]
    assert holds[0] > holds[1] + 15


def test_few_blocks_are_doubtful() -> None:
    interval = of_resamples(SYMMETRIC, 0.95, 9.5, caveat="another")
    assert interval.caveat.startswith(
        "the trace holds only 9.5 blocks of the bootstrap, and 10 are"
    )
    assert of_resamples(SYMMETRIC, 0.95, 10, caveat="another").caveat == "another"
    assert fewest([None, 12.0, 11.0]) == 11
    assert fewest([None]) is None


def test_caveats_are_stated_once_per_reason() -> None:
    sure, a, b = (Interval(1, 0, 2, 5, caveat) for caveat in ("", "why", "other"))
    assert caveats({"x": sure, "y": a, "z": b, "v": a, "none": None}) == [
        "the intervals of y, v are doubtful: why.",
        "the intervals of z are doubtful: other.",
    ]
    assert caveats({"x": a, "y": a, "none": None}) == ["the intervals are doubtful: why."]
    assert caveats({"x": sure}) == []


def summaries(mean: float, sd: float, num: int = 20_000) -> list[dict[str, float | int | None]]:
    """Latencies with a standard deviation of 60 ms, whose means vary by `sd`."""
    return [
        {
            "mean_ttft_ms": mean + sd * offset,
            "std_ttft_ms": 60.0,
            "p99_ttft_ms": 9.0,
            "num_ttft": num,
            "goodput": 0.5 + offset / 10,
        }
        for offset in (-1.0, 0.0, 1.0)
    ]


def test_independent_requests_are_counted_by_variances() -> None:
    assert effective.independent_requests("ttft", summaries(100, 6)) == pytest.approx(100)
    assert effective.independent_requests("ttft", summaries(100, 0)) is None
    assert effective.independent_requests("ttft", summaries(100, 1)[:1]) is None
    assert effective.independent_requests("e2el", summaries(100, 1)) is None


def test_latencies_of_too_few_independent_requests_are_doubtful() -> None:
    assert effective.caveat("mean_ttft_ms", summaries(100, 18)) == ""
    for figure in ("mean_ttft_ms", "p99_ttft_ms"):
        assert "fewer than 10 independent ones" in effective.caveat(figure, summaries(100, 20))
    for figure in ("goodput", "num_ttft", "request_throughput", "my own"):
        assert effective.caveat(figure, summaries(100, 20)) == ""


def test_percentiles_need_requests_beyond_them() -> None:
    assert effective.caveat("p99_ttft_ms", summaries(100, 1, 20_001)) == ""
    assert "fewer than 200 requests" in effective.caveat("p99_ttft_ms", summaries(100, 1, 19_999))
    assert effective.caveat("mean_ttft_ms", summaries(100, 1, 19_999)) == ""
