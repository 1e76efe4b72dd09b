"""Steady-state figures of one long run: the warm-up by MSER-5, intervals by batch means.

The requests of a run depend on each other, so the spread of single requests says nothing about the
error of their mean. Consecutive batches that are long enough hardly depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from spillway._core.sim import UsageError
from spillway.analysis import stationarity
from spillway.config.classes import config_error
from spillway.data.intervals import student_t_quantile
from spillway.data.targets import compare_with_targets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from spillway.data.result_data import ResultData


LATENCIES = ("ttft_s", "e2e_s", "tpot_s", "queue_s", "scheduling_delay_s", "itl_mean_s")
"""Columns of requests that have a steady state, and so has `goodput`."""

_BATCHES = 10
_LEAST_PER_BATCH = 50
_MSER_BATCH = 5
_PARTS = 100
_LEAST_SPANS = 150
"""Length of a batch in spans over which requests depend on each other."""
_MOST_UTILIZED = 0.7
"""Utilization, as `utilization_seen` estimates it, from which on a run has no interval.

Bad episodes are rare there, and most runs miss them: what such a run shows of itself looks certain.
"""
_LEAST_TURNOVERS = 100
"""Requests of a run over those in the system at once, for the estimate to mean something."""


@dataclass(frozen=True)
class SteadyState:
    """A figure of a run after its warm-up.

    Attributes
    ----------
    value : float
        Mean, percentile or share, in the unit of the column.
    low, high : float or None
        The interval; None if the run cannot have one that is worth its name, see `reason`.
    confidence : float
    warm_up_s : float
        Arrivals before this time are left out.
    requests : int
        Number of requests behind the value.
    batches : int
        Number of consecutive batches of equal size behind the interval; 0 if there is none.
    reason : str
        Why there is no interval; empty if there is one.

    """

    value: float
    low: float | None
    high: float | None
    confidence: float
    warm_up_s: float
    requests: int
    batches: int
    reason: str = ""

    def __str__(self) -> str:
        counts = f"{self.requests:,} requests from {self.warm_up_s:.4g} s on"
        if self.low is None or self.high is None:
            return f"{self.value:.4g}, no interval: {self.reason} ({counts})"
        ends = f"{self.low:.4g} to {self.high:.4g}"
        return f"{self.value:.4g} ({ends}, {self.confidence:.0%} by batch means; {counts})"


def mser5(values: ArrayLike) -> int:
    """The number of leading values to leave out as warm-up.

    The truncation that minimizes the squared standard error of the rest, over means of five values
    (White 1997; White, Cobb and Spratt 2000). It never leaves out more than half: a minimum there
    means that the values have no steady state yet, and half of them are left out.
    """
    series = np.asarray(values, dtype=float)
    count = len(series) // _MSER_BATCH
    if count < 2:
        return 0
    means = series[: count * _MSER_BATCH].reshape(count, _MSER_BATCH).mean(axis=1)
    left = np.arange(count, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    errors = np.maximum(squares - sums**2 / left, 0) / left**2
    half = count // 2
    return int(np.argmin(errors[: half + 1])) * _MSER_BATCH


def of_values(
    values: ArrayLike, percentile: float | None = None, confidence: float = 0.95
) -> tuple[float, float | None, float | None, str]:
    """Value, low and high end of its interval, and why there is none.

    The mean by batch means; a percentile by sectioning (Asmussen and Glynn 2007, §III.5a): its
    spread over the batches about that of all values.
    """
    series = np.asarray(values, dtype=float)
    statistic: Any = np.mean if percentile is None else partial(np.percentile, q=percentile)
    whole = float(statistic(series))
    size = len(series) // _BATCHES
    least = _LEAST_PER_BATCH
    if percentile is not None:
        # Some values of each batch must lie beyond the percentile.
        least = max(least, math.ceil(_MSER_BATCH / (1 - max(percentile, 100 - percentile) / 100)))
    if size < least:
        return whole, None, None, f"needs {least * _BATCHES:,} requests after the warm-up"
    batches = series[: size * _BATCHES].reshape(_BATCHES, size)
    # What is averaged: the values, or whether they exceed the percentile.
    counted = series if percentile is None else (series > whole).astype(float)
    if size < _LEAST_SPANS * _span(counted):
        return whole, None, None, "the run is too short for how long its requests depend on others"
    each = np.array([statistic(batch) for batch in batches])
    if each.min() == each.max():
        return whole, None, None, f"all batches have the same value, {whole:.4g}: nothing varies"
    error = math.sqrt(float(((each - whole) ** 2).sum()) / (_BATCHES - 1) / _BATCHES)
    half = student_t_quantile(0.5 + confidence / 2, _BATCHES - 1) * error
    return whole, whole - half, whole + half, ""


def _span(values: NDArray[np.float64]) -> float:
    """The span over which values depend on each other: the integrated autocorrelation time.

    The variance of the means of parts is that of single values times this span over their size.
    There are many parts, because an estimate from few would pass the runs whose spread it misses.
    """
    size = len(values) // _PARTS
    parts = values[: size * _PARTS].reshape(_PARTS, size)
    spread = float(parts.var())
    if spread == 0:
        return 0.0
    return size * float(parts.mean(axis=1).var(ddof=1)) / spread


def utilization_seen(arrival_s: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """The utilization of a fleet, as far as the number of requests in the system shows it.

    `counts`: how many requests each arrival found (see `stationarity.backlog`). Where requests
    share a server of utilization u, the variance of their number is its mean over 1 - u; arrivals
    that come in bursts raise it by their own index of dispersion, over the mean stay of a request.
    A fleet that is nowhere near saturation has about 0.
    """
    mean = float(counts.mean())
    if mean == 0:
        return 0.0
    stays = max(2, int(len(counts) / max(mean, 1)))
    arrivals = np.histogram(arrival_s, bins=stays)[0]
    bursts = max(1.0, float(arrivals.var() / arrivals.mean()))
    return max(0.0, 1 - bursts * mean / max(float(counts.var()), mean))


def _caveat(arrival_s: NDArray[np.float64], counts: NDArray[np.int64]) -> str:
    """Why batch means of a run cannot be trusted; empty if they can."""
    turnovers = len(counts) / max(float(counts.mean()), 1)
    if turnovers < _LEAST_TURNOVERS:
        return (
            f"only {turnovers:.0f} times as many requests arrive as are in the system at once, and "
            f"{_LEAST_TURNOVERS} is the least"
        )
    utilization = utilization_seen(arrival_s, counts)
    if utilization < _MOST_UTILIZED:
        return ""
    return (
        f"near saturation (a utilization of about {utilization:.0%}) bad episodes are too rare for "
        "one run: use several seeds"
    )


def steady_state(
    result: ResultData,
    figure: str = "ttft_s",
    percentile: float | None = None,
    *,
    warm_up_s: float | None = None,
    confidence: float = 0.95,
) -> SteadyState:
    """A figure of a run after its warm-up, see `Result.steady_state`."""
    if figure not in (*LATENCIES, "goodput"):
        allowed = f"must be goodput or one of {', '.join(LATENCIES)}"
        raise config_error([("figure", repr(figure), allowed)])
    if percentile is not None and (figure == "goodput" or not 0 < percentile < 100):
        allowed = "must be > 0 and < 100, of a latency"
        raise config_error([("percentile", repr(percentile), allowed)])
    if not 0 < confidence < 1:
        raise config_error([("confidence", f"{confidence:g}", "must be > 0 and < 1")])
    requests = result.requests
    order = np.argsort(requests["arrival_s"], kind="stable")
    arrival_s = requests["arrival_s"][order]
    values = _good(result, requests)[order] if figure == "goodput" else requests[figure][order]
    known = ~np.isnan(values)
    arrival_s, values = arrival_s[known], values[known]
    if len(values) == 0:
        raise UsageError(f"no request has a {figure}")
    if warm_up_s is None:
        first = mser5(values)
        start_s = float(arrival_s[first]) if first else 0.0
    else:
        start_s = warm_up_s
        first = int(np.searchsorted(arrival_s, start_s))
    kept = values[first:]
    if len(kept) == 0:
        raise UsageError(f"no request with a {figure} arrives after {start_s:g} s")
    value, low, high, reason = of_values(kept, percentile, confidence)
    if not reason:
        arrivals = np.sort(requests["arrival_s"])
        later = arrivals >= start_s
        reason = _caveat(arrivals[later], stationarity.backlog(requests)[later])
    if reason:
        low = high = None
    batches = 0 if low is None else _BATCHES
    return SteadyState(value, low, high, confidence, start_s, len(kept), batches, reason)


def _good(result: ResultData, requests: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """1 for requests within the targets of their class, 0 for others, NaN without targets."""
    latencies = (requests[name] * 1e9 for name in ("ttft_s", "tpot_s", "e2e_s"))
    classes = result.simulation.slo_classes
    promised, met = compare_with_targets(classes, requests["slo_class"], *latencies)
    return np.where(promised, met, np.nan)
