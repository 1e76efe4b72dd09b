"""Optuna's samplers by name, with every relevant argument stated, for Optuna 4.6 to 5.

Optuna's defaults differ between versions, so this module relies on none. If a sampler keeps only a
random state, each trial gets a fresh sampler whose seed depends on the study's seed and the number
of the trial: a resumed study continues as if it had not been interrupted, and processes that share
a storage do not repeat each other's trials.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from dataclasses import dataclass
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


HAS_TRIAL_CONSTRAINTS = hasattr(optuna.trial.Trial, "set_constraint")
"""Whether trials carry their constraints themselves (Optuna 5) or the sampler calls a function."""


@dataclass(frozen=True)
class Sampler:
    """Properties of a sampler.

    Attributes
    ----------
    load
        Returns its class; imports modules that it needs beyond Optuna.
    arguments
        Its arguments by name, without its seed; for Optuna's samplers, every relevant one.
    constraints
        Whether it suits a study with constraints: its proposals respect them, or ignore all
        results.
    several_objectives
        Whether it suits a study with several objectives.
    conditional
        Further arguments, computed from the others, if some parameters exist only with certain
        values of others.
    fresh_per_trial
        Whether it keeps only a random state between trials, see `FreshPerTrial`.
    """

    load: Callable[[], type[BaseSampler]]
    arguments: Mapping[str, Any]
    constraints: bool = True
    several_objectives: bool = True
    conditional: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    fresh_per_trial: bool = False


def _gp() -> type[BaseSampler]:
    from spillway.study.gp import GpSampler

    return GpSampler


SAMPLERS: dict[str, Sampler] = {
    "tpe": Sampler(
        load=lambda: optuna.samplers.TPESampler,
        arguments={
            "n_startup_trials": 10,
            "n_ei_candidates": 24,
            "multivariate": True,
            "constant_liar": True,
            "warn_independent_sampling": False,
        },
        conditional=lambda arguments: {"group": True} if arguments["multivariate"] else {},
        fresh_per_trial=True,
    ),
    "cmaes": Sampler(
        load=lambda: optuna.samplers.CmaEsSampler,
        arguments={"n_startup_trials": 1, "with_margin": True, "warn_independent_sampling": False},
        constraints=False,
        several_objectives=False,
    ),
    "nsga2": Sampler(
        load=lambda: optuna.samplers.NSGAIISampler,
        arguments={"population_size": 20, "crossover_prob": 0.9, "swapping_prob": 0.5},
        fresh_per_trial=True,
    ),
    "random": Sampler(
        load=lambda: optuna.samplers.RandomSampler, arguments={}, fresh_per_trial=True
    ),
    "qmc": Sampler(
        load=lambda: optuna.samplers.QMCSampler,
        arguments={"qmc_type": "sobol", "scramble": True, "warn_independent_sampling": False},
    ),
    "gp": Sampler(load=_gp, arguments={}),
}
"""The samplers by name."""


def resolve(
    sampler: str | Mapping[str, Any] | BaseSampler,
    *,
    seed: int,
    n_objectives: int,
    n_constraints: int,
    is_conditional: bool,
) -> tuple[BaseSampler, dict[str, Any]]:
    """A sampler and its specification.

    Raises ConfigError if the sampler is unknown or does not suit the study, or an argument is
    invalid.

    Parameters
    ----------
    sampler
        A name, a mapping of `name` and arguments, or an Optuna sampler, which is used unchanged.
    seed
        Seed of its random numbers.
    n_objectives, n_constraints, is_conditional
        Properties of the study.
    """
    if isinstance(sampler, BaseSampler):
        return sampler, {"name": type(sampler).__name__}
    options = {"name": sampler} if isinstance(sampler, str) else dict(sampler)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in SAMPLERS:
        allowed = f"must be one of {', '.join(SAMPLERS)}, or an Optuna sampler"
        raise config_error([("sampler", repr(name), allowed)])
    _check_abilities(name, constraints=n_constraints > 0, several_objectives=n_objectives > 1)
    _check_arguments(name, options)
    known = SAMPLERS[name]
    arguments = {**known.arguments, **options}
    if is_conditional and known.conditional is not None:
        arguments = {**known.conditional(arguments), **arguments}
    resolved = {"name": name, "seed": seed, **arguments}
    if n_constraints and not HAS_TRIAL_CONSTRAINTS and "constraints_func" in _parameters(name):
        arguments["constraints_func"] = constraints_of

    def make(own_seed: int) -> BaseSampler:
        with quiet():
            try:
                return _class(name)(seed=own_seed, **arguments)
            except (TypeError, ValueError) as error:
                raise refusal(f"sampler.{name}", options, str(error)) from error

    return FreshPerTrial(make, seed) if known.fresh_per_trial else make(seed), resolved


def constraints_of(trial: FrozenTrial) -> Sequence[float]:
    """The signed violations of a trial, for the `constraints_func` of your own sampler."""
    found: Sequence[float] = trial.user_attrs["constraints"]
    return found


def set_constraints(trial: Trial, names: Sequence[str], violations: Sequence[float]) -> None:
    """Stores the signed violations in a trial, where the version of Optuna expects them."""
    trial.set_user_attr("constraints", list(violations))
    if HAS_TRIAL_CONSTRAINTS:
        for name, violation in zip(names, violations, strict=True):
            trial.set_constraint(name, violation)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences Optuna's warnings about experimental arguments and independent sampling."""
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
    """A fresh sampler for each trial, with a seed derived from the number of the trial."""

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make = make
        self._seed = seed
        self._inner = make(seed)
        self._drawn: dict[str, BaseDistribution] = {}

    def reseed_rng(self) -> None:
        """Does nothing: the seed belongs to the trial."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Creates the sampler of this trial."""
        entropy = np.random.SeedSequence([self._seed, trial.number])
        self._inner = self._make(int(entropy.generate_state(1)[0]))
        self._inner.before_trial(study, trial)
        # The values that an interrupted trial has drawn already.
        fixed = trial.system_attrs.get("fixed_params", {})
        self._drawn = {k: v for k, v in trial.distributions.items() if k not in fixed}

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Delegates to the sampler of this trial."""
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Delegates to the sampler of this trial."""
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
        """Delegates to the sampler of this trial, after the values that it has drawn already."""
        while self._drawn:
            name = next(iter(self._drawn))
            self._inner.sample_independent(study, trial, name, self._drawn.pop(name))
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Delegates to the sampler of this trial."""
        self._inner.after_trial(study, trial, state, values)

    def __str__(self) -> str:
        return f"{self._inner} per trial"


class _Continuing:
    """Proposes nothing for a trial that already has its values, such as an interrupted one."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The parameters to propose jointly."""
        space: dict[str, BaseDistribution]
        space = super().infer_relative_search_space(study, trial)  # type: ignore[misc]
        return {} if space.keys() <= trial.params.keys() else space


