"""The search: ask for a batch of configurations, run them under all seeds at once, tell."""

from __future__ import annotations

import dataclasses
import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import files
from spillway._core.sim import ConfigError, UsageError, build_info
from spillway._extras import require
from spillway.randomness import note_on_copies
from spillway.report import tables
from spillway.report.study_plots import StudyPlots
from spillway.study import confirmation, records
from spillway.study.evaluation import INTERRUPTED, Evaluator, Measured, as_seeds
from spillway.study.feasibility import doubts
from spillway.study.liveness import dead_parameters
from spillway.study.objective import (
    Constraint,
    Noted,
    as_constraints,
    as_metric,
    as_objectives,
    rewards_shedding,
)
from spillway.study.racing import Racing, referred
from spillway.study.records import Trial, mean, standard_error
from spillway.study.space import BoundSpace, Point, Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    import optuna
    import pandas as pd

    from spillway._core.cluster import Simulation
    from spillway.results import Result
    from spillway.study.confirmation import Confirmation
    from spillway.study.objective import Metric, Objective

_BASELINE = "baseline"
_BATCH = "batch"  # the numbers of the trials of the latest one
_LEAST_FOR_IMPORTANCE = 8
_LEAST_FOR_MODEL = 4
_BEST_SHARE: Any = 0.25


