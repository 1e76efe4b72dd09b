"""The batch states that a fit has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway._core.instance import InstanceGroup
    from spillway.data.arrays import Floats
    from spillway.data.result_data import ResultData


SAMPLES = 2000
"""Number of instants at which a run is looked at."""

_MORE_REQUESTS = 1.1
_MORE_CONTEXT = 1.5
_LEAST_CORNERS = 3


def states_of(result: ResultData) -> Floats:
    """Running requests and share of KV blocks in use, at the sampled instants with any running.

    Both are means over the instances that are ready.
    """
    timeline = result.timeline
    running = timeline["running"] / np.maximum(timeline["ready_instances"], 1)
    states = np.stack([running, timeline["kv_utilization"]], axis=1).astype(float)
    return states[timeline["running"] > 0]


@dataclass(frozen=True)
class Hull:
    """Convex hull of the sampled batch states of the fitted runs.

    The states of a single workload lie on a line, because requests of equal lengths take equal
    memory. Each state therefore stands for those with up to 10% more requests and with up to 1.5
    times more or less context per request.

    Attributes
    ----------
    vertices : tuple of pairs
        Running requests and share of KV blocks in use, counterclockwise; empty: not known.

    """

    vertices: tuple[tuple[float, float], ...]

    @classmethod
    def around(cls, states: Floats) -> Hull:
        """The hull of what some states stand for and the idle server, by Andrew's chain."""
        points = sorted(
            {(0.0, 0.0)}
            | {
                (_MORE_REQUESTS * running, _MORE_REQUESTS * used * context)
                for running, used in states.tolist()
                for context in (_MORE_CONTEXT, 1 / _MORE_CONTEXT)
            }
        )
        return cls((*_chain(points)[:-1], *_chain(points[::-1])[:-1]))

    def corners(self, group: InstanceGroup) -> list[dict[str, float]]:
        """The vertices as `fitted_states` of a group: per rank, and in tokens instead of shares.

        So they do not depend on the memory and the number of ranks of the server that was measured.
        Empty if no batch was seen.
        """
        if len(self.vertices) < _LEAST_CORNERS:
            return []
        tokens = group.num_kv_blocks * group.block_size_tokens
        return [
            {"running_requests": running / group.data_parallel_size, "kv_tokens": used * tokens}
            for running, used in self.vertices
        ]

    def share_inside(self, states: Floats) -> float:
        """Share of the states that are in the hull; NaN for a hull without vertices."""
        if not self.vertices:
            return math.nan
        if len(states) == 0:
            return 1.0
        corners = np.array(self.vertices)
        inside = np.ones(len(states), dtype=bool)
        for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            edge, to = b - a, states - a
            inside &= edge[0] * to[:, 1] - edge[1] * to[:, 0] >= -1e-9
        return float(inside.mean())


def _chain(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    chain: list[tuple[float, float]] = []
    for point in points:
        while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
