"""Racing: further seeds only for configurations that may still win, by paired tests."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from spillway.data.intervals import student_t_cdf
from spillway.study.records import mean, standard_error

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Racing:
    """Allocation of seeds to the configurations of a batch.

    All run under the first `first_seeds` seeds. While seeds are left, the number doubles for those
    that a one-sided paired t-test at level `p` does not show to be worse than the best trial so
    far, or to violate a constraint.
    """

    first_seeds: int = 3
    p: float = 0.1

    def __post_init__(self) -> None:
        if self.first_seeds < 2:
            raise ValueError(f"first_seeds = {self.first_seeds}: must be >= 2 to test anything")
        if not 0 < self.p < 0.5:
            raise ValueError(f"p = {self.p}: must be > 0 and < 0.5")

    def stages(self, seeds: Sequence[int]) -> list[tuple[int, ...]]:
        """The seeds in portions: the first ones, then twice as many in total, up to the end."""
        portions, start, size = [], 0, self.first_seeds
        while start < len(seeds):
            portions.append(tuple(seeds[start : start + size]))
            start += size
            size = start
        return portions

    def is_more(self, values: Sequence[float]) -> bool:
        """Whether the mean of independent values is significantly above 0."""
        n, centre, error = len(values), mean(values), standard_error(values)
        if error == 0:
            return centre > 0
        return 1 - student_t_cdf(centre / error, n - 1) <= self.p


def referred(row: Sequence[float], reference: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error of a row without the last seeds, by reference to a complete row.

    The mean of the reference plus the mean paired difference over the common seeds: a configuration
    that ran only under easy seeds gains no advantage.
    """
    gaps = [a - b for a, b in zip(row, reference, strict=False)]
    error = math.hypot(standard_error(gaps), standard_error(reference))
    return mean(reference) + mean(gaps), error
