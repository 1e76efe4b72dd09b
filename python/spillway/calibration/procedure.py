"""Fits a server to measured runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spillway._core.instance import Roofline
from spillway.calibration.data import facts_of, read
from spillway.calibration.hull import SAMPLES, Hull, states_of
from spillway.calibration.log_prior import fitted_logs, logged_states, prior_of
from spillway.calibration.profile import Choice, FittedRun, Profile
from spillway.calibration.refinement import Fit, Part, fit, form_of
from spillway.calibration.replay import Replay, group_of, measured_turnaround_s, plans_ahead
from spillway.calibration.statistics import METRICS, measured, simulated, weights_of
from spillway.config.classes import config_error
from spillway.interop.traces import TraceError
from spillway.simulate import run_many

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    import numpy.typing as npt

    from spillway._core.cluster import Simulation
    from spillway._core.instance import InstanceGroup, StepTable
    from spillway.calibration.log_prior import LogPrior
    from spillway.data.recording import Recording, ServerFacts, StepLog

    Source: TypeAlias = str | os.PathLike[str] | Recording | StepLog

    Floats = npt.NDArray[np.float64]
    Rows = npt.NDArray[np.bool_]

__all__ = ["MAX_ERROR_SHARE", "NORMS", "calibrate", "with_timeline"]


def __dir__() -> list[str]:
    return __all__


NORMS = (4.0, 2.0, 1.5, None, 1.0)
"""Exponents that are tried. Between them, costs are flat."""

MAX_ERROR_SHARE = 0.01
"""Runs with more client errors are not fitted: part of their load is not recorded."""

_BLOCK_S = 30.0
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
    rows: Callable[[Recording], Rows] | None = None,
    repeats: bool = True,
    progress: Callable[[str], object] | None = None,
) -> Profile:
    """Fits the step times of a server to measured runs, to logs of its steps, or to both.

    Logs of steps identify most coefficients by a regression (`fit_step_logs`). With runs, they are
    the start and the prior of the fit to these, and the norm is theirs; without runs, they are the
    result, and the entry delay of a request is the default of `instance.Roofline`.

    The coefficients of `instance.Roofline` are those with which the simulated replays have the
    measured mean and percentiles of TTFT, ITL and E2E latency and the measured capacity. The norm
    is the one with the lowest cost on runs that were not fitted. So is the scheduling, if the
    engine's version leaves it open; within one standard error, one step ahead is taken. What can be
    measured is not fitted: the turnaround of a client at its limit. What is stated is taken: batch
    limits, KV blocks.

    Parameters
    ----------
    data : path, Recording, StepLog or several
        Files or folders (see `read_recordings` and `read_step_logs`), or what they hold; all of one
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
    progress : function, optional
        Called with a line of text from time to time.

    Raises
    ------
    TraceError
        A file is invalid, the runs are of several servers, or too few requests are left.
    ConfigError
        A table is given with logs of steps, or these hold too few steps.

    """
    runs, logs = read(data, server)
    facts = facts_of(runs, logs)
    known = prior_of(logs) if logs else None
    if known is not None:
        if table is not None:
            allowed = "fits runs alone: leave out the logs of steps"
            raise config_error([("table", "given", allowed)])
        if not runs:
            return _logged(facts, known, logs, ahead=ahead)
    used = [run for run in runs if run.failed.mean() <= MAX_ERROR_SHARE]
    left_out = tuple(
        f"{run.name}: {run.failed.mean():.1%} of its requests failed" for run in runs
        if run.failed.mean() > MAX_ERROR_SHARE
    )  # fmt: skip
    if not used:
        raise TraceError("no run is left to fit: " + "; ".join(left_out))
    turnaround_s = measured_turnaround_s(used)
    parts = []
    for run in used:
        replay = Replay(run, turnaround_s, repeats)
        chosen = replay.compared if rows is None else replay.compared & rows(run)
        if chosen.sum() < _LEAST_REQUESTS:
            raise TraceError(
                f"{run.source}: {chosen.sum()} requests are left to fit, but "
                f"{_LEAST_REQUESTS} are needed"
            )
        parts.append(Part(replay, chosen))

    tried: list[tuple[Fit, Floats]] = []
    if ahead is None:
        ahead = plans_ahead(facts)
    bases: list[Roofline | StepTable] = [Roofline(norm=norm) for norm in norms]
    prior, covariance = None, None
    if table is not None:
        bases = [table]
    if known is not None:
        bases, prior, covariance = [known.latency], known.theta, known.covariance
    folds = parts if len(parts) > 1 else _halves(parts[0])
    for mode in (True, False) if ahead is None else (ahead,):
        for base in bases:
            found = fit(facts, folds, base=base, ahead=mode, prior=prior, covariance=covariance)
            costs = found.held_out_costs()
            tried.append((found, costs))
            if progress is not None:
                progress(
                    f"{form_of(base)}{', one step ahead' if mode else ''}: cost {costs.mean():.4f}"
                )
    best = _chosen(tried)
    best = fit(
        facts, parts, base=best.base, ahead=best.ahead, prior=best.prior, start=best.theta,
        covariance=covariance,
    )  # fmt: skip
    group = group_of(facts, best.latency, ahead=best.ahead)
    results = run_many([with_timeline(part.replay, group) for part in parts], keep_requests=True)
    return Profile(
        server=facts,
        latency=best.latency,
        async_scheduling=best.ahead,
        turnaround_s=turnaround_s,
        covariance=tuple(tuple(row) for row in _covariance(best, parts).tolist()),
        hull=Hull.around(
            np.concatenate([*(states_of(one[0]) for one in results), logged_states(logs, facts)])
        ),
        runs=tuple(
            FittedRun(
                part.replay.recording.name,
                part.replay.recording.sha256,
                int(part.rows.sum()),
                _errors_percent(
                    measured(part.replay, part.rows).logs(), simulated(one[0], part.rows).logs()
                ),
            )
            for part, one in zip(parts, results, strict=True)
        ),
        logs=fitted_logs(known, logs),
        left_out=left_out,
        choices=tuple(
            Choice(form_of(one.base), one.ahead, float(costs.mean()))
            for one, costs in sorted(tried, key=lambda pair: float(pair[1].mean()))
        ),
    )


def _chosen(tried: list[tuple[Fit, Floats]]) -> Fit:
    """The form with the lowest mean cost; one step ahead if that is within one standard error."""
    ranked = sorted(tried, key=lambda pair: float(pair[1].mean()))
    best, lowest = ranked[0]
    noise = float(lowest.std(ddof=1)) / np.sqrt(len(lowest))
    ahead = next((pair for pair in ranked if pair[0].ahead), ranked[0])
    return ahead[0] if ahead[1].mean() <= lowest.mean() + noise else best


def with_timeline(replay: Replay, group: InstanceGroup) -> Simulation:
    """The replay on a server, with samples of the batch's state."""
    span_s = float(replay.recording.send_s[-1])
    step_s = max(1e-3, round(span_s / SAMPLES, 3))
    return replay.simulation(group, metrics={"timeline_step_s": step_s})


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
            Choice(form_of(Roofline(norm=one.norm)), ahead, one.held_out_cost)
            for one in known.times.choices
        ),
    )


