"""Studies as tables: as plain text, and a row per trial."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spillway._core.sim import build_info
from spillway.config.formatting import setting
from spillway.config.randomness import is_resampled, num_blocks
from spillway.data import frames
from spillway.report.tables import joined
from spillway.study.measurements import Measured, interval_of
from spillway.study.records import Trial, mean, standard_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.report.tables import Parts
    from spillway.study.study_data import StudyData


def study(study: StudyData) -> str:
    """The state of a study, and its best trials."""
    return joined(parts(study))


def verdict(study: StudyData) -> str:
    """What the search found, in a sentence."""
    if not study.feasible:
        return study.no_feasible()
    if len(study.objectives) > 1:
        return f"{len(study.feasible)} trials keep the constraints; the best depend on the weights."
    best, name = study.best_trial, study.objectives[0].name
    current = next((trial for trial in study.records if trial.is_baseline), None)
    count, value = len(study.records), f"{name} {best.values[0]:.4g}"
    if best.is_baseline:
        return f"The current configuration is the best of {count} trials: {value}."
    instead = f" instead of {current.values[0]:.4g}" if current and current.has_values else ""
    changes = ", ".join(f"{path} = {setting(value)}" for path, value in best.point.items())
    return f"Trial {best.number} is the best of {count}: {value}{instead}, with {changes}."


def errors(study: StudyData, trial: Trial) -> tuple[float, ...]:
    """The standard errors of a trial's objectives, as tables state them.

    Over resamples of a trace, those of the means over such traces.
    """
    if not is_resampled(study.simulation):
        return trial.ses
    return tuple(_standard_error(study, row[: trial.num_runs]) for row in trial.objectives)


def _standard_error(study: StudyData, values: Sequence[float]) -> float:
    return standard_error(values, are_resamples=is_resampled(study.simulation))


def parts(study: StudyData) -> Parts:
    """The state of a study as a line, tables and notes."""
    states = [trial.state for trial in study.records]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    head = f"{len(states)} trials" + (f": {counts}" if counts else "")
    rows = [["trial", *(objective.name for objective in study.objectives), "se", "state"]]
    best = study.feasible[:5]
    current = [trial for trial in study.records if trial.is_baseline]
    tried = [*best, *(trial for trial in current if trial not in best)]
    for trial in tried:
        name = f"{trial.number} (current)" if trial.is_baseline else str(trial.number)
        values = [f"{value:.4g}" for value in trial.values] or ["-"] * len(study.objectives)
        known = errors(study, trial)
        is_known = not (trial.is_exact or any(map(math.isnan, known)))
        ses = ", ".join(f"{se:.2g}" for se in known) if is_known else "-"
        rows.append([name, *values, ses, trial.state])
    if len(rows) == 1:
        return head, [], []
    if any(trial.saturation not in (None, "unsaturated") for trial in tried):
        verdicts = ("saturation", *(trial.saturation or "-" for trial in tried))
        rows = [[*row, verdict] for row, verdict in zip(rows, verdicts, strict=True)]
    blocks = [rows]
    if best:
        shown = (*current, best[0]) if current and best[0] is not current[0] else best[:1]
        names = ["current" if trial.is_baseline else f"trial {trial.number}" for trial in shown]
        settings = [["parameter", *names]]
        for name in study.bound.parameters:
            values = [trial.point.get(name, "-") for trial in shown]
            settings.append([name, *(setting(value) for value in values)])
        blocks.append(settings)
    return f"{head}; best first", blocks, study.notes()


def long_rows(study: StudyData, confidence: float) -> list[dict[str, Any]]:
    """One row per evaluated trial and figure, with the columns of `Study.to_frame`."""
    lines = []
    held = num_blocks(study.simulation)
    for trial in study.records:
        if not trial.has_values:
            continue
        for role, figure, values in _columns(study, trial):
            known = [value for value in values or () if not math.isnan(value)]
            as_measured = Measured(is_replicated=trial.is_replicated, num_blocks=held)
            mean_of = interval_of(known, confidence, figure, 0, as_measured) if known else None
            lines.append(
                {
                    "trial": trial.number,
                    "state": trial.state,
                    **{name: trial.point.get(name) for name in study.bound.parameters},
                    "role": role,
                    **frames.described(figure, mean_of),
                    "saturation": trial.saturation,
                    "fingerprint": trial.fingerprint,
                }
            )
    return lines


def _columns(study: StudyData, trial: Trial) -> list[tuple[str, str, Sequence[float] | None]]:
    """Role and name of each figure, and its values in the different runs, if there are any."""
    names = [("objective", objective.name) for objective in study.objectives]
    names += [("constraint", constraint.name) for constraint in study.constraints]
    names += [("metric", metric.name) for metric in study.metrics]
    values = (*trial.objectives, *trial.constraints, *trial.metrics)
    return [
        (role, name, values[i][: trial.num_runs] if values else None)
        for i, (role, name) in enumerate(names)
    ]


def rows(study: StudyData) -> list[dict[str, Any]]:
    """One row per finished trial, with the columns of `Study.trials`."""
    return [_row(study, trial) for trial in study.records]


def _row(study: StudyData, trial: Trial) -> dict[str, Any]:
    values = {name: trial.point.get(name) for name in study.bound.parameters}
    row = {"trial": trial.number, "state": trial.state, **values, "n": trial.num_runs}
    for _, name, per_seed in _columns(study, trial):
        row[name] = math.nan if per_seed is None else mean(per_seed)
        row[f"{name}_se"] = math.nan if per_seed is None else _standard_error(study, per_seed)
        row[f"{name}_per_seed"] = per_seed
    means = zip(study.objectives, trial.values, errors(study, trial), strict=False)
    for objective, value, se in means:
        row[objective.name] = value
        row[f"{objective.name}_se"] = math.nan if trial.is_exact else se
    row["saturation"] = trial.saturation
    row["fingerprint"], row["version"] = trial.fingerprint, build_info["version"]
    row["is_baseline"] = trial.is_baseline
    row["duplicate_of"], row["failure"] = trial.duplicate_of, trial.failure
    row["warnings"] = "; ".join(trial.warnings)
    return row
