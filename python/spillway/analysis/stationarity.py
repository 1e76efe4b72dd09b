"""Whether a system keeps up with the offered load, judged by the requests in the system.

The number of requests in the system at each arrival fluctuates if the system keeps up, and grows in
proportion to time if it does not. `Growth` compares the last third of the arrivals with the first.
`Saturation` is the verdict on a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spillway.data.intervals import student_t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from spillway.data.result_data import ResultData


_SPANS = 30
"""Parts of a run from which the variance of its growth is estimated; a multiple of three."""
_LEAST_PER_SPAN = 10
LEAST_ARRIVALS = _SPANS * _LEAST_PER_SPAN
"""The growth is unknown with fewer arrivals."""
_KEEPS_UP = 0.025
"""A system keeps up if less than this share of the arrivals stays in it."""
_LEAST_RATIO = 1.2
"""Von Neumann's ratio from which on the means of the parts count as independent.

Its mean is 2 for independent values; it is about 0.2 for the parts of a random walk.
"""


Verdict = Literal["unsaturated", "transient", "undecided", "saturated"]
VERDICTS: tuple[Verdict, ...] = ("unsaturated", "transient", "undecided", "saturated")
"""The verdicts on a run, from the one that is sure to keep up to the one that does not."""


@dataclass(frozen=True)
class Growth:
    """Requests that stay in the system per arrival, with a confidence interval.

    0 if the system keeps up; 1 - 1/load if it is overloaded from the start: 0.02 if the offered
    load exceeds the capacity by 2%.
    """

    mean: float
    low: float
    high: float

    @property
    def is_growing(self) -> bool:
        """Whether the growth is significant."""
        return self.low > 0


@dataclass(frozen=True)
class Saturation:
    """Whether the system keeps up with its load during a run.

    Attributes
    ----------
    verdict
        "unsaturated": less than 2.5% of the arrivals stay in the system, with confidence, over the
        run or its second half.
        "saturated": the backlog grows until the last arrival, so latencies depend on the length of
        the run. "transient": the backlog grows, but significantly less in the second half of the
        arrivals, or it shrinks: a longer warm-up is needed. "undecided": the run is too short to
        distinguish these.
    drift_per_s
        Mean growth of the requests in the system, in requests/s; None with fewer than
        `LEAST_ARRIVALS` arrivals after the warm-up.
    low_per_s, high_per_s
        Its 95% confidence interval; None like the drift.
    span_s
        First and last arrival that count, in seconds of the run; None without arrivals.
    arrivals
        Number of arrivals in this span.
    """

    verdict: Verdict
    drift_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    span_s: tuple[float, float] | None
    arrivals: int

    def __str__(self) -> str:
        if self.span_s is None or self.drift_per_s is None:
            return f"{self.verdict}: {self.arrivals} arrivals after the warm-up are too few"
        start_s, end_s = self.span_s
        ends = f"({self.low_per_s:.3g} to {self.high_per_s:.3g})"
        if self.verdict == "undecided":
            return (
                f"undecided: {self.arrivals:,} arrivals are too few to show whether the system "
                f"keeps up; it holds {self.drift_per_s:+.3g} requests per s {ends}"
            )
        return (
            f"{self.verdict}: the requests in the system grow by {self.drift_per_s:.3g} per s "
            f"{ends}, over {self.arrivals:,} arrivals from {start_s:.4g} s to {end_s:.4g} s"
        )


def in_system(arrival_s: NDArray[np.float64], left_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many requests each arrival finds in the system.

    `arrival_s` in order; `left_s`: when each request left, infinite if it was still there at the
    end of the run, NaN if it never entered.
    """
    gone = np.sort(np.where(np.isnan(left_s), arrival_s, left_s))
    before: NDArray[np.int64] = np.arange(len(arrival_s)) - np.searchsorted(gone, arrival_s)
    return before.clip(min=0)


