"""Bayesian optimization of noisy objectives: an Optuna sampler on the core's Gaussian process."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import TrialState
from scipy.stats import qmc

from spillway._core import search
from spillway.study.gp_space import Parameter, Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    Array: TypeAlias = NDArray[np.float64]
    _Key: TypeAlias = tuple[str, tuple[int, ...], tuple[str, ...]]


# Parameters with their own Sobol column; further ones draw at random.
_SOBOL_COLUMNS = 64
# Share of the candidates near the recommended point.
_NEAR_SHARE = 0.25
# Of the sets of parameters that apply together, those whose candidates are best are searched for a
# maximum.
_MOST_BRANCHES = 3
# Trials in the model, because the time of a fit grows with the cube of their number; and how many
# more may join before they are chosen anew.
_MOST_TRIALS = 300
_MORE_TRIALS = 30
# The first fits start from scratch, since the data are few; later ones continue from the last one.
_ANEW_UNTIL = 50
# Augmented Chebyshev scalarization: weight of the sum beside the maximum (Knowles 2006).
_SUM_WEIGHT = 0.05
_PRIORS = search.Priors()
# Values worse than the median by more than this multiple of the distance from the best value to the
# median are clipped there.
_WORST = 2.0
# Degrees of freedom of the typical deviation that are pooled with the deviation between the runs of
# a trial, because that of two or three runs is unreliable.
_TYPICAL_DOF = 4
_LEAST_FOR_GAIN = 8
_CANDIDATES_FOR_GAIN = 512
# Without standard errors the residuals must show the noise.
_PRIORS_OF_UNKNOWN_NOISE = search.Priors(log_extra_noise_mean=-3.0)


class GpSampler(BaseSampler):
    """Noise-aware Gaussian process with log expected improvement.

    The objective and every constraint each have a Gaussian process (Matérn-5/2, one length scale
    per parameter). The noise is known per trial: `user_attrs["objective_se"]` holds the standard
    error of each objective (NaN: unknown), `user_attrs["constraints"]` the constraints' values (≤
    0: feasible), `user_attrs["constraints_se"]` their standard errors. If `user_attrs["num_runs"]`
    states the number of runs behind a trial, its errors shrink towards those of all trials, more
    strongly the fewer runs it has; otherwise they are taken as exact. Unknown noise is estimated.

    A proposal maximizes the log expected improvement on the best *posterior mean*, times the
    probability that all constraints hold. Running trials count with their expected values, so that
    a batch of proposals spreads out; the model is fitted once per batch. Several objectives are
    reduced to one by augmented Chebyshev weights, which are drawn anew for each batch.

    The model covers the parameters that have the same range in all finished trials that have them,
    if all have them or a choice of another parameter decides which do, such as the kind of a policy
    whose parameter it is; other parameters are drawn at random. Of more than 330 trials it holds
    about 300: the half whose posterior means are best, and others spread over the rest. All random
    numbers derive from the seed and the trial's number.

    Parameters
    ----------
    seed : int, optional
        Seed >= 0; by default from the operating system.
    n_startup_trials : int
        Trials that fill the space (scrambled Sobol points) before the model proposes, including
        trials enqueued by hand; >= 2.
    n_candidates : int
        Points at which the acquisition is computed before the best ones are refined; >= 8.

    Attributes
    ----------
    is_valid : callable, optional
        Whether a mapping of parameters is a possible trial. The model proposes no other, as long as
        one of its candidates is.
    """

    def __init__(
        self, *, seed: int | None = None, n_startup_trials: int = 8, n_candidates: int = 512
    ) -> None:
        if n_startup_trials < 2:
            raise ValueError(f"n_startup_trials = {n_startup_trials}: must be >= 2")
        if n_candidates < 8:
            raise ValueError(f"n_candidates = {n_candidates}: must be >= 8")
        if seed is not None and seed < 0:
            raise ValueError(f"seed = {seed}: must be >= 0")
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self.is_valid: Callable[[Mapping[str, Any]], bool] | None = None
        self._seed = seed
        self._n_startup_trials = n_startup_trials
        self._n_candidates = n_candidates
        self._columns: dict[str, int] = {}
        self._model: _Model | None = None
        self._space: tuple[tuple[int, ...], Space] | None = None
        self._sobol: tuple[int, Array, np.random.Generator] | None = None

    def reseed_rng(self) -> None:
        """Does nothing: each trial has its own random numbers."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The parameters that the model covers; empty during startup."""
        trials = study.get_trials(
            deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING)
        )
        finished = _evidence(trials)
        earlier = sum(other.number < trial.number for other in trials)
        if earlier < self._n_startup_trials or len(finished) < 2:
            return {}
        return dict(self._space_of(finished).distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The most valuable point for the trial."""
        if not search_space:
            return {}
        model = self._model_of(study)
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        acquisition = model.believing(
            other.params
            for other in running
            if other.number != trial.number and model.space.common <= other.params.keys()
        )
        rng = np.random.default_rng([self._seed, trial.number])
        candidates = model.candidates(self._n_candidates, rng)
        others = [
            other for other in study.get_trials(deepcopy=False) if other.number != trial.number
        ]
        point = model.best_new(acquisition, candidates, _tried(others), self.is_valid)
        if point is None:  # everything has been tried, or is invalid
            point = model.best(acquisition, candidates)
        return model.space.decode(point)

    def sample_independent(
        self,
        study: Study,  # noqa: ARG002
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A coordinate of the Sobol point with the trial's number."""
        column = self._columns.setdefault(param_name, len(self._columns))
        if self._sobol is None or self._sobol[0] != trial.number:
            points = qmc.Sobol(_SOBOL_COLUMNS, scramble=True, seed=self._seed)
            if trial.number > 0:
                points.fast_forward(trial.number)
            row = points.random(1)[0]
            beyond = np.random.default_rng([self._seed, trial.number, 1])
            self._sobol = (trial.number, row, beyond)
        _, row, beyond = self._sobol
        uniform = float(row[column]) if column < len(row) else float(beyond.random())
        parameter = Parameter.of(param_name, param_distribution)
        return parameter.decode(float(parameter.spread(np.array([uniform]))[0]))

    def recommend(self, study: Study) -> FrozenTrial:
        """The finished trial with the best posterior mean that is feasible by the posterior mean.

        Unlike `study.best_trial`, it does not favor the luckiest trial. If no trial seems feasible,
        it is the one that is most probably feasible.

        Raises
        ------
        ValueError
            If fewer than two trials have finished, they share no parameter, or the study has
            several objectives.
        """
        if len(study.directions) > 1:
            raise ValueError("with several objectives no single trial is best; see best_trials")
        finished = _evidence(study.get_trials(deepcopy=False))
        if len(finished) < 2 or not self._space_of(finished).parameters:
            raise ValueError("a recommendation needs two finished trials with a common parameter")
        return self._model_of(study).recommended

    def _space_of(self, finished: Sequence[FrozenTrial]) -> Space:
        numbers = tuple(trial.number for trial in finished)
        if self._space is None or self._space[0] != numbers:
            self._space = numbers, Space.of(finished)
        return self._space[1]

    def _model_of(self, study: Study) -> _Model:
        finished = _evidence(study.get_trials(deepcopy=False))
        space = self._space_of(finished)
        numbers = tuple(trial.number for trial in finished)
        key = (study.study_name, numbers, tuple(space.distributions))
        if self._model is None or self._model.key != key:
            rng = np.random.default_rng([self._seed, len(finished), 2])
            values, errors = _objectives(finished, study.directions, rng)
            data = _Data.of(finished, values, errors)
            if len(finished) > _MOST_TRIALS + _MORE_TRIALS:
                data = _chosen(data, key, space, self._model)
            self._model = _Model.of(key, space, data, last=self._model)
        return self._model


def expected_gain(study: Study) -> float:
    """The expected improvement of the best next trial on the best posterior mean.

    In the unit of the objective, whatever sampler proposed the trials, over the parameters that
    they share. NaN before the model has eight trials with a common parameter, infinite if none
    seems feasible.
    """
    finished = _evidence(study.get_trials(deepcopy=False))
    sampler = GpSampler(seed=0)
    if len(finished) < _LEAST_FOR_GAIN or not sampler._space_of(finished).parameters:
        return math.nan
    model = sampler._model_of(study)
    acquisition = model.believing(())
    if acquisition.best is None:
        return math.inf
    candidates = model.candidates(_CANDIDATES_FOR_GAIN, np.random.default_rng(len(finished)))
    best = model.best_new(acquisition, candidates, _tried(study.get_trials(deepcopy=False)), None)
    if best is None:
        return 0.0
    return model.fitted[0].scale * math.exp(float(acquisition.values(best[None, :])[0]))


def _tried(trials: Iterable[FrozenTrial]) -> set[frozenset[tuple[str, Any]]]:
    """The parameters of trials: a second trial of them would be a copy."""
    return {frozenset(trial.params.items()) for trial in trials}


def _evidence(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The finished trials that were measured: a repeated value adds no information."""
    return [
        trial
        for trial in trials
        if trial.state == TrialState.COMPLETE and "duplicate_of" not in trial.user_attrs
    ]


def _attribute(trials: Sequence[FrozenTrial], name: str, size: int) -> Array:
    """A list attribute of the trials as rows; NaN where a trial has none."""
    rows = np.full((len(trials), size), math.nan)
    for row, trial in zip(rows, trials, strict=True):
        values = trial.user_attrs.get(name)
        if values is not None:
            if len(values) != size:
                problem = f"user_attrs[{name!r}] has {len(values)} entries, not {size}"
                raise ValueError(f"trial {trial.number}: {problem}")
            row[:] = [math.nan if value is None else value for value in values]
    return rows


def _errors(trials: Sequence[FrozenTrial], name: str, size: int) -> Array:
    """Standard errors as rows; NaN where unknown.

    Where the number of runs is known, their variance is an average of the trial's own and the one
    pooled over all trials, weighted by degrees of freedom (Smyth 2004, with those of the prior
    fixed).
    """
    errors = _attribute(trials, name, size)
    runs = np.array([trial.user_attrs.get("num_runs", 0) for trial in trials])[:, None]
    variances = runs * errors**2
    dof = np.where(np.isfinite(variances), np.maximum(runs - 1, 0), 0)
    total = dof.sum(axis=0)
    if not total.any():
        return errors
    sums = dof * np.nan_to_num(variances)
    pooled = sums.sum(axis=0) / np.maximum(total, 1)
    shrunk = (_TYPICAL_DOF * pooled + sums) / (_TYPICAL_DOF + dof)
    is_known = (runs > 0) & (total > 0)
    return np.where(is_known, np.sqrt(shrunk / np.maximum(runs, 1)), errors)


def _objectives(
    trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection], rng: np.random.Generator
) -> tuple[Array, Array]:
    """One value per trial, to be minimized, and its standard error."""
    is_maximized = [direction == StudyDirection.MAXIMIZE for direction in directions]
    signs = np.where(is_maximized, -1.0, 1.0)
    values = signs * np.array([trial.values for trial in trials])
    errors = _errors(trials, "objective_se", len(directions))
    if len(directions) == 1:
        return values[:, 0], errors[:, 0]
    low = values.min(axis=0)
    spans = np.maximum(values.max(axis=0) - low, 1e-300)
    weights = rng.dirichlet(np.ones(len(directions)))
    weighted = weights * (values - low) / spans
    worst = weighted.argmax(axis=1)
    # The error of the maximum is approximated by that of the largest term.
    slopes = weights * (np.eye(len(directions))[worst] + _SUM_WEIGHT)
    return (
        weighted.max(axis=1) + _SUM_WEIGHT * weighted.sum(axis=1),
        np.sqrt(((slopes / spans * errors) ** 2).sum(axis=1)),
    )


def _tamed(values: Array) -> Array:
    """The values, to be minimized, with extremely bad ones clipped.

    The worst values carry no information about where the best is, and a process whose length scales
    follow a cliff resolves the plateau poorly.
    """
    middle = float(np.median(values))
    return np.minimum(values, middle + _WORST * (middle - float(values.min())))


@dataclasses.dataclass(frozen=True)
class _Fitted:
    """A Gaussian process of standardized values, with its inputs."""

    process: search.GaussianProcess
    hyperparameters: search.Hyperparameters
    typical_noise: float  # expected variance of one more value
    scale: float  # of the values, which the process has standardized

    @classmethod
    def of(
        cls,
        points: Array,
        space: Space,
        *,
        values: Array,
        errors: Array,
        centre: float,
        last: _Fitted | None,
    ) -> _Fitted:
        scale = float(values.std()) or 1.0
        known = np.isfinite(errors)
        noise = np.where(known, errors / scale, 0.0) ** 2
        standardised = (values - centre) / scale
        hyperparameters = search.fit(
            points,
            standardised,
            noise,
            categorical=space.categorical,
            priors=_PRIORS if known.all() else _PRIORS_OF_UNKNOWN_NOISE,
            warm_start=last.hyperparameters if last else None,
        )
        process = search.GaussianProcess(
            points, standardised, noise, hyperparameters, categorical=space.categorical
        )
        return cls(process, hyperparameters, float(noise.mean()), scale)


@dataclasses.dataclass(frozen=True)
class _Data:
    """What was measured: values to be minimized and constraints to be <= 0, by trial."""

    trials: Sequence[FrozenTrial]
    values: Array
    errors: Array
    constraints: Array  # one column each
    constraint_errors: Array

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial], values: Array, errors: Array) -> _Data:
        size = len(trials[0].user_attrs.get("constraints", ()))
        constraints = _attribute(trials, "constraints", size)
        if not np.isfinite(constraints).all():
            raise ValueError("if one trial has finite constraints, every trial must have them")
        constraint_errors = _errors(trials, "constraints_se", size)
        return cls(trials, _tamed(values), errors, constraints, constraint_errors)

    def only(self, rows: NDArray[np.int_]) -> _Data:
        """What was measured in these trials."""
        return _Data(
            [self.trials[row] for row in rows],
            self.values[rows],
            self.errors[rows],
            self.constraints[rows],
            self.constraint_errors[rows],
        )


def _chosen(data: _Data, key: _Key, space: Space, last: _Model | None) -> _Data:
    """The trials that the model holds.

    They are chosen by posterior mean: by their values, the luckiest would be.
    """
    if last and last.key[::2] == key[::2]:
        held = {trial.number for trial in last.data.trials}
        seen = set(last.key[1])
        is_held = [trial.number in held or trial.number not in seen for trial in data.trials]
        rows = np.flatnonzero(is_held)
        if len(rows) <= _MOST_TRIALS + _MORE_TRIALS:
            return data.only(rows)
    else:
        spread = np.linspace(0, len(data.trials) - 1, _MOST_TRIALS).round().astype(int)
        last = _Model.of(key, space, data.only(spread), last=None)
    points = np.array([space.encode(trial.params) for trial in data.trials])
    means = [surrogate.process.predict(points)[0] for surrogate in last.fitted]
    excess = np.maximum(means[1:], 0.0).max(axis=0) if means[1:] else np.zeros(len(points))
    order = np.lexsort((means[0], excess))
    best, rest = order[: _MOST_TRIALS // 2], np.sort(order[_MOST_TRIALS // 2 :])
    spread = np.linspace(0, len(rest) - 1, _MOST_TRIALS - len(best)).round().astype(int)
    return data.only(np.sort(np.concatenate([best, rest[spread]])))


@dataclasses.dataclass(frozen=True)
class _Model:
    """The state of the model after a set of finished trials."""

    key: _Key
    space: Space
    data: _Data
    fitted: list[_Fitted]  # objective, then constraints
    recommended: FrozenTrial
    recommended_point: Array

    @classmethod
    def of(
        cls,
        key: _Key,
        space: Space,
        data: _Data,
        *,
        last: _Model | None,
    ) -> _Model:
        points = np.array([space.encode(trial.params) for trial in data.trials])
        # A constraint keeps its zero, the bound of feasibility.
        columns = [(data.values, data.errors, float(data.values.mean()))]
        columns += [
            (values, errors, 0.0)
            for values, errors in zip(data.constraints.T, data.constraint_errors.T, strict=True)
        ]
        warm: list[_Fitted | None] = [None] * len(columns)
        continues = last and last.key[::2] == key[::2] and len(last.fitted) == len(columns)
        if last and continues and len(data.trials) > _ANEW_UNTIL:
            warm = list(last.fitted)
        fitted = [
            _Fitted.of(points, space, values=values, errors=error, centre=centre, last=start)
            for (values, error, centre), start in zip(columns, warm, strict=True)
        ]
        row = _acquisition(fitted).recommended()
        return cls(key, space, data, fitted, data.trials[row], points[row])

    def believing(self, pending: Iterable[Mapping[str, Any]]) -> search.Acquisition:
        """The acquisition while trials with these parameters are running."""
        acquisition = _acquisition(self.fitted)
        noise = [surrogate.typical_noise for surrogate in self.fitted]
        for params in pending:
            acquisition.believe(self.space.encode(params), noise)
        return acquisition

    def best_new(
        self,
        acquisition: search.Acquisition,
        candidates: Array,
        tried: set[frozenset[tuple[str, Any]]],
        is_valid: Callable[[Mapping[str, Any]], bool] | None,
    ) -> Array | None:
        """The most valuable point whose parameters are valid and not those of a trial, or None.

        Different points have the same parameters where these are whole numbers.
        """

        def is_new(point: Array) -> bool:
            params = self.space.decode(point)
            is_known = frozenset(params.items()) in tried
            return not is_known and (is_valid is None or is_valid(params))

        best = self.best(acquisition, candidates)
        if is_new(best):
            return best
        order = np.argsort(-acquisition.values(candidates), kind="stable")
        return next((point for point in candidates[order] if is_new(point)), None)

    def best(self, acquisition: search.Acquisition, candidates: Array) -> Array:
        """The most valuable point of all."""
        branches = list(self.space.branches(candidates))
        if len(branches) == 1:
            return acquisition.maximum(*branches[0])
        branches.sort(key=lambda branch: -float(acquisition.values(branch[0]).max()))
        peaks = np.array(
            [acquisition.maximum(points, allowed) for points, allowed in branches[:_MOST_BRANCHES]]
        )
        peak: Array = peaks[np.argmax(acquisition.values(peaks))]
        return peak

    def candidates(self, count: int, rng: np.random.Generator) -> Array:
        """Points over the whole space and near the recommended one."""
        # Sobol points are balanced only in powers of two.
        size = 2 ** math.ceil(math.log2(count))
        dimensions = len(self.space.parameters)
        uniform = qmc.Sobol(dimensions, scramble=True, seed=rng).random(size)[:count]
        near = int(_NEAR_SHARE * count)
        points = [
            self.space.near(self.recommended_point, uniform[:near]),
            self.space.spread(uniform[near:]),
        ]
        return self.space.pinned(np.concatenate(points))


def _acquisition(fitted: Sequence[_Fitted]) -> search.Acquisition:
    return search.Acquisition(fitted[0].process, [surrogate.process for surrogate in fitted[1:]])
