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
    scored = [one for one in records if one.has_values]
    feasible = [one for one in scored if one.is_feasible]
    best = feasible or scored
    winners = front(best, study.objectives)
    if len(study.objectives) == 1:
        winners = ranked(best, study.objectives)[:1]
    at = {one.number: i for i, one in enumerate(records)}
    dimensions = [one for one in study.bound if one.is_numeric]
    return {
        "config": {
            "planner": "optuna",
            "objectives": [
                {**_tag(one.name), "direction": one.direction.upper(), "threshold": None}
                for one in study.objectives
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
                    "path": one.name,
                    "lo": one.low,
                    "hi": one.high,
                    "kind": "int" if one.kind == "int" else "real",
                }
                for one in dimensions
            ],
            "sla_filters": [_filter(one) for one in study.constraints],
        },
        "iterations": [
            {
                "iteration_idx": i,
                "variation_values": one.point,
                "objective_values": list(one.values) if one.has_values else None,
                "feasible": one.is_feasible,
                "non_monotonic_warning": False,
                "seeds": list(one.seeds),
                "se": list(errors(study, one)) if one.num_runs > 1 else None,
                "per_seed": [list(row[: one.num_runs]) for row in one.objectives],
            }
            for i, one in enumerate(records)
        ],
        "best_trials": [
            {
                "iteration_idx": at[one.number],
                "objective_values": list(one.values),
                "variation_values": one.point,
                "feasible": one.is_feasible,
                "feasible_count": len(feasible),
                "pareto_rank": 0,
            }
            for one in winners
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


def _filter(one: Constraint) -> dict[str, Any]:
    tag = _tag(one.name)
    return {
        "metric_tag": tag["metric"],
        "stat": tag["stat"],
        "op": _OPS[one.relation],
        "threshold": one.bound,
    }


def _boundary(study: StudyData, scored: list[Trial], at: dict[int, int]) -> dict[str, Any] | None:
    """The feasible and infeasible values along a single numeric dimension."""
    dimensions = list(study.bound)
    if len(dimensions) != 1 or not dimensions[0].is_numeric or not scored:
        return None
    name = dimensions[0].name
    good = [one for one in scored if one.is_feasible]
    bad = [one for one in scored if not one.is_feasible]
    found: dict[str, Any] = {"swept_dim_path": name, "feasible_max": None, "infeasible_min": None}
    if good:
        one = max(good, key=lambda trial: trial.point[name])
        found["feasible_max"] = {
            "value": one.point[name],
            "iteration_idx": at[one.number],
            "objective_value": one.values[0],
        }
    if bad:
        one = min(bad, key=lambda trial: trial.point[name])
        first = next(i for i, violation in enumerate(one.violations) if violation > 0)
        found["infeasible_min"] = {
            "value": one.point[name],
            "iteration_idx": at[one.number],
            "first_breach": {
                **_filter(study.constraints[first]),
                "observed": mean(one.constraints[first]) if one.constraints else None,
            },
        }
    return found