def backlog(requests: Mapping[str, NDArray[Any]], warm_up_s: float = 0) -> NDArray[np.int64]:
    """How many requests each arrival after the warm-up finds in the system.

    `requests` as in `Result.requests`. A request that ended without a response is taken to have
    left at its last known instant, so it counts for too short a time.
    """
    arrival_s = requests["arrival_s"]
    known = [requests[name] for name in ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s")]
    stay_s = np.fmax.reduce([np.zeros(len(arrival_s)), *known])
    is_there = np.isin(requests["outcome"], ("at_admission", "queued", "in_transit", "running"))
    left_s = np.where(is_there, np.inf, arrival_s + stay_s)
    return in_system(arrival_s, left_s)[arrival_s >= warm_up_s]


def of_run(counts: ArrayLike) -> tuple[float, float]:
    """The growth in one run and its variance, from the number that each arrival found.

    The growth is the mean over the last third of the arrivals minus that over the first, per
    arrival between. Its variance is that of a random walk with the observed steps between parts of
    the run. A system that keeps up moves less than that, because it reverts to its mean, so false
    alarms are rare. NaN with fewer than `LEAST_ARRIVALS`.
    """
    found = np.asarray(counts, dtype=float)
    if len(found) < LEAST_ARRIVALS:
        return math.nan, math.nan
    ends = np.linspace(0, len(found) - 1, _SPANS + 1).astype(int)
    third = len(found) // 3
    between = len(found) - third  # from the middle of the first to that of the last
    difference = found[-third:].mean() - found[:third].mean()
    per_run = _SPANS * np.diff(found[ends]).var(ddof=1)
    # Variance of the difference between means over the ends of a random walk, as a share of its
    # own.
    variance = per_run * 5 / 9
    return float(difference / between), float(variance / between**2)


def growth(runs: Iterable[tuple[float, float]], *, confidence: float = 0.95) -> Growth | None:
    """The mean growth of independent runs (see `of_run`); None if nothing is known of any.

    `confidence` holds for each end of the interval: the growth exceeds `low` with that confidence.
    """
    known: Sequence[tuple[float, float]] = [run for run in runs if not math.isnan(run[0])]
    if not known:
        return None
    n = len(known)
    mean = math.fsum(share for share, _ in known) / n
    error = math.sqrt(math.fsum(variance for _, variance in known)) / n
    reach = error * student_t_quantile(confidence, n * (_SPANS - 1))
    return Growth(mean, mean - reach, mean + reach)


@dataclass(frozen=True)
class Trend:
    """What the verdict on a run depends on; runs under several seeds are judged together.

    Attributes
    ----------
    whole, late
        The growth over all arrivals and over their second half, each with its variance (see
        `of_run`).
    is_steady, is_steady_late
        Whether the number in the system keeps returning to one level, over the whole run and over
        its second half.
    """

    whole: tuple[float, float]
    late: tuple[float, float]
    is_steady: bool
    is_steady_late: bool


def trend(counts: ArrayLike) -> Trend:
    """The trend of one run, from the number that each arrival found."""
    found = np.asarray(counts, dtype=float)
    late = found[len(found) // 2 :]
    return Trend(of_run(found), of_run(late), _is_steady(found), _is_steady(late))


def _is_steady(found: NDArray[np.float64]) -> bool:
    """Whether the number in the system returns to one level, and grows by less than 2.5%.

    The variance of `of_run` is that of a random walk. The means over the parts of a run that
    returns to its level within a part are independent, as von Neumann's ratio shows (von Neumann
    1941), and their spread is a much smaller variance of the growth. A backlog that grows has means
    that follow each other closely, so it never passes.
    """
    if len(found) < LEAST_ARRIVALS:
        return False
    starts = np.linspace(0, len(found), _SPANS + 1).astype(int)[:-1]
    means = np.add.reduceat(found, starts) / np.diff(np.append(starts, len(found)))
    spread = float(((means - means.mean()) ** 2).sum())
    if float((np.diff(means) ** 2).sum()) < _LEAST_RATIO * spread:
        return False
    thirds = means.reshape(3, -1)
    error = math.sqrt(2 * float(thirds.var(axis=1, ddof=1).mean()) / thirds.shape[1])
    reach = error * student_t_quantile(0.975, _SPANS - 3)
    difference = float(thirds[2].mean() - thirds[0].mean())
    return difference + reach < _KEEPS_UP * len(found) * 2 / 3


def of_trends(trends: Iterable[Trend]) -> tuple[Growth | None, Verdict]:
    """The mean growth of independent runs of one system, and the verdict on them together.

    The ends of the growth's interval have 2.5% of error each. The growth is None if no run has
    enough arrivals.
    """
    trends = list(trends)
    whole = growth([trend.whole for trend in trends], confidence=0.975)
    if whole is None:
        return None, "undecided"
    late = growth([trend.late for trend in trends], confidence=0.975)
    known = [trend for trend in trends if not math.isnan(trend.whole[0])]
    # A run that begins empty fills first, which is not worth a warm-up if it is little.
    is_steady = all(trend.is_steady for trend in known) or (
        whole.mean < _KEEPS_UP and all(trend.is_steady_late for trend in known)
    )
    return whole, _verdict(whole, late, is_steady=is_steady)


def saturation(result: ResultData) -> Saturation:
    """Whether the system kept up with its load after the warm-up.

    Raises UsageError if the requests were not kept.
    """
    requests = result.requests
    arrival_s = requests["arrival_s"]
    warm_up_s = result.simulation.warm_up_s
    return saturation_of(backlog(requests, warm_up_s), arrival_s[arrival_s >= warm_up_s])


def saturation_of(counts: ArrayLike, arrival_s: NDArray[np.float64]) -> Saturation:
    """The verdict from the number of requests that each arrival found, and the arrivals in order.

    The interval of the growth (see `of_run`) has 2.5% of error at each end. The second half of the
    arrivals separates a backlog that still grows from one that has filled.
    """
    n = len(arrival_s)
    span_s = (float(arrival_s[0]), float(arrival_s[-1])) if n else None
    whole, verdict = of_trends([trend(counts)])
    if whole is None or span_s is None or span_s[0] == span_s[1]:
        return Saturation("undecided", None, None, None, span_s, n)
    per_s = n / (span_s[1] - span_s[0])
    drift, low, high = (per_s * share for share in (whole.mean, whole.low, whole.high))
    return Saturation(verdict, drift, low, high, span_s, n)


def _verdict(whole: Growth, late: Growth | None, *, is_steady: bool) -> Verdict:
    if whole.high < 0:
        return "transient"
    if not whole.is_growing and (is_steady or whole.high < _KEEPS_UP):
        return "unsaturated"
    if late is None:
        return "undecided"
    if late.high < max(_KEEPS_UP, whole.mean / 2):
        return "transient"
    return "saturated" if whole.is_growing and late.mean >= whole.mean / 2 else "undecided"


def note_on_saturation(verdicts: Sequence[str | None], what: str) -> list[str]:
    """A remark on runs that do not keep up; none if all do, or it is not known.

    `what`: what there are several of, e.g. trials.
    """
    count = list(verdicts).count("saturated")
    if not count:
        return []
    saturated = f"{count} of {len(verdicts)} {what} are saturated"
    why = "the number of requests in the system grows until the last arrival"
    return [f"{saturated}: {why}, so latencies depend on the length of the run."]
