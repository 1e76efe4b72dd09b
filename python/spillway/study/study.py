"""Searches over the settings of a simulation."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from spillway._core.sim import UsageError
from spillway.config import files, profiles
from spillway.config.extras import require
from spillway.config.messages import note
from spillway.config.progress import reporting
from spillway.data import frames
from spillway.report import page
from spillway.study import by_hand, tables
from spillway.study.confirmation import confirm, guards
from spillway.study.evaluation import as_seeds
from spillway.study.feasibility import shares_with_caveats
from spillway.study.objective import rewards_shedding
from spillway.study.racing import Racing
from spillway.study.records import Proposal
from spillway.study.search_history import search_history
from spillway.study.study_data import StudyData
from spillway.study.study_plots import StudyPlots

# Methods that need Optuna import it.
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    import optuna
    import pandas as pd

    from spillway._core.workload import Synthetic, Trace
    from spillway.config.progress import Progress
    from spillway.loading import Configuration
    from spillway.result import Result
    from spillway.study.confirmation import Confirmation
    from spillway.study.objective import Constraint
    from spillway.study.records import Trial
    from spillway.study.space import Space


class Study(StudyData):
    """A search for the best configuration, over replicated seeds.

    `optimize` runs trials; `ask` and `tell` leave the runs to the caller. `stopped_by` says what
    ended the last `optimize` before its number of trials; empty if nothing did.

    Parameters
    ----------
    simulation
        The current configuration, or the path of its file: the start and the baseline of the
        search.
    space
        The search space, a `Space` or a mapping of its dimensions.
    objective
        The metric to maximize or minimize, or several, see `spillway.study.Objective`.
    constraints
        Bounds of figures, as text ("p99_ttft_ms[critical] <= 200", `spillway.data.bounds` has the
        form), as a list of such, or by figure: {"p99_ttft_ms[critical]": "<=200"}. They must hold
        in the mean over the seeds.
    seeds
        Seeds of the runs of every configuration: all see the same requests. An int n stands for 0,
        …, n - 1. A configuration in which nothing is random is run once for all seeds.
    sampler
        What proposes configurations: tpe, cmaes (one objective, no constraints), nsga2, random,
        qmc, gp; a mapping of `name` and the sampler's arguments; or an Optuna sampler.
    seed
        Seed of the sampler.
    metrics
        Further figures to record for every trial; the search ignores them.
    storage
        Storage of the trials: None is memory; a path is a journal file, from which a killed study
        resumes and which several processes may share; or an Optuna storage.
    name
        Name of the study in its storage.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(
    ...     workload={"kind": "synthetic", "num_requests": 300, "requests_per_s": 40},
    ...     slo_classes=[{"name": "standard", "target_ttft_s": 0.1}],
    ...     gateway={"limit": {"kind": "fixed", "max_in_flight": 64}},
    ... )
    >>> study = spillway.Study(
    ...     simulation, {"gateway.limit[0].max_in_flight": [8, 128]}, "goodput", seeds=2
    ... )
    >>> len(study.optimize(4).records)
    4
    """

    def __init__(
        self,
        simulation: Configuration,
        space: Space | Mapping[str, Any],
        objective: Any,
        constraints: str | Mapping[str, Any] | Sequence[str | Constraint] | None = None,
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
                "only latencies of served requests count, so rejecting most requests is best; use "
                "goodput, or add a constraint such as {'shed': '<=0.1'}",
                RuntimeWarning,
            )
        from spillway.study.search import opened

        self._seed = seed
        self._asked: dict[int, tuple[optuna.Trial, Proposal]] = {}
        self.stopped_by = ""
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
        timeout_s: float | None = None,
        min_gain: float | None = None,
        callbacks: Sequence[Callable[[Study, Trial], object]] = (),
        threads: int | None = None,
        executor: Executor | None = None,
        progress: Progress = False,
    ) -> Study:
        """Evaluates configurations: the current one first, then the sampler's proposals.

        The sampler proposes a batch, one call runs it over all seeds, and the sampler learns from
        the results. With a fixed seed and batch size the trials depend neither on `threads` nor on
        `executor`, nor on how many of them each call makes: 7 and then 7 more are those of 14, for
        what a call leaves of its last batch is the next call's first. A trial that cannot be run is
        recorded with the reason. So is a trial whose objective raises an exception, which
        propagates once the others of its batch are recorded. Processes that share a storage run the
        current configuration once. An interruption (Ctrl-C) keeps the finished trials; the next
        call first runs the rest of the batch, so that an interrupted study ends with the same
        trials as an uninterrupted one.

        Parameters
        ----------
        n_trials
            Number of trials, >= 1.
        seeds
            Replacement for the seeds of the study, before its first trial.
        total
            Whether `n_trials` includes the finished trials of the study, e.g. to resume a killed
            study, or if processes share a storage: together they make that many, and each waits
            for the others on its machine.
        batch_size
            Number of configurations that are proposed before any of them is run, >= 1.
        racing
            Whether configurations that are significantly worse than the best so far skip the rest
            of the seeds, see `Racing`.
        check
            Whether to check before the first trial that each parameter changes some run, and that
            seeds do; a warning names the parameters that do not (`study.dead`).
        timeout_s
            Time after which no further batch begins, in seconds.
        min_gain
            The search ends when the expected improvement of the next trial on the best is less than
            this, in the unit of the objective (see `expected_gain`).
        callbacks
            Functions that are called as callback(study, trial) after each batch, with each of its
            trials; `study.stop()` ends the search.
        threads
            Number of concurrent runs; None: one per CPU.
        executor
            A `concurrent.futures.Executor` that makes the runs instead.
        progress
            True: show trials, the best so far and the time left, as for `simulate`. A function is
            called as progress(done, n_trials) after each batch.

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
        if min_gain is not None and len(self.objectives) > 1:
            raise UsageError("min_gain takes one objective, not several")
        from spillway.study.search import Search, check_parameters

        if check and not self.records:
            check_parameters(self, threads=threads, executor=executor, progress=progress is True)
        search = Search(self, self._storage, evaluator, race, self._is_shared, progress is True)
        began_s = time.monotonic()
        self.stopped_by = ""

        def is_over() -> bool:
            if timeout_s is not None and time.monotonic() - began_s >= timeout_s:
                self.stopped_by = self.stopped_by or f"timeout_s = {timeout_s:g}"
            elif min_gain is not None and (gain := self.expected_gain()) < min_gain:
                self.stopped_by = self.stopped_by or f"the expected gain, {gain:.3g}"
            return bool(self.stopped_by)

        def recorded(number: int) -> None:
            for callback in callbacks:
                callback(self, self._by_number(number))

        with reporting(progress, "trials") as report:
            search.run(
                n_trials,
                total=total,
                batch_size=batch_size,
                report=report,
                is_over=is_over,
                recorded=recorded,
            )
        if not self.feasible and any(trial.has_values for trial in self.records):
            note(self.no_feasible(), RuntimeWarning)
        return self

    def stop(self) -> None:
        """Ends `optimize` after the present batch; for callbacks."""
        self.stopped_by = "a callback"

    def expected_gain(self) -> float:
        """How much better than the best the next trial is expected to be.

        In the unit of the objective, by the Gaussian process of the sampler `gp`, whatever sampler
        proposed the trials. NaN with fewer than eight trials, infinite while none seems feasible.

        Raises UsageError if there are several objectives.
        """
        if len(self.objectives) > 1:
            raise UsageError("with several objectives there is no expected gain")
        from spillway.study.gp import expected_gain

        return expected_gain(self.optuna)

    def enqueue(self, point: Mapping[str, Any]) -> None:
        """Queues a configuration, which runs before further proposals.

        `point` has values of parameters by name, as `Trial.point`; the sampler proposes those that
        it lacks. Raises ConfigError for a value that the search could not propose.
        """
        from spillway.study.search import enqueue

        enqueue(self, self._storage, dict(point))

    def ask(self) -> Proposal:
        """The next configuration, to be run by the caller; `tell` records its results.

        The first one is the current configuration. Combinations that are invalid are recorded as
        failed trials and skipped.

        Examples
        --------
        >>> import spillway
        >>> simulation = spillway.Simulation(
        ...     workload={"kind": "synthetic", "num_requests": 300, "requests_per_s": 40},
        ...     slo_classes=[{"name": "standard", "target_ttft_s": 0.1}],
        ...     gateway={"limit": {"kind": "fixed", "max_in_flight": 64}},
        ... )
        >>> study = spillway.Study(
        ...     simulation, {"gateway.limit[0].max_in_flight": [8, 128]}, "goodput", seeds=2
        ... )
        >>> asked = study.ask()
        >>> results = spillway.simulate(asked.simulation, seeds=asked.seeds)
        >>> study.tell(asked, results).is_baseline
        True
        """
        from spillway.study.search import ask

        trial, point = ask(self, self._storage, is_shared=self._is_shared)
        is_first = "baseline" in trial.user_attrs
        simulation = self.simulation if is_first else self.bound.apply(point)
        seeds = self.seeds
        proposal = Proposal(number=trial.number, point=point, simulation=simulation, seeds=seeds)
        self._asked[trial.number] = (trial, proposal)
        return proposal

    def tell(
        self,
        asked: Proposal | int,
        results: Iterable[Result] | Mapping[str, Sequence[float]] | str,
    ) -> Trial:
        """Records the results of a configuration that `ask` gave.

        Parameters
        ----------
        asked
            The proposal, or its number.
        results
            The runs of its simulation under its seeds; or by the name of each objective,
            constraint and metric, a value per seed (metrics may be missing); or a text, the reason
            why there are none.

        Raises UsageError for a proposal that is not open, or results of other seeds or of another
        configuration.
        """
        from spillway.study.search import record_of, tell

        number = asked if isinstance(asked, int) else asked.number
        if number not in self._asked:
            raise UsageError(f"trial {number} is not one that this study has asked for")
        trial, proposal = self._asked[number]
        measured = by_hand.measured(self, proposal.simulation, results)
        record = record_of(self, number, proposal.point, proposal.simulation, measured)
        tell(self, self._storage, trial, record)
        del self._asked[number]
        return self._by_number(number)

    def _take_seeds(self, seeds: tuple[int, ...]) -> None:
        if seeds == self.seeds:
            return
        if self.records:
            used = f"the study's trials used the seeds {self.seeds}"
            raise UsageError(f"{used}; all further trials must use them too")
        self.seeds = seeds
        self.optuna.set_user_attr("problem", self._problem())

    def caveats(self, n: int = 128) -> dict[str, float]:
        """By setting, the share of the space in which it cannot work as intended.

        The share is estimated from the valid ones of `n` random points.
        `spillway.study.feasibility.caveats` lists the rules; each trial records the caveats about
        its configuration as `warnings`.
        """
        return shares_with_caveats(self.bound, n)

    def confirm(
        self,
        top: int = 3,
        seeds: int | Iterable[int] = 16,
        *,
        max_seeds: int | None = None,
        confidence: float = 0.95,
        within: float = 0.1,
        objective: int = 0,
        workload: Synthetic | Trace | None = None,
        threads: int | None = None,
        executor: Executor | None = None,
        progress: Progress = False,
    ) -> Confirmation:
        """Runs the best trials and the baseline again, on seeds that the search has not seen.

        Picking the best of many noisy means partly selects luck. The winner is the best of those
        whose constraints are shown to hold, by confidence bounds, and whose paired gain over the
        baseline excludes zero on the fresh seeds. Seeds are added until the constraints of every
        candidate are decided, or the budget is spent. Headline figures that the study does not ask
        for are watched: those that the winner worsens significantly are said (`guards`).

        Raises UsageError if seeds change nothing, because there are no fresh runs then, and if the
        study searched settings of a workload that is replaced here.

        Parameters
        ----------
        top
            Number of trials: the `recommended` one, then the best; with several objectives, those
            of the front.
        seeds
            Fresh seeds; an int n stands for n seeds after those of the search.
        max_seeds
            The most fresh seeds, if constraints remain undecided; None: eight times `seeds`.
        confidence
            Confidence of the intervals, 0 < confidence < 1; those of the gains hold simultaneously.
        within
            Share by which each parameter of the winner is moved to look for a cliff; 0: no search
            for cliffs.
        objective
            Index of the deciding objective, if there are several.
        workload
            Traffic that the search has not seen, e.g. the second of `spillway.traffic.halves`,
            instead of the study's. Seeds of the search may then occur again.
        threads, executor
            As in `optimize`.
        progress
            As for `run_many`: first the runs of the trials, then those around the winner.
        """
        if isinstance(seeds, int):
            seeds = range(max(self.seeds) + 1, max(self.seeds) + 1 + seeds)
        evaluator = self._evaluator(threads=threads, executor=executor)
        with reporting(progress, "confirmation: runs") as evaluator.report:
            found = confirm(
                self,
                evaluator,
                top=top,
                seeds=as_seeds(seeds),
                max_seeds=max_seeds,
                confidence=confidence,
                within=within,
                objective=objective,
                workload=workload,
            )
        worse = guards(self, found, workload=workload, threads=threads, progress=progress)
        return dataclasses.replace(found, guards=worse)

    def rows(self) -> list[dict[str, Any]]:
        """One row per finished trial, in the order of `trials`."""
        return tables.rows(self)

    def search_history(self) -> dict[str, Any]:
        """The finished trials in the schema of AIPerf's search_history.json.

        The constraints are its `sla_filters`; iterations also have `seeds`, `se` and `per_seed`.
        Metrics have AIPerf's tags where it has the figure. `spillway optimize --out` writes the
        file.
        """
        return search_history(self, self._seed)

    @property
    def trials(self) -> pd.DataFrame:
        """One row per finished trial as a pandas DataFrame (extra `frames`).

        `trial`; `state`: complete, infeasible, duplicate or failed; a column per parameter; per
        objective and constraint its mean, `…_se` and `…_per_seed`; `n`: number of different runs,
        one if seeds change nothing; further metrics; `saturation`: whether the system keeps up (see
        `Result.saturation`); `duplicate_of`, `failure`, `warnings`.
        """
        pandas = require("pandas", "frames")
        frame: pd.DataFrame = pandas.DataFrame(self.rows())
        return frame

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """The figures of all evaluated trials as a long pandas DataFrame (extra `frames`).

        One row per trial and figure: trial, state, a column per parameter, role (objective,
        constraint, metric), figure, value, low, high, n, unit, population, saturation,
        fingerprint. `trials` has one row per trial. `attrs` holds schema, version, seeds and the
        fingerprint of the current configuration.
        """
        fingerprint = files.fingerprint(self.simulation)
        attrs = frames.provenance(seeds=self.seeds, fingerprint=fingerprint)
        return frames.frame(tables.long_rows(self, confidence), attrs)

    def importance(self, objective: int = 0) -> dict[str, float]:
        """How well each parameter separates the best quarter of the trials from all, largest first.

        Optuna's PED-ANOVA over the trials without duplicates and failures, as shares of 1.
        Parameters that are open only in some trials are left out. The importance reflects where the
        sampler searched as well as what it found; `confirm` measures the worth of each change of
        the winner.

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

    def _repr_html_(self) -> str:
        return page.tables(*tables.parts(self))

    @property
    def verdict(self) -> str:
        """What the search found, in a sentence."""
        return tables.verdict(self)

    def report(
        self,
        path: str | os.PathLike[str],
        title: str = "",
        *,
        confirmation: Confirmation | None = None,
    ) -> None:
        """Writes the study as one HTML file: verdict, best trials, pictures, best configuration.

        With a `confirmation` its verdict is that of the page. The file needs nothing else. Pictures
        need the extra `plot`.

        Raises ConfigError if the file cannot be written.
        """
        plot = self.plot
        confirmed = "" if confirmation is None else page.preformatted(str(confirmation))
        pieces = [
            page.verdict(self.verdict if confirmation is None else confirmation.verdict),
            page.tables(*tables.parts(self)),
            page.notes(() if confirmation is None else confirmation.guards),
            page.folded("Confirmation on fresh seeds", confirmed),
            page.chart("Objective over the trials", lambda axes: plot.history(ax=axes)),
            page.chart(
                "What separates the best trials", lambda axes: plot.importance(ax=axes), height=3.5
            ),
            page.picture("Objective over each parameter", plot.slices),
        ]
        best = self.best if confirmation is None and self.feasible else None
        if confirmation is not None:
            best = confirmation.choice
        if best is not None:
            name = "The best configuration, as a file for `spillway run`"
            pieces.append(page.configuration(name, best, profiles.name_of(best)))
        pieces.append(page.provenance(files.fingerprint(self.simulation), self.seeds))
        sought = " and ".join(objective.name for objective in self.objectives)
        page.save(path, title or f"{sought}: a search of {len(self.records)} trials", pieces)
