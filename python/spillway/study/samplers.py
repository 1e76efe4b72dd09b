"""Optuna's samplers by name, every argument that matters stated, for Optuna 4.6 to 5.

Optuna's defaults differ between versions, so none is relied upon. Where a sampler keeps nothing but
a random state, each trial gets a fresh one whose seed depends on the study's seed and the number of
the trial: a resumed study goes on as if it had not been interrupted, and processes that share a
storage do not repeat each other.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler

from spillway.config.classes import config_error
from spillway.study.checks import MOST_RUNS, Check, anything, number, refusal, text, truth, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial, TrialState

__all__ = [
    "HAS_TRIAL_CONSTRAINTS",
    "NAMES",
    "FreshPerTrial",
    "constraints_of",
    "quiet",
    "resolve",
    "set_constraints",
]


def __dir__() -> list[str]:
    return __all__


NAMES = ("tpe", "cmaes", "nsga2", "random", "qmc", "gp")

HAS_TRIAL_CONSTRAINTS = hasattr(optuna.trial.Trial, "set_constraint")
"""Whether trials carry their constraints themselves (Optuna 5) or the sampler asks a function."""


def resolve(
    sampler: str | Mapping[str, Any] | BaseSampler,
    *,
    seed: int,
    n_objectives: int,
    n_constraints: int,
    is_conditional: bool,
) -> tuple[BaseSampler, dict[str, Any]]:
    """A sampler and what it is made of.

    Parameters
    ----------
    sampler
        A name, a mapping of `name` and arguments, or a sampler of Optuna's, taken as it is.
    seed
        Of its random numbers.
    n_objectives, n_constraints, is_conditional
        Of the study.
    """
    if isinstance(sampler, BaseSampler):
        return sampler, {"name": type(sampler).__name__}
    options = {"name": sampler} if isinstance(sampler, str) else dict(sampler)
    name = options.pop("name", None)
    if name not in NAMES:
        allowed = f"must be one of {', '.join(NAMES)}, or a sampler of Optuna's"
        raise config_error([("sampler", repr(name), allowed)])
    if n_objectives > 1 and name == "cmaes":
        raise config_error([("sampler", "cmaes", "has one objective only; take tpe or nsga2")])
    if n_constraints and name == "cmaes":
        warnings.warn(
            "the sampler cmaes does not heed constraints; only the choice of the best does",
            RuntimeWarning,
            stacklevel=3,
        )
    _check_arguments(name, options)
    arguments = _DEFAULTS[name] | ({"group": True} if name == "tpe" and is_conditional else {})
    if name == "tpe" and options.get("multivariate") is False:
        arguments.pop("group", None)
    arguments |= options
    resolved = {"name": name, "seed": seed, **arguments}
    if n_constraints and name in ("tpe", "nsga2") and not HAS_TRIAL_CONSTRAINTS:
        arguments["constraints_func"] = constraints_of

    def make(own_seed: int) -> BaseSampler:
        with quiet():
            try:
                return _class(name)(seed=own_seed, **arguments)
            except (TypeError, ValueError) as error:
                raise refusal(f"sampler.{name}", options, str(error)) from error

    if name in ("tpe", "random", "nsga2"):
        make(seed)  # wrong arguments are to be known at once
        return FreshPerTrial(make, seed), resolved
    return make(seed), resolved


def constraints_of(trial: FrozenTrial) -> Sequence[float]:
    """The signed violations of a trial, for the `constraints_func` of a sampler of your own."""
    found: Sequence[float] = trial.user_attrs["constraints"]
    return found


def set_constraints(trial: Trial, names: Sequence[str], violations: Sequence[float]) -> None:
    """Leaves the signed violations with a trial, where the version of Optuna expects them."""
    trial.set_user_attr("constraints", list(violations))
    if HAS_TRIAL_CONSTRAINTS:
        for name, violation in zip(names, violations, strict=True):
            trial.set_constraint(name, violation)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences what Optuna says of experimental arguments and independent sampling."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(level, optuna.logging.ERROR))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", category=FutureWarning, module="optuna")
            warnings.filterwarnings("ignore", message=".*constraint.*", module="optuna")
            yield
    finally:
        optuna.logging.set_verbosity(level)


class FreshPerTrial(BaseSampler):
    """A sampler made anew for each trial, with a seed that the number of the trial decides."""

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make = make
        self._seed = seed
        self._inner = make(seed)
        self._drawn: dict[str, BaseDistribution] = {}

    def reseed_rng(self) -> None:
        """Does nothing: the seed is that of the trial."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Makes the sampler of this trial."""
        entropy = np.random.SeedSequence([self._seed, trial.number])
        self._inner = self._make(int(entropy.generate_state(1)[0]))
        self._inner.before_trial(study, trial)
        # What a trial that was interrupted while it was asked for has drawn already.
        fixed = trial.system_attrs.get("fixed_params", {})
        self._drawn = {k: v for k, v in trial.distributions.items() if k not in fixed}

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """As the sampler of this trial does."""
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the sampler of this trial does."""
        found = self._inner.sample_relative(study, trial, search_space)
        for name in found:
            self._drawn.pop(name, None)
        return found

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """As the sampler of this trial does, after those that it has drawn already."""
        while self._drawn:
            name = next(iter(self._drawn))
            self._inner.sample_independent(study, trial, name, self._drawn.pop(name))
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """As the sampler of this trial does."""
        self._inner.after_trial(study, trial, state, values)

    def __str__(self) -> str:
        return f"{self._inner} per trial"


class _Continuing:
    """Proposes nothing for a trial that has its values, as one that was interrupted does."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The parameters to propose values for together."""
        space: dict[str, BaseDistribution]
        space = super().infer_relative_search_space(study, trial)  # type: ignore[misc]
        return {} if space.keys() <= trial.params.keys() else space


def _check_arguments(name: str, options: Mapping[str, Any]) -> None:
    """Checks that arguments are of the type that the sampler's own defaults have."""
    of_type: dict[type, Check] = {
        bool: truth,
        int: whole(0, MOST_RUNS),
        float: number(),
        str: text,
    }
    parameters = inspect.signature(_class(name)).parameters
    known = {key: one for key, one in parameters.items() if key != "seed"}
    for key, value in options.items():
        if key not in known:
            allowed = f"is no argument of it; one of {', '.join(known)}"
            raise config_error([(f"sampler.{key}", "", allowed)])
        default = _DEFAULTS[name].get(key, known[key].default)
        of_type.get(type(default), anything)(f"sampler.{key}", value)


_DEFAULTS: dict[str, dict[str, Any]] = {
    "tpe": {
        "n_startup_trials": 10,
        "n_ei_candidates": 24,
        "multivariate": True,
        "constant_liar": True,
        "warn_independent_sampling": False,
    },
    "cmaes": {"n_startup_trials": 1, "with_margin": True, "warn_independent_sampling": False},
    "nsga2": {"population_size": 20, "crossover_prob": 0.9, "swapping_prob": 0.5},
    "random": {},
    "qmc": {"qmc_type": "sobol", "scramble": True, "warn_independent_sampling": False},
    "gp": {},
}


def _class(name: str) -> Callable[..., BaseSampler]:
    if name == "gp":
        made = importlib.import_module("spillway.study.gp").GpSampler
    else:
        made = {
            "tpe": optuna.samplers.TPESampler,
            "cmaes": optuna.samplers.CmaEsSampler,
            "nsga2": optuna.samplers.NSGAIISampler,
            "random": optuna.samplers.RandomSampler,
            "qmc": optuna.samplers.QMCSampler,
        }[name]
    return type(made.__name__, (_Continuing, made), {})
