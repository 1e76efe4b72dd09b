"""The search: propose a batch of configurations, run it under all seeds, record the results."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import TrialState

from spillway._core.sim import ConfigError, UsageError, build_info
from spillway.config import files, interruption
from spillway.config.messages import note
from spillway.config.progress import reporting
from spillway.config.randomness import REPLICATION, note_on_copies
from spillway.study import samplers, storage
from spillway.study.assessment import assess, judged
from spillway.study.evaluation import Digest, Evaluator
from spillway.study.feasibility import caveats, shares_with_caveats
from spillway.study.liveness import dead_parameters
from spillway.study.measurements import INTERRUPTED, Measured
from spillway.study.records import Trial, attributes, from_optuna

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from optuna.storages import BaseStorage

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Report
    from spillway.study.racing import Racing
    from spillway.study.space import BoundSpace, Point
    from spillway.study.study_data import StudyData


_BASELINE = "baseline"
_OUTSIDE = "outside"  # a baseline that is not in the space
_BATCH = "batch"  # the trial numbers of the latest batch
_MOST_INVALID = 100


def opened(
    study: StudyData, sampler: Any, seed: int, kept_in: Any, name: str
) -> tuple[optuna.Study, BaseStorage]:
    """Optuna's study of a problem, new or resumed from its storage, and the storage.

    Raises UsageError if the storage holds another study of this name.
    """
    made, resolved = samplers.resolve(
        sampler,
        seed=seed,
        n_objectives=len(study.objectives),
        n_constraints=len(study.constraints),
        is_conditional=study.bound.is_conditional,
    )
    if hasattr(made, "is_valid"):
        made.is_valid = partial(_makes_a_simulation, study.bound)
    is_shared = kept_in is not None
    with samplers.quiet():
        place = storage.resolve(kept_in)
        found = optuna.create_study(
            storage=place,
            sampler=made,
            study_name=name,
            directions=[objective.direction for objective in study.objectives],
            load_if_exists=is_shared,
        )
    problem = study._problem()
    known = found.user_attrs.get("problem")
    if known not in (None, problem):
        differing = ", ".join(key for key in problem if known.get(key) != problem[key])
        # A simulation's fingerprint differs between versions too, so their trials do not mix.
        raise UsageError(
            f"the storage holds another study named {name!r}, begun with Spillway "
            f"{found.user_attrs['made_of']['spillway']}: {differing} differ; use another name or "
            "another file"
        )
    made_of = {"optuna": optuna.__version__, "spillway": build_info["version"], "sampler": resolved}
    before = found.user_attrs.get("made_of", made_of)
    if before["sampler"] != resolved:
        note(_other_sampler(before["sampler"], resolved), RuntimeWarning)
    if found.user_attrs.get("made_of") != made_of:
        found.set_user_attr("made_of", made_of)
    if known is None:
        found.set_user_attr("problem", problem)
    if is_shared:
        storage.release_abandoned(found, place)
    return found, place


def _makes_a_simulation(bound: BoundSpace, params: Mapping[str, Any]) -> bool:
    """Whether values of parameters that the sampler proposes jointly can be a trial."""
    try:
        point = bound.ask(optuna.trial.FixedTrial(dict(params)))
    except ValueError:  # others are drawn later
        return True
    try:
        bound.apply(bound.ordered(point))
    except ConfigError:
        return False
    return True


def _other_sampler(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Says what a resumed study has of another sampler than its first trials."""
    is_other = before["name"] != now["name"]
    changes = [
        f"{key} {before.get(key)} → {now.get(key)}"
        for key in (["name"] if is_other else {**before, **now})
        if before.get(key) != now.get(key)
    ]
    return (
        f"the study goes on with another sampler than it had: {', '.join(changes)}; its trials are "
        "not those of an uninterrupted study"
    )


def check_parameters(study: StudyData, *, progress: bool = False, **options: Any) -> None:
    """Warns of seeds and parameters without effect, and of caveats that hold in the whole space.

    `options`: those of the `Evaluator`.
    """
    _check_seeds(study, Evaluator([Digest()], **options))
    with reporting(progress, "check of the parameters: runs") as report:
        dead = dead_parameters(study.bound, study.seeds[:1], report=report, **options)
    study.optuna.set_user_attr("dead", list(dead))
    if dead:
        note(f"{', '.join(dead)} changed no run: varying them has no effect", RuntimeWarning)
    shares = shares_with_caveats(study.bound)
    throughout = [parameter.name for parameter in study.bound if shares.get(parameter.name) == 1]
    if throughout:
        note(
            f"the whole space is doubtful for {', '.join(throughout)}: see the trials' warnings",
            RuntimeWarning,
        )


