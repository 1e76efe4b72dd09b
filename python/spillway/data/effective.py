"""How many independent requests the requests of a trace are worth, and how many a figure needs.

Requests that meet the same congestion are late together, so a figure over thousands of requests may
rest on a few events. Its resamples then vary too little where the trace was calm, and too much
where it was not, and intervals of Student's t miss the truth more often than they state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.data.figures import FIGURES
from spillway.data.statistics import spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.data.figures import Figure

__all__ = ["doubt", "independent_requests", "needed_requests"]


def __dir__() -> list[str]:
    return __all__


_PER_SQUARED_SKEWNESS = 25
"""Rule of Cochran (1977, Sampling Techniques, 3rd ed., section 2.15): a mean of independent values
needs 25 times their squared skewness."""
_LATENCY_SQUARED_SKEWNESS = 8
"""Assumed of latencies: twice that of an exponential distribution."""
_LEAST = _PER_SQUARED_SKEWNESS * _LATENCY_SQUARED_SKEWNESS


def independent_requests(figure: str, resamples: Sequence[Mapping[str, Figure]]) -> float | None:
    """How many independent requests have a mean that varies as that of the requests of a trace.

    The variance of a single request over the variance of the mean between resamples of the trace,
    for a latency (any of its statistics) or `goodput`; None for other figures, and if it is
    unknown. `resamples`: their summaries, at least two.
    """
    latency = FIGURES[figure].latency if figure in FIGURES else ""
    if figure != "goodput" and (not latency or FIGURES[figure].statistic == "num"):
        return None
    of_mean = _known(f"mean_{latency}_ms" if latency else figure, resamples)
    if len(of_mean) < 2:
        return None
    if latency:
        squares = [value**2 for value in _known(f"std_{latency}_ms", resamples)]
    else:
        squares = [value * (1 - value) for value in of_mean]
    variance = spread(of_mean) ** 2
    return sum(squares) / len(squares) / variance if variance > 0 and squares else None


def needed_requests(figure: str, share: float = 0.0) -> float:
    """How many independent requests the interval of a latency's statistic or of goodput needs.

    25 times the squared skewness of what is averaged, at least 200: latencies themselves, or
    whether a request exceeds the percentile or, for goodput, meets its targets. `share`: that which
    meets them.
    """
    statistic = FIGURES[figure].statistic
    if statistic.startswith("p"):
        share = float(statistic[1:]) / 100
    if not 0 < share < 1:
        return _LEAST
    squared_skewness = (1 - 2 * share) ** 2 / (share * (1 - share))
    return max(_LEAST, _PER_SQUARED_SKEWNESS * squared_skewness)


def doubt(figure: str, resamples: Sequence[Mapping[str, Figure]]) -> str:
    """Why the interval of a figure over resamples is doubtful, as a clause; empty if it is not."""
    if len(resamples) < 2:
        return ""
    worth = independent_requests(figure, resamples)
    if worth is None:
        return ""
    shares = _known(figure, resamples) if figure == "goodput" else [0.0]
    needed = needed_requests(figure, sum(shares) / len(shares))
    if worth >= needed:
        return ""
    return "too few requests of the trace are independent of each other: use a longer trace"


def _known(figure: str, resamples: Sequence[Mapping[str, Figure]]) -> list[float]:
    return [float(value) for one in resamples if (value := one.get(figure)) is not None]
