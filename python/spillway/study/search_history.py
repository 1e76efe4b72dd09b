"""A study as the search_history.json of NVIDIA AIPerf."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spillway.study.ranking import front, ranked
from spillway.study.records import mean
from spillway.study.tables import errors

if TYPE_CHECKING:
    from spillway.study.objective import Constraint
    from spillway.study.records import Trial
    from spillway.study.study_data import StudyData


_LATENCY = re.compile(r"(mean|p50|p90|p95|p99)_(ttft|tpot|e2el)_ms")
_TAGS = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",  # AIPerf's is the mean gap of each request
    "e2el": "request_latency",
    "request_throughput": "request_throughput",
    "output_throughput": "output_token_throughput",
    "total_token_throughput": "total_token_throughput",
}
_OPS = {"<=": "le", ">=": "ge"}


def search_history(study: StudyData, seed: int | None) -> dict[str, Any]:
    """The trials of a study in the schema of AIPerf's search_history.json.

    The fields are those of AIPerf's `docs/api/search-history.md`. Metrics have AIPerf's tags where
    it has the figure, otherwise Spillway's names. `feasible` says whether the constraints hold,
    which become `sla_filters`; a failed trial has no `objective_values`. `search_space` holds the
    numeric dimensions; other values are in `variation_values` only. Limits that a study does not
    have (`n_initial_points`, `improvement_patience`, `plateau_window`, `plateau_threshold`) are 0.
    Beyond the schema, iterations have the `seeds`, the standard errors `se` and the objectives
    `per_seed`.
    """
    records = study.records
    scored = [trial for trial in records if trial.has_values]
    feasible = [trial for trial in scored if trial.is_feasible]
    best = feasible or scored
    winners = front(best, study.objectives)
    if len(study.objectives) == 1:
        winners = ranked(best, study.objectives)[:1]
    at = {trial.number: i for i, trial in enumerate(records)}
    dimensions = [parameter for parameter in study.bound if parameter.is_numeric]
    return {
        "config": {
            "planner": "optuna",
            "objectives": [
                {
                    **_tag(objective.name),
                    "direction": objective.direction.upper(),
                    "threshold": None,
                }
                for objective in study.objectives
            ],
            "outcome_constraints": [],
            "max_iterations": len(records),
            "n_initial_points": 0,
            "random_seed": seed,
            "improvement_patience": 0,
            "plateau_window": 0,
            "plateau_threshold": 0.0,
            "search_space": [
                {
                    "path": parameter.name,
                    "lo": parameter.low,
                    "hi": parameter.high,
                    "kind": "int" if parameter.kind == "int" else "real",
                }
                for parameter in dimensions
            ],
            "sla_filters": [_filter(constraint) for constraint in study.constraints],
        },
        "iterations": [
            {
                "iteration_idx": i,
                "variation_values": trial.point,
                "objective_values": list(trial.values) if trial.has_values else None,
                "feasible": trial.is_feasible,
                "non_monotonic_warning": False,
                "seeds": list(trial.seeds),
                "se": list(errors(study, trial)) if trial.num_runs > 1 else None,
                "per_seed": [list(row[: trial.num_runs]) for row in trial.objectives],
            }
            for i, trial in enumerate(records)
        ],
        "best_trials": [
            {
                "iteration_idx": at[trial.number],
                "objective_values": list(trial.values),
                "variation_values": trial.point,
                "feasible": trial.is_feasible,
                "feasible_count": len(feasible),
                "pareto_rank": 0,
            }
            for trial in winners
        ]
        or None,
        "boundary_summary": _boundary(study, scored, at),
        "recipe": None,
        "convergence_reason": "max_iterations" if records else None,
    }


def _tag(name: str) -> dict[str, str]:
    """The metric and its statistic by AIPerf's names."""
    latency = _LATENCY.fullmatch(name)
    if latency:
        return {"metric": _TAGS[latency[2]], "stat": latency[1].replace("mean", "avg")}
    return {"metric": _TAGS.get(name, name), "stat": "avg"}


def _filter(constraint: Constraint) -> dict[str, Any]:
    tag = _tag(constraint.name)
    return {
        "metric_tag": tag["metric"],
        "stat": tag["stat"],
        "op": _OPS[constraint.relation],
        "threshold": constraint.bound,
    }


def _boundary(study: StudyData, scored: list[Trial], at: dict[int, int]) -> dict[str, Any] | None:
    """The feasible and infeasible values along a single numeric dimension."""
    dimensions = list(study.bound)
    if len(dimensions) != 1 or not dimensions[0].is_numeric or not scored:
        return None
    name = dimensions[0].name
    good = [trial for trial in scored if trial.is_feasible]
    bad = [trial for trial in scored if not trial.is_feasible]
    found: dict[str, Any] = {"swept_dim_path": name, "feasible_max": None, "infeasible_min": None}
    if good:
        edge = max(good, key=lambda trial: trial.point[name])
        found["feasible_max"] = {
            "value": edge.point[name],
            "iteration_idx": at[edge.number],
            "objective_value": edge.values[0],
        }
    if bad:
        edge = min(bad, key=lambda trial: trial.point[name])
        first = next(i for i, violation in enumerate(edge.violations) if violation > 0)
        found["infeasible_min"] = {
            "value": edge.point[name],
            "iteration_idx": at[edge.number],
            "first_breach": {
                **_filter(study.constraints[first]),
                "observed": mean(edge.constraints[first]) if edge.constraints else None,
            },
        }
    return found
