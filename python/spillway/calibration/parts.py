"""The measurements of one load, as parts of a fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spillway.calibration.hull import SAMPLES
from spillway.calibration.latencies import (
    CAPACITY,
    METRICS,
    Latencies,
    measured,
    noise_of,
    simulated,
    weights_of,
)
from spillway.calibration.profile import FittedRun
from spillway.calibration.refinement import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway._core.cluster import Simulation
    from spillway.calibration.replay import Replay
    from spillway.data.arrays import Booleans, Floats, Ints
    from spillway.data.result_data import ResultData
    from spillway.instance import InstanceGroup


_BLOCK_S = 30.0
_LEAST_BLOCKS = 10
_UNSERVED = 5.0  # logarithm of the error of a figure that no simulated request has


class Measured(Load, Protocol):
    """Measurements of a server under one load, and what is known of their noise."""

    @property
    def weights(self) -> Floats:
        """Weights of the residuals."""

    @property
    def itl_s(self) -> float:
        """A usual inter-token latency; NaN if unknown."""

    def resampler(self, results: Sequence[ResultData]) -> Callable[[np.random.Generator], Floats]:
        """A function that draws what the residuals would add in another measurement."""

    def sampled(self, group: InstanceGroup) -> Simulation:
        """The load on a server, with samples of the batch's state."""

    def report(self, results: Sequence[ResultData]) -> FittedRun:
        """What was measured, and the errors that remain."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some requests of a replayed run; `rows` are those to fit."""

    replay: Replay
    rows: Booleans

    num_seeds = 1  # a replay draws nothing
    metrics = (*(name for metric in METRICS for name in 5 * (metric,)), CAPACITY)

    @property
    def source(self) -> Replay:
        """The run."""
        return self.replay

    def simulation(self, group: InstanceGroup) -> Simulation:
        """The replay on a server."""
        return self.replay.simulation(group)

    def residuals(self, results: Sequence[ResultData]) -> Floats:
        """Weighted differences of the logarithms of the statistics."""
        errors = simulated(results[0], self.rows).logs() - self._logs
        unserved = np.isfinite(self._logs) & ~np.isfinite(errors)
        errors[unserved] = _UNSERVED
        return np.asarray(weights_of(self.replay) * errors)

    def noise(self, results: Sequence[ResultData]) -> Floats:
        """Of the weighted differences."""
        found = noise_of(simulated(results[0], self.rows), self._measured)
        return np.asarray(weights_of(self.replay) * found)

    @property
    def weights(self) -> Floats:
        """Weights of the residuals."""
        return weights_of(self.replay)

    @property
    def itl_s(self) -> float:
        """The median inter-token latency."""
        return float(np.exp(self._logs[5 + 2]))

    def resampler(
        self,
        results: Sequence[ResultData],  # noqa: ARG002
    ) -> Callable[[np.random.Generator], Floats]:
        """A block bootstrap of the measured requests, over 30 s of sending."""
        blocks = self._blocks()
        weights = weights_of(self.replay)

        def shift(rng: np.random.Generator) -> Floats:
            drawn = [blocks[j] for j in rng.integers(0, len(blocks), len(blocks))]
            again = self._measured.take(np.concatenate(drawn)).logs()
            again[-1] = self._logs[-1]  # a resampled run has no order of completions
            return np.asarray(-weights * (again - self._logs))

        return shift

    def sampled(self, group: InstanceGroup) -> Simulation:
        """The replay with a timeline."""
        return with_timeline(self.replay, group)

    def report(self, results: Sequence[ResultData]) -> FittedRun:
        """The errors of mean and median latencies and of the capacity."""
        run = self.replay.recording
        errors = 100 * np.expm1(simulated(results[0], self.rows).logs() - self._logs)
        places = {"capacity": len(errors) - 1}
        for i, metric in enumerate(METRICS):
            places |= {f"mean_{metric}": 5 * i, f"p50_{metric}": 5 * i + 2}
        found = {
            name: round(float(errors[at]), 2)
            for name, at in sorted(places.items(), key=lambda place: place[1])
            if np.isfinite(self._logs[at])
        }
        return FittedRun(run.name, run.sha256, int(self.rows.sum()), found)

    @cached_property
    def _measured(self) -> Latencies:
        return measured(self.replay, self.rows)

    @cached_property
    def _logs(self) -> Floats:
        return self._measured.logs()

    def _blocks(self) -> list[Ints]:
        """Positions among the requests, by 30 s of sending, or a tenth of a shorter run."""
        send_s = self.replay.recording.send_s[self.rows]
        block_s = max(min(_BLOCK_S, float(np.ptp(send_s)) / _LEAST_BLOCKS), 1e-9)
        which = (send_s // block_s).astype(int)
        return [np.flatnonzero(which == block) for block in np.unique(which)]


def with_timeline(replay: Replay, group: InstanceGroup) -> Simulation:
    """The replay on a server, with samples of the batch's state."""
    span_s = float(replay.recording.send_s[-1])
    step_s = max(1e-3, round(span_s / SAMPLES, 3))
    return replay.simulation(group, metrics={"timeline_step_s": step_s})
