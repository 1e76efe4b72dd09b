"""Evaluation of the points that a search proposes, as trials."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from spillway._core.sim import ConfigError
from spillway.config import files
from spillway.study.feasibility import caveats
from spillway.study.measurements import INTERRUPTED, Measured
from spillway.study.racing import Racing, referred
from spillway.study.records import Trial, mean, standard_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway._core.cluster import Simulation
    from spillway.study.evaluation import Evaluator
    from spillway.study.space import Point
    from spillway.study.study_data import StudyData


def assess(
    study: StudyData,
    numbers: Sequence[int],
    points: Sequence[Point],
    evaluator: Evaluator,
    race: Racing | None,
) -> tuple[list[Trial], Exception | None]:
    """Trials of the points, and the first exception of a metric; equal simulations are run once."""
    known = [trial for trial in study.records if trial.has_values and trial.fingerprint]
    first: dict[str, Trial | int] = {trial.fingerprint: trial for trial in reversed(known)}
    assessed: dict[int, Trial] = {}
    same_as: dict[int, Trial | int] = {}
    to_run: dict[int, Simulation] = {}
    prints: dict[int, str] = {}
    for number, point in zip(numbers, points, strict=True):
        try:
            simulation = study.bound.apply(point)
        except ConfigError as error:
            assessed[number] = Trial(number=number, point=point, failure=str(error))
            continue
        prints[number] = files.fingerprint(simulation)
        if prints[number] in first:
            same_as[number] = first[prints[number]]
        else:
            first[prints[number]] = number
            to_run[number] = simulation
    leader = study.feasible[0] if race is not None and study.feasible else None
    measured = _raced(study, list(to_run.values()), evaluator, race, leader)
    by_number = dict(zip(numbers, points, strict=True))
    for (number, simulation), measurement in zip(to_run.items(), measured, strict=True):
        trial = judged(study, number, by_number[number], measurement, leader)
        assessed[number] = dataclasses.replace(
            trial, fingerprint=prints[number], warnings=caveats(simulation)
        )
    for number, same in same_as.items():
        original = assessed[same] if isinstance(same, int) else same
        assessed[number] = _copy(original, number, by_number[number])
    errors = (measurement.error for measurement in measured if measurement.error is not None)
    return [assessed[number] for number in numbers], next(errors, None)


def _raced(
    study: StudyData,
    simulations: Sequence[Simulation],
    evaluator: Evaluator,
    race: Racing | None,
    leader: Trial | None,
) -> list[Measured]:
    """Runs every simulation under all seeds, or, with racing, until it is shown to lose."""
    if race is None or leader is None:
        return evaluator.measure(simulations, study.seeds)
    found: dict[int, Measured] = {}
    left = list(range(len(simulations)))
    for portion in race.stages(study.seeds):
        measured = evaluator.measure([simulations[i] for i in left], portion)
        for i, measurement in zip(left, measured, strict=True):
            found[i] = found[i].followed_by(measurement) if i in found else measurement
        left = [i for i in left if _may_win(study, found[i], leader, race)]
        if any(measurement.failure == INTERRUPTED for measurement in measured):
            if portion[-1] != study.seeds[-1]:
                found |= dict.fromkeys(left, Measured(failure=INTERRUPTED))
            break
    return [found[i] for i in range(len(simulations))]


def _may_win(study: StudyData, found: Measured, leader: Trial, race: Racing) -> bool:
    if found.failure is not None:
        return False
    sign = study.objectives[0].sign
    pairs = zip(found.values[0], leader.objectives[0], strict=False)
    if race.is_more([sign * (best - value) for value, best in pairs]):
        return False
    rows = zip(study.constraints, found.values[1:], strict=False)
    return not any(race.is_more([c.violation(v) for v in row]) for c, row in rows)


def judged(
    study: StudyData, number: int, point: Point, found: Measured, leader: Trial | None = None
) -> Trial:
    """The trial of a point, from its measurements.

    `leader`: the best trial so far, the reference for a trial without all seeds.
    """
    if found.failure is not None:
        return Trial(number=number, point=point, failure=found.failure)
    n_objectives, n_constraints = len(study.objectives), len(study.constraints)
    n_both = n_objectives + n_constraints
    objectives, distinct = found.values[:n_objectives], found.distinct
    violations = [
        [constraint.violation(value) for value in row]
        for constraint, row in zip(study.constraints, distinct[n_objectives:n_both], strict=True)
    ]
    is_exact = len(objectives[0]) > 1 and not found.is_replicated
    error = (lambda _: 0.0) if is_exact else standard_error
    values = tuple(mean(row) for row in distinct[:n_objectives])
    ses = tuple(error(row) for row in distinct[:n_objectives])
    if leader is not None and len(objectives[0]) < len(study.seeds):
        value, se = referred(objectives[0], leader.objectives[0])
        values, ses = (value,), (se,)
    return Trial(
        number=number,
        point=point,
        seeds=study.seeds[: len(objectives[0])],
        values=values,
        ses=ses,
        violations=tuple(mean(row) for row in violations),
        violation_ses=tuple(error(row) for row in violations),
        objectives=objectives,
        constraints=found.values[n_objectives:n_both],
        metrics=found.values[n_both:],
        is_replicated=found.is_replicated,
        saturation=found.saturation,
    )


def _copy(original: Trial, number: int, point: Point) -> Trial:
    same = original.number if original.duplicate_of is None else original.duplicate_of
    return dataclasses.replace(
        original,
        number=number,
        point=point,
        duplicate_of=same if original.has_values else None,
        is_baseline=False,
    )