def _check_seeds(study: StudyData, evaluator: Evaluator) -> None:
    """Warns if a fresh seed does not change the run of the current configuration."""
    fresh = next(seed for seed in range(len(study.seeds) + 1) if seed not in study.seeds)
    (found,) = evaluator.measure_all([study.simulation], (study.seeds[0], fresh))
    if found.failure is None and not found.is_replicated:
        note(
            f"{note_on_copies([study.simulation])} Trials have no intervals, and `confirm` needs "
            f"runs that differ. {REPLICATION}. To confirm on traffic that the "
            "search has not seen: search on one of spillway.traffic.halves, "
            "confirm(workload=spillway.traffic.resampled(the other, block_s))",
            RuntimeWarning,
        )


def ask_for_baseline(study: StudyData, place: BaseStorage) -> None:
    """Queues the current configuration as the next trial, unless the study has it.

    A failed one, e.g. of a killed process, is repeated.
    """
    with storage.exclusive(place):
        for frozen in study.optuna.get_trials(deepcopy=False):
            if _BASELINE not in frozen.user_attrs:
                continue
            known = from_optuna(frozen)
            if known is None or known.has_values:
                return
        point = study.bound.current()
        outside = study.bound.outside()
        attributes = {_BASELINE: True, storage.OWNER: storage.process_name()}
        if not outside and study.bound.ordered(point) == point:
            study.optuna.enqueue_trial(point, user_attrs=attributes)
            return
        study.optuna.enqueue_trial({}, user_attrs={**attributes, _OUTSIDE: True})
    what = ", ".join(f"{name} = {value}" for name, value in outside.items()) or "its order"
    note(
        f"the current configuration lies outside the space ({what}): it is the first "
        "trial, but the sampler ignores it",
        RuntimeWarning,
    )


def enqueue(study: StudyData, place: BaseStorage, point: Point) -> None:
    """Queues a point, whose missing parameters the sampler proposes."""
    ask_for_baseline(study, place)
    owner = {storage.OWNER: storage.process_name()}
    study.optuna.enqueue_trial(study.bound.checked(point), user_attrs=owner)


def ask(study: StudyData, place: BaseStorage, *, is_shared: bool) -> tuple[optuna.Trial, Point]:
    """The next trial and its point, which is that of the simulation for the first one.

    Points of which no simulation can be made are recorded as failed.
    """
    ask_for_baseline(study, place)
    for _ in range(_MOST_INVALID):
        with samplers.quiet(), interruption.deferred():
            trial = storage.ask(study.optuna, place, None) if is_shared else study.optuna.ask()
            assert trial is not None
            storage.RUNNING.add((study.optuna.study_name, trial.number))
            if _OUTSIDE in trial.user_attrs:
                return trial, study.bound.current()
            point = study.bound.ordered(study.bound.ask(trial))
            try:
                study.bound.apply(point)
            except ConfigError as error:
                failed = Trial(number=trial.number, point=point, failure=str(error))
                tell(study, place, trial, failed)
            else:
                return trial, point
    raise UsageError(f"{_MOST_INVALID} proposals in turn were invalid combinations")


def record_of(
    study: StudyData, number: int, point: Point, simulation: Simulation, measured: Measured
) -> Trial:
    """The trial of measurements that were made outside of a batch."""
    return dataclasses.replace(
        judged(study, number, point, measured),
        fingerprint=files.fingerprint(simulation),
        warnings=caveats(simulation),
    )


def tell(study: StudyData, place: BaseStorage, trial: optuna.Trial, record: Trial) -> None:
    """Records a finished trial."""
    _release(study, [trial])
    for key, value in attributes(record).items():
        trial.set_user_attr(key, value)
    if _OUTSIDE in trial.user_attrs:  # samplers ignore it
        place.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        return
    if not record.has_values:
        study.optuna.tell(trial, state=TrialState.FAIL)
        return
    names = [str(constraint) for constraint in study.constraints]
    samplers.set_constraints(trial, names, record.violations)
    study.optuna.tell(trial, list(record.values))


def _release(study: StudyData, trials: Iterable[optuna.Trial]) -> None:
    name = study.optuna.study_name
    storage.RUNNING.difference_update((name, trial.number) for trial in trials)


def _runs_of(
    report: Report, trials: tuple[int, int], best: str, done: float, total: float, *_: str
) -> None:
    """Reports runs of the batch that follows the finished trials."""
    runs = f"run {done:,.0f} of {total:,.0f} of this batch"
    report(*trials, f"{best}, {runs}" if best else runs)


