"""Searches over the settings of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.sim import UsageError
from spillway.config.extras import require
from spillway.config.messages import note
from spillway.study import tables
from spillway.study.confirmation import confirm
from spillway.study.data import StudyData
from spillway.study.evaluation import as_seeds
from spillway.study.feasibility import shares_in_doubt
from spillway.study.objective import rewards_shedding
from spillway.study.plots import StudyPlots
from spillway.study.racing import Racing

# What needs Optuna is imported by the method that uses it.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    import pandas as pd

    from spillway.loading import Configuration
    from spillway.result import Result
    from spillway.study.confirmation import Confirmation
    from spillway.study.objective import Constraint
    from spillway.study.space import Space

__all__ = ["Study"]


def __dir__() -> list[str]:
    return __all__


class Study(StudyData):
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
        What proposes configurations: tpe, cmaes (one objective, no constraints), nsga2, random,
        qmc, gp; a mapping of `name` and the sampler's arguments; or a sampler of Optuna's.
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
        simulation: Configuration,
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
        super().__init__(simulation, space, objective, constraints, seeds=seeds, metrics=metrics)
        require("optuna", "study")
        if rewards_shedding(self.objectives, self.constraints):
            note(
                "only latencies of requests that get through count: refusing most requests is "
                "best; take goodput, or add a constraint such as {'shed': '<=0.1'}",
                RuntimeWarning,
            )
        from spillway.study.search import opened

        self._is_shared = storage is not None
        self.optuna, self._storage = opened(self, sampler, seed, storage, name)

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
        from spillway.study.search import Search, check_parameters

        if check and not self.records:
            check_parameters(self, threads=threads, executor=executor)
        search = Search(self, self._storage, evaluator, race, is_shared=self._is_shared)
        search.run(n_trials, total=total, batch_size=batch_size, progress=progress)
        if not self.feasible and any(one.has_values for one in self.records):
            note(self._no_feasible(), RuntimeWarning)
        return self

    def _take_seeds(self, seeds: tuple[int, ...]) -> None:
        if seeds == self.seeds:
            return
        if self.records:
            raise UsageError(f"the study's trials met the seeds {self.seeds}; so must all others")
        self.seeds = seeds
        self.optuna.set_user_attr("problem", self._problem())

    def doubts(self, n: int = 128) -> dict[str, float]:
        """By setting, in which share of the space its value cannot work as it is meant to.

        Of `n` points that are spread over the space at random, those that are valid. What is in
        doubt is listed in `spillway.study.feasibility.doubts`; the trials note theirs.
        """
        return shares_in_doubt(self.bound, n)

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
        return confirm(
            self,
            self._evaluator(threads=threads, executor=executor),
            top=top,
            seeds=as_seeds(seeds),
            confidence=confidence,
            within=within,
            objective=objective,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per finished trial, as `trials` has them."""
        return tables.rows(self)

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

    def importance(self, objective: int = 0) -> dict[str, float]:
        """How much each parameter tells the best quarter of the trials from all, largest first.

        Optuna's PED-ANOVA over what was run, duplicates and failures left out; shares of 1.
        Parameters that are open in some trials only are left out. It tells where the sampler went
        as much as what it found there; `confirm` measures what each change of the winner is worth.

        Raises UsageError with fewer than 8 trials.
        """
        from spillway.study.importance import importance

        return importance(self, objective)

    @property
    def plot(self) -> StudyPlots:
        """Figures of this study (extra `plot`)."""
        return StudyPlots(self)

    def __repr__(self) -> str:
        return tables.study(self)
