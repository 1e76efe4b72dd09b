"""Interval estimates over replicated seeds."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


LEAST_BLOCKS = 10
"""The interval over resamples of a trace is doubtful with fewer blocks."""
_FEWEST_BLOCKS = 2
_DOF_PER_BLOCK = 0.75
_SKEWNESS_KNOWN = 24
"""The skewness of this number of resamples counts half: its square error is 6 / n, and that of
figures varies by about 0.5."""
_MOST_SKEWNESS = 2.0


def central_intervals(
    summaries: Sequence[Mapping[str, Any]], level: float
) -> dict[str, tuple[float, float]]:
    """The range of the central `level` of each figure that is a number in all summaries.

    The k-th of n ordered draws stands for the share k / (n + 1), which is its mean share: another
    value of the same distribution then lies in the range with probability `level`, if n is at least
    (1 + level) / (1 - level), e.g. 19 for 90%. With fewer draws the range is that of all.
    """
    tail = 50 * (1 - level)
    found = {}
    for name in summaries[0]:
        values = [summary[name] for summary in summaries]
        if all(isinstance(value, int | float) and np.isfinite(value) for value in values):
            ordered = np.array(values, dtype=float)
            low, high = np.percentile(ordered, [tail, 100 - tail], method="weibull")
            found[name] = (float(low), float(high))
    return found


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its two-sided Student-t confidence interval.

    Over resamples of a trace, it is the mean over traces of this length, and the interval reaches
    further to the side to which the resamples are skewed. `n` counts the runs for which the figure
    exists. With fewer than two there is no interval and `low` and `high` are None; nor for a share,
    such as goodput, that is the same in all runs: a goodput of 1 in ten runs does not show how
    often it is less. Where seeds change nothing there is one run for any number of seeds. `caveat`
    is the reason why the interval may hold the truth less often than stated, as a clause; empty if
    none is known.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    caveat: str = ""

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.mean:.4g}" + (f" (in all {self.n} runs)" if self.n > 1 else "")
        # Two digits, but 120 as such and not as 1.2e+02.
        below, above = (f"{float(f'{reach:.2g}'):g}" for reach in self.reaches)
        return f"{self.mean:.4g} " + (f"± {above}" if above == below else f"+{above} -{below}")

    @property
    def reaches(self) -> tuple[float, float]:
        """How far the interval reaches below and above the mean; 0 without an interval."""
        if self.low is None or self.high is None:
            return 0.0, 0.0
        return self.mean - self.low, self.high - self.mean

    def excludes_zero(self, confidence: float) -> bool:
        """Whether a difference is significant; of equal ones without an interval, by their sign.

        That all `n` have one sign has the probability 2 ** (1 - n) where neither is more likely.
        """
        if self.low is None or self.high is None:
            return self.n > 1 and self.mean != 0 and 2 ** (1 - self.n) <= 1 - confidence
        return self.low > 0 or self.high < 0

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None without one."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def student_t_cdf(t: float, dof: int) -> float:
    """P(T <= t) for Student's t with `dof` >= 1 degrees of freedom (A&S 26.7.3-4)."""
    theta = math.atan(t / math.sqrt(dof))
    cos2 = math.cos(theta) ** 2
    odd = dof % 2 == 1
    term = math.cos(theta) if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(3 if odd else 2, dof - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    area = math.sin(theta) * total
    if odd:
        area = (theta + area) * 2 / math.pi
    return 0.5 * (1 + area)


@functools.lru_cache(maxsize=256)
def student_t_quantile(p: float, dof: float) -> float:
    """The t at which `student_t_cdf` reaches `p`, 0.5 <= p < 1, by bisection.

    Between whole degrees of freedom it is linear in their inverse.
    """
    whole = math.floor(dof)
    if dof != whole:
        share = (1 / whole - 1 / dof) * whole * (whole + 1)
        below, above = (student_t_quantile(p, degrees) for degrees in (whole, whole + 1))
        return (1 - share) * below + share * above
    low, high = 0.0, 2.0
    while student_t_cdf(high, whole) < p:
        high *= 2
    for _ in range(100):
        middle = 0.5 * (low + high)
        if student_t_cdf(middle, whole) < p:
            low = middle
        else:
            high = middle
    return high


def interval(
    values: Sequence[float],
    confidence: float = 0.95,
    *,
    is_replicated: bool = True,
    is_share: bool = False,
    is_difference: bool = False,
    is_signed: bool = True,
    num_blocks: float | None = None,
    skewness: float = 0.0,
    caveat: str = "",
) -> Interval:
    """Mean and confidence interval of independent replications; `values` must not be empty.

    `is_replicated`: False if they are the values of one run, repeated for each seed. `is_share`:
    whether they are shares, such as goodput, or differences of shares (`is_difference`); equal ones
    have no interval, and others none beyond what a share or a difference of shares can be.
    `is_signed`: False for a figure that is never negative, such as a latency: no interval reaches
    below 0; differences have a sign.
    `num_blocks`: None, or, if they are the values of block bootstrap resamples of one trace, how
    many blocks the trace holds, >= 1; infinite if unknown; `skewness` is the usual one of such
    values, and `caveat` the reason, if any, why their interval is doubtful for another reason than
    few blocks. See `of_resamples`. Raises ConfigError unless 0 < confidence < 1.
    """
    if not 0 < confidence < 1:
        raise config_error([("confidence", f"{confidence:g}", "must be > 0 and < 1")])
    n = len(values)
    if not is_replicated:
        return Interval(values[0], None, None, 1)
    if n < 2:
        return Interval(values[0], None, None, n)
    if is_share and min(values) == max(values):
        return Interval(values[0], None, None, n)
    if num_blocks is not None:
        found = of_resamples(values, confidence, num_blocks, skewness, caveat)
    else:
        mean = math.fsum(values) / n
        half = student_t_quantile(0.5 + confidence / 2, n - 1) * spread(values) / math.sqrt(n)
        found = Interval(mean, mean - half, mean + half, n)
    if found.low is None or found.high is None:
        return found
    least = 0.0
    if is_difference or (is_signed and not is_share):
        least = -1.0 if is_share else -math.inf
    most = 1.0 if is_share else math.inf
    return replace(found, low=max(found.low, least), high=min(found.high, most))


def mean_bounds(
    values: Sequence[float], error: float, skewness: float = 0.0
) -> tuple[float, float]:
    """A lower and an upper confidence bound of the mean, each wrong with probability `error`.

    Student's t of at least two different values, with the correction for skewness of
    `of_resamples`: where figures are skewed, a sample without one of the rare bad runs shows a mean
    that is too good and a spread that is too small. `skewness` is the usual one of such values.
    """
    n = len(values)
    centre, sd = math.fsum(values) / n, spread(values)
    seen, usual = n * _skewness(values, centre, sd), _SKEWNESS_KNOWN * skewness
    bend = 2 / 3 * (seen + usual) / (n + _SKEWNESS_KNOWN) / math.sqrt(n)
    t = student_t_quantile(1 - error, n - 1)
    step = sd / math.sqrt(n)
    return centre + step * _bent(-t, bend), centre + step * _bent(t, bend)


def spread(values: Sequence[float]) -> float:
    """Standard deviation of at least two values, with n - 1."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def caveats(intervals: Mapping[str, Interval | None]) -> list[str]:
    """A sentence per reason to doubt some of these intervals, which have names."""
    known = {name: interval for name, interval in intervals.items() if interval is not None}
    by_reason: dict[str, list[str]] = {}
    for name, interval in known.items():
        if interval.caveat:
            by_reason.setdefault(interval.caveat, []).append(name)
    return [
        f"the intervals{'' if len(names) == len(known) else ' of ' + ', '.join(names)} are "
        f"doubtful: {reason}."
        for reason, names in by_reason.items()
    ]


def fewest(num_blocks: Iterable[float | None]) -> float | None:
    """The number of blocks that counts where several simulations are compared; None without any."""
    return min((blocks for blocks in num_blocks if blocks is not None), default=None)


def of_resamples(
    values: Sequence[float],
    confidence: float,
    num_blocks: float,
    skewness: float = 0.0,
    caveat: str = "",
) -> Interval:
    """The interval of a figure's mean over traces, from at least two resamples of one trace.

    Resamples vary about the value of their trace as it varies about the mean over all such traces,
    so the interval is mean ± t·SD and does not shrink as resamples are added. Four corrections:

    - The mean of n resamples has an error of its own, so the variance gets the factor 1 + 1/n.
    - Blocks of one trace vary about its mean, not about the true one: the variance gets the factor
      1 / (1 - 1/blocks), as that of a sample.
    - t has the degrees of freedom of the resamples and of the blocks together; relative variances
      of independent factors add up (Welch 1947; Satterthwaite 1946). Blocks that start anywhere are
      overlapping batches, with 1.5 degrees of freedom each if they are normal (Meketon and
      Schmeiser 1984). Throughputs are; latencies, whose blocks are skewed, show 0.3 to 0.6. All
      count as 0.75.
    - Where figures are skewed, traces with a low value also show a low SD, so most intervals that
      miss the truth lie on one side of it. An end at u·SD moves to (exp(a·u) - 1) / a · SD, which
      is u + a·u²/2 for small a. With a = 2/3 of the skewness this is the correction of Johnson
      (1978) and Hall (1992, "On the removal of skewness by transformation"), in a monotone form.
      The skewness of few resamples is mostly noise: it counts as n values, and `skewness`, which is
      usual for such figures, as 24.

    `experiments/trace_bootstrap` measures how often such intervals hold the mean over traces.
    """
    n = len(values)
    mean = math.fsum(values) / n
    sd = spread(values)
    blocks = max(num_blocks, _FEWEST_BLOCKS)
    dof = 1 / (1 / (n - 1) + 1 / (_DOF_PER_BLOCK * (blocks - 1)))
    t = student_t_quantile(0.5 + confidence / 2, max(1.0, dof))
    reach = t * math.sqrt((1 + 1 / n) / (1 - 1 / blocks))
    seen, usual = n * _skewness(values, mean, sd), _SKEWNESS_KNOWN * skewness
    bend = 2 / 3 * (seen + usual) / (n + _SKEWNESS_KNOWN)
    low, high = (mean + sd * _bent(end, bend) for end in (-reach, reach))
    if num_blocks < LEAST_BLOCKS:
        caveat = (
            f"the trace holds only {num_blocks:.1f} blocks of the bootstrap, and {LEAST_BLOCKS} "
            "are the least: use shorter blocks, or a longer trace if it is correlated for so long"
        )
    return Interval(mean, low, high, n, caveat)


def _skewness(values: Sequence[float], mean: float, sd: float) -> float:
    """The adjusted coefficient of Fisher and Pearson, at most 2 in size; 0 of fewer than three."""
    n = len(values)
    if n < 3 or sd == 0:
        return 0.0
    cubes = math.fsum(((value - mean) / sd) ** 3 for value in values)
    return min(max(cubes * n / (n - 1) / (n - 2), -_MOST_SKEWNESS), _MOST_SKEWNESS)


def _bent(end: float, bend: float) -> float:
    return math.expm1(bend * end) / bend if abs(bend) > 1e-9 else end
