"""Histograms of a server's latencies under a stated workload, as measurements of a fit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.cluster import Simulation
from spillway._core.workload import Synthetic, Trace
from spillway.calibration.hull import SAMPLES
from spillway.calibration.profile import FittedRun
from spillway.config.classes import config_error
from spillway.config.messages import checked
from spillway.data.recording import Histogram, LatencyHistograms
from spillway.files.recordings import read_histograms
from spillway.files.traces import TraceError, read_trace
from spillway.simulate import simulate

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from spillway._core.instance import InstanceGroup
    from spillway.data.arrays import Floats
    from spillway.data.result_data import ResultData

    Sample = tuple[Floats, Floats]  # values and their counts


_NAMES = ("ttft_s", "itl_s", "e2e_s")
_SEEDS = 4
_LEAST_REQUESTS = 100
_MOST_MISCOUNT = 0.1
_MEAN_WEIGHT = 2.0
_BOUNDS_WEIGHT = 2.0  # of all bounds of a histogram together, like those of the percentiles
_CONFIGURATIONS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, eq=False)
class Scraped:
    """Histograms of one server between two scrapes, and the workload in that time.

    The workload begins and ends with the interval: an interval that begins and ends idle, or one
    that is long beside the latencies.

    Attributes
    ----------
    histograms : LatencyHistograms
        Of the interval: `late.since(early)`. `ttft_s`, `itl_s` and `e2e_s` are fitted.
    workload : Trace or Synthetic
        The requests in that time; of a generator, those of four seeds together.
    name : str

    """

    histograms: LatencyHistograms
    workload: Trace | Synthetic
    name: str = ""

    def __post_init__(self) -> None:
        checked("histograms", self.histograms, LatencyHistograms, "LatencyHistograms")
        checked("workload", self.workload, Trace | Synthetic, "a workload.Trace or .Synthetic")
        if not self.name:
            object.__setattr__(self, "name", self.histograms.name)
        _check_identifies(self)

    @classmethod
    def read(
        cls,
        early: str | os.PathLike[str],
        late: str | os.PathLike[str],
        workload: str | os.PathLike[str] | Trace | Synthetic,
    ) -> Scraped:
        """Reads two scrapes of vLLM's page /metrics, and the workload between them.

        The engines of a page, which are the data-parallel ranks of a server, count together.
        `workload`: also the path of a trace, or of a configuration file that states one.

        Raises TraceError or ConfigError if a file is invalid, the scrapes are not of one engine, or
        the histograms cannot identify anything.
        """
        first, last = read_histograms(Path(early)), read_histograms(Path(late))
        names = [engine.name for engine in first], [engine.name for engine in last]
        if names[0] != names[1]:
            raise TraceError(f"{early} has the engines {names[0]}, but {late} has {names[1]}")
        between = [later.since(other) for later, other in zip(last, first, strict=True)]
        if not isinstance(workload, Trace | Synthetic):
            workload = _workload_of(Path(workload))
        return cls(_together(between), workload, Path(late).stem)

    @property
    def requests(self) -> int:
        """Observations of the histogram that has the fewest; of tokens, if there is no other."""
        counts = {name: self.histograms.histograms[name].count for name in self.known}
        if self.counts_requests:
            counts.pop("itl_s", None)
        return min(counts.values())

    @property
    def counts_requests(self) -> bool:
        """Whether a histogram has an observation per request."""
        return self.known != ("itl_s",)

    @property
    def known(self) -> tuple[str, ...]:
        """The histograms to fit."""
        found = self.histograms.histograms
        return tuple(name for name in _NAMES if name in found and found[name].count)


def _workload_of(path: Path) -> Trace | Synthetic:
    if path.suffix not in _CONFIGURATIONS:
        return read_trace(path)
    from spillway import loading

    return loading.load(path).workload


def _together(engines: Sequence[LatencyHistograms]) -> LatencyHistograms:
    """The observations of several engines."""
    first = engines[0]
    if len(engines) == 1:
        return first
    histograms: dict[str, Histogram] = {}
    for name, histogram in first.histograms.items():
        others = [engine.histograms.get(name) for engine in engines]
        if any(o is None or not np.array_equal(o.upper, histogram.upper) for o in others):
            raise config_error([(f"{name}", "", "must have the same buckets in all engines")])
        histograms[name] = Histogram(
            histogram.upper,
            np.sum([o.cumulative for o in others if o], axis=0),
            float(sum(o.sum for o in others if o)),
        )
    counters = {
        name: sum(engine.counters.get(name, 0.0) for engine in engines) for name in first.counters
    }
    server = first.server.replace(data_parallel_size=len(engines))
    return dataclasses.replace(first, histograms=histograms, counters=counters, server=server)


def _check_identifies(given: Scraped) -> None:
    """Raises ConfigError if a fit would return its prior."""
    found = given.histograms.histograms
    if not given.known:
        allowed = f"must hold observations of one of {', '.join(_NAMES)}; it has none"
        raise config_error([("histograms", given.histograms.name, allowed)])
    if given.requests < _LEAST_REQUESTS:
        allowed = f"must be >= {_LEAST_REQUESTS} between the two scrapes"
        raise config_error([("histograms.count", str(given.requests), allowed)])
    for name in given.known:
        histogram = found[name]
        counts = np.diff(histogram.cumulative, prepend=0)
        lower = np.concatenate([[0.0], histogram.upper[:-1]])
        least = float(lower @ counts)
        most = float(histogram.upper[counts > 0] @ counts[counts > 0])
        total = histogram.sum
        if np.isfinite(total) and not least <= total * (1 + 1e-9) <= most * (1 + 2e-9):
            allowed = f"must be between {least:.6g} and {most:.6g}, which its buckets allow"
            raise config_error([(f"histograms.{name}.sum", f"{total:.6g}", allowed)])
    if not any(np.isfinite(found[name].sum) or _is_split(found[name]) for name in given.known):
        allowed = "identify nothing: each has all observations in one bucket, and no sum"
        raise config_error([("histograms", ", ".join(given.known), allowed)])


def _is_split(histogram: Histogram) -> bool:
    """Whether several buckets hold observations."""
    return int(np.count_nonzero(np.diff(histogram.cumulative, prepend=0))) > 1


class HistogramPart:
    """What a fit compares of scraped histograms.

    Of each histogram the logarithm of the mean, which Prometheus keeps exactly, and the share of
    observations at or below each bound: where an observation lies within its bucket is not known,
    and not assumed. Bounds beyond the first that holds none and the first that holds all are left
    out.
    """

    num_seeds = _SEEDS

    def __init__(self, given: Scraped) -> None:
        self.given = given
        self.source = self
        self._bounds = {name: self._bounds_of(name) for name in given.known}

    def simulation(self, group: InstanceGroup) -> Simulation:
        """The workload on one server."""
        return Simulation(workload=self.given.workload, instances=[group])

    def residuals(self, results: Sequence[ResultData]) -> Floats:
        """Weighted differences, simulated minus measured, of the requests of all seeds."""
        return np.concatenate(
            [self._compared(name, *_pooled(results, name)) for name in self.given.known]
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """What each of the residuals is a statistic of."""
        found: list[str] = []
        for name in self.given.known:
            bounds, _ = self._bounds[name]
            count = len(bounds) + int(np.isfinite(self.given.histograms.histograms[name].sum))
            found += count * [name.removesuffix("_s")]
        return tuple(found)

    @property
    def weights(self) -> Floats:
        """Weights of the residuals."""
        found: list[float] = []
        for name in self.given.known:
            bounds, _ = self._bounds[name]
            if np.isfinite(self.given.histograms.histograms[name].sum):
                found.append(_MEAN_WEIGHT)
            found += len(bounds) * [_BOUNDS_WEIGHT / np.sqrt(max(1, len(bounds)))]
        return np.array(found)

    @property
    def itl_s(self) -> float:
        """The mean inter-token latency; NaN if unknown."""
        if "itl_s" not in self.given.known:
            return float("nan")
        return self.given.histograms.histograms["itl_s"].mean

    def noise(self, results: Sequence[ResultData]) -> Floats:
        """Of the weighted differences, by seed of a generator."""
        each = [self.residuals([result]) for result in results]
        return np.asarray(np.std(each, axis=0) if len(each) > 1 else np.zeros(len(each[0])))

    def resampler(self, results: Sequence[ResultData]) -> Callable[[np.random.Generator], Floats]:
        """How residuals scatter from one run of the workload to another.

        A recorded trace has no such scatter: its arrivals are those of the measurement.
        """
        pooled = self.residuals(results)
        each = [self.residuals([result]) - pooled for result in results]
        # The scatter of the measured run, and that of the mean of the simulated ones.
        growth = np.sqrt((len(each) + 1) / (len(each) - 1)) if len(each) > 1 else 1.0
        return lambda rng: np.asarray(growth * each[rng.integers(len(each))])

    def check(self, results: Sequence[ResultData]) -> None:
        """Raises ConfigError if the workload is not that of the histograms."""
        served, served_tokens = np.mean([_served(result) for result in results], axis=0).tolist()
        totals: dict[str, tuple[float, float]] = {}
        if self.given.counts_requests:
            totals["requests"] = (served, self.given.requests)
        if tokens := self.given.histograms.counters.get("generation_tokens"):
            totals["output tokens"] = (served_tokens, tokens)
        for what, (simulated, measured) in totals.items():
            if abs(simulated / measured - 1) > _MOST_MISCOUNT:
                allowed = (
                    f"serves {simulated:,.0f} {what}, but the histograms hold {measured:,.0f}; "
                    "state the workload between the two scrapes"
                )
                raise config_error([("workload", self.given.name, allowed)])

    def sampled(self, group: InstanceGroup) -> Simulation:
        """The workload with a timeline."""
        itself = self.simulation(group)
        step_s = max(1e-3, round(simulate(itself).end_s / SAMPLES, 3))
        return itself.replace(metrics={"timeline_step_s": step_s})

    def report(self, results: Sequence[ResultData]) -> FittedRun:
        """The errors of means in percent, and the largest of shares in percentage points."""
        found = {}
        for name in self.given.known:
            values, counts = _pooled(results, name)
            histogram = self.given.histograms.histograms[name]
            short = name.removesuffix("_s")
            if np.isfinite(histogram.sum):
                mean = float(values @ counts / counts.sum())
                found[f"mean_{short}"] = round(100 * (mean / histogram.mean - 1), 2)
            bounds, shares = self._bounds[name]
            off = _shares(values, counts, bounds) - shares
            if len(off):
                found[f"share_{short}"] = round(100 * float(np.abs(off).max()), 2)
        sha256 = self.given.histograms.sha256
        return FittedRun(self.given.name, sha256, self.given.requests, found)

    def _bounds_of(self, name: str) -> tuple[Floats, Floats]:
        """The finite bounds to compare, and the measured shares there."""
        histogram = self.given.histograms.histograms[name]
        shares = histogram.cumulative[:-1] / histogram.count
        first = max(0, int(np.searchsorted(shares, 0, side="right")) - 1)
        last = int(np.searchsorted(shares, 1, side="left")) + 1
        return histogram.upper[:-1][first:last], shares[first:last]

    def _compared(self, name: str, values: Floats, counts: Floats) -> Floats:
        histogram = self.given.histograms.histograms[name]
        bounds, shares = self._bounds[name]
        weight = _BOUNDS_WEIGHT / np.sqrt(max(1, len(bounds)))
        off = weight * (_shares(values, counts, bounds) - shares)
        if not np.isfinite(histogram.sum):
            return np.asarray(off)
        mean = values @ counts / counts.sum()
        return np.concatenate([[_MEAN_WEIGHT * np.log(mean / histogram.mean)], off])


def sample_of(result: ResultData, name: str) -> Sample:
    """The simulated observations of a histogram."""
    if name == "itl_s":
        gaps: Mapping[str, Any] = result.token_gaps
        return gaps["gap_s"], gaps["count"].astype(float)
    values = np.array(result.requests[name])
    values = values[np.isfinite(values)]
    return values, np.ones(len(values))


def _pooled(results: Sequence[ResultData], name: str) -> Sample:
    """The simulated observations of several runs, in ascending order."""
    samples = [sample_of(result, name) for result in results]
    values, counts = (np.concatenate(column) for column in zip(*samples, strict=True))
    order = np.argsort(values, kind="stable")
    return values[order], counts[order]


def _shares(values: Floats, counts: Floats, bounds: Floats) -> Floats:
    """The share of the observations at or below each bound; `values` ascend."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    return np.asarray(below[np.searchsorted(values, bounds, side="right")] / counts.sum())


def _served(result: ResultData) -> tuple[int, float]:
    """Completed requests, and their output tokens."""
    requests = result.requests
    done = np.isfinite(requests["e2e_s"])
    return int(done.sum()), float(requests["output_tokens"][done].sum())
