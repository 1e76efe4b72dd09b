"""Interval estimates over replicated seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Interval", "central_intervals", "interval", "student_t_cdf", "student_t_quantile"]


def __dir__() -> list[str]:
    return __all__


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
        values = [one[name] for one in summaries]
        if all(isinstance(one, int | float) and np.isfinite(one) for one in values):
            ordered = np.array(values, dtype=float)
            low, high = np.percentile(ordered, [tail, 100 - tail], method="weibull")
            found[name] = (float(low), float(high))
    return found


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its two-sided Student-t confidence interval.

    Over resamples of a trace, it is the mean over traces of this length. `n` counts the runs for
    which the figure exists. With fewer than two there is no interval and `low` and `high` are None.
    Where seeds change nothing there is one run for any number of seeds.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        half = self.half_width
        return f"{self.mean:.4g}" + ("" if half is None else f" ± {half:.2g}")

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None with fewer than two runs."""
        return None if self.high is None else self.high - self.mean


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


def student_t_quantile(p: float, dof: int) -> float:
    """The t at which `student_t_cdf` reaches `p`, 0.5 <= p < 1, by bisection."""
    low, high = 0.0, 2.0
    while student_t_cdf(high, dof) < p:
        high *= 2
    for _ in range(100):
        middle = 0.5 * (low + high)
        if student_t_cdf(middle, dof) < p:
            low = middle
        else:
            high = middle
    return high


def interval(
    values: Sequence[float],
    confidence: float = 0.95,
    *,
    is_replicated: bool = True,
    is_resampled: bool = False,
) -> Interval:
    """Mean and confidence interval of independent replications; `values` must not be empty.

    `is_replicated`: False if they are the values of one run, repeated for each seed.
    `is_resampled`: whether they are the values of bootstrap resamples of one trace. These vary
    about the value of that trace as it varies about the mean over all such traces, so the interval
    is mean ± t·SD and does not shrink as resamples are added.
    """
    n = len(values)
    if not is_replicated:
        return Interval(values[0], None, None, 1)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(mean, None, None, n)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    error = math.sqrt(variance if is_resampled else variance / n)
    half = student_t_quantile(0.5 + confidence / 2, n - 1) * error
    return Interval(mean, mean - half, mean + half, n)
