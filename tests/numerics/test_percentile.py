"""Percentiles, exact, weighted and of histograms, against NumPy."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples

from spillway import UsageError
from spillway._core.metrics import histogram_moments, percentiles, weighted_percentiles

RANKS = st.lists(
    st.sampled_from((0.0, 50.0, 90.0, 95.0, 99.0, 100.0)) | st.floats(0, 100), max_size=8
).map(sorted)


@examples(200)
@given(values=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=60), ranks=RANKS)
def test_percentiles_are_numpys(values: list[float], ranks: list[float]) -> None:
    assert percentiles(values=values, ps=ranks) == np.percentile(values, ranks).tolist()


@examples(200)
@given(values=st.lists(st.sampled_from((0.0, 1.0, 5.0)), min_size=1, max_size=60), ranks=RANKS)
def test_percentiles_of_ties_are_numpys(values: list[float], ranks: list[float]) -> None:
    assert percentiles(values=values, ps=ranks) == np.percentile(values, ranks).tolist()


@examples(200)
@given(
    pairs=st.lists(
        st.tuples(st.integers(-5, 5) | st.integers(-(2**50), 2**50), st.integers(0, 9)),
        min_size=1,
        max_size=30,
    ).filter(lambda pairs: any(count for _, count in pairs)),
    ranks=RANKS,
)
def test_weighted_percentiles_are_numpys(pairs: list[tuple[int, int]], ranks: list[float]) -> None:
    every = np.repeat([float(value) for value, _ in pairs], [count for _, count in pairs])
    assert weighted_percentiles(pairs=pairs, ps=ranks) == np.percentile(every, ranks).tolist()


def test_weighted_percentiles_of_very_many_values() -> None:
    # More than are kept before equal ones are put together, with and without many equal ones.
    for distinct in (1000, 10**9):
        values = np.random.default_rng(1).integers(0, distinct, 300_000)
        ranks = [0.0, 1.0, 50.0, 99.0, 99.9, 100.0]
        pairs = [(value, 1) for value in values.tolist()]
        expected = np.percentile(values.astype(float), ranks).tolist()
        assert weighted_percentiles(pairs=pairs, ps=ranks) == expected


def awkward(kind: str, size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    values = {
        "normal": lambda: rng.normal(0, 1e6, size),
        "heavy tail": lambda: rng.pareto(0.5, size),
        "heavier tail": lambda: np.exp(rng.normal(0, 30, size)),
        "heavy on both sides": lambda: rng.standard_cauchy(size),
        "mostly zeros": lambda: np.where(rng.random(size) < 0.95, 0.0, rng.exponential(1, size)),
        "hardly any zeros": lambda: np.where(
            rng.random(size) < 0.01, 0, rng.normal(1e9, 1e6, size)
        ),
        "all equal": lambda: np.full(size, 0.1),
        "all but one equal": lambda: np.where(np.arange(size) == size // 3, 1e18, 0.1),
        "two values": lambda: rng.choice([1.5, 1e9], size),
        "few values": lambda: rng.integers(0, 7, size).astype(float),
        "negative": lambda: -rng.exponential(1e3, size),
        "neighbors": lambda: 1 + rng.integers(0, 5, size) * np.finfo(float).eps,
        "ascending": lambda: np.arange(size) / 7,
        "descending": lambda: -np.arange(size) / 7,
        "organ pipe": lambda: np.minimum(np.arange(size), np.arange(size)[::-1]) / 3,
        "saw tooth": lambda: np.arange(size) % 64 / 3.0,
        "denormal": lambda: rng.integers(0, 100, size) * 5e-324,
        "largest": lambda: rng.choice([-1e150, 0, 1e150], size),
    }
    return values[kind]()


AWKWARD = (
    "normal",
    "heavy tail",
    "heavier tail",
    "heavy on both sides",
    "mostly zeros",
    "hardly any zeros",
    "all equal",
    "all but one equal",
    "two values",
    "few values",
    "negative",
    "neighbors",
    "ascending",
    "descending",
    "organ pipe",
    "saw tooth",
    "denormal",
    "largest",
)
MANY_RANKS = [0.0, 0.01, 1.0, 25.0, 49.99, 50.0, 75.0, 90.0, 94.9, 95.0, 99.0, 99.99, 100.0]


@pytest.mark.parametrize("size", [2047, 2048, 2049, 5000, 100_003])
@pytest.mark.parametrize("kind", AWKWARD)
def test_percentiles_of_very_many_values(kind: str, size: int) -> None:
    values = awkward(kind, size)
    for ranks in (MANY_RANKS, [50.0], [99.0], [0.0, 100.0], [50.0, 90.0, 95.0, 99.0]):
        expected = np.percentile(values, ranks).tolist()
        assert percentiles(values=values.tolist(), ps=ranks) == expected


# The streaming mode's histogram

HISTOGRAM_ERROR = 2**-8
COUNTED = st.integers(0, 300) | st.integers(0, 2**50) | st.sampled_from([2**i for i in range(51)])


def assert_moments(parts: list[list[int]], ranks: list[float]) -> None:
    values = np.array([value for part in parts for value in part], dtype=float)
    mean, std_dev, percentiles = histogram_moments(parts=parts, ps=ranks)
    assert mean == pytest.approx(np.mean(values), rel=1e-9)
    assert std_dev == pytest.approx(np.std(values), rel=1e-9, abs=1e-9 * np.mean(values))
    for ours, theirs in zip(percentiles, np.percentile(values, ranks).tolist(), strict=True):
        assert ours == pytest.approx(theirs, rel=HISTOGRAM_ERROR, abs=1e-9)


@examples(200)
@given(parts=st.lists(st.lists(COUNTED, max_size=40), min_size=1, max_size=5), ranks=RANKS)
def test_histogram_is_close_to_numpy(parts: list[list[int]], ranks: list[float]) -> None:
    if any(parts):
        assert_moments(parts, ranks)


@pytest.mark.parametrize("largest", [1, 200, 255, 256, 257, 10**4, 10**9, 2**50])
def test_histogram_of_very_many_values(largest: int) -> None:
    rng = np.random.default_rng(largest)
    values = rng.integers(0, largest, 50_000, endpoint=True)
    skewed = np.exp(rng.uniform(0, math.log(largest + 1), 50_000)).astype(np.int64)
    for sample in (values, skewed, np.full(50_000, largest)):
        assert_moments([sample.tolist()], MANY_RANKS)


@examples(200)
@given(values=st.lists(COUNTED, min_size=1, max_size=60), cuts=st.lists(st.integers(0, 60)))
def test_merged_histograms_equal_one(values: list[int], cuts: list[int]) -> None:
    ranks = [0.0, 50.0, 99.0, 100.0]
    parts = [values[begin:end] for begin, end in pairwise([0, *sorted(cuts), 60])]
    mean, std_dev, percentiles = histogram_moments(parts=[values], ps=ranks)
    merged_mean, merged_std_dev, merged = histogram_moments(parts=parts, ps=ranks)
    assert merged == percentiles
    assert merged_mean == pytest.approx(mean, rel=1e-9)
    assert merged_std_dev == pytest.approx(std_dev, rel=1e-9, abs=1e-9 * mean)


def test_small_values_are_counted_exactly() -> None:
    values = np.random.default_rng(1).integers(0, 256, 10_000)
    percentiles = histogram_moments(parts=[values.tolist()], ps=MANY_RANKS)[2]
    assert percentiles == np.percentile(values, MANY_RANKS).tolist()


def test_histogram_does_not_forget_a_small_spread() -> None:
    values = [2**50 + offset for offset in (0, 1, 2, 3)] * 1000
    mean, std_dev, _ = histogram_moments(parts=[values[:1500], values[1500:]], ps=[50.0])
    assert mean == pytest.approx(2**50 + 1.5, rel=1e-15)
    assert std_dev == pytest.approx(math.sqrt(1.25), rel=0.2)


def test_nothing_has_no_percentiles() -> None:
    with pytest.raises(UsageError):
        percentiles(values=[], ps=[50.0])
    with pytest.raises(UsageError):
        weighted_percentiles(pairs=[(3, 0)], ps=[50.0])
    with pytest.raises(UsageError):
        histogram_moments(parts=[[], []], ps=[50.0])
    with pytest.raises(UsageError):
        histogram_moments(parts=[[1], [-1]], ps=[50.0])
