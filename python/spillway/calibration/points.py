"""Mean latencies of a server at stated loads, as measurements of a fit."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import workload
from spillway._core.cluster import Simulation
from spillway.calibration.hull import SAMPLES
from spillway.calibration.profile import FittedRun
from spillway.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spillway._core.instance import InstanceGroup
    from spillway.data.arrays import Floats
    from spillway.data.recording import LatencyPoints
    from spillway.data.result_data import ResultData


REQUESTS_PER_USER = 10
LENGTH_RATIO = 0.8
ASSUMED = (
    "lengths uniform between 0.8 and 1 times the nominal ones; users who start at once and send 10 "
    "requests each, or Poisson arrivals"
)
"""What means do not state, and is assumed of every table: the usual protocol of benchmarks."""

_REQUESTS = 400  # at a rate
_ITL_WEIGHT = 2.0
_TTFT_WEIGHT = 1.0
_NOISE = 0.02  # of a mean between two runs


@dataclass(frozen=True, eq=False)
class PointPart:
    """The means at one load: TTFT and time per further token."""

    points: LatencyPoints
    at: int

    num_seeds = 1
    metrics = ("itl", "ttft")

    @property
    def source(self) -> PointPart:
        """The load."""
        return self

    @property
    def users(self) -> int:
        """Requests that the client keeps in flight; 0: it sends at a rate."""
        return int(self.points.concurrency[self.at])

    @property
    def rate_per_s(self) -> float:
        """The rate at which the client sends; infinite if only its limit counts."""
        rates = self.points.requests_per_s
        return math.inf if rates is None else float(rates[self.at])

    @property
    def name(self) -> str:
        """The load and the lengths in words."""
        load = f"{self.users} in flight" if self.users else f"{self.rate_per_s:g} requests/s"
        return f"{load}, {self.points.input_tokens}/{self.points.output_tokens} tokens"

    @property
    def itl_s(self) -> float:
        """The mean time per further token; NaN if unknown."""
        return self._mean(self.points.itl_s)

    @property
    def ttft_s(self) -> float:
        """The mean time to the first token; NaN if unknown."""
        return self._mean(self.points.ttft_s)

    def _mean(self, values: Floats) -> float:
        """Of all measurements at this load."""
        same = self.points.concurrency == self.users
        if self.points.requests_per_s is not None:
            same &= self.points.requests_per_s == self.rate_per_s
        known = values[same & np.isfinite(values)]
        return float(known.mean()) if len(known) else math.nan

    @property
    def alone(self) -> LatencyPoints:
        """A table of this load."""
        rates = None if self.points.requests_per_s is None else np.array([self.rate_per_s])
        return dataclasses.replace(
            self.points,
            concurrency=np.array([self.users]),
            ttft_s=np.array([self.ttft_s]),
            itl_s=np.array([self.itl_s]),
            requests_per_s=rates,
        )

    def simulation(self, group: InstanceGroup) -> Simulation:
        """The load on a server, by the assumed protocol."""
        lengths: dict[str, Any] = {
            "input_tokens": _lengths(self.points.input_tokens),
            "output_tokens": _lengths(self.points.output_tokens),
        }
        if self.users:
            arrivals = workload.ClosedLoop(users=self.users)
            requests = REQUESTS_PER_USER * self.users
            client = workload.Client(arrivals=arrivals, num_requests=requests, **lengths)
            return Simulation(workload=workload.Synthetic(clients=[client]), instances=[group])
        traffic = workload.Synthetic(
            requests_per_s=self.rate_per_s,
            num_requests=_REQUESTS,
            clients=[workload.Client(**lengths)],
        )
        return Simulation(workload=traffic, instances=[group])

    def residuals(self, results: Sequence[ResultData]) -> Floats:
        """Weighted differences of the logarithms."""
        itl_s, ttft_s = means(results[0])
        errors = np.log([itl_s / self.itl_s, ttft_s / self.ttft_s])
        return np.asarray(self.weights * errors)

    @property
    def weights(self) -> Floats:
        """Weights of the residuals."""
        return np.array([_ITL_WEIGHT, _TTFT_WEIGHT])

    def noise(self, results: Sequence[ResultData]) -> Floats:  # noqa: ARG002
        """Of the weighted differences: means without their requests state none."""
        return _NOISE * self.weights

    def resampler(
        self,
        results: Sequence[ResultData],
    ) -> Callable[[np.random.Generator], Floats]:
        """Independent noise of both means."""
        spread = self.noise(results)
        return lambda rng: np.asarray(spread * rng.standard_normal(len(spread)))

    def sampled(self, group: InstanceGroup) -> Simulation:
        """The load with a timeline."""
        itself = self.simulation(group)
        step_s = max(1e-3, round(simulate(itself).end_s / SAMPLES, 3))
        return itself.replace(metrics={"timeline_step_s": step_s})

    def report(self, results: Sequence[ResultData]) -> FittedRun:
        """The errors of the means in percent."""
        itl_s, ttft_s = means(results[0])
        pairs = {"mean_ttft": (ttft_s, self.ttft_s), "mean_itl": (itl_s, self.itl_s)}
        errors = {
            name: round(100 * (simulated / measured - 1), 2)
            for name, (simulated, measured) in pairs.items()
            if math.isfinite(measured)
        }
        requests = REQUESTS_PER_USER * self.users if self.users else _REQUESTS
        return FittedRun(self.name, self.points.sha256, requests, errors)


def means(result: ResultData) -> tuple[float, float]:
    """Mean time per further token, and mean TTFT, in seconds."""
    requests = result.requests
    gaps = np.maximum(requests["output_tokens"].astype(np.int64) - 1, 0)
    decode_s = requests["e2e_s"] - requests["ttft_s"]
    several = gaps > 0
    itl_s = decode_s[several] / gaps[several]
    return float(np.nanmean(itl_s)), float(np.nanmean(requests["ttft_s"]))


def parts_of(points: LatencyPoints) -> Iterator[PointPart]:
    """The loads whose rate or limit is known, each once."""
    seen = set()
    for at in range(len(points.concurrency)):
        part = PointPart(points, at)
        load = (part.users, part.rate_per_s)
        if load not in seen and (part.users or math.isfinite(part.rate_per_s)):
            seen.add(load)
            yield part


def _lengths(nominal: int) -> workload.Uniform:
    least = max(1, round(LENGTH_RATIO * nominal))
    return workload.Uniform(min_tokens=least, max_tokens=max(least, nominal))
