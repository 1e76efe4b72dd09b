"""Fits a server to measured runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.calibration.histograms import HistogramPart
from spillway.calibration.hull import Hull, states_of
from spillway.calibration.log_prior import fitted_logs, logged_states, prior_of
from spillway.calibration.parts import Part
from spillway.calibration.profile import Choice, Profile
from spillway.calibration.refinement import Fit, fit, form_of
from spillway.calibration.replay import Replay, group_of, measured_turnaround_s, plans_ahead
from spillway.calibration.server_measurements import check_completeness, facts_of, read
from spillway.calibration.start import START
from spillway.config.classes import config_error
from spillway.config.progress import reporting
from spillway.files.traces import TraceError
from spillway.simulate import run_many

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from spillway._core.instance import Roofline, StepTable
    from spillway.calibration.histograms import Scraped
    from spillway.calibration.log_prior import LogPrior
    from spillway.calibration.parts import Measured
    from spillway.config.progress import Remarks
    from spillway.data.arrays import Booleans, Floats
    from spillway.data.recording import Recording, ServerFacts, StepLog
    from spillway.data.result_data import ResultData

    Source: TypeAlias = str | os.PathLike[str] | Recording | StepLog | Scraped


NORMS = (4.0, 2.0, 1.5, None, 1.0)
"""Exponents that are tried. Between them, costs are flat."""

MAX_ERROR_SHARE = 0.01
"""Runs with more client errors are not fitted: part of their load is not recorded."""

_BOOTSTRAPS = 200
_LEAST_REQUESTS = 20
_LEAST_ERROR = 0.01  # of a mean between two runs of the same load


def calibrate(
    data: Source | Iterable[Source],
    *,
    server: Mapping[str, object] | None = None,
    norms: Sequence[float | None] = NORMS,
    table: StepTable | None = None,
    ahead: bool | None = None,
    rows: Callable[[Recording], Booleans] | None = None,
    repeats: bool = True,
    allow_mismatch: bool = False,
    progress: Remarks = False,
    **reading: Any,
) -> Profile:
    """Fits the step times of a server to measured runs, logs of its steps, or histograms.

    Logs of steps identify most coefficients by a regression (`fit_step_logs`). With runs, they are
    the start and the prior of the fit to these, and the norm is theirs; without runs, they are the
    result, and the entry delay of a request is that of `start.START`.

    Histograms of Prometheus with a stated workload count like a run: by their means, and by the
    shares of observations below the bounds of their buckets. Those of one interval cannot choose
    the norm, which is then the first of `norms`.

    The coefficients of `instance.Roofline` are those with which the simulated replays have the
    measured mean and percentiles of TTFT, ITL and E2E latency and the measured capacity. The norm
    is the one with the lowest cost on runs that were not fitted. So is the scheduling, if the
    engine's version leaves it open; within one standard error, one step ahead is taken. What can be
    measured is not fitted: the turnaround of a client at its limit. What is stated is taken: batch
    limits, KV blocks.

    Parameters
    ----------
    data : path, Recording, StepLog, Scraped or several
        Files or folders (see `spillway.read`), or what they hold, and histograms; all of one
        server.
    server : mapping, optional
        Facts that the data do not state, e.g. `{"num_kv_blocks": 17600}`: attributes of
        `ServerFacts`.
    norms : sequence of float or None
        Exponents of the roofline to try, if there are no logs of steps; (1,) gives a linear model.
    table : StepTable, optional
        Fits the two scales and the entry delay of this table instead of a roofline, for which few
        runs suffice.
    ahead : bool, optional
        Whether the engine schedules one step ahead; by default what its version does.
    rows : function, optional
        The requests of a recording to fit, as a boolean array; by default all that are compared.
    repeats : bool
        Whether prompts that repeat are cached (see `Replay`); False gives a baseline.
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
        A file is invalid, the runs are of several servers, a run is a sample or differs from its
        tool's figures, or too few requests are left.
    ConfigError
        A table is given with logs of steps, these hold too few steps, or a workload is not that of
        its histograms.

    """
    runs, logs, scraped = read(data, server, **reading)
    check_completeness(runs, allow_mismatch=allow_mismatch)
    facts = facts_of(runs, logs, scraped)
    known = prior_of(logs) if logs else None
    if known is not None:
        if table is not None:
            allowed = "fits runs alone: leave out the logs of steps"
            raise config_error([("table", "given", allowed)])
        if not runs and not scraped:
            return _logged(facts, known, logs, ahead=ahead)
    used = [run for run in runs if run.failed.mean() <= MAX_ERROR_SHARE]
    others = [run for run in runs if run.failed.mean() > MAX_ERROR_SHARE]
    left_out = [f"{run.name}: {run.failed.mean():.1%} of its requests failed" for run in others]
    if runs and not used and not scraped:
        raise TraceError("no run is left to fit: " + "; ".join(left_out))
    turnaround_s = measured_turnaround_s(used)
    parts: list[Measured] = [_part_of(Replay(run, turnaround_s, repeats), rows) for run in used]
    parts += _checked([HistogramPart(scrape) for scrape in scraped], facts)

    tried: list[tuple[Fit, Floats]] = []
    if ahead is None:
        ahead = plans_ahead(facts)
    bases: list[Roofline | StepTable] = (
        [START.replace(norm=norm) for norm in norms] if table is None else [table]
    )
    prior, covariance = None, None
    if known is not None:
        bases, prior, covariance = [known.latency], known.theta, known.covariance
    folds = _folds(parts)
    modes = (True, False) if ahead is None else (ahead,)
    if len(folds) == 1:
        # Nothing is held out that could choose.
        bases, modes = bases[:1], modes[:1]
    forms = list(itertools.product(modes, bases))
    with reporting(progress, "server forms", tells=True) as report:
        for mode, base in forms:
            found = fit(facts, folds, base=base, ahead=mode, prior=prior, covariance=covariance)
            costs = found.held_out_costs() if len(folds) > 1 else np.array([found.cost])
            tried.append((found, costs))
            if report is not None:
                name = f"{form_of(base)}{', one step ahead' if mode else ''}"
                report(len(tried), len(forms), f"{name}: cost {costs.mean():.4f}")
    best = _chosen(tried)
    best = fit(
        facts, parts, base=best.base, ahead=best.ahead, prior=best.prior, start=best.theta,
        covariance=covariance,
    )  # fmt: skip
    group = group_of(facts, best.latency, ahead=best.ahead)
    results = [
        run_many([part.sampled(group)], seeds=range(part.num_seeds), keep_requests=True)[0]
        for part in parts
    ]
    states = [states_of(result) for of_part in results for result in of_part]
    return Profile(
        server=facts,
        latency=best.latency,
        async_scheduling=best.ahead,
        turnaround_s=turnaround_s,
        covariance=tuple(tuple(row) for row in _covariance(best, parts, results).tolist()),
        hull=Hull.around(np.concatenate([*states, logged_states(logs, facts)])),
        runs=tuple(part.report(of_part) for part, of_part in zip(parts, results, strict=True)),
        logs=fitted_logs(known, logs),
        left_out=tuple(left_out),
        choices=tuple(
            Choice(form_of(fitted.base), fitted.ahead, float(costs.mean()))
            for fitted, costs in sorted(tried, key=lambda pair: float(pair[1].mean()))
        ),
    )


def _part_of(replay: Replay, rows: Callable[[Recording], Booleans] | None) -> Part:
    run = replay.recording
    chosen = replay.compared if rows is None else replay.compared & rows(run)
    if chosen.sum() < _LEAST_REQUESTS:
        raise TraceError(
            f"{run.source}: {chosen.sum()} requests are left to fit, but "
            f"{_LEAST_REQUESTS} are needed"
        )
    return Part(replay, chosen)


def _checked(parts: Sequence[HistogramPart], facts: ServerFacts) -> Sequence[HistogramPart]:
    """Raises ConfigError if the workload of a part is not that of its histograms."""
    group = group_of(facts, START, ahead=False)
    for part in parts:
        part.check(
            run_many([part.simulation(group)], seeds=range(part.num_seeds), keep_requests=True)[0]
        )
    return parts


def _folds(parts: list[Measured]) -> Sequence[Measured]:
    """The parts, or the halves of a single run; histograms of a single interval have none."""
    only = parts[0] if len(parts) == 1 else None
    return _halves(only) if isinstance(only, Part) else parts


def _chosen(tried: list[tuple[Fit, Floats]]) -> Fit:
    """The form with the lowest mean cost; one step ahead if that is within one standard error."""
    ranked = sorted(tried, key=lambda pair: float(pair[1].mean()))
    best, lowest = ranked[0]
    noise = float(lowest.std(ddof=1)) / np.sqrt(len(lowest)) if len(lowest) > 1 else 0.0
    ahead = next((pair for pair in ranked if pair[0].ahead), ranked[0])
    return ahead[0] if ahead[1].mean() <= lowest.mean() + noise else best


def _logged(
    facts: ServerFacts, known: LogPrior, logs: Sequence[StepLog], *, ahead: bool | None
) -> Profile:
    """The server as logs of its steps alone show it."""
    if ahead is None:
        ahead = plans_ahead(facts) is not False
    states = logged_states(logs, facts)
    return Profile(
        server=facts,
        latency=known.latency,
        async_scheduling=ahead,
        turnaround_s=0.0,
        covariance=tuple(tuple(row) for row in known.covariance.tolist()),
        hull=Hull.around(states) if len(states) else Hull(()),
        runs=(),
        logs=fitted_logs(known, logs),
        choices=tuple(
            Choice(form_of(START.replace(norm=choice.norm)), ahead, choice.held_out_cost)
            for choice in known.times.choices
        ),
    )


def _halves(part: Part) -> list[Part]:
    """Two consecutive parts of one run."""
    where = np.flatnonzero(part.rows)
    first = np.zeros_like(part.rows)
    first[where[: len(where) // 2]] = True
    return [Part(part.replay, first), Part(part.replay, part.rows & ~first)]


def _covariance(
    best: Fit, parts: Sequence[Measured], results: Sequence[Sequence[ResultData]]
) -> Floats:
    """Covariance of the logarithms of the coefficients.

    Resampled measurements give what their noise leaves open (a block bootstrap of recorded
    requests, other seeds of a generator): the residuals change with them, and the coefficients
    follow by one Gauss-Newton step. To it comes the inverse curvature times the mean square of the
    remaining residuals, at least that of repeated measurements, for the errors of the model; in
    directions that the data do not determine it is that of the prior.
    """
    rng = np.random.default_rng(0)
    inverse = np.linalg.inv(best.curvature())
    drawn = [part.resampler(result) for part, result in zip(parts, results, strict=True)]
    moves = []
    for _ in range(_BOOTSTRAPS):
        residuals = best.residuals.copy()
        for row, shift in zip(residuals, drawn, strict=True):
            change = shift(rng)
            row[: len(change)] += change
        moves.append(-inverse @ (best.slope(residuals) - best.slope(best.residuals)))
    noise = np.cov(np.array(moves), rowvar=False)
    finite = best.residuals[np.isfinite(best.residuals)]
    error = max(float(np.mean(finite**2)), _LEAST_ERROR**2)
    return np.asarray(noise + error * inverse)
