"""Searches and sweeps over the settings of a simulation (extra `study`).

    study = spillway.Study(simulation, {"gateway.controller.band": "auto"}, "weighted_goodput")
    study.optimize(40).best

A `Study` searches a `Space` for an `Objective` under `Constraint`s, based on Optuna. `grid`,
`sobol`, `one_at_a_time` and `isolation` run configurations side by side; `max_rate_under_slo` and
`min_instances_for_rate` solve for one number, and `curve` shows latency over the rate. `judge` says
whether bounds hold.
"""

from spillway.study.objective import Constraint, Figure, NoFigureError, Objective
from spillway.study.racing import Racing
from spillway.study.rate_curve import curve
from spillway.study.records import Proposal, Trial
from spillway.study.solvers import max_rate_under_slo, min_instances_for_rate
from spillway.study.space import Choice, Kinds, Range, Space
from spillway.study.study import Study
from spillway.study.sweeps import grid, isolation, one_at_a_time, sobol
from spillway.study.verdicts import judge

__all__ = [
    "Choice",
    "Constraint",
    "Figure",
    "Kinds",
    "NoFigureError",
    "Objective",
    "Proposal",
    "Racing",
    "Range",
    "Space",
    "Study",
    "Trial",
    "curve",
    "grid",
    "isolation",
    "judge",
    "max_rate_under_slo",
    "min_instances_for_rate",
    "one_at_a_time",
    "sobol",
]
