"""Whether the requests of a trace are enough for an interval over its resamples.

Requests that meet the same congestion are late together, so a latency over thousands of requests
may rest on a few events. A trace that happens to hold none of them cannot show how much such traces
differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.data.figures import FIGURES
from spillway.data.intervals import spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.data.figures import Figure


LEAST_INDEPENDENT = 10
"""Least number of independent requests behind the interval of a latency."""
LEAST_BEYOND = 200
"""Least number of requests beyond a percentile: five in each of 40 blocks."""


def independent_requests(latency: str, resamples: Sequence[Mapping[str, Figure]]) -> float | None:
    """How many independent requests have a mean latency that varies as that of a trace.

    The variance of the latency of a single request over that of its mean between resamples of the
    trace. `resamples`: their summaries; None if fewer than two of them have the latency, or if
    their means are equal.
    """
    means = _known(f"mean_{latency}_ms", resamples)
    sds = _known(f"std_{latency}_ms", resamples)
    if len(means) < 2 or not spread(means):
        return None
    return sum(sd**2 for sd in sds) / len(sds) / spread(means) ** 2


def caveat(figure: str, resamples: Sequence[Mapping[str, Figure]]) -> str:
    """Why the interval of a figure over resamples is doubtful, as a clause; empty if it is not.

    Only latencies can be. Below the thresholds lies what `experiments/trace_bootstrap` did not try,
    or found wrong.
    """
    latency = FIGURES[figure].latency if figure in FIGURES else ""
    statistic = FIGURES[figure].statistic if latency else "num"
    if statistic == "num" or not resamples:
        return ""
    if statistic.startswith("p"):
        counts = _known(f"num_{latency}", resamples)
        beyond = sum(counts) / len(counts) * (1 - float(statistic[1:]) / 100)
        if beyond < LEAST_BEYOND:
            return (
                f"fewer than {LEAST_BEYOND} requests of the trace are beyond the percentile: use a "
                "longer trace"
            )
    independent = independent_requests(latency, resamples)
    if independent is not None and independent < LEAST_INDEPENDENT:
        return (
            "requests are late together for so long that the trace is worth fewer than "
            f"{LEAST_INDEPENDENT} independent ones: use a longer trace"
        )
    return ""


def _known(figure: str, resamples: Sequence[Mapping[str, Figure]]) -> list[float]:
    return [float(value) for summary in resamples if (value := summary.get(figure)) is not None]
