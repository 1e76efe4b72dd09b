"""Predictions for measured runs of real servers, beside the measurements.

A server is fitted to some runs and predicts others. A prediction uses send times and lengths only;
the latencies of a run to predict decide one thing before scoring: whether the client's limit on
requests in flight was reached, in which case the run is replayed closed-loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.calibration.hull import states_of
from spillway.calibration.latencies import METRICS, Latencies, measured, simulated
from spillway.calibration.parts import with_timeline
from spillway.calibration.points import PointPart, means, parts_of
from spillway.calibration.procedure import MAX_ERROR_SHARE, NORMS, calibrate
from spillway.calibration.replay import Replay
from spillway.calibration.server_measurements import check_completeness, key_of, read
from spillway.config import formatting
from spillway.config.progress import reporting
from spillway.data.recording import LatencyPoints, Recording
from spillway.files.traces import TraceError
from spillway.simulate import simulate

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt

    from spillway.calibration.profile import Profile
    from spillway.config.progress import Remarks

    _Measurement = Recording | LatencyPoints

__all__ = ["LEAST_SHARE_INSIDE", "Report", "RunReport", "validate"]


LEAST_SHARE_INSIDE = 0.95
"""A run is in range if its batch is in the hull of the fit for this share of the simulated time,
and at most 1% of its requests failed."""

_STATISTICS = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True)
class RunReport:
    """One predicted run.

    Attributes
    ----------
    run : str
    requests : int
        Number of compared requests.
    in_range : bool
        See `LEAST_SHARE_INSIDE`.
    share_inside, share_failed : float
        What decides that.
    closed_loop : bool
        Replayed with the client's limit on requests in flight.
    profile : Profile
        The fitted server behind the prediction.
    statistics : dict
        Per metric: `mean_real`, `mean_sim`, the same for p50, p90, p99, in seconds, and
        `median_ape_percent`, the median absolute error of single requests; None in a closed loop,
        and where there is nothing to compare.
    capacity : dict
        `real` and `sim`: completions per second between the first and last decile of completions.

    """

    run: str
    requests: int
    in_range: bool
    share_inside: float
    share_failed: float
    closed_loop: bool
    profile: Profile
    statistics: dict[str, dict[str, float | None]]
    capacity: dict[str, float | None]

    @property
    def fitted_on(self) -> tuple[str, ...]:
        """Names of the runs behind the prediction."""
        return tuple(run.name for run in self.profile.runs)

    def error_percent(self, metric: str, statistic: str) -> float:
        """Signed error, e.g. of ("ttft", "p99")."""
        if metric == "capacity":
            real, sim = self.capacity["real"], self.capacity["sim"]
        else:
            values = self.statistics[metric]
            real, sim = values[f"{statistic}_real"], values[f"{statistic}_sim"]
        return 100 * (sim / real - 1) if real and sim is not None else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Plain values; times are in seconds."""
        return {
            "run": self.run,
            "requests": self.requests,
            "in_range": self.in_range,
            **self.statistics,
            "capacity": self.capacity,
            "share_inside": self.share_inside,
            "share_failed": self.share_failed,
            "closed_loop": self.closed_loop,
            "fitted_on": list(self.fitted_on),
            "verdict": None if self.profile.verdict is None else self.profile.verdict.to_dict(),
        }


