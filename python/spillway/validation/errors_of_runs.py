"""Standard errors of figures whose requests depend on each other.

Requests that meet the same congestion are late together, so the error of a figure follows from
consecutive blocks of requests, not from single ones: the figure is computed without each block in
turn (the delete-a-group jackknife: Shao and Tu, The Jackknife and Bootstrap, 1995, section 2.3),
which also serves percentiles. Blocks that resemble their neighbors are worth fewer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spillway.data.intervals import student_t_quantile

if TYPE_CHECKING:
    from spillway.data.arrays import Booleans, Floats, Ints

BLOCKS = 20
"""Number of consecutive blocks of equally many requests."""

LEAST_REQUESTS = 10 * BLOCKS
"""Fewest requests to compare: ten in each block."""

_MOST_CORRELATION = 0.9


class Spread(NamedTuple):
    """How well a figure is known: its standard error, and the degrees of freedom behind that."""

    error: float
    dof: float

    def reach(self, level: float) -> float:
        """The distance that the error exceeds with this probability, on one side."""
        return 0.0 if self.error == 0 else self.error * student_t_quantile(1 - level, self.dof)


def blocks_of(rows: Booleans) -> Ints:
    """The block of each row; -1 for rows that are not compared."""
    found = np.full(len(rows), -1, dtype=np.int64)
    for block, part in enumerate(np.array_split(np.flatnonzero(rows), BLOCKS)):
        found[part] = block
    return found


def spread_of(whole: float, left: Floats, by_seed: Floats) -> Spread:
    """The spread of the difference between a recording and the mean of simulated runs.

    `whole`: the difference, `left`: the same without each block, `by_seed`: the differences from
    single runs. Were the configuration right, the recording would be one more of these runs: so
    their spread counts where it is larger than what the blocks show.
    """
    n = len(left)
    values = n * whole - (n - 1) * left
    moved = values - values.mean()
    square = float(moved @ moved)
    if not math.isfinite(square):
        return Spread(math.nan, 1.0)
    worth = 0.0
    if square > 0:
        worth = max(0.0, min(float(moved[1:] @ moved[:-1]) / square, _MOST_CORRELATION))
    inflation = (1 + worth) / (1 - worth)
    variance = square / (n - 1) / n * inflation
    runs = len(by_seed)
    between = float(np.var(by_seed, ddof=1)) * (1 + 1 / runs)
    error = math.sqrt(max(variance, between))
    return Spread(error, max(1.0, n / inflation - 1))