def _halves(part: Part) -> list[Part]:
    """Two consecutive parts of one run."""
    where = np.flatnonzero(part.rows)
    first = np.zeros_like(part.rows)
    first[where[: len(where) // 2]] = True
    return [Part(part.replay, first), Part(part.replay, part.rows & ~first)]


def _covariance(best: Fit, parts: list[Part]) -> Floats:
    """Covariance of the logarithms of the coefficients.

    A block bootstrap over 30 s of sending gives what the noise of the measurements leaves open: the
    residuals change with the resampled statistics, the coefficients follow by one Gauss-Newton
    step. To it comes the inverse curvature times the mean square of the remaining residuals, at
    least that of repeated measurements, for the errors of the model; in directions that the data do
    not determine it is that of the prior.
    """
    rng = np.random.default_rng(0)
    inverse = np.linalg.inv(best.curvature())
    logs = [measured(part.replay, part.rows) for part in parts]
    at = [one.logs() for one in logs]
    blocks = [_blocks(part) for part in parts]
    moves = []
    for _ in range(_BOOTSTRAPS):
        residuals = best.residuals.copy()
        for i, (one, block) in enumerate(zip(logs, blocks, strict=True)):
            drawn = np.concatenate([block[j] for j in rng.integers(0, len(block), len(block))])
            again = one.take(drawn).logs()
            again[-1] = at[i][-1]  # a resampled run has no order of completions
            residuals[i] -= weights_of(parts[i].replay) * (again - at[i])
        moves.append(-inverse @ (best.slope(residuals) - best.slope(best.residuals)))
    noise = np.cov(np.array(moves), rowvar=False)
    finite = best.residuals[np.isfinite(best.residuals)]
    error = max(float(np.mean(finite**2)), _LEAST_ERROR**2)
    return np.asarray(noise + error * inverse)


def _blocks(part: Part) -> list[npt.NDArray[np.int64]]:
    """Positions among the part's requests, by 30 s of sending."""
    which = (part.replay.recording.send_s[part.rows] // _BLOCK_S).astype(int)
    return [np.flatnonzero(which == block) for block in np.unique(which)]


def _errors_percent(real: Floats, sim: Floats) -> dict[str, float]:
    errors = 100 * np.expm1(sim - real)
    found = {}
    for i, metric in enumerate(METRICS):
        found[f"mean_{metric}"] = round(float(errors[5 * i]), 2)
        found[f"p50_{metric}"] = round(float(errors[5 * i + 2]), 2)
    return found | {"capacity": round(float(errors[-1]), 2)}