class Study:
    """A search for the configuration that does best, over replicated seeds.

    Parameters
    ----------
    simulation
        The current configuration, or the path of its file: what the search starts from and is
        compared with.
    space
        What may vary, see `Space`; a mapping is read as one.
    objective
        What to make large or small, or several such things, see `spillway.study.Objective`.
    constraints
        Figures with their bounds, e.g. {"p99_ttft_ms[critical]": "<=200"}: they must hold in the
        mean over the seeds.
    seeds
        Seeds of the runs of every configuration: all meet the same requests. An int n stands for
        0, …, n - 1. A configuration in which nothing is random is run once for all seeds.
    sampler
        What proposes configurations: tpe, cmaes, nsga2, random, qmc, gp; a mapping of `name` and
        the sampler's arguments; or a sampler of Optuna's.
    seed
        Of the sampler.
    metrics
        Further figures to note of every trial; the search does not look at them.
    storage
        Where trials are kept: None in memory; a path in a journal file, from which a study goes on
        after it was killed and which several processes may share; or a storage of Optuna's.
    name
        Of the study in its storage.
    """

    def __init__(
        self,
        simulation: files.Configuration,
        space: Space | Mapping[str, Any],
        objective: Any,
        constraints: Mapping[str, Any] | Sequence[Constraint] | None = None,
        *,
        seeds: int | Iterable[int] = 4,
        sampler: Any = "tpe",
        seed: int = 0,
        metrics: Sequence[str | Callable[[Result], float]] = (),
        storage: Any = None,
        name: str = "spillway",
    ) -> None:
        self.simulation = files.as_simulation(simulation)
        self.space = space if isinstance(space, Space) else Space(space)
        self.bound: BoundSpace = self.space.bind(self.simulation)
        self.objectives: tuple[Objective, ...] = as_objectives(objective)
        self.constraints: tuple[Constraint, ...] = tuple(as_constraints(constraints))
        self.metrics: tuple[Metric, ...] = tuple(as_metric(one) for one in metrics)
        self.seeds = as_seeds(seeds)
        self._trials: dict[int, Trial] = {}
        self._baseline_trial: Trial | None = None
        require("optuna", "study")
        if rewards_shedding(self.objectives, self.constraints):
            warnings.warn(
                "only latencies of requests that get through count: refusing most requests is "
                "best; take goodput, or add a constraint such as {'shed': '<=0.1'}",
                RuntimeWarning,
                stacklevel=2,
            )
        self.optuna = self._open(sampler, seed, storage, name)
        """The study of Optuna underneath."""

    def _open(self, sampler: Any, seed: int, storage: Any, name: str) -> optuna.Study:
        import optuna

        from spillway.study import samplers
        from spillway.study import storage as storages

        made, resolved = samplers.resolve(
            sampler,
            seed=seed,
            n_objectives=len(self.objectives),
            n_constraints=len(self.constraints),
            is_conditional=self.bound.is_conditional,
        )
        self._is_shared = storage is not None
        with samplers.quiet():
            self._storage = storages.resolve(storage)
            study = optuna.create_study(
                storage=self._storage,
                sampler=made,
                study_name=name,
                directions=[one.direction for one in self.objectives],
                load_if_exists=self._is_shared,
            )
        problem = self._problem()
        known = study.user_attrs.get("problem")
        if known is None:
            study.set_user_attr("problem", problem)
        elif known != problem:
            differing = ", ".join(key for key in problem if known.get(key) != problem[key])
            # A simulation's fingerprint also differs between versions: their trials do not mix.
            by = study.user_attrs.get("made_of", {}).get("spillway", "0.1.0 or earlier")
            raise UsageError(
                f"the storage holds another study named {name!r}, begun with Spillway {by}: "
                f"{differing} differ; take another name or another file"
            )
        made_of = {
            "optuna": optuna.__version__,
            "spillway": build_info["version"],
            "sampler": resolved,
        }
        if study.user_attrs.get("made_of") != made_of:
            study.set_user_attr("made_of", made_of)
        if self._is_shared:
            storages.release_abandoned(study, self._storage)
        return study

    def _problem(self) -> dict[str, Any]:
        return {
            "simulation": files.fingerprint(self.simulation),
            "space": self.space.to_dict(),
            "order": self.space.order_lines(),
            "objectives": [repr(one) for one in self.objectives],
            "constraints": [str(one) for one in self.constraints],
            "metrics": [one.name for one in self.metrics],
            "seeds": list(self.seeds),
        }

    # --- the search -------------------------------------------------------------------------------

    def optimize(
        self,
        n_trials: int,
        *,
        seeds: int | Iterable[int] | None = None,
        total: bool = False,
        batch_size: int = 4,
        racing: Racing | bool = False,
        check: bool = True,
        threads: int | None = None,
        executor: Executor | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Study:
        """Tries configurations: the current one first, then what the sampler proposes.

        Each batch is asked for, run with one call over configurations and seeds, and told; with a
        fixed seed and batch size the trials depend neither on `threads` nor on `executor`. A trial
        that cannot be run is recorded with its reason. An interruption (Ctrl-C) keeps the trials
        that were over; the others of its batch do not count and are the first that the next call
        runs, so that a study which was interrupted ends up with the same trials as one which was
        not.

        Parameters
        ----------
        n_trials
            How many trials to make, >= 1.
        seeds
            Other seeds than those of the study, before its first trial.
        total
            Whether `n_trials` counts the finished trials that the study already has, as when a
            killed study goes on, or when processes share a storage.
        batch_size
            How many configurations are proposed before any of them has been run, >= 1.
        racing
            Whether configurations that are surely worse than the best so far are spared the rest of
            the seeds, see `Racing`.
        check
            Whether to try, before the first trial, if each parameter changes any run; a warning
            names those that do not (`study.dead`).
        threads
            How many runs are made at a time; None: one per CPU.
        executor
            Any `concurrent.futures.Executor` to make the runs instead.
        progress
            Called as progress(done, n_trials) after each batch.

        Returns
        -------
        The study itself.
        """
        if n_trials < 1 or batch_size < 1:
            raise ValueError("n_trials and batch_size must be >= 1")
        if seeds is not None:
            self._take_seeds(as_seeds(seeds))
        evaluator = self._evaluator(threads=threads, executor=executor)
        race = Racing() if racing is True else racing or None
        if race is not None and len(self.objectives) > 1:
            raise UsageError("racing takes one objective, not several")
        if check and not self._all():
            self._check(threads, executor)
        made = self._ask_for_baseline(evaluator)
        done = len(self._all()) if total else made
        while done < n_trials:
            size = min(self._left_of_a_batch() or batch_size, n_trials - done)
            self._run_batch(size, evaluator, race)
            done = len(self._all()) if total else done + size
            if progress is not None:
                progress(done, n_trials)
        if self.feasible == () and any(one.has_values for one in self._all()):
            warnings.warn(self._no_feasible(), RuntimeWarning, stacklevel=2)
        return self

    def _take_seeds(self, seeds: tuple[int, ...]) -> None:
        if seeds == self.seeds:
            return
        if self._all():
            raise UsageError(f"the study's trials met the seeds {self.seeds}; so must all others")
        self.seeds = seeds
        self.optuna.set_user_attr("problem", self._problem())

    def _evaluator(self, *, threads: int | None, executor: Executor | None) -> Evaluator:
        metrics: list[Metric] = [one.metric for one in self.objectives]
        metrics += [one.metric for one in self.constraints]
        metrics += [Noted(one) for one in self.metrics]
        return Evaluator(metrics, threads=threads, executor=executor)

    def _ask_for_baseline(self, evaluator: Evaluator) -> int:
        """Queues the current configuration as the next trial, unless the study has it.

        One that failed, as when its process was killed, is tried again. Outside the space it is run
        at once. Returns how many trials that made.
        """
        from spillway.study import storage as storages

        for one in self.optuna.get_trials(deepcopy=False):
            if _BASELINE not in one.user_attrs:
                continue
            known = records.from_optuna(one)
            if known is None or known.has_values:
                return 0
        point = self.bound.current()
        outside = self.bound.outside()
        if outside or self.bound.ordered(point) != point:
            what = ", ".join(f"{name} = {value}" for name, value in outside.items()) or "its order"
            warnings.warn(
                f"the current configuration lies outside the space ({what}): it is the first "
                "trial, but the sampler does not learn from it",
                RuntimeWarning,
                stacklevel=3,
            )
            self.optuna.add_trial(self._placeholder(evaluator))
            return 1
        self.optuna.enqueue_trial(
            point, user_attrs={_BASELINE: True, storages.OWNER: storages.process_name()}
        )
        return 0

    def _placeholder(self, evaluator: Evaluator) -> Any:
        """A trial that no sampler takes into account, for the baseline outside the space."""
        import optuna

        found = evaluator.measure([self.simulation], self.seeds)[0]
        trial = dataclasses.replace(
            self._judged(0, self.bound.current(), found),
            fingerprint=files.fingerprint(self.simulation),
            warnings=doubts(self.simulation),
        )
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState.FAIL,
            user_attrs={_BASELINE: True, **records.attributes(trial)},
        )

    def _run_batch(self, size: int, evaluator: Evaluator, race: Racing | None) -> None:
        from spillway.study import samplers
        from spillway.study import storage as storages

        with samplers.quiet():
            ask = partial(storages.ask, self.optuna) if self._is_shared else self.optuna.ask
            asked: list[optuna.Trial] = []
            points: list[Point] = []
            try:
                for _ in range(size):
                    asked.append(ask())
                    # At once, so that the next proposal knows of this one.
                    points.append(self.bound.ordered(self.bound.ask(asked[-1])))
                self.optuna.set_user_attr(_BATCH, [one.number for one in asked])
                judged = self._evaluate([one.number for one in asked], points, evaluator, race)
            except Exception as error:
                for trial in asked:
                    self._tell(trial, Trial(number=trial.number, point={}, failure=repr(error)))
                raise
            except BaseException:
                for trial in asked:
                    storages.requeue(self._storage, trial)
                raise
            is_interrupted = False
            for trial, one in zip(asked, judged, strict=True):
                if one.failure == INTERRUPTED:
                    is_interrupted = True
                    storages.requeue(self._storage, trial)
                else:
                    self._tell(trial, one)
        if is_interrupted:
            raise KeyboardInterrupt

    def _left_of_a_batch(self) -> int:
        """How many trials of the latest batch are still to be run, because it was interrupted.

        They come first, and by themselves: an uninterrupted study proposes nothing before it knows
        what came of a whole batch.
        """
        from optuna.trial import TrialState

        numbers = self.optuna.user_attrs.get(_BATCH, ())
        waiting = self.optuna.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        return sum(one.number in numbers for one in waiting)

    def _evaluate(
        self,
        numbers: Sequence[int],
        points: Sequence[Point],
        evaluator: Evaluator,
        race: Racing | None,
    ) -> list[Trial]:
        """What came of each point; equal simulations are run once."""
        first: dict[str, Trial | int] = {}
        for known in self._all():
            if known.has_values and known.fingerprint:
                first.setdefault(known.fingerprint, known)
        judged: dict[int, Trial] = {}
        same_as: dict[int, Trial | int] = {}
        to_run: dict[int, Simulation] = {}
        prints: dict[int, str] = {}
        for number, point in zip(numbers, points, strict=True):
            try:
                simulation = self.bound.apply(point)
            except ConfigError as error:
                judged[number] = Trial(number=number, point=point, failure=str(error))
                continue
            prints[number] = files.fingerprint(simulation)
            if prints[number] in first:
                same_as[number] = first[prints[number]]
            else:
                first[prints[number]] = number
                to_run[number] = simulation
        leader = self.feasible[0] if race is not None and self.feasible else None
        measured = self._raced(list(to_run.values()), evaluator, race, leader)
        found = dict(zip(to_run, measured, strict=True))
        by_number = dict(zip(numbers, points, strict=True))
        for number, one in found.items():
            trial = self._judged(number, by_number[number], one, leader)
            judged[number] = dataclasses.replace(
                trial, fingerprint=prints[number], warnings=doubts(to_run[number])
            )
        for number, same in same_as.items():
            original = judged[same] if isinstance(same, int) else same
            judged[number] = _copy(original, number, by_number[number])
        return [judged[number] for number in numbers]

    def _raced(
        self,
        simulations: Sequence[Simulation],
        evaluator: Evaluator,
        race: Racing | None,
        leader: Trial | None,
    ) -> list[Measured]:
        """Every simulation under all seeds, or under as many as it takes to see that it loses."""
        if race is None or leader is None:
            return evaluator.measure(simulations, self.seeds)
        found: dict[int, Measured] = {}
        left = list(range(len(simulations)))
        for portion in race.stages(self.seeds):
            measured = evaluator.measure([simulations[i] for i in left], portion)
            for i, one in zip(left, measured, strict=True):
                found[i] = found[i].followed_by(one) if i in found else one
            left = [i for i in left if self._may_win(found[i], leader, race)]
        return [found[i] for i in range(len(simulations))]

    def _may_win(self, found: Measured, leader: Trial, race: Racing) -> bool:
        if found.failure is not None:
            return False
        sign = self.objectives[0].sign
        pairs = zip(found.values[0], leader.objectives[0], strict=False)
        if race.is_more([sign * (best - mine) for mine, best in pairs]):
            return False
        rows = zip(self.constraints, found.values[1:], strict=False)
        return not any(race.is_more([c.violation(v) for v in row]) for c, row in rows)

    def _judged(
        self, number: int, point: Point, found: Measured, leader: Trial | None = None
    ) -> Trial:
        if found.failure is not None:
            return Trial(number=number, point=point, failure=found.failure)
        n_objectives, n_constraints = len(self.objectives), len(self.constraints)
        n_both = n_objectives + n_constraints
        objectives = found.values[:n_objectives]
        distinct = found.distinct
        violations = [
            [constraint.violation(value) for value in row]
            for constraint, row in zip(self.constraints, distinct[n_objectives:n_both], strict=True)
        ]
        is_exact = len(objectives[0]) > 1 and not found.is_replicated
        error = (lambda _: 0.0) if is_exact else standard_error
        values = tuple(mean(row) for row in distinct[:n_objectives])
        ses = tuple(error(row) for row in distinct[:n_objectives])
        if leader is not None and len(objectives[0]) < len(self.seeds):
            value, se = referred(objectives[0], leader.objectives[0])
            values, ses = (value,), (se,)
        return Trial(
            number=number,
            point=point,
            seeds=self.seeds[: len(objectives[0])],
            values=values,
            ses=ses,
            violations=tuple(mean(row) for row in violations),
            violation_ses=tuple(error(row) for row in violations),
            objectives=objectives,
            constraints=found.values[n_objectives:n_both],
            metrics=found.values[n_both:],
            is_replicated=found.is_replicated,
        )

    def _tell(self, trial: optuna.Trial, one: Trial) -> None:
        from optuna.trial import TrialState

        from spillway.study import samplers

        for key, value in records.attributes(one).items():
            trial.set_user_attr(key, value)
        if not one.has_values:
            self.optuna.tell(trial, state=TrialState.FAIL)
            return
        samplers.set_constraints(trial, [str(c) for c in self.constraints], one.violations)
        self.optuna.tell(trial, list(one.values))

    def _check(self, threads: int | None, executor: Executor | None) -> None:
        """Warns of parameters that change nothing, or that no value in the space makes sound."""
        dead = dead_parameters(self.bound, self.seeds[:1], threads=threads, executor=executor)
        self.optuna.set_user_attr("dead", list(dead))
        if dead:
            warnings.warn(
                f"no run changed with {', '.join(dead)}: searching there varies nothing",
                RuntimeWarning,
                stacklevel=3,
            )
        shares = self.doubts()
        throughout = [one.name for one in self.bound if shares.get(one.name) == 1]
        if throughout:
            warnings.warn(
                f"everywhere in the space something speaks against {', '.join(throughout)}: the "
                "trials' warnings tell what",
                RuntimeWarning,
                stacklevel=3,
            )

    @property
    def dead(self) -> tuple[str, ...]:
        """The parameters that changed no run when that was tried before the first trial."""
        return tuple(self.optuna.user_attrs.get("dead", ()))

    def doubts(self, n: int = 128) -> dict[str, float]:
        """By setting, in which share of the space its value cannot work as it is meant to.

        Of `n` points that are spread over the space at random, those that are valid. What is in
        doubt is listed in `spillway.study.feasibility.doubts`; the trials note theirs.
        """
        random = np.random.default_rng(0)
        counts: dict[str, int] = {}
        n_valid = 0
        for shares in random.random((n, len(self.bound))):
            try:
                simulation = self.bound.apply(self.bound.at(shares.tolist()))
            except ConfigError:
                continue
            n_valid += 1
            for setting in {one.split(" =")[0] for one in doubts(simulation)}:
                counts[setting] = counts.get(setting, 0) + 1
        return {setting: count / n_valid for setting, count in sorted(counts.items())}

    def confirm(
        self,
        top: int = 3,
        seeds: int | Iterable[int] = 16,
        *,
        confidence: float = 0.95,
        within: float = 0.1,
        objective: int = 0,
        threads: int | None = None,
        executor: Executor | None = None,
    ) -> Confirmation:
        """Runs the best trials and the baseline once more, on seeds that the search has not seen.

        A search that picks the best of many means picks luck too. The winner is the best of those
        whose paired gain over the baseline excludes zero on the fresh seeds.

        Raises UsageError if seeds change nothing: there are no fresh runs then.

        Parameters
        ----------
        top
            How many trials, the one that is `recommended` first, then the best; with several
            objectives of the front.
        seeds
            Fresh seeds; an int n stands for n of them after those of the search.
        confidence
            Of the intervals, 0 < confidence < 1; those of the gains hold together.
        within
            By which share of itself each parameter of the winner is moved to look for a cliff; 0:
            do not look.
        objective
            Which one decides, if there are several.
        threads, executor
            As in `optimize`.
        """
        if isinstance(seeds, int):
            seeds = range(max(self.seeds) + 1, max(self.seeds) + 1 + seeds)
        return confirmation.confirm(
            self,
            self._evaluator(threads=threads, executor=executor),
            top=top,
            seeds=as_seeds(seeds),
            confidence=confidence,
            within=within,
            objective=objective,
        )

    # --- what was found ---------------------------------------------------------------------------

    def _all(self) -> list[Trial]:
        """All finished trials by number, of this and of other processes."""
        for frozen in self.optuna.get_trials(deepcopy=False):
            if frozen.number not in self._trials:
                trial = records.from_optuna(frozen)
                if trial is not None:
                    self._trials[frozen.number] = trial
        return [self._trials[number] for number in sorted(self._trials)]

    @property
    def records(self) -> tuple[Trial, ...]:
        """All finished trials, in order."""
        return tuple(self._all())

    @property
    def baseline(self) -> Trial:
        """The trial of the current configuration."""
        tried = [one for one in self._all() if one.is_baseline]
        if not tried:
            raise UsageError("nothing has been tried yet: call optimize first")
        return next((one for one in tried if one.has_values), tried[0])

    @property
    def feasible(self) -> tuple[Trial, ...]:
        """The trials that satisfy the constraints under all seeds, best first.

        Without duplicates. With several objectives: those that no other beats in all come first.
        """
        found = [
            one
            for one in self._all()
            if one.is_feasible and one.duplicate_of is None and len(one.seeds) == len(self.seeds)
        ]
        ranks = self._ranks(found)
        return tuple(one for _, one in sorted(zip(ranks, found, strict=True), key=_by_rank))

    def _ranks(self, trials: Sequence[Trial]) -> list[tuple[float, ...]]:
        signs = [one.sign for one in self.objectives]
        losses = [
            tuple(-sign * value for sign, value in zip(signs, one.values, strict=True))
            for one in trials
        ]
        if len(signs) == 1:
            return losses
        return [(float(sum(_dominates(other, mine) for other in losses)),) for mine in losses]

    @property
    def pareto(self) -> tuple[Trial, ...]:
        """The feasible trials that no other feasible one beats in every objective."""
        found = self.feasible
        signs = [one.sign for one in self.objectives]
        losses = [[-s * v for s, v in zip(signs, one.values, strict=True)] for one in found]
        return tuple(
            one
            for one, mine in zip(found, losses, strict=True)
            if not any(_dominates(other, mine) for other in losses)
        )

    @property
    def best_trial(self) -> Trial:
        """The feasible trial with the best mean.

        Raises UsageError if none is feasible, with the nearest one, or if there are several
        objectives.
        """
        if len(self.objectives) > 1:
            raise UsageError("there are several objectives: choose from study.pareto")
        found = self.feasible
        if not found:
            raise UsageError(self._no_feasible())
        return found[0]

    @property
    def recommended(self) -> Trial:
        """The trial that the sampler's own model thinks best, if it has one; else `best_trial`.

        With `gp` that is the best posterior mean, which luck with the seeds sways less.
        """
        recommend = getattr(self.optuna.sampler, "recommend", None)
        best = self.best_trial
        if recommend is None or len(self.optuna.get_trials(deepcopy=False)) < _LEAST_FOR_MODEL:
            return best
        chosen = self._by_number(recommend(self.optuna).number)
        original = chosen.number if chosen.duplicate_of is None else chosen.duplicate_of
        return self._by_number(original)

    def _by_number(self, number: int) -> Trial:
        for one in self._all():
            if one.number == number:
                return one
        raise UsageError(f"there is no finished trial {number}")

    @property
    def best(self) -> Simulation:
        """The configuration of `best_trial`, which runs."""
        return self.simulation_of(self.best_trial)

    def simulation_of(self, trial: Trial | int) -> Simulation:
        """The configuration that a trial stands for."""
        if isinstance(trial, int):
            trial = self._by_number(trial)
        return self.simulation if trial.is_baseline else self.bound.apply(trial.point)

    def notes(self) -> list[str]:
        """What a reader ought to know of the trials: those in which seeds change nothing."""
        tried = [one for one in self._all() if one.has_values]
        exact = [one for one in tried if one.is_exact]
        if not exact:
            return []
        note = note_on_copies(self.simulation_of(one) for one in exact)
        return [
            note if len(exact) == len(tried) else f"{len(exact)} of {len(tried)} trials: {note}"
        ]

    def rows(self) -> list[dict[str, Any]]:
        """One row per finished trial, as `trials` has them."""
        return [self._row(one) for one in self._all()]

    @property
    def trials(self) -> pd.DataFrame:
        """One row per finished trial as a pandas DataFrame (extra `frames`).

        `trial`; `state`: complete, infeasible, duplicate or failed; a column per parameter; per
        objective and constraint its mean, `…_se` and `…_per_seed`; `n`: how many different runs,
        one where seeds change nothing; further metrics; `duplicate_of`, `failure`, `warnings`.
        """
        pandas = require("pandas", "frames")
        frame: pd.DataFrame = pandas.DataFrame(self.rows())
        return frame

    def _row(self, one: Trial) -> dict[str, Any]:
        row: dict[str, Any] = {"trial": one.number, "state": one.state}
        row |= {name: one.point.get(name) for name in self.bound.parameters}
        row["n"] = one.num_runs
        named: list[tuple[str, tuple[float, ...] | None]] = []
        for names, values in (
            ([figure.name for figure in self.objectives], one.objectives),
            ([figure.name for figure in self.constraints], one.constraints),
            ([figure.name for figure in self.metrics], one.metrics),
        ):
            named += [(name, values[i] if values else None) for i, name in enumerate(names)]
        for name, told in named:
            per_seed = None if told is None else told[: one.num_runs]
            row[name] = math.nan if per_seed is None else mean(per_seed)
            row[f"{name}_se"] = math.nan if per_seed is None else standard_error(per_seed)
            row[f"{name}_per_seed"] = per_seed
        for objective, value, se in zip(self.objectives, one.values, one.ses, strict=False):
            row[objective.name] = value
            row[f"{objective.name}_se"] = math.nan if one.is_exact else se
        row["is_baseline"] = one.is_baseline
        row["duplicate_of"], row["failure"] = one.duplicate_of, one.failure
        row["warnings"] = "; ".join(one.warnings)
        return row

    def importance(self, objective: int = 0) -> dict[str, float]:
        """How much each parameter tells the best quarter of the trials from all, largest first.

        Optuna's PED-ANOVA over what was run, duplicates and failures left out; shares of 1.
        Parameters that are open in some trials only are left out. It tells where the sampler went
        as much as what it found there; `confirm` measures what each change of the winner is worth.

        Raises UsageError with fewer than 8 trials.
        """
        import inspect

        import optuna
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        from spillway.study import samplers

        known = [one for one in self._all() if one.has_values and one.duplicate_of is None]
        known = [one for one in known if set(one.point) >= set(self._always_open())]
        if len(known) < _LEAST_FOR_IMPORTANCE:
            raise UsageError(
                f"importance needs at least {_LEAST_FOR_IMPORTANCE} different trials, "
                f"there are {len(known)}"
            )
        parameters = inspect.signature(PedAnovaImportanceEvaluator).parameters
        which: Any = "target_quantile" if "target_quantile" in parameters else "baseline_quantile"
        with samplers.quiet():
            evaluator = PedAnovaImportanceEvaluator(**{which: _BEST_SHARE})
            study = optuna.create_study(direction=self.objectives[objective].direction)
            for one in known:
                study.add_trial(
                    optuna.trial.create_trial(
                        value=one.values[objective],
                        params={name: one.point[name] for name in self._always_open()},
                        distributions={
                            name: self.bound.parameters[name].distribution()
                            for name in self._always_open()
                        },
                    )
                )
            return get_param_importances(study, evaluator=evaluator)

    def _always_open(self) -> list[str]:
        return [one.name for one in self.bound if one.opens_with is None]

    @property
    def plot(self) -> StudyPlots:
        """Figures of this study (extra `plot`)."""
        return StudyPlots(self)

    def __repr__(self) -> str:
        return tables.study(self)

    def _no_feasible(self) -> str:
        tried = [one for one in self._all() if one.has_values]
        if not tried:
            failures = [one.failure for one in self._all()]
            last = f"; the last failure: {failures[-1]}" if failures else ""
            return f"no feasible configuration found: no trial could be run{last}"
        nearest = min(tried, key=lambda one: (one.violation, one.number))
        broken = [
            f"{constraint.name} = {mean(row):.4g} instead of {constraint.relation} "
            f"{constraint.bound:g}"
            for constraint, row, violation in zip(
                self.constraints, nearest.constraints, nearest.violations, strict=True
            )
            if violation > 0
        ]
        return (
            f"no feasible configuration found; the nearest is trial {nearest.number} with "
            f"{', '.join(broken)}: {tables.point(nearest.point)}"
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


def _by_rank(pair: tuple[tuple[float, ...], Trial]) -> tuple[tuple[float, ...], int]:
    return pair[0], pair[1].number


def _dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and tuple(a) != tuple(b)