@dataclasses.dataclass
class Search:
    """Runs the trials of a study in batches; see `Study.optimize`."""

    _study: StudyData
    _storage: BaseStorage
    _evaluator: Evaluator
    _race: Racing | None
    _is_shared: bool
    _shows_runs: bool

    def run(
        self,
        n_trials: int,
        *,
        total: bool,
        batch_size: int,
        report: Report | None,
        is_over: Callable[[], bool],
        recorded: Callable[[int], None],
    ) -> None:
        """Runs the current configuration, unless the study has it, then the proposals.

        `is_over` is asked before each batch, `recorded` called with the number of each trial.
        """
        ask_for_baseline(self._study, self._storage)
        made = 0
        while (done := len(self._study.records) if total else made) < n_trials and not is_over():
            size = self._left_of_a_batch() or batch_size
            if self._shows_runs and report is not None:
                self._evaluator.report = partial(_runs_of, report, (done, n_trials), self._best())
            ran = self._run_batch(size, n_trials - done, n_trials if total else None)
            made += len(ran)
            if not ran and not storage.wait_for_others(self._study.optuna, self._storage):
                break
            for number in ran:
                recorded(number)
            if ran and report is not None:
                done = len(self._study.records) if total else made
                report(done, n_trials, self._best())

    def _best(self) -> str:
        """The best mean so far, as a remark."""
        if len(self._study.objectives) > 1 or not self._study.feasible:
            return ""
        name, best = self._study.objectives[0].name, self._study.feasible[0]
        return f"best {name} {best.values[0]:.4g}"

    def _run_outside(self, trial: optuna.Trial) -> None:
        """Runs a baseline outside the space, as a trial that samplers ignore."""
        study = self._study
        measured = self._evaluator.measure_all([study.simulation], study.seeds)[0]
        point = study.bound.current()
        with interruption.deferred():
            record = record_of(study, trial.number, point, study.simulation, measured)
            tell(study, self._storage, trial, record)

    def _run_batch(self, size: int, most: int, limit: int | None) -> list[int]:
        """Proposes this many trials and runs the first `most`; returns their numbers.

        The others of the batch wait for the next call, so that they are proposed without the
        results of the first ones, however many trials each call makes. `limit`: number of trials
        of all processes.
        """
        study = self._study
        left: dict[int, optuna.Trial] = {}  # what is not recorded yet
        points: list[Point] = []
        with samplers.quiet():
            try:
                while len(left) < size:
                    trial = self._begun(left, limit if len(left) < most else None)
                    if trial is None:
                        break
                    if _OUTSIDE in trial.user_attrs:
                        if points:  # it is a batch of its own, the next one
                            self._put_back([left.pop(trial.number)])
                            break
                        self._run_outside(trial)
                        return [trial.number]
                    # Appended at once, so that the next proposal takes it into account.
                    points.append(study.bound.ordered(study.bound.ask(trial)))
                if not points:
                    return []
                study.optuna.set_user_attr(_BATCH, list(left))
                numbers, later = list(left)[:most], list(left)[most:]
                self._put_back([left.pop(number) for number in later])
                points = points[:most]
                assessed, raised = assess(study, numbers, points, self._evaluator, self._race)
                self._record(assessed, left)
            except Exception as error:
                for trial in left.values():
                    self._tell(trial, Trial(number=trial.number, point={}, failure=repr(error)))
                raise
            except BaseException:
                self._put_back(left.values())
                raise
            finally:
                self._release(left.values())  # also those that could not be recorded
            if left:
                self._put_back(left.values())
                raise KeyboardInterrupt
        if raised is not None:
            raise raised
        return numbers

    def _begun(self, begun: dict[int, optuna.Trial], limit: int | None) -> optuna.Trial | None:
        """The next trial, which is added to those that have begun; None: the limit is reached."""
        study = self._study.optuna
        with interruption.deferred():
            trial = storage.ask(study, self._storage, limit) if self._is_shared else study.ask()
            if trial is not None:
                begun[trial.number] = trial
                storage.RUNNING.add((study.study_name, trial.number))
            return trial

    def _record(self, assessed: Iterable[Trial], left: dict[int, optuna.Trial]) -> None:
        """Records the trials that are over, which are left no longer."""
        for trial in assessed:
            if trial.failure != INTERRUPTED:
                with interruption.deferred():
                    self._tell(left[trial.number], trial)
                    del left[trial.number]

    def _put_back(self, trials: Iterable[optuna.Trial]) -> None:
        with interruption.deferred():
            for trial in trials:
                self._release([trial])
                storage.requeue(self._storage, trial)

    def _release(self, trials: Iterable[optuna.Trial]) -> None:
        _release(self._study, trials)

    def _left_of_a_batch(self) -> int:
        """The number of trials of the latest batch that an interruption has left to run.

        They run first, as a batch of their own: an uninterrupted study proposes nothing before it
        knows the results of a whole batch.
        """
        numbers = self._study.optuna.user_attrs.get(_BATCH, ())
        waiting = self._study.optuna.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        return sum(trial.number in numbers for trial in waiting)

    def _tell(self, trial: optuna.Trial, record: Trial) -> None:
        tell(self._study, self._storage, trial, record)
