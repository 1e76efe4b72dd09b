"""Coefficients of a server's step time, fitted through the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spillway import instance
from spillway.calibration.replay import group_of
from spillway.calibration.start import START
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway._core.cluster import Simulation
    from spillway.data.arrays import Floats
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
"""What is fitted of a `Roofline`."""

SCALES = ("decode_scale", "prefill_scale", "alpha0_us")
"""What is fitted of a `StepTable`."""

_SOFT = 0.1
"""Relative errors far beyond this count with their magnitude, not with its square."""

_PRIOR_WEIGHT = 0.03
_STEP = 0.15
_LONGEST_STEP = 0.7
_MOST_ITERATIONS = 30
_LEAST_GAIN = 1e-3
_FACTORS = np.geomspace(0.1, 10, 25)


class Load(Protocol):
    """Measurements of a server under one load."""

    @property
    def num_seeds(self) -> int:
        """Number of seeds under which the load is simulated."""

    @property
    def source(self) -> object:
        """Parts with the same source share their simulations."""

    def simulation(self, group: InstanceGroup) -> Simulation:
        """The load on a server."""

    def residuals(self, results: Sequence[ResultData]) -> Floats:
        """Weighted differences, simulated minus measured; `results`: one per seed."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted coefficients.

    Attributes
    ----------
    theta : float array
        Natural logarithms of the fitted coefficients (see `coefficients_of`).
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

    """

    theta: Floats
    base: Latency
    ahead: bool
    residuals: Floats
    jacobian: Floats
    cost: float
    prior: Floats
    ridge: Floats

    @property
    def latency(self) -> Latency:
        """The latency model with these coefficients."""
        return latency_of(self.theta, self.base)

    def curvature(self, parts: Sequence[int] | None = None) -> Floats:
        """Second derivatives of the objective over some parts, with the prior."""
        hessian = self.ridge.copy()
        for row, jacobian in self._finite(self.residuals, parts):
            hessian += (jacobian.T * _robust(row)) @ jacobian
        return hessian

    def slope(self, residuals: Floats, parts: Sequence[int] | None = None) -> Floats:
        """First derivatives, with other residuals in place of its own."""
        slope: Floats = self.ridge @ (self.theta - self.prior)
        for row, jacobian in self._finite(residuals, parts):
            slope += jacobian.T @ (_robust(row) * row)
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
    names = SCALES if isinstance(base, instance.StepTable) else COEFFICIENTS
    return {name: getattr(base, name) for name in names}


def form_of(base: Latency) -> str:
    """What is fitted, in words."""
    if isinstance(base, instance.StepTable):
        return "step table"
    return f"norm {'max' if base.norm is None else f'{base.norm:g}'}"


def latency_of(theta: Floats, base: Latency) -> Latency:
    """The latency model with the coefficients exp(`theta`)."""
    return base.replace(**dict(zip(coefficients_of(base), np.exp(theta).tolist(), strict=True)))


def fit(
    server: ServerFacts,
    parts: Sequence[Load],
    *,
    base: Latency,
    ahead: bool,
    prior: Floats | None = None,
    start: Floats | None = None,
    covariance: Floats | None = None,
) -> Fit:
    """Coefficients that minimize the differences of the statistics.

    Gauss-Newton (Levenberg-Marquardt) in logarithms of the coefficients, on the logarithms of mean
    and percentiles of TTFT, ITL and E2E and of the capacity, with a soft-L1 loss and a ridge toward
    the `prior`: by default, the coefficients of the `base` scaled to the data, with a weak ridge.
    `covariance`: of the prior. The `start` is by default the prior.
    """
    problem = _Problem(server, parts, base, ahead)
    if prior is None:
        prior = scaled_prior(problem, base)
    theta, residuals = descend(problem, prior, start, covariance=covariance)
    cost = float(np.mean([_cost(row) for row in residuals]))
    slopes = _central_slopes(problem, theta)
    return Fit(theta, base, ahead, residuals, slopes, cost, prior, ridge_of(prior, covariance))


class Problem(Protocol):
    """What is fitted: rows of weighted residuals for each of some coefficients."""

    def residuals(self, thetas: Sequence[Floats]) -> list[Floats]:
        """Rows of residuals, each of the same shape, for logarithms of coefficients."""


def ridge_of(prior: Floats, covariance: Floats | None = None) -> Floats:
    """Second derivatives of the ridge toward a prior whose logarithms have this covariance.

    By default they are independent, with standard deviations of 1.
    """
    spread = np.eye(len(prior)) if covariance is None else covariance
    return np.asarray(_PRIOR_WEIGHT**2 * np.linalg.inv(spread))


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
    ridge = ridge_of(prior, covariance)
    residuals, jacobian = _linearized(problem, theta)
    objective = _objective(residuals, theta, prior, ridge)
    damping, stalled = 1e-3, 0
    for _ in range(_MOST_ITERATIONS):
        here = Fit(theta, START, False, residuals, jacobian, 0.0, prior, ridge)
        hessian, slope = here.curvature(), here.slope(residuals)
        move = -np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), slope)
        tried = theta + np.clip(move, -_LONGEST_STEP, _LONGEST_STEP)
        tried_residuals, tried_jacobian = _linearized(problem, tried)
        tried_objective = _objective(tried_residuals, tried, prior, ridge)
        if tried_objective < objective:
            gain = objective - tried_objective
            theta, residuals, jacobian = tried, tried_residuals, tried_jacobian
            objective = tried_objective
            damping = max(damping / 5, 1e-6)
            stalled = stalled + 1 if gain < _LEAST_GAIN * objective else 0
            if stalled == 2:
                break
        else:
            damping *= 10
            if damping > 1e3:
                break
    return theta, residuals


def scaled_prior(problem: Problem, base: Latency) -> Floats:
    """The coefficients of a latency model times the factor that fits best."""
    logs = np.log(list(coefficients_of(base).values()))
    thetas: list[Floats] = [logs + np.log(scale) for scale in _FACTORS]
    costs = [sum(_cost(row) for row in rows) for rows in problem.residuals(thetas)]
    return thetas[int(np.argmin(costs))]


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
        # Parts of one run share its simulation.
        self._loads = {id(part.source): part for part in parts}

    def residuals(self, thetas: Sequence[Floats]) -> list[Floats]:
        groups = [
            group_of(self._server, latency_of(theta, self._base), ahead=self._ahead)
            for theta in thetas
        ]
        results: dict[tuple[int, int], Results] = {}
        for seeds in sorted({load.num_seeds for load in self._loads.values()}):
            keys = [key for key, load in self._loads.items() if load.num_seeds == seeds]
            pairs = [(i, key) for i in range(len(groups)) for key in keys]
            simulations = [self._loads[key].simulation(groups[i]) for i, key in pairs]
            runs = run_many(simulations, seeds=range(seeds), keep_requests=True)
            results |= dict(zip(pairs, runs, strict=True))
        return [
            _as_table([part.residuals(results[i, id(part.source)]) for part in self._parts])
            for i in range(len(groups))
        ]


def _as_table(rows: Sequence[Floats]) -> Floats:
    """Rows of equal length, the shorter ones filled with NaN."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for filled, row in zip(table, rows, strict=True):
        filled[: len(row)] = row
    return table


def _robust(row: Floats) -> Floats:
    return np.asarray(1 / np.sqrt(1 + (row / _SOFT) ** 2))


def _cost(row: Floats) -> float:
    row = row[np.isfinite(row)]
    return float((_SOFT**2 * (np.sqrt(1 + (row / _SOFT) ** 2) - 1)).sum())


def _objective(residuals: Floats, theta: Floats, prior: Floats, ridge: Floats) -> float:
    penalty = 0.5 * float((theta - prior) @ ridge @ (theta - prior))
    return sum(_cost(row) for row in residuals) + penalty