@dataclass(frozen=True)
class Report:
    """All predicted runs, in range or not."""

    runs: tuple[RunReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def table(self) -> str:
        """Signed errors in percent, a line per run."""
        head = (
            "run", "requests", "range", "TTFT mean", "p50", "p99", "ITL mean", "E2E mean", "p99",
            "capacity", "per request TTFT", "E2E", "fit",
        )  # fmt: skip
        rows: list[tuple[str, ...]] = [head]
        for run in self.runs:
            medians = [run.statistics[metric]["median_ape_percent"] for metric in ("ttft", "e2e")]
            rows.append((
                run.run,
                str(run.requests),
                "in" if run.in_range else "out",
                *(_signed(run.error_percent("ttft", name)) for name in ("mean", "p50", "p99")),
                _signed(run.error_percent("itl", "mean")),
                *(_signed(run.error_percent("e2e", name)) for name in ("mean", "p99")),
                _signed(run.error_percent("capacity", "")),
                *("-" if value is None else f"{value:.1f}" for value in medians),
                "" if run.profile.verdict is None else run.profile.verdict.kind,
            ))  # fmt: skip
        header, _, *lines = formatting.table(rows).splitlines()
        return "\n".join(["errors in %, simulated against measured", header, *lines])


def validate(
    fit: str | os.PathLike[str],
    score: str | os.PathLike[str] | None = None,
    *,
    half: bool = False,
    norms: Sequence[float | None] = NORMS,
    ahead: bool | None = None,
    repeats: bool = True,
    allow_mismatch: bool = False,
    progress: Remarks = False,
    **reading: Any,
) -> Report:
    """Fits servers to measured runs and predicts others.

    Parameters
    ----------
    fit : path
        Runs to fit (see `read_recordings`); one profile per server.
    score : path, optional
        Runs to predict; each server must be in `fit`. Without it, and without `half`, each run of
        `fit` is predicted by a profile of the server's other runs; a server with a single run is
        treated as with `half`.
    half : bool
        Replay whole runs, fit to the first half of the requests of each, compare the second. Of
        mean latencies at stated loads the lower half of the loads is fitted and the upper one
        predicted, without `score` in any case.
    norms, ahead, repeats
        See `calibrate`; they give baselines.
    allow_mismatch : bool
        Whether to use runs whose tool reports other figures than the requests give.
    progress : bool or function, optional
        True: show how far it is, as for `simulate`. A function is called with a line of text from
        time to time.
    **reading
        How to read files: arguments of `spillway.read`.

    Raises
    ------
    TraceError
        A file is invalid, a run is a sample or differs from its tool's figures, or a server of
        `score` has no run in `fit`.

    """
    if half and score is not None:
        raise TraceError("give either runs to score or half, which scores those of the fit")

    def measurements_of(path: str | os.PathLike[str]) -> dict[str, list[_Measurement]]:
        given = read(path, None, **reading)
        check_completeness(given.runs, allow_mismatch=allow_mismatch)
        return _by_server([*given.runs, *given.points])

    known = measurements_of(fit)
    reports: list[RunReport] = []
    wanted = known if score is None else measurements_of(score)
    if missing := [key for key in wanted if key not in known]:
        raise TraceError(
            f"{score}: there is no run in {fit} to fit this server:\n{missing[0]}\n"
            "The servers there are:\n" + "\n".join(known)
        )
    num_runs = sum(map(len, wanted.values()))
    with reporting(progress, "predicted runs", tells=True) as report:

        def fitted(runs: Sequence[_Measurement], rows: Any = None) -> Profile:
            def tell(text: str) -> None:
                if report is not None:
                    report(len(reports), num_runs, text)

            return calibrate(
                runs, norms=norms, ahead=ahead, rows=rows, repeats=repeats,
                allow_unidentified=True, progress=tell,
            )  # fmt: skip

        def predicted(
            run: Recording, profile: Profile, rows: npt.NDArray[np.bool_] | None = None
        ) -> RunReport:
            replay = Replay(run, profile.turnaround_s, repeats, profile.warms)
            return predict(replay, profile, rows)

        for key, found in wanted.items():
            runs = [run for run in found if isinstance(run, Recording)]
            loads = [part for of in found if isinstance(of, LatencyPoints) for part in parts_of(of)]
            if score is not None:
                profile = fitted(known[key])
                reports.extend(predicted(run, profile) for run in runs)
                reports.extend(_predict_means(load, profile) for load in loads)
                continue
            if loads:
                ordered = sorted(loads, key=lambda load: (load.users, load.rate_per_s))
                few = ordered[: (len(ordered) + 1) // 2]
                profile = fitted([load.alone for load in few])
                reports.extend(_predict_means(load, profile) for load in ordered[len(few) :])
            for run in runs:
                others = [other for other in runs if other is not run and _is_usable(other)]
                if _is_usable(run) and (half or not others):
                    profile = fitted([run], _first_half)
                    reports.append(predicted(run, profile, ~_first_half(run)))
                elif others:
                    reports.append(predicted(run, fitted(others)))
        return Report(tuple(reports))


def _by_server(given: Sequence[_Measurement]) -> dict[str, list[_Measurement]]:
    found: dict[str, list[_Measurement]] = {}
    for item in given:
        key = item.server.key if isinstance(item, Recording) else key_of(item)
        found.setdefault(key, []).append(item)
    return found


def _predict_means(load: PointPart, profile: Profile) -> RunReport:
    """Simulates a load of which means are known."""
    result = simulate(load.sampled(profile.group))
    itl_s, ttft_s = means(result)
    inside = profile.hull.share_inside(states_of(result))
    nothing: dict[str, float | None] = {
        f"{name}_{source}": None for name in _STATISTICS for source in ("real", "sim")
    }
    nothing["median_ape_percent"] = None
    pairs = {"ttft": (load.ttft_s, ttft_s), "itl": (load.itl_s, itl_s)}
    return RunReport(
        run=load.name,
        requests=len(result.requests["ttft_s"]),
        in_range=inside >= LEAST_SHARE_INSIDE,
        share_inside=inside,
        share_failed=0.0,
        closed_loop=load.users > 0,
        profile=profile,
        statistics={
            metric: nothing
            | (
                {"mean_real": _finite(pairs[metric][0]), "mean_sim": _finite(pairs[metric][1])}
                if metric in pairs
                else {}
            )
            for metric in METRICS
        },
        capacity={"real": None, "sim": None},
    )


def _is_usable(run: Recording) -> bool:
    return bool(run.failed.mean() <= MAX_ERROR_SHARE)


def _first_half(run: Recording) -> npt.NDArray[np.bool_]:
    return np.arange(run.num_requests) < run.num_requests // 2


def predict(replay: Replay, profile: Profile, rows: npt.NDArray[np.bool_] | None) -> RunReport:
    """Replays a run on a fitted server, and compares these of its requests; None: all."""
    run = replay.recording
    compared = replay.compared if rows is None else replay.compared & rows
    result = simulate(with_timeline(replay, profile.group))
    real, sim = measured(replay, compared), simulated(result, compared)
    inside = profile.hull.share_inside(states_of(result))
    share_failed = float(run.failed.mean())
    return RunReport(
        run=run.name,
        requests=int(compared.sum()),
        in_range=inside >= LEAST_SHARE_INSIDE and share_failed <= MAX_ERROR_SHARE,
        share_inside=inside,
        share_failed=share_failed,
        closed_loop=replay.is_closed_loop,
        profile=profile,
        statistics={
            metric: _statistics(real, sim, metric, by_request=not replay.is_closed_loop)
            for metric in METRICS
        },
        capacity={"real": _finite(real.capacity_per_s), "sim": _finite(sim.capacity_per_s)},
    )


def _signed(error: float) -> str:
    return f"{error:+.1f}" if np.isfinite(error) else "-"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _statistics(
    real: Latencies, sim: Latencies, metric: str, *, by_request: bool
) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for source, latencies in (("real", real), ("sim", sim)):
        values = latencies.of(metric)
        figures: Sequence[float] = (np.nan,) * len(_STATISTICS)
        if len(values):
            figures = (values.mean(), *np.percentile(values, (50, 90, 99)))
        for name, value in zip(_STATISTICS, figures, strict=True):
            found[f"{name}_{source}"] = _finite(value)
    found["median_ape_percent"] = None
    ours, theirs = getattr(sim, f"{metric}_s"), getattr(real, f"{metric}_s")
    both = np.isfinite(ours) & np.isfinite(theirs) & (theirs > 0)
    if by_request and both.any():
        median = np.median(np.abs(ours[both] / theirs[both] - 1))
        found["median_ape_percent"] = float(100 * median)
    return found
