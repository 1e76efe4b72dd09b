"""Coefficients of a server's step time, fitted through the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spillway import instance
from spillway.calibration.replay import group_of
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway._core.cluster import Simulation
    from spillway.data.arrays import Booleans, Floats
    from spillway.data.recording import ServerFacts
    from spillway.data.result_data import ResultData
    from spillway.instance import InstanceGroup
    from spillway.result import Results

    Latency = instance.Roofline | instance.StepTable


COEFFICIENTS = (
    "constant_us",
    "weights_us",
    "token_us",
    "decode_us",
    "decode_context_us",
    "prefill_context_us",
    "alpha0_us",
)
"""What is fitted of every `Roofline`."""

OPTIONAL = ("alpha_input_us", "expert_weights_us")
"""What is fitted of a `Roofline` in which it is not 0."""

SCALES = ("decode_scale", "prefill_scale", "alpha0_us")
"""What is fitted of a `StepTable`."""

ENTRY = ("alpha0_us", "alpha_input_us")
"""What delays a request before its first step. All other coefficients are of the steps."""

BLOCKS = "num_kv_blocks"

_SOFT = 0.1
"""Relative errors far beyond this are taken for what the model cannot explain."""

PRIOR_WEIGHT = 0.03
"""Errors of the model in a statistic of weight 1."""

_STEP = 0.15
_LONGEST_STEP = 0.7
_MOST_ITERATIONS = 30
_LEAST_GAIN = 1e-3
_SECANTS = 2  # accepted steps between two evaluations of all derivatives
_NUDGE = 0.02  # of all step times, to see which statistics hang on small errors
_USUAL_ERROR = 0.015  # of step times between two runs of one server


class Load(Protocol):
    """Measurements of a server under one load."""

    @property
    def num_seeds(self) -> int:
        """Number of seeds under which the load is simulated."""

    @property
    def source(self) -> object:
        """Parts with the same source share their simulations."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What each of the residuals is a statistic of: ttft, itl, e2e, capacity."""

    def simulation(self, group: InstanceGroup) -> Simulation:
        """The load on a server."""

    def residuals(self, results: Sequence[ResultData]) -> Floats:
        """Weighted differences, simulated minus measured; `results`: one per seed."""

    def noise(self, results: Sequence[ResultData]) -> Floats:
        """Standard deviations of the residuals in repeated measurements of the same requests."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted coefficients.

    Attributes
    ----------
    theta : float array
        Natural logarithms of what is fitted, see `names`.
    base : Roofline or StepTable
        The latency model that they are of, with what is not fitted.
    ahead : bool
        Scheduling one step ahead.
    residuals : float array, parts x statistics
        Weighted differences of the logarithms, simulated minus measured.
    jacobian : float array, parts x statistics x coefficients
        Their derivatives.
    cost : float
        The objective without the prior, per part.
    prior : float array
        The logarithms toward which the ridge pulls.
    ridge : float array, coefficients x coefficients
        Its second derivatives.
    trust : float array, parts x statistics
        By what the weights of the statistics were multiplied: less where noise, or a small error of
        the step times, moves them far.
    fits_memory : bool
        Whether the last of `theta` is the number of KV blocks.

    """

    theta: Floats
    base: Latency
    ahead: bool
    residuals: Floats
    jacobian: Floats
    cost: float
    prior: Floats
    ridge: Floats
    trust: Floats
    fits_memory: bool = False

    @property
    def latency(self) -> Latency:
        """The latency model with these coefficients."""
        return latency_of(self.theta, self.base)

    @property
    def num_kv_blocks(self) -> int | None:
        """The fitted number of KV blocks; None: it is not fitted."""
        return round(float(np.exp(self.theta[-1]))) if self.fits_memory else None

    def curvature(self, parts: Sequence[int] | None = None) -> Floats:
        """Second derivatives of the objective over some parts, with the prior."""
        hessian = self.ridge.copy()
        for row, jacobian in self._finite(self.residuals, parts):
            hessian += (jacobian.T * _influence(row)) @ jacobian
        return hessian

    def slope(self, residuals: Floats, parts: Sequence[int] | None = None) -> Floats:
        """First derivatives, with other residuals in place of its own."""
        slope: Floats = self.ridge @ (self.theta - self.prior)
        for row, jacobian in self._finite(residuals, parts):
            slope += jacobian.T @ (_influence(row) * row)
        return slope

    def _finite(
        self, residuals: Floats, parts: Sequence[int] | None
    ) -> Iterator[tuple[Floats, Floats]]:
        """The residuals of some parts that are finite, with their derivatives."""
        for i in range(len(residuals)) if parts is None else parts:
            is_finite = np.isfinite(residuals[i])
            yield residuals[i][is_finite], np.nan_to_num(self.jacobian[i][is_finite])

    def held_out_costs(self) -> Floats:
        """Objective of each part under the coefficients fitted without it.

        The coefficients move by one Gauss-Newton step, and the residuals linearly with them.
        """
        n = len(self.residuals)
        costs = []
        for i in range(n):
            others = [j for j in range(n) if j != i]
            move = -np.linalg.solve(self.curvature(others), self.slope(self.residuals, others))
            move = np.clip(move, -_LONGEST_STEP, _LONGEST_STEP)
            costs.append(_cost(self.residuals[i] + self.jacobian[i] @ move))
        return np.array(costs)


