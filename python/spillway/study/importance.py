"""Importance of the parameters of a study."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import optuna

from spillway._core.sim import UsageError
from spillway.study import samplers

if TYPE_CHECKING:
    from spillway.study.study_data import StudyData


_LEAST_TRIALS = 8
_BEST_SHARE: Any = 0.25


def importance(study: StudyData, objective: int = 0) -> dict[str, float]:
    """See `Study.importance`."""
    # Imports scikit-learn if that is installed.
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    parameters = [parameter for parameter in study.bound if parameter.opens_with is None]
    always_open = {parameter.name: parameter.distribution() for parameter in parameters}
    known = [trial for trial in study.records if trial.has_values and trial.duplicate_of is None]
    known = [trial for trial in known if trial.point.keys() >= always_open.keys()]
    if len(known) < _LEAST_TRIALS:
        raise UsageError(
            f"importance needs at least {_LEAST_TRIALS} different trials; there are {len(known)}"
        )
    arguments = inspect.signature(PedAnovaImportanceEvaluator).parameters
    which: Any = "target_quantile" if "target_quantile" in arguments else "baseline_quantile"
    with samplers.quiet():
        evaluator = PedAnovaImportanceEvaluator(**{which: _BEST_SHARE})
        different = optuna.create_study(direction=study.objectives[objective].direction)
        for trial in known:
            params = {name: trial.point[name] for name in always_open}
            value = trial.values[objective]
            different.add_trial(
                optuna.trial.create_trial(value=value, params=params, distributions=always_open)
            )
        return get_param_importances(different, evaluator=evaluator)
