"""Searches and sweeps over the settings of a simulation (extra `study`).

    study = spillway.Study(simulation, {"gateway.controller.band": "auto"}, "weighted_goodput")
    study.optimize(40).best

A `Study` searches a `Space` for an `Objective` under `Constraint`s, with Optuna underneath.
"""

from spillway.study.objective import Constraint, Figure, NoFigureError, Objective
from spillway.study.racing import Racing
from spillway.study.records import Trial
from spillway.study.space import Choice, Kinds, Range, Space
from spillway.study.study import Study

__all__ = [
    "Choice",
    "Constraint",
    "Figure",
    "Kinds",
    "NoFigureError",
    "Objective",
    "Racing",
    "Range",
    "Space",
    "Study",
    "Trial",
]
