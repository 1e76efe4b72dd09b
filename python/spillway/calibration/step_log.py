"""Step times fitted to logs of an engine's steps, by regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spillway._core import numerics
from spillway.calibration.start import START
from spillway.config.classes import config_error
from spillway.data.intervals import student_t_quantile

if TYPE_CHECKING:
    from spillway import instance
    from spillway.data.arrays import Booleans, Floats, Ints


NAMES = (
    "constant_us",
    "weights_us",
    "token_us",
    "decode_us",
    "decode_context_us",
    "prefill_context_us",
    "chunk_us",
)
"""The fitted coefficients of `instance.Roofline`, in the order of arrays of them."""

_NORMS = (1.0, 1.5, 2.0, 4.0, None)
_COLUMNS = ("prefill_tokens", "decode_requests", "context_tokens", "prefill_requests")
_BLOCK_S = 30.0
_LEAST_BLOCKS = 20
_FOLDS = 5
_LEAST_STEPS = 50
_CORRELATED = 0.95
_MOST_WIDTH = 0.5
_CHUNK_WIDTH_US = 100.0
_EQUAL_COSTS = 1e-6


class StepLogLike(Protocol):
    """The steps of an engine, in the order of the log; one value per step."""

    @property
    def prefill_requests(self) -> Ints:
        """Requests of which the step computes a part of the prompt."""

    @property
    def prefill_tokens(self) -> Ints:
        """Prompt tokens that the step computes."""

    @property
    def decode_requests(self) -> Ints:
        """Requests for which the step computes an output token."""

    @property
    def context_tokens(self) -> Ints | None:
        """Tokens in the KV cache, those of the step included; None: not logged."""

    @property
    def step_s(self) -> Floats:
        """Duration in seconds."""


@dataclass(frozen=True)
class Merged:
    """Two coefficients with correlated errors, and what is known of both together.

    Their sum is known better than either of them; the prior helps to split it.

    Attributes
    ----------
    names : pair of str
    correlation : float
        Of their errors; beyond 0.95 in magnitude.
    together_us : float
        Their part of the step time of a mean batch.
    relative_error : float
        Relative standard error of that part.

    """

    names: tuple[str, str]
    correlation: float
    together_us: float
    relative_error: float


@dataclass(frozen=True)
class NormCost:
    """An exponent of the roofline, and the mean cost of steps to which it was not fitted."""

    norm: float | None
    held_out_cost: float


@dataclass(frozen=True)
class StepTimes:
    """Step times fitted to logs.

    Attributes
    ----------
    coefficients : dict
        In microseconds, by the names of `instance.Roofline`.
    norm : float or None
        Exponent of the roofline; None: infinity.
    covariance : tuple of tuples
        Of the coefficients, in the order of `NAMES`.
    intervals : dict
        Lowest and highest plausible value of each coefficient (95%), in microseconds.
    identified : tuple of str
        The coefficients that the steps determine by themselves: the interval is at most half as
        wide as that of the prior, and they are in no merged pair.
    merged : tuple of Merged
        Pairs of which only the sum counts as identified: their errors are correlated above 0.95.
    residual_scale : float
        Robust relative standard deviation of a step.
    choices : tuple of NormCost
        All exponents that were tried, the best first.
    ranges : dict
        Lowest and highest prefill tokens, decoding requests, context tokens and requests of a step:
        a box around the fitted batches. Beyond it, step times are extrapolated.
    num_steps : int
    prior : instance.Roofline

    """

    coefficients: dict[str, float]
    norm: float | None
    covariance: tuple[tuple[float, ...], ...]
    intervals: dict[str, tuple[float, float]]
    identified: tuple[str, ...]
    merged: tuple[Merged, ...]
    residual_scale: float
    choices: tuple[NormCost, ...]
    ranges: dict[str, tuple[float, float]]
    num_steps: int
    prior: instance.Roofline

    @property
    def latency(self) -> instance.Roofline:
        """The latency model; its delays per request are those of the prior."""
        return self.prior.replace(norm=self.norm, **self.coefficients)

    @cached_property
    def correlation(self) -> Floats:
        """Correlations of the errors, in the order of `NAMES`; 0 where a coefficient is held."""
        return correlations(np.array(self.covariance))


def fit_step_logs(
    logs: StepLogLike | Sequence[StepLogLike],
    *,
    prior: instance.Roofline | None = None,
    relative_width: float = 1.0,
    norms: Sequence[float | None] = _NORMS,
    bootstraps: int = 100,
    seed: int = 0,
) -> StepTimes:
    """Fits step times to logs of one server's steps.

    Least squares of relative errors with a Huber loss, coefficients >= 0, and a normal prior. The
    exponent is the one with the lowest cost on logs that were not fitted, or, with one log, on
    fifths of it; but 1, the linear form, if no other one is better by more than a standard error.
    Intervals contain both the noise within blocks of 30 s (a block bootstrap; at
    least 20 blocks) and what the prior leaves open.

    A log states neither the context of the prompts nor which requests hold the KV cache. Prompts of
    a step count as equally long and without earlier context; the context of decoding requests is
    `context_tokens` minus the prompts' tokens. Where it is not logged, `decode_context_us` is 0: a
    part of `decode_us`.

    Parameters
    ----------
    logs : StepLogLike or several
        Steps of runs of one server.
    prior : instance.Roofline, optional
        Means of the prior, by default `calibration.start.START`.
    relative_width : float
        Standard deviation of the prior relative to its mean, > 0.
    norms : sequence
        Exponents to try, >= 1; None: infinity.
    bootstraps : int
        Resamples for the intervals, >= 10.
    seed : int
        Of the resamples.

    Raises
    ------
    ConfigError
        A column is invalid, or fewer than 50 steps compute any token.

    """
    given: list[StepLogLike] = list(logs) if isinstance(logs, Sequence) else [logs]
    _check_arguments(given, relative_width, norms, bootstraps)
    data = [_Rows.of(log, f"logs[{i}]") for i, log in enumerate(given)]
    total = sum(len(rows.step_us) for rows in data)
    if total < _LEAST_STEPS:
        raise config_error([("logs", f"{total} steps", f"must hold at least {_LEAST_STEPS} steps")])
    batches = np.concatenate([rows.batches for rows in data])
    step_us = np.concatenate([rows.step_us for rows in data])
    knows_context = all(log.context_tokens is not None for log in given)
    if not knows_context:
        batches[:, 2] = 0
    base = START if prior is None else prior
    problem = _Problem(batches, step_us, *_prior_of(base, relative_width, knows_context))

    folds = (
        np.repeat(np.arange(len(data)), [len(rows.step_us) for rows in data])
        if len(data) > 1
        else np.minimum(np.cumsum(step_us) / step_us.sum() * _FOLDS, _FOLDS - 1).astype(int)
    )
    fits = {norm: problem.fit(norm) for norm in norms}
    scale = min(fit.residual_scale for fit in fits.values())
    costs = {norm: problem.held_out_costs(norm, fit, folds, scale) for norm, fit in fits.items()}
    ranked = _ranked(costs)
    norm = ranked[0]
    best = fits[norm]
    blocks = _blocks(data)
    spread = problem.bootstrap(norm, best, blocks, bootstraps, seed)
    posterior = np.sqrt(np.diag(best.covariance))
    errors = np.maximum(spread, posterior)
    growth = np.divide(errors, posterior, out=np.zeros_like(errors), where=posterior > 0)
    covariance = best.covariance * np.outer(growth, growth)
    merged = _merged(covariance, best.coefficients, problem.mean_columns(norm, best))
    in_pairs = {name for pair in merged for name in pair.names}
    known = (problem.width > 0) & (errors <= _MOST_WIDTH * problem.width)
    t = student_t_quantile(0.975, max(1, len(np.unique(blocks)) - 1))
    context = {"context_tokens": batches[:, 2]} if knows_context else {}
    seen = {
        "prefill_tokens": batches[:, 0],
        "decode_requests": batches[:, 1],
        **context,
        "requests": batches[:, 1] + batches[:, 4],
    }
    return StepTimes(
        coefficients=dict(zip(NAMES, best.coefficients.tolist(), strict=True)),
        norm=norm,
        covariance=tuple(tuple(row) for row in covariance.tolist()),
        intervals={
            name: (max(0.0, float(at - t * error)), float(at + t * error))
            for name, at, error in zip(NAMES, best.coefficients, errors, strict=True)
        },
        identified=tuple(
            name for name, is_known in zip(NAMES, known, strict=True)
            if is_known and name not in in_pairs
        ),
        merged=merged,
        residual_scale=best.residual_scale,
        choices=tuple(NormCost(norm, float(costs[norm].mean())) for norm in ranked),
        ranges={name: (float(v.min()), float(v.max())) for name, v in seen.items()},
        num_steps=total,
        prior=base,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Rows:
    """The steps of a log that compute any token."""

    batches: Floats
    step_us: Floats

    @classmethod
    def of(cls, log: StepLogLike, path: str) -> _Rows:
        step_s = np.asarray(log.step_s, dtype=float)
        found = {}
        for name in _COLUMNS:
            given = getattr(log, name)
            column = np.zeros(len(step_s)) if given is None else np.asarray(given, dtype=float)
            if column.shape != step_s.shape:
                allowed = f"must hold {len(step_s)} values, as step_s does"
                raise config_error([(f"{path}.{name}", f"{len(column)} values", allowed)])
            _check_column(f"{path}.{name}", column, column >= 0, "must be >= 0")
            found[name] = column
        _check_column(f"{path}.step_s", step_s, step_s > 0, "must be > 0")
        prompts, chunks = found["prefill_tokens"], found["prefill_requests"]
        decodes = found["decode_requests"]
        unequal = (prompts > 0) != (chunks > 0)
        _check_column(
            f"{path}.prefill_requests", chunks, ~unequal, "must be > 0 where prefill_tokens is"
        )
        context = np.where(decodes > 0, np.maximum(found["context_tokens"] - prompts, 0), 0)
        attention = 0.5 * prompts**2 / np.maximum(chunks, 1)
        batches = np.stack([prompts, decodes, context, attention, chunks], axis=1)
        works = prompts + decodes > 0
        return cls(batches[works], 1e6 * step_s[works])


class _Problem:
    def __init__(self, batches: Floats, step_us: Floats, mean: Floats, width: Floats) -> None:
        self._batches = batches
        self._step_us = step_us
        self._mean = mean
        self.width = width

    def fit(self, norm: float | None, rows: Booleans | None = None) -> numerics.StepFit:
        """First with errors relative to measured step times, then to fitted ones, without noise."""
        counts = np.ones(len(self._step_us)) if rows is None else rows.astype(float)
        first = self._solve(norm, counts / self._step_us**2, None)
        return self._solve(norm, self._weights(norm, first, counts), first)

    def held_out_costs(
        self, norm: float | None, whole: numerics.StepFit, folds: Ints, scale: float
    ) -> Floats:
        """Mean logarithmic loss of the steps of each fold under the fit to the others.

        Under a Huber loss a few interrupted steps would decide.
        """
        weights = self._weights(norm, whole, np.ones(len(self._step_us)))
        losses = []
        for fold in np.unique(folds):
            rest = self._solve(norm, np.where(folds == fold, 0.0, weights), whole)
            here = folds == fold
            fitted = self._times(norm, rest)[here]
            off = np.abs(self._step_us[here] / fitted - 1) / scale
            losses.append(np.log1p(0.5 * off**2).mean())
        return np.array(losses)

    def bootstrap(
        self, norm: float | None, best: numerics.StepFit, blocks: Ints, count: int, seed: int
    ) -> Floats:
        """Standard deviation of the coefficients over resamples of blocks."""
        rng = np.random.default_rng(seed)
        weights = self._weights(norm, best, np.ones(len(self._step_us)))
        number = int(blocks.max()) + 1
        found = []
        for _ in range(count):
            times = np.bincount(rng.integers(0, number, number), minlength=number)
            found.append(self._solve(norm, weights * times[blocks], best).coefficients)
        # Resampling n blocks shows (n - 1) / n of the variance.
        return np.asarray(np.std(found, axis=0, ddof=1) * math.sqrt(number / max(1, number - 1)))

    def mean_columns(self, norm: float | None, fit: numerics.StepFit) -> Floats:
        """Mean derivative of the step times in each coefficient."""
        tokens = self._batches[:, 0] + self._batches[:, 1]
        weights_us = np.full(len(tokens), fit.coefficients[1])
        tokens_us = fit.coefficients[2] * tokens
        if norm is None:
            to_weights = (weights_us > tokens_us).astype(float)
            to_tokens = 1 - to_weights
        else:
            both = np.maximum((weights_us**norm + tokens_us**norm) ** (1 / norm), 1e-300)
            to_weights = (weights_us / both) ** (norm - 1)
            to_tokens = (tokens_us / both) ** (norm - 1)
        rest = self._batches[:, 1:].mean(axis=0)
        return np.array([1.0, to_weights.mean(), (to_tokens * tokens).mean(), *rest])

    def _times(self, norm: float | None, fit: numerics.StepFit) -> Floats:
        power = math.inf if norm is None else norm
        return np.asarray(numerics.step_times_us(self._batches, fit.coefficients, power))

    def _weights(self, norm: float | None, fit: numerics.StepFit, counts: Floats) -> Floats:
        return np.asarray(counts / np.maximum(self._times(norm, fit), 1e-3) ** 2)

    def _solve(
        self, norm: float | None, weights: Floats, start: numerics.StepFit | None
    ) -> numerics.StepFit:
        return numerics.fit_steps(
            self._batches,
            self._step_us,
            weights,
            prior_mean=self._mean,
            prior_width=self.width,
            norm=math.inf if norm is None else norm,
            start=None if start is None else start.coefficients,
        )


def _prior_of(
    base: instance.Roofline, relative_width: float, knows_context: bool
) -> tuple[Floats, Floats]:
    mean = np.array([getattr(base, name) for name in NAMES])
    width = relative_width * mean
    if mean[-1] == 0:
        width[-1] = _CHUNK_WIDTH_US
    if not knows_context:
        mean[4] = width[4] = 0
    return mean, width


def _ranked(costs: dict[float | None, Floats]) -> list[float | None]:
    """The exponents by mean cost; first 1, if the best is not better by more than the noise.

    The noise is the standard error of the differences of single folds. The other forms contain the
    linear one: with weights that take no time.
    """
    ranked = sorted(costs, key=lambda norm: float(costs[norm].mean()))
    if 1 in costs and ranked[0] != 1:
        excess = costs[1] - costs[ranked[0]]
        noise = float(excess.std(ddof=1)) / math.sqrt(len(excess)) if len(excess) > 1 else 0.0
        if excess.mean() <= noise + _EQUAL_COSTS:
            ranked.remove(1)
            ranked.insert(0, 1.0)
    return ranked


def _blocks(data: list[_Rows]) -> Ints:
    """A number of its block for every step."""
    busy_s = sum(float(rows.step_us.sum()) for rows in data) / 1e6
    length_s = min(_BLOCK_S, busy_s / _LEAST_BLOCKS)
    found: list[Ints] = []
    after = 0
    for rows in data:
        _, block = np.unique(np.cumsum(rows.step_us) / 1e6 // length_s, return_inverse=True)
        found.append(after + block)
        after += int(block.max(initial=-1)) + 1
    return np.concatenate(found)


def _merged(covariance: Floats, coefficients: Floats, columns: Floats) -> tuple[Merged, ...]:
    """Pairs of correlated coefficients; `columns`: derivatives of the mean step time in each."""
    found = []
    for i, j, correlation in correlated_pairs(covariance):
        pair = [i, j]
        part = columns[pair]
        together_us = float(part @ coefficients[pair])
        error_us = math.sqrt(max(0.0, float(part @ covariance[np.ix_(pair, pair)] @ part)))
        relative = error_us / together_us if together_us > 0 else math.inf
        found.append(Merged((NAMES[i], NAMES[j]), correlation, together_us, relative))
    return tuple(found)


def correlations(covariance: Floats) -> Floats:
    """The matrix of correlations; 0 where a variance is 0."""
    spread = np.sqrt(np.diag(covariance))
    scale = np.where(spread > 0, spread, 1)
    return np.asarray(covariance / np.outer(scale, scale))


def correlated_pairs(covariance: Floats) -> list[tuple[int, int, float]]:
    """Pairs with a correlation beyond 0.95 in magnitude, and that correlation."""
    matrix = correlations(covariance)
    pairs = ((i, j) for j in range(len(matrix)) for i in range(j))
    return [(i, j, float(matrix[i, j])) for i, j in pairs if abs(matrix[i, j]) > _CORRELATED]


def _check_arguments(
    logs: list[StepLogLike], relative_width: float, norms: Sequence[float | None], bootstraps: int
) -> None:
    wrong = []
    if not logs:
        wrong.append(("logs", "", "must hold at least one log"))
    if not (relative_width > 0 and math.isfinite(relative_width)):
        wrong.append(("relative_width", str(relative_width), "must be > 0"))
    if not norms:
        wrong.append(("norms", "", "must hold at least one exponent"))
    for i, norm in enumerate(norms):
        if norm is not None and not 1 <= norm <= 64:
            wrong.append((f"norms[{i}]", str(norm), "must be between 1 and 64, or None"))
    if bootstraps < 10:
        wrong.append(("bootstraps", str(bootstraps), "must be >= 10"))
    if wrong:
        raise config_error(wrong)


def _check_column(path: str, column: Floats, is_valid: Booleans, allowed: str) -> None:
    wrong = ~(is_valid & np.isfinite(column))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise config_error([(f"{path}[{row}]", f"{column[row]:g}", allowed)])
