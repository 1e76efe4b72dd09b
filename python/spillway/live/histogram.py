"""Histograms in the form of Prometheus."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Histogram:
    """Counts of values up to some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Counts a value, as often as stated."""
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Its lines of a page of metrics; `labels` without braces."""
        so_far = 0
        ends = (*(repr(float(bound)) for bound in self.bounds), "+Inf")
        for at, count in zip(ends, self.counts, strict=True):
            so_far += count
            yield f'{name}_bucket{{{labels},le="{at}"}} {so_far}'
        yield f"{name}_sum{{{labels}}} {self.sum!r}"
        yield f"{name}_count{{{labels}}} {so_far}"
