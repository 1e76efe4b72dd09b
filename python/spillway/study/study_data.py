"""A search problem and its trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway import loading
from spillway._core.sim import UsageError
from spillway.analysis.stationarity import note_on_saturation
from spillway.config import files, formatting
from spillway.config.provenance import notes_on_servers
from spillway.study.evaluation import Evaluator, as_seeds
from spillway.study.measurements import notes_on_copies
from spillway.study.objective import Noted, as_constraints, as_metric, as_objectives
from spillway.study.ranking import front, ranked
from spillway.study.records import Trial, from_optuna, mean
from spillway.study.space import as_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    import optuna

    from spillway._core.cluster import Simulation
    from spillway.result import Result
    from spillway.study.objective import Constraint, Metric, Objective
    from spillway.study.space import BoundSpace, Space


_LEAST_FOR_MODEL = 4


class StudyData:
    """The problem of a study, and its trials.

    The input of tables, figures and confirmations; `Study` adds the search.
    """

    optuna: optuna.Study
    """The underlying Optuna study."""

    def __init__(
        self,
        simulation: loading.Configuration,
        space: Space | Mapping[str, Any],
        objective: Any,
        constraints: str | Mapping[str, Any] | Sequence[str | Constraint] | None,
        *,
        seeds: int | Iterable[int],
        metrics: Sequence[str | Callable[[Result], float]],
    ) -> None:
        self.simulation = loading.as_simulation(simulation)
        self.space = as_space(space)
        self.bound: BoundSpace = self.space.bind(self.simulation)
        self.objectives: tuple[Objective, ...] = as_objectives(objective)
        self.constraints: tuple[Constraint, ...] = tuple(as_constraints(constraints))
        self.metrics: tuple[Metric, ...] = tuple(as_metric(metric) for metric in metrics)
        self.seeds = as_seeds(seeds)
        self._trials: dict[int, Trial] = {}

    def _problem(self) -> dict[str, Any]:
        """The problem as the storage records it; trials of different problems do not mix."""
        return {
            "simulation": files.fingerprint(self.simulation),
            "space": self.space.to_dict(),
            "order": self.space.order_lines(),
            "objectives": [repr(objective) for objective in self.objectives],
            "constraints": [str(constraint) for constraint in self.constraints],
            "metrics": [metric.name for metric in self.metrics],
            "seeds": list(self.seeds),
        }

    def _evaluator(
        self, *, threads: int | None = None, executor: Executor | None = None
    ) -> Evaluator:
        """Runs configurations and takes the figures of this problem."""
        metrics: list[Metric] = [objective.metric for objective in self.objectives]
        metrics += [constraint.metric for constraint in self.constraints]
        metrics += [Noted(metric) for metric in self.metrics]
        return Evaluator(metrics, threads=threads, executor=executor, is_judging=True)

    @property
    def records(self) -> tuple[Trial, ...]:
        """All finished trials of all processes, in order."""
        for frozen in self.optuna.get_trials(deepcopy=False):
            if frozen.number not in self._trials:
                trial = from_optuna(frozen)
                if trial is not None:
                    self._trials[frozen.number] = trial
        return tuple(self._trials[number] for number in sorted(self._trials))

    @property
    def baseline(self) -> Trial:
        """The trial of the current configuration."""
        tried = [trial for trial in self.records if trial.is_baseline]
        if not tried:
            raise UsageError("there are no trials yet: call optimize first")
        return next((trial for trial in tried if trial.has_values), tried[0])

    @property
    def feasible(self) -> tuple[Trial, ...]:
        """The trials that satisfy the constraints under all seeds, best first.

        Duplicates are left out. With several objectives, trials that no other beats in all of them
        come first.
        """
        feasible = [t for t in self.records if t.is_feasible and t.duplicate_of is None]
        whole = [trial for trial in feasible if len(trial.seeds) == len(self.seeds)]
        return ranked(whole, self.objectives)

    @property
    def pareto(self) -> tuple[Trial, ...]:
        """The feasible trials that no other feasible one beats in every objective."""
        return front(self.feasible, self.objectives)

    @property
    def best_trial(self) -> Trial:
        """The feasible trial with the best mean.

        Raises UsageError if none is feasible (the message names the nearest one), or if there are
        several objectives.
        """
        if len(self.objectives) > 1:
            raise UsageError("there are several objectives: choose from study.pareto")
        found = self.feasible
        if not found:
            raise UsageError(self.no_feasible())
        return found[0]

    @property
    def best_params(self) -> dict[str, Any]:
        """The parameters of the best trial, by name."""
        return dict(self.best_trial.point)

    @property
    def recommended(self) -> Trial:
        """The best trial by the sampler's own model, if it has one; else `best_trial`.

        With `gp` that is the best posterior mean, which depends less on luck with the seeds.
        """
        recommend = getattr(self.optuna.sampler, "recommend", None)
        best = self.best_trial
        if recommend is None or len(self.optuna.get_trials(deepcopy=False)) < _LEAST_FOR_MODEL:
            return best
        chosen = self._by_number(recommend(self.optuna).number)
        return chosen if chosen.duplicate_of is None else self._by_number(chosen.duplicate_of)

    def _by_number(self, number: int) -> Trial:
        for trial in self.records:
            if trial.number == number:
                return trial
        raise UsageError(f"there is no finished trial {number}")

    @property
    def best(self) -> Simulation:
        """The best trial's configuration, ready to simulate."""
        return self.simulation_of(self.best_trial)

    def simulation_of(self, trial: Trial | int) -> Simulation:
        """The configuration of a trial."""
        if isinstance(trial, int):
            trial = self._by_number(trial)
        return self.simulation if trial.is_baseline else self.bound.apply(trial.point)

    @property
    def dead(self) -> tuple[str, ...]:
        """The parameters that changed no run in the check before the first trial."""
        return tuple(self.optuna.user_attrs.get("dead", ()))

    def notes(self) -> list[str]:
        """Remarks: trials in which seeds change nothing, saturated ones, unvalidated servers."""
        tried = [trial for trial in self.records if trial.has_values]
        copied = [self.simulation_of(trial) for trial in tried if trial.is_exact]
        return [
            *notes_on_copies(copied, len(tried), "trials"),
            *note_on_saturation([trial.saturation for trial in tried], "trials"),
            *notes_on_servers([self.simulation]),
        ]

    def no_feasible(self) -> str:
        """Why no trial is feasible, with the nearest one."""
        tried = [trial for trial in self.records if trial.has_values]
        if not tried:
            failures = [trial.failure for trial in self.records]
            last = f"; the last failure: {failures[-1]}" if failures else ""
            return f"no feasible configuration found: no trial could be run{last}"
        nearest = min(tried, key=lambda trial: (trial.violation, trial.number))
        rows = zip(self.constraints, nearest.constraints, nearest.violations, strict=True)
        broken = [
            f"{known.name} = {mean(row):.4g} instead of {known.relation} {known.bound:g}"
            for known, row, violation in rows
            if violation > 0
        ]
        return (
            f"no feasible configuration found; the nearest is trial {nearest.number} with "
            f"{', '.join(broken)}: {formatting.point(nearest.point)}"
        )
