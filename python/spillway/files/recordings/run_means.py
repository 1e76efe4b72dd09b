"""Mean latencies of runs at fixed numbers of requests in flight, as points."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spillway.config.messages import note
from spillway.data.recording import LatencyPoints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from spillway.data.recording import ServerFacts


class RunMeans(NamedTuple):
    """The means of a run over its completed requests.

    Attributes
    ----------
    concurrency : int
        Requests that the client keeps in flight, >= 1.
    requests : float
        The number of completed requests, the weight of its lengths.
    input_tokens, output_tokens : float
        Mean lengths.
    ttft_s, itl_s : float
        Mean time to the first token, and per further token.

    """

    concurrency: int
    requests: float
    input_tokens: float
    output_tokens: float
    ttft_s: float
    itl_s: float


_FEW = 0.1
"""Mean lengths of runs that are taken as one pair of lengths differ by less than this share."""


def points_of(
    path: Path, runs: Sequence[RunMeans], server: ServerFacts, group: Mapping[str, str]
) -> LatencyPoints:
    """Return the points of runs with the same server and kind of requests.

    Their lengths are the mean of all requests; warns if those of single runs are far from it.
    """
    ordered = sorted(runs, key=lambda run: run.concurrency)
    return LatencyPoints(
        server,
        group,
        _length(path, "prompts", [run.input_tokens for run in ordered], ordered),
        _length(path, "outputs", [run.output_tokens for run in ordered], ordered),
        concurrency=np.array([run.concurrency for run in ordered]),
        ttft_s=np.array([run.ttft_s for run in ordered]),
        itl_s=np.array([run.itl_s for run in ordered]),
    )


def _length(path: Path, name: str, means: Sequence[float], runs: Sequence[RunMeans]) -> int:
    mean = float(np.average(means, weights=[run.requests for run in runs]))
    if max(abs(value - mean) for value in means) > _FEW * mean:
        note(
            f"{path}: {name} of the points have {min(means):g} to {max(means):g} tokens in the "
            f"mean, taken as {mean:g}"
        )
    return round(mean)