def coefficients_of(base: Latency) -> dict[str, float]:
    """The coefficients of a latency model that are fitted."""
    names: tuple[str, ...] = SCALES
    if isinstance(base, instance.Roofline):
        names = COEFFICIENTS + tuple(name for name in OPTIONAL if getattr(base, name) > 0)
    return {name: getattr(base, name) for name in names}


def form_of(base: Latency) -> str:
    """What is fitted, in words."""
    if isinstance(base, instance.StepTable):
        return "step table"
    return f"norm {'max' if base.norm is None else f'{base.norm:g}'}"


def latency_of(theta: Floats, base: Latency) -> Latency:
    """The latency model with the coefficients exp(`theta`); what is beyond them is left out."""
    names = coefficients_of(base)
    return base.replace(**dict(zip(names, np.exp(theta).tolist(), strict=False)))


def fit(
    server: ServerFacts,
    parts: Sequence[Load],
    *,
    base: Latency,
    ahead: bool,
    prior: Floats | None = None,
    start: Floats | None = None,
    covariance: Floats | None = None,
    trust: Floats | None = None,
    fits_memory: bool = False,
    is_final: bool = True,
) -> Fit:
    """Coefficients that minimize the differences of the statistics.

    Without a `start`, the step times come from inter-token latencies first, then the entry delay
    from TTFT; both begin at the prior. All statistics together only refine that: what they cannot
    explain there loses its influence, so that a TTFT with another cause is not bought with step
    times. `trust`: see `Fit`; by default from the first two stages.

    Levenberg-Marquardt in logarithms of the coefficients, on the logarithms of mean and percentiles
    of TTFT, ITL and E2E and of the capacity, with a ridge toward the `prior`: by default, the
    coefficients of the `base`. `covariance`: of the prior. `is_final`: with derivatives to both
    sides.
    """
    problem = _Problem(server, parts, base, ahead)
    if prior is None:
        prior = np.log(list(coefficients_of(base).values()))
    ridge = ridge_of(prior, covariance)
    theta = prior if start is None else start
    if start is None:
        theta = _staged(problem, theta, prior, ridge, list(coefficients_of(base)))
    if trust is None:
        trust = problem.trust_at(theta, list(coefficients_of(base)))
    problem.trust = trust
    theta, residuals, jacobian = _descended(problem, theta, prior, ridge, is_robust=True)
    if is_final:
        jacobian = _central_slopes(problem, theta)
    cost = float(np.mean([_cost(row) for row in residuals]))
    return Fit(
        theta, base, ahead, residuals, jacobian, cost, prior, ridge, trust, fits_memory=fits_memory
    )


def _staged(
    problem: _Problem, theta: Floats, prior: Floats, ridge: Floats, names: list[str]
) -> Floats:
    """Step times from inter-token latencies, then the entry delay from TTFT."""
    of_entry, of_steps = np.zeros((2, len(theta)), dtype=bool)
    of_entry[: len(names)] = [name in ENTRY for name in names]
    of_steps[: len(names)] = ~of_entry[: len(names)]
    for metric, active in (("itl", of_steps), ("ttft", of_entry)):
        view = _View(problem, problem.of(metric), theta, active)
        if not view.is_empty:
            inner = np.ix_(active, active)
            found, *_ = _descended(view, theta[active], prior[active], ridge[inner])
            theta = theta.copy()
            theta[active] = found
    return theta


class Problem(Protocol):
    """What is fitted: rows of weighted residuals for each of some coefficients."""

    def residuals(self, thetas: Sequence[Floats]) -> list[Floats]:
        """Rows of residuals, each of the same shape, for logarithms of coefficients."""


