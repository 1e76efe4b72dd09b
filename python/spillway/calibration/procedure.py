"""Fits a server to measured runs."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway._core.instance import Roofline
from spillway.calibration.catalog import Limit, dtype_of, limits_of
from spillway.calibration.diagnosis import causes_of
from spillway.calibration.histograms import HistogramPart
from spillway.calibration.hull import Hull, states_of
from spillway.calibration.log_prior import fitted_logs, logged_states, prior_of
from spillway.calibration.memory import Scan, lightest, scan
from spillway.calibration.parts import Part
from spillway.calibration.points import ASSUMED, PointPart, parts_of
from spillway.calibration.profile import Choice, Profile, UnidentifiedError
from spillway.calibration.refinement import (
    ENTRY,
    PRIOR_WEIGHT,
    Fit,
    coefficients_of,
    fit,
    form_of,
    soft_cost,
    table_at,
)
from spillway.calibration.replay import Replay, group_of, measured_turnaround_s, plans_ahead
from spillway.calibration.server_measurements import check_completeness, facts_of, read
from spillway.calibration.start import START, start_of
from spillway.calibration.verdict import judged, misfits_of
from spillway.config.classes import config_error
from spillway.config.messages import note
from spillway.config.progress import reporting
from spillway.files.traces import TraceError
from spillway.simulate import run_many

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from spillway._core.instance import StepTable
    from spillway.calibration.histograms import Scraped
    from spillway.calibration.log_prior import LogPrior
    from spillway.calibration.parts import Measured
    from spillway.calibration.profile import FittedRun
    from spillway.calibration.server_measurements import Measurements
    from spillway.calibration.verdict import Verdict
    from spillway.config.progress import Remarks
    from spillway.data.arrays import Booleans, Floats
    from spillway.data.recording import LatencyPoints, Recording, ServerFacts, StepLog
    from spillway.data.result_data import ResultData

    Source: TypeAlias = str | os.PathLike[str] | Recording | StepLog | Scraped | LatencyPoints


NORMS = (4.0, 2.0, 1.5, None, 1.0)
"""Exponents that are tried. Between them, costs are flat."""

MAX_ERROR_SHARE = 0.01
"""Runs with more client errors are not fitted: part of their load is not recorded."""

_BOOTSTRAPS = 200
_LEAST_REQUESTS = 20  # of all runs together
_LEAST_OF_RUN = 5
_LEAST_ERROR = 0.01  # of a mean between two runs of the same load
_WARM_GAIN = 0.8
_MEMORY_WIDTH = 0.5  # of the logarithm of the size of the KV memory, around the best one


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
    allow_unidentified: bool = False,
    progress: Remarks = False,
    **reading: Any,
) -> Profile:
    """Fits the step times of a server to measured runs, logs of its steps, or histograms.

    Logs of steps identify most coefficients by a regression (`fit_step_logs`). With runs, they are
    the start and the prior of the fit to these, and the norm is theirs; without runs, they are the
    result, and the entry delay of a request is that of `start.START`.

    Step times come from inter-token latencies first, then the entry delay, of a request and of each
    of its prompt tokens, from TTFT, then the size of the KV memory, if it is not stated and
    requests wait for it; then all statistics together refine that. Noisy statistics count less, and
    so do those that hang on small errors of the step times, such as TTFT in overload.

    The fit begins with the step times of the catalog, if it knows the model and the accelerator; of
    a mixture of experts, the time for its experts' weights is fitted, too.

    Mean latencies at stated loads (`LatencyPoints`) count by these means; `points.ASSUMED` says
    what is assumed of their requests.

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
    data : path, Recording, StepLog, Scraped, LatencyPoints or several
        Files or folders (see `spillway.read`), or what they hold, and histograms; all of one
        server.
    server : mapping, optional
        Facts that the data do not state, e.g. `{"num_kv_blocks": 17600}`: attributes of
        `ServerFacts`. A fact that they state otherwise is replaced, with a warning.
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
    allow_unidentified : bool
        Whether to return a fit that is no server, instead of raising UnidentifiedError.
    progress : bool or function, optional
        True: show how far it is, as for `simulate`. A function is called with a line of text from
        time to time.
    **reading
        How to read files: arguments of `spillway.read`.

    Returns
    -------
    Profile
        Its `verdict` says whether the fit is `identified`, or `usable` in which ranges.

    Raises
    ------
    UnidentifiedError
        The verdict is `poor`: the runs do not fit, or do not identify even their own step times.
        Its `profile` is the fit.
    TraceError
        A file is invalid, the runs are of several servers, a run is a sample or differs from its
        tool's figures, or too few requests are left.
    ConfigError
        A table is given with logs of steps, these hold too few steps, or a workload is not that of
        its histograms.

    """
    given = read(data, server, **reading)
    check_completeness(given.runs, allow_mismatch=allow_mismatch)
    facts = facts_of(given)
    known = prior_of(given.logs) if given.logs else None
    if known is not None:
        if table is not None:
            allowed = "fits runs alone: leave out the logs of steps"
            raise config_error([("table", "given", allowed)])
        if not (given.runs or given.scraped or given.points):
            return _accepted(_logged(facts, known, given.logs, ahead=ahead), allow_unidentified)
    used = [run for run in given.runs if run.failed.mean() <= MAX_ERROR_SHARE]
    turnaround_s = measured_turnaround_s(used)
    replays = [Replay(run, turnaround_s, repeats) for run in used]
    parts = _parts_of(given, facts, replays, rows)
    begin = _beginning(facts, parts, known, table, given.points)
    bases: list[Roofline | StepTable] = [begin.latency]
    if known is None and isinstance(begin.latency, Roofline):
        bases = [begin.latency.replace(norm=norm) for norm in norms]
    ahead = plans_ahead(facts) if ahead is None else ahead
    modes = (True, False) if ahead is None else (ahead,)
    forms = list(itertools.product(modes, bases))
    with reporting(progress, "server forms", tells=True) as report:

        def tell(done: int, text: str) -> None:
            if report is not None:
                report(done, len(forms) + 1, text)

        found = _searched(facts, parts, begin, forms, tell)
        outcome = _outcome(found, given.logs, tell)
    profile = Profile(
        server=found.facts,
        latency=found.best.latency,
        async_scheduling=found.best.ahead,
        turnaround_s=turnaround_s,
        covariance=tuple(tuple(row) for row in outcome.covariance.tolist()),
        hull=Hull.around(outcome.states),
        runs=outcome.reports,
        logs=fitted_logs(known, given.logs),
        left_out=tuple(_left_out(given.runs, parts)),
        choices=tuple(
            Choice(form_of(fitted.base), fitted.ahead, float(costs.mean()))
            for fitted, costs in sorted(found.tried, key=lambda pair: float(pair[1].mean()))
        ),
        verdict=outcome.verdict,
        sources={name: (limit.value, limit.source) for name, limit in outcome.limits.items()},
        start=begin.source,
        warms=found.warms,
    )
    return _accepted(profile, allow_unidentified)


def _left_out(runs: Sequence[Recording], parts: Sequence[Measured]) -> Iterator[str]:
    """Why each run that is not among the parts is not fitted."""
    fitted = {id(part.replay.recording) for part in parts if isinstance(part, Part)}
    for run in runs:
        if id(run) in fitted:
            continue
        if run.failed.mean() > MAX_ERROR_SHARE:
            yield f"{run.name}: {run.failed.mean():.1%} of its requests failed"
        else:
            yield (
                f"{run.name}: too few of its requests can be compared; {_LEAST_OF_RUN} are needed, "
                f"and {_LEAST_REQUESTS} of all runs together"
            )


def _parts_of(
    given: Measurements,
    facts: ServerFacts,
    replays: Sequence[Replay],
    rows: Callable[[Recording], Booleans] | None,
) -> list[Measured]:
    """What is compared: the runs without too many failures, the histograms and the points."""
    parts: list[Measured] = [*_of_runs(replays, rows)]
    if given.runs and not (parts or given.scraped or given.points):
        raise TraceError("no run is left to fit: " + "; ".join(_left_out(given.runs, ())))
    parts += _checked([HistogramPart(scrape) for scrape in given.scraped], facts)
    parts += [part for of in given.points for part in parts_of(of)]
    if not parts:
        raise TraceError("no point states its concurrency or its rate: there is nothing to fit")
    if given.points:
        note(f"points state no requests; assumed: {ASSUMED}")
    return parts


class _Found(NamedTuple):
    """What the runs did not state, and the best of the tried forms."""

    facts: ServerFacts
    parts: list[Measured]
    warms: int
    best: Fit
    tried: list[tuple[Fit, Floats]]


def _searched(
    facts: ServerFacts,
    parts: list[Measured],
    begin: _Beginning,
    forms: Sequence[tuple[bool, Roofline | StepTable]],
    tell: Callable[[int, str], None],
) -> _Found:
    """Fits each form of the step time; the first gives the others their start."""
    folds = _folds(parts)
    if len(folds) == 1:
        forms = forms[:1]  # nothing is held out that could choose
    tell(0, f"{len(parts)} loads: step times, entry delay, memory")
    seen = _understood(facts, folds, begin, forms[0])
    if seen.warms:
        parts = [_warm(part, seen.warms) for part in parts]
    settings: dict[str, Any] = {
        "prior": seen.prior,
        "covariance": seen.covariance,
        "fits_memory": seen.found.fits_memory,
    }
    start, tried = seen.found.theta, []
    for mode, base in forms:
        found = fit(
            facts, seen.parts, base=base, ahead=mode, start=start, trust=seen.found.trust,
            is_final=False, **settings,
        )  # fmt: skip
        start = found.theta
        costs = found.held_out_costs() if len(folds) > 1 else np.array([found.cost])
        tried.append((found, costs))
        name = f"{form_of(base)}{', one step ahead' if mode else ''}"
        tell(len(tried), f"{name}: cost {costs.mean():.4f}")
    best = _chosen(tried)
    trust = best.trust if len(parts) == len(folds) else None
    best = fit(
        facts, parts, base=best.base, ahead=best.ahead, start=best.theta, trust=trust, **settings
    )
    if best.num_kv_blocks is not None:
        facts = facts.replace(num_kv_blocks=best.num_kv_blocks)
    return _Found(facts, parts, seen.warms, best, tried)


class _Outcome(NamedTuple):
    """How well a fit is known, and how well it fits."""

    covariance: Floats
    states: Floats
    reports: tuple[FittedRun, ...]
    limits: Mapping[str, Limit]
    verdict: Verdict


def _outcome(found: _Found, logs: Sequence[StepLog], tell: Callable[[int, str], None]) -> _Outcome:
    facts, parts, best = found.facts, found.parts, found.best
    group = group_of(facts, best.latency, ahead=best.ahead)
    results = [
        run_many([part.sampled(group)], seeds=range(part.num_seeds), keep_requests=True)[0]
        for part in parts
    ]
    whole = _covariance(best, parts, results)
    size = len(coefficients_of(best.base))
    covariance = whole[:size, :size]
    limits = dict(limits_of(facts))
    if best.num_kv_blocks is not None:
        error = float(np.expm1(np.sqrt(whole[-1, -1])))
        limits["num_kv_blocks"] = Limit(best.num_kv_blocks, f"fitted, ±{100 * error:.0f}%")
    reports = tuple(part.report(of_part) for part, of_part in zip(parts, results, strict=True))
    sampled = [states_of(result) for of_part in results for result in of_part]
    states = np.concatenate([*sampled, logged_states(logs, facts)])
    wrong = _misfits(parts, reports, best)
    if wrong:
        tell(0, "it does not fit: trying likely causes")
    verdict = judged(
        latency=best.latency,
        theta=best.theta[:size],
        covariance=covariance,
        states=states,
        ranges=_ranges(parts, results),
        limits=limits,
        misfits=wrong,
        causes=causes_of(facts, parts, best) if wrong else (),
        unknown=[text for text, _ in _gaps(parts)],
        measure=[text for _, text in _gaps(parts)],
    )
    return _Outcome(covariance, states, reports, limits, verdict)


def _accepted(profile: Profile, allow_unidentified: bool) -> Profile:
    if profile.verdict is not None and not profile.verdict.is_server and not allow_unidentified:
        raise UnidentifiedError(profile)
    return profile


class _Beginning(NamedTuple):
    """Where a fit begins, and what is known there."""

    latency: Roofline | StepTable
    prior: Floats
    covariance: Floats
    source: str


class _Understood(NamedTuple):
    """How the runs are replayed, and the first form fitted to them, with the prior of all."""

    parts: list[Measured]
    warms: int
    found: Fit
    prior: Floats
    covariance: Floats


def _beginning(
    facts: ServerFacts,
    parts: Sequence[Measured],
    known: LogPrior | None,
    table: StepTable | None,
    points: Sequence[LatencyPoints],
) -> _Beginning:
    if table is not None:
        logs = np.log(list(coefficients_of(table).values()))
        return _Beginning(table, logs, np.eye(len(logs)), "the table")
    if known is not None:
        size = len(known.theta)
        latency = known.latency.replace(alpha_input_us=START.alpha_input_us)
        covariance = np.eye(size + 1)
        covariance[:size, :size] = known.covariance
        logs = np.append(known.theta, np.log(START.alpha_input_us))
        return _Beginning(latency, logs, covariance, "logs of steps")
    begin = start_of(facts, dtype_of(points[0].group) if points else None)
    latency = begin.latency if begin.is_scaled else _scaled(begin.latency, parts)
    logs = np.log(list(coefficients_of(latency).values()))
    return _Beginning(latency, logs, begin.covariance, begin.source)


def _scaled(latency: Roofline, parts: Sequence[Measured]) -> Roofline:
    """Step times such that a lone request has the least measured inter-token latency."""
    known = [part.itl_s for part in parts if np.isfinite(part.itl_s) and part.itl_s > 0]
    if not known:
        return latency
    factor = 1e6 * min(known) / (latency.constant_us + latency.weights_us + latency.decode_us)
    times = [name for name in coefficients_of(latency) if name not in ENTRY]
    return latency.replace(**{name: factor * getattr(latency, name) for name in times})


def _understood(
    facts: ServerFacts,
    parts: Sequence[Measured],
    begin: _Beginning,
    form: tuple[bool, Roofline | StepTable],
) -> _Understood:
    """What the runs do not state and decides how they are replayed, and a first fit with it.

    That is whether first turns of sessions were cached, and the size of the KV memory.
    """
    ahead, base = form
    parts = list(parts)

    def fitted(of: Sequence[Measured], **more: Any) -> Fit:
        return fit(
            facts, of, base=base, ahead=ahead, prior=begin.prior, covariance=begin.covariance,
            is_final=False, **more,
        )  # fmt: skip

    is_open = facts.num_kv_blocks is None and any(isinstance(part, Part) for part in parts)
    found = fitted(lightest(parts, facts) if is_open else parts)
    warms, blocks = 0, None
    if any(isinstance(part, Part) and part.replay.recording.session is not None for part in parts):
        parts, warms, found, blocks = _conversing(facts, parts, found, fitted)
    elif is_open:
        blocks = scan(facts, parts, found).blocks
    prior, spread, theta = begin.prior, begin.covariance, found.theta
    if blocks is not None:
        size = np.log(blocks)
        prior, theta = np.append(prior, size), np.append(theta, size)
        wide = np.zeros((len(prior), len(prior)))
        wide[:-1, :-1] = spread
        wide[-1, -1] = _MEMORY_WIDTH**2
        spread = wide
    if blocks is not None or len(found.residuals) != len(parts):
        found = fit(
            facts, parts, base=base, ahead=ahead, prior=prior, covariance=spread, start=theta,
            fits_memory=blocks is not None, is_final=False,
        )  # fmt: skip
    return _Understood(parts, warms, found, prior, spread)


def _conversing(
    facts: ServerFacts,
    parts: list[Measured],
    cold: Fit,
    fitted: Callable[[Sequence[Measured]], Fit],
) -> tuple[list[Measured], int, Fit, int | None]:
    """How conversations are replayed: whether first turns were cached, and how much memory holds.

    Step times from replays with all, later or no turns in the cache are tried with each size of the
    memory, if that is not stated.
    """
    wanted = facts.data_parallel_size or 1
    warm, none = [_warm(part, wanted) for part in parts], [_unshared(part) for part in parts]
    is_open = facts.num_kv_blocks is None
    tried = []
    for found in (cold, fitted(warm), fitted(none)):
        for warms, replayed in ((0, parts), (wanted, warm)):
            if is_open:
                scanned = scan(facts, replayed, found)
            else:
                table = table_at(facts, replayed, found)
                scanned = Scan(None, sum(soft_cost(row) for row in table))
            tried.append((scanned.cost, warms, replayed, found, scanned.blocks))
    least = min(cost for cost, warms, *_ in tried if not warms)
    best = min(tried, key=lambda of: of[0] if of[1] == 0 else of[0] / _WARM_GAIN)
    cost, warms, replayed, found, blocks = best
    if warms:
        note(
            "the first turns of sessions were probably in the cache before the run, e.g. by a "
            f"warm-up: their latencies fit better so (cost {cost:.3g}, else {least:.3g}), and they "
            "are replayed so"
        )
    return list(replayed), warms, found, blocks


def _unshared(part: Measured) -> Measured:
    if not isinstance(part, Part):
        return part
    return Part(dataclasses.replace(part.replay, repeats=False), part.rows)


def _warm(part: Measured, warms: int) -> Measured:
    if not isinstance(part, Part):
        return part
    return Part(dataclasses.replace(part.replay, warms=warms), part.rows)


def _gaps(parts: Sequence[Measured]) -> list[tuple[str, str]]:
    """What kinds of measurements leave open, and what would not."""
    found = []
    if len({id(part.source) for part in parts}) == 1:
        found.append(("whether it holds at another load: there is one", "a run at another load"))
    if all(isinstance(part, PointPart) for part in parts):
        found.append(("percentiles of latencies: means hold none", "requests with latencies"))
    return found


def _misfits(parts: Sequence[Measured], reports: Sequence[FittedRun], best: Fit) -> list[str]:
    found = []
    for part, report, trust in zip(parts, reports, best.trust, strict=True):
        noise = {}
        for metric in dict.fromkeys(part.metrics):
            at = part.metrics.index(metric)
            spread = PRIOR_WEIGHT * np.sqrt(max(0.0, 1 / trust[at] ** 2 - 1))
            noise[metric] = float(spread / part.weights[at])
        closed = isinstance(part, Part) and part.replay.is_closed_loop
        found += misfits_of(report.name, report.errors_percent, noise, closed_loop=closed)
    return found


def _ranges(
    parts: Sequence[Measured], results: Sequence[Sequence[ResultData]]
) -> dict[str, tuple[float, float]]:
    """Loads, lengths, requests in flight, and shares of cached tokens."""
    rates, lengths, outputs, in_flight, cached = [], [], [], [], []
    for part, of_part in zip(parts, results, strict=True):
        requests = of_part[0].requests
        lead = part.replay.lead if isinstance(part, Part) else 0
        arrivals_s = requests["arrival_s"][lead:]
        span_s = float(np.ptp(arrivals_s))
        if span_s > 0:
            rates.append((len(arrivals_s) - 1) / span_s)
        lengths += np.percentile(requests["input_tokens"], (1, 99)).tolist()
        outputs += np.percentile(requests["output_tokens"], (1, 99)).tolist()
        in_flight.append(float(of_part[0].timeline["running"].max(initial=0)))
        (counts, *_) = of_part[0].instances
        looked = float(counts["kv_lookups"])
        cached.append(float(counts["kv_hits"]) / looked if looked else 0.0)
    found = {"input_tokens": lengths, "output_tokens": outputs, "in_flight": in_flight,
             "cached_share": cached}  # fmt: skip
    if rates:
        found = {"requests_per_s": rates, **found}
    return {name: (float(min(values)), float(max(values))) for name, values in found.items()}


def _of_runs(replays: Sequence[Replay], rows: Callable[[Recording], Booleans] | None) -> list[Part]:
    """The requests to fit of each run that is long enough; none if these are too few.

    Small runs are fitted, too, since their noise counts.
    """
    parts = [
        Part(replay, replay.compared if rows is None else replay.compared & rows(replay.recording))
        for replay in replays
    ]
    long = [part for part in parts if part.rows.sum() >= _LEAST_OF_RUN]
    return long if sum(int(part.rows.sum()) for part in long) >= _LEAST_REQUESTS else []


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
    limits = limits_of(facts)
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
        verdict=judged(
            latency=known.latency,
            theta=known.theta,
            covariance=known.covariance,
            states=states,
            ranges={},
            limits=limits,
            misfits=(),
            causes=(),
            unknown=("the entry delay of a request: no step contains it",),
            measure=("requests with their TTFT, beside the logs",),
        ),
        sources={name: (limit.value, limit.source) for name, limit in limits.items()},
        start="logs of steps",
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
    follow by one Gauss-Newton step. To it comes, for the errors of the model, what residuals of the
    remaining size, at least that of repeated measurements, leave open beside the prior; in
    directions that the data do not determine that is the covariance of the prior.
    """
    rng = np.random.default_rng(0)
    inverse = np.linalg.inv(best.curvature())
    drawn = [part.resampler(result) for part, result in zip(parts, results, strict=True)]
    moves = []
    for _ in range(_BOOTSTRAPS):
        residuals = best.residuals.copy()
        for row, trust, shift in zip(residuals, best.trust, drawn, strict=True):
            change = shift(rng)
            row[: len(change)] += trust[: len(change)] * change
        moves.append(-inverse @ (best.slope(residuals) - best.slope(best.residuals)))
    noise = np.cov(np.array(moves), rowvar=False)
    finite = best.residuals[np.isfinite(best.residuals)]
    error = max(float(np.mean(finite**2)), _LEAST_ERROR**2)
    of_data = (best.curvature() - best.ridge) / error
    return np.asarray(noise + np.linalg.inv(of_data + best.ridge / PRIOR_WEIGHT**2))
