"""Results that the caller hands to a study, as measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spillway._core.sim import UsageError
from spillway.result import Results
from spillway.study.evaluation import taken
from spillway.study.measurements import Measured
from spillway.study.objective import Noted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spillway._core.cluster import Simulation
    from spillway.result import Result
    from spillway.study.objective import Metric
    from spillway.study.study_data import StudyData


def measured(
    study: StudyData,
    simulation: Simulation,
    results: Iterable[Result] | Mapping[str, Sequence[float]] | str,
) -> Measured:
    """The measurements of a simulation, see `Study.tell`."""
    if isinstance(results, str):
        return Measured(failure=results)
    if isinstance(results, Mapping):
        return _of_values(study, results)
    runs = Results(list(results))
    seeds = tuple(run.seed for run in runs)
    if seeds != study.seeds:
        raise UsageError(f"the results have the seeds {seeds}; the trial has {study.seeds}")
    if any(run.simulation != simulation for run in runs):
        raise UsageError("the results are of another configuration than the trial")
    metrics: list[Metric] = [objective.metric for objective in study.objectives]
    metrics += [constraint.metric for constraint in study.constraints]
    found = taken(runs, [*metrics, *map(Noted, study.metrics)], is_judging=True)
    if found.error is not None:
        raise found.error
    return found


def _of_values(study: StudyData, values: Mapping[str, Sequence[float]]) -> Measured:
    needed = [objective.name for objective in study.objectives]
    needed += [constraint.name for constraint in study.constraints]
    further = [metric.name for metric in study.metrics]
    missing = [name for name in needed if name not in values]
    unknown = [name for name in values if name not in (*needed, *further)]
    if missing or unknown:
        problems = [f"{', '.join(missing)} is missing"] if missing else []
        problems += [f"{', '.join(unknown)} is not recorded"] if unknown else []
        raise UsageError(f"the values of a trial: {'; '.join(problems)}")
    rows = []
    for name in (*needed, *further):
        row = tuple(map(float, values.get(name, [math.nan] * len(study.seeds))))
        if len(row) != len(study.seeds):
            raise UsageError(f"{name} has {len(row)} values; there are {len(study.seeds)} seeds")
        if name in needed and not all(map(math.isfinite, row)):
            raise UsageError(f"{name} = {row}: must be finite")
        rows.append(row)
    return Measured(tuple(rows))