def _check_abilities(name: str, **asked: bool) -> None:
    """Checks that a sampler has the abilities that a study needs."""
    violations = []
    for ability, is_asked in asked.items():
        if is_asked and not getattr(SAMPLERS[name], ability):
            able = [other for other, sampler in SAMPLERS.items() if getattr(sampler, ability)]
            lacks = f"cannot search with {ability.replace('_', ' ')}"
            violations.append(("sampler", name, f"{lacks}; use one of {', '.join(able)}"))
    if violations:
        raise config_error(violations)


def _check_arguments(name: str, options: Mapping[str, Any]) -> None:
    """Checks that arguments have the types of the sampler's defaults."""
    of_type: dict[type, Check] = {bool: truth, int: whole(0, MOST_RUNS), float: number(), str: text}
    known = {key: parameter for key, parameter in _parameters(name).items() if key != "seed"}
    for key, value in options.items():
        if key not in known:
            allowed = f"unknown argument; one of {', '.join(known)}"
            raise config_error([(f"sampler.{key}", "", allowed)])
        default = SAMPLERS[name].arguments.get(key, known[key].default)
        of_type.get(type(default), anything)(f"sampler.{key}", value)


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(SAMPLERS[name].load()).parameters


def _class(name: str) -> Callable[..., BaseSampler]:
    made = SAMPLERS[name].load()
    return type(made.__name__, (_Continuing, made), {})
