"""The statistics by which a simulated run is compared with a measured one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spillway.calibration.replay import Replay
    from spillway.data.arrays import Booleans, Floats, Ints
    from spillway.data.result_data import ResultData


METRICS = ("ttft", "itl", "e2e")
CAPACITY = "capacity"
PERCENTILES = (10, 50, 90, 99)

_SHARES = np.array(PERCENTILES) / 100

# Weights of the mean and the percentiles of a metric.
_WEIGHTS = np.array([2, 0.7, 1.5, 1, 0.7])
_CAPACITY_WEIGHT = 2.0
_LOCKED_TTFT = 0.25
_RESAMPLES = 30


def weights_of(replay: Replay) -> Floats:
    """Weights of the statistics of a run in a fit, in the order of `Latencies.logs`.

    Users in a closed loop fall into step with each other. How many send together is decided in the
    first seconds, in which a server is still cold, and lasts; TTFT follows from it. It therefore
    counts a quarter there.
    """
    ttft = _LOCKED_TTFT if replay.is_closed_loop else 1.0
    return np.concatenate([ttft * _WEIGHTS, _WEIGHTS, _WEIGHTS, [_CAPACITY_WEIGHT]])


@dataclass(frozen=True, eq=False)
class Latencies:
    """Latencies of the compared requests of a run, in seconds, and when they were complete."""

    ttft_s: Floats
    itl_s: Floats
    e2e_s: Floats
    done_s: Floats

    def of(self, metric: str) -> Floats:
        """The finite values of a metric."""
        values: Floats = getattr(self, f"{metric}_s")
        return values[np.isfinite(values)]

    @property
    def capacity_per_s(self) -> float:
        """Completions per second between the first and the last decile of completions."""
        done_s = np.sort(self.done_s)
        n = len(done_s)
        first, last = int(0.1 * n), int(0.9 * n)
        span_s = float(done_s[last] - done_s[first]) if last > first else 0.0
        return (last - first) / span_s if span_s > 0 else float("nan")

    def logs(self) -> Floats:
        """Logarithms of mean and percentiles of each metric, then of the capacity."""
        statistics = [_mean_and_percentiles(self.of(metric)) for metric in METRICS]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.concatenate([*statistics, [self.capacity_per_s]])))

    def take(self, rows: Ints) -> Latencies:
        """The latencies of some rows, which may repeat."""
        return Latencies(self.ttft_s[rows], self.itl_s[rows], self.e2e_s[rows], self.done_s[rows])


def _mean_and_percentiles(values: Floats) -> Floats:
    """With `np.percentile(values, PERCENTILES)` to the last bit, without its checks."""
    if len(values) == 0:
        return np.full(1 + len(PERCENTILES), np.nan)
    ordered = np.sort(values)
    place = (len(values) - 1) * _SHARES
    below = place.astype(np.int64)
    above = np.minimum(below + 1, len(values) - 1)
    part = place - below
    low, high = ordered[below], ordered[above]
    step = high - low
    percentiles = np.where(part < 0.5, low + step * part, high - step * (1 - part))
    return np.append(values.mean(), percentiles)


def measured(replay: Replay, rows: Booleans) -> Latencies:
    """The latencies of `rows` of the recording."""
    run = replay.recording
    gaps = np.maximum(replay.output_tokens - 1, 0)
    return _latencies(run.send_s[rows], run.ttft_s[rows], run.e2e_s[rows], gaps[rows])


def simulated(result: ResultData, rows: Booleans) -> Latencies:
    """The latencies of these rows of its simulated replay, without what leads it."""
    requests = result.requests
    gaps = np.maximum(requests["output_tokens"].astype(np.int64) - 1, 0)
    columns = (requests["arrival_s"], requests["ttft_s"], requests["e2e_s"], gaps)
    return _latencies(*(column[-len(rows) :][rows] for column in columns))


def noise_of(sim: Latencies, real: Latencies) -> Floats:
    """Standard deviations of the errors' logarithms, were other requests of such runs compared.

    Requests are drawn in pairs, simulated and measured: arrivals and lengths are the same in both.
    """
    rng = np.random.default_rng(0)
    n = len(real.ttft_s)
    errors = []
    for _ in range(_RESAMPLES):
        rows = rng.integers(0, n, n)
        errors.append(sim.take(rows).logs() - real.take(rows).logs())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of statistics without values
        found = np.nanstd(np.array(errors), axis=0)
    found[-1] = 0  # resampled runs have no order of completions
    return np.asarray(np.nan_to_num(found))


def _latencies(send_s: Floats, ttft_s: Floats, e2e_s: Floats, gaps: Ints) -> Latencies:
    with np.errstate(divide="ignore", invalid="ignore"):
        itl_s = np.where(gaps > 0, (e2e_s - ttft_s) / gaps, np.nan)
    return Latencies(ttft_s, itl_s, e2e_s, send_s + e2e_s)