def ridge_of(prior: Floats, covariance: Floats | None = None) -> Floats:
    """Second derivatives of the ridge toward a prior whose logarithms have this covariance.

    By default they are independent, with standard deviations of 1.
    """
    spread = np.eye(len(prior)) if covariance is None else covariance
    return np.asarray(PRIOR_WEIGHT**2 * np.linalg.inv(spread))


def descend(
    problem: Problem,
    prior: Floats,
    start: Floats | None = None,
    *,
    covariance: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Logarithms of coefficients that minimize a soft-L1 loss with a ridge, and their residuals.

    `covariance`: of the logarithms of the prior, see `ridge_of`.
    """
    theta = prior if start is None else start
    theta, residuals, _ = _descended(problem, theta, prior, ridge_of(prior, covariance))
    return theta, residuals


def _descended(
    problem: Problem, theta: Floats, prior: Floats, ridge: Floats, *, is_robust: bool = False
) -> tuple[Floats, Floats, Floats]:
    """The coefficients, their residuals, and the derivatives of these.

    Derivatives are evaluated at the start and after every few accepted steps; between, each step
    corrects them in its own direction (Broyden). A rejected step has them evaluated again.
    `is_robust`: large residuals lose their influence, instead of counting with their magnitude.
    """
    loss, weigh = (_cost, _influence) if is_robust else (soft_cost, _soft_influence)

    def objective(residuals: Floats, theta: Floats) -> float:
        penalty = 0.5 * float((theta - prior) @ ridge @ (theta - prior))
        return sum(loss(row) for row in residuals) + penalty

    residuals, jacobian = _linearized(problem, theta)
    best = objective(residuals, theta)
    damping, stalled, secants = 1e-3, 0, 0
    for _ in range(_MOST_ITERATIONS):
        flat, slopes = residuals.ravel(), jacobian.reshape(-1, len(theta))
        known = np.isfinite(flat)
        row, slopes = flat[known], np.nan_to_num(slopes[known])
        weights = weigh(row)
        hessian = ridge + (slopes.T * weights) @ slopes
        slope = ridge @ (theta - prior) + slopes.T @ (weights * row)
        move = -np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), slope)
        move = np.clip(move, -_LONGEST_STEP, _LONGEST_STEP)
        tried = theta + move
        (tried_residuals,) = problem.residuals([tried])
        reached = objective(tried_residuals, tried)
        if reached < best:
            gain = best - reached
            if secants < _SECANTS:
                miss = tried_residuals - residuals - jacobian @ move
                jacobian = jacobian + miss[..., None] * move / float(move @ move)
                secants += 1
            else:
                tried_residuals, jacobian = _linearized(problem, tried)
                secants = 0
            theta, residuals, best = tried, tried_residuals, reached
            damping = max(damping / 5, 1e-6)
            stalled = stalled + 1 if gain < _LEAST_GAIN * best else 0
            if stalled == 2:
                break
        elif secants:
            residuals, jacobian = _linearized(problem, theta)
            secants = 0
        else:
            damping *= 10
            if damping > 1e3:
                break
    return theta, residuals, jacobian


def _linearized(problem: Problem, theta: Floats) -> tuple[Floats, Floats]:
    """Residuals, and their derivatives over wide differences.

    Which requests share a step changes with the least change of a coefficient. That noise is
    divided by the width of the difference; with a narrow one it would hide the slope.
    """
    moved = [theta + axis for axis in _STEP * np.eye(len(theta))]
    here, *there = problem.residuals([theta, *moved])
    return here, np.stack([(shifted - here) / _STEP for shifted in there], axis=-1)


def _central_slopes(problem: Problem, theta: Floats) -> Floats:
    """Derivatives over differences to both sides."""
    axes = _STEP * np.eye(len(theta))
    found = problem.residuals([theta + sign * axis for axis in axes for sign in (1, -1)])
    pairs = zip(found[::2], found[1::2], strict=True)
    slopes = [(up - down) / (2 * _STEP) for up, down in pairs]
    return np.asarray(np.stack(slopes, axis=-1))


class _Problem:
    """Residuals of coefficients; all simulations of a call run at once."""

    def __init__(
        self, server: ServerFacts, parts: Sequence[Load], base: Latency, ahead: bool
    ) -> None:
        self._server = server
        self._parts = parts
        self._base = base
        self._ahead = ahead
        self._size = len(coefficients_of(base))
        # Parts of one run share its simulation.
        self._loads = {id(part.source): part for part in parts}
        self.trust: Floats | float = 1.0

    def residuals(self, thetas: Sequence[Floats]) -> list[Floats]:
        return [
            self.trust * _as_table(
                [part.residuals(found[id(part.source)]) for part in self._parts]
            )
            for found in self.results(thetas)
        ]  # fmt: skip

    def results(self, thetas: Sequence[Floats]) -> list[dict[int, Results]]:
        """The simulated loads, by source, for each of some vectors."""
        groups = [self._group(theta) for theta in thetas]
        found: list[dict[int, Results]] = [{} for _ in groups]
        for seeds in sorted({load.num_seeds for load in self._loads.values()}):
            keys = [key for key, load in self._loads.items() if load.num_seeds == seeds]
            pairs = [(i, key) for i in range(len(groups)) for key in keys]
            simulations = [self._loads[key].simulation(groups[i]) for i, key in pairs]
            runs = run_many(simulations, seeds=range(seeds), keep_requests=True)
            for (i, key), run in zip(pairs, runs, strict=True):
                found[i][key] = run
        return found

    def _group(self, theta: Floats) -> InstanceGroup:
        server = self._server
        if len(theta) > self._size:
            server = server.replace(num_kv_blocks=max(1, round(float(np.exp(theta[-1])))))
        group: InstanceGroup = group_of(server, latency_of(theta, self._base), ahead=self._ahead)
        return group

    def of(self, metric: str) -> Booleans:
        """The residuals of a metric, as a table."""
        rows = [np.array([name == metric for name in part.metrics]) for part in self._parts]
        return np.nan_to_num(_as_table(rows)).astype(bool)

    def trust_at(self, theta: Floats, names: list[str]) -> Floats:
        """By what to multiply the weights of the statistics, near the best coefficients.

        A statistic counts less where it is noisy, and where it hangs on errors of the step times
        that two runs of one server have: in overload, and in a closed loop near saturation.
        """
        steps = np.zeros(len(theta), dtype=bool)
        steps[: len(names)] = [name not in ENTRY for name in names]
        shift = np.log1p(_NUDGE) * steps
        here, up, down = self.results([theta, theta + shift, theta - shift])
        rows = []
        for part in self._parts:
            key = id(part.source)
            middle, more, less = (part.residuals(found[key]) for found in (here, up, down))
            with np.errstate(invalid="ignore"):
                most = np.fmax(np.abs(more - middle), np.abs(less - middle)) / _NUDGE
            usual = np.nan_to_num(most) * _USUAL_ERROR
            noise = np.nan_to_num(part.noise(here[key]))
            rows.append(1 / np.sqrt(1 + (usual**2 + noise**2) / PRIOR_WEIGHT**2))
        return np.nan_to_num(_as_table(rows), nan=1.0)


def table_at(server: ServerFacts, parts: Sequence[Load], found: Fit) -> Floats:
    """The residuals of parts on a server with the step times of a fit."""
    problem = _Problem(server, parts, found.base, found.ahead)
    names = coefficients_of(found.base)
    return problem.residuals([found.theta[: len(names)]])[0]


class _View:
    """A problem in which some coefficients are free and some residuals count."""

    def __init__(self, problem: Problem, chosen: Booleans, theta: Floats, active: Booleans) -> None:
        self._problem = problem
        self._chosen = chosen
        self._theta = theta
        self._active = active

    @property
    def is_empty(self) -> bool:
        return not (self._chosen.any() and self._active.any())

    def residuals(self, thetas: Sequence[Floats]) -> list[Floats]:
        whole = []
        for free in thetas:
            theta = self._theta.copy()
            theta[self._active] = free
            whole.append(theta)
        return [np.where(self._chosen, table, np.nan) for table in self._problem.residuals(whole)]


def _as_table(rows: Sequence[Floats]) -> Floats:
    """Rows of equal length, the shorter ones filled with NaN."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for filled, row in zip(table, rows, strict=True):
        filled[: len(row)] = row
    return table


def _influence(row: Floats) -> Floats:
    return np.asarray(1 / (1 + (row / _SOFT) ** 2))


def _cost(row: Floats) -> float:
    """Cauchy's loss: quadratic near zero, nearly flat far beyond `_SOFT`."""
    row = row[np.isfinite(row)]
    return float(_SOFT**2 / 2 * np.log1p((row / _SOFT) ** 2).sum())


def _soft_influence(row: Floats) -> Floats:
    return np.asarray(1 / np.sqrt(1 + (row / _SOFT) ** 2))


def soft_cost(row: Floats) -> float:
    """Soft-L1 loss: quadratic near zero, linear far beyond `_SOFT`."""
    row = row[np.isfinite(row)]
    return float((_SOFT**2 * (np.sqrt(1 + (row / _SOFT) ** 2) - 1)).sum())
