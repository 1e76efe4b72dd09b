"""Runs of configurations under seeds, on threads or an executor, and their figures."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError, InvariantError, LivelockError, UsageError
from spillway._core.workload import Trace
from spillway.analysis import stationarity
from spillway.config import memory
from spillway.data import effective
from spillway.simulate import finished_runs, processors
from spillway.study.checks import MOST_RUNS
from spillway.study.measurements import INTERRUPTED, Measured, Measurements
from spillway.study.objective import NoFigureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Report
    from spillway.result import Result, Results
    from spillway.study.objective import Metric


_MOST_KEPT_BYTES = 256e6
"""Requests of finished runs that are kept at a time, to see whether the systems keep up."""
_RUNS_PER_THREAD = 8
"""Runs between two writes of a journal: few are lost, and threads seldom wait for the last."""


@dataclasses.dataclass(frozen=True)
class Digest:
    """The digest of a result as a metric, which shows whether two runs are identical."""

    name: str = "digest"

    def of(self, result: Any) -> float:
        """The first 52 bits of the digest, which a float holds exactly."""
        return float(int(result.digest[:13], 16))


_INTERRUPTED = Measured(failure=INTERRUPTED)
_CANNOT_RUN = (ConfigError, InvariantError, LivelockError, UsageError)


def as_seeds(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """The stated seeds, or the first n of all."""
    given = range(seeds) if isinstance(seeds, int) else seeds
    if isinstance(given, Sized) and len(given) > MOST_RUNS:
        raise ValueError(f"seeds: {len(given):,} seeds; must be <= {MOST_RUNS:,}")
    seed_list = tuple(given)
    if not seed_list or len(set(seed_list)) < len(seed_list):
        raise ValueError(f"seeds = {seeds!r}: must be one or more different seeds")
    return seed_list


class Evaluator:
    """Runs simulations on the threads of this process, or on any `concurrent.futures.Executor`.

    The results do not depend on the choice. `report` gets the finished runs of each measurement.
    `is_judging`: whether to keep the requests of each run until the trend of their number is known,
    which takes a few percent of the time of the run. `journal`: a file that keeps what is
    measured; what it has is not run again.
    """

    def __init__(
        self,
        metrics: Sequence[Metric],
        *,
        threads: int | None = None,
        executor: Executor | None = None,
        report: Report | None = None,
        is_judging: bool = False,
        journal: str | Path | None = None,
    ) -> None:
        if threads is not None and executor is not None:
            raise TypeError("give threads or executor, not both")
        self.metrics = tuple(metrics)
        self._threads = threads
        self._executor = executor
        self.report = report
        self._is_judging = is_judging
        self._journal = None if journal is None else Measurements(Path(journal))

    def measure(self, simulations: Sequence[Simulation], seeds: Sequence[int]) -> list[Measured]:
        """The metrics of each simulation under each seed, in order.

        If a simulation cannot be run, or a metric has no value or raises an exception, only its own
        measurements fail. So do those that Ctrl-C prevents: with the failure INTERRUPTED.
        """
        if self._journal is None:
            return self._measure(simulations, seeds, self.report)
        return self._measure_new(self._journal, simulations, seeds)

    def measure_all(
        self, simulations: Sequence[Simulation], seeds: Sequence[int]
    ) -> list[Measured]:
        """Measures as `measure` does, but Ctrl-C and exceptions of metrics propagate."""
        found = self.measure(simulations, seeds)
        if any(measurement.failure == INTERRUPTED for measurement in found):
            raise KeyboardInterrupt
        for measurement in found:
            if measurement.error is not None:
                raise measurement.error
        return found

    def _measure_new(
        self, journal: Measurements, simulations: Sequence[Simulation], seeds: Sequence[int]
    ) -> list[Measured]:
        """Measures what the journal lacks, a few simulations at a time, and adds that."""
        keys = [journal.key(simulation, seeds, self.metrics) for simulation in simulations]
        found = {key: stored for key in keys if (stored := journal.find(key)) is not None}
        pairs = zip(keys, simulations, strict=True)
        new = {key: simulation for key, simulation in pairs if key not in found}
        size = math.ceil(_RUNS_PER_THREAD * (self._threads or processors()) / len(seeds))
        total = len(simulations) * len(seeds)
        for first in range(0, len(new), size):
            portion = list(new)[first : first + size]
            done = total - (len(new) - first) * len(seeds)
            report = _shifted(self.report, done, total)
            measured = self._measure([new[key] for key in portion], seeds, report)
            found.update(zip(portion, measured, strict=True))
            journal.add({key: found[key] for key in portion if found[key].is_whole})
            if any(found[key].failure == INTERRUPTED for key in portion):
                break
        return [found.get(key, _INTERRUPTED) for key in keys]

    def _measure(
        self, simulations: Sequence[Simulation], seeds: Sequence[int], report: Report | None
    ) -> list[Measured]:
        if not simulations:
            return []
        if self._executor is not None:
            return self._measure_elsewhere(self._executor, simulations, seeds, report)
        judging = self._is_judging
        return measure(
            simulations, seeds, self.metrics, self._threads, report=report, is_judging=judging
        )

    def _measure_elsewhere(
        self,
        executor: Executor,
        simulations: Sequence[Simulation],
        seeds: Sequence[int],
        report: Report | None,
    ) -> list[Measured]:
        shared = (tuple(seeds), self.metrics, self._is_judging)
        tasks = [Task.of(simulation, *shared) for simulation in simulations]
        found = _results(executor, tasks, report)
        # Workers that lack the trace receive it, and keep it from then on.
        missing = [i for i, measurement in enumerate(found) if measurement is None]
        with_trace = [tasks[i].with_trace(simulations[i]) for i in missing]
        for i, measurement in zip(missing, _results(executor, with_trace), strict=True):
            found[i] = measurement
        return [measurement for measurement in found if measurement is not None]


def _results(
    executor: Executor, tasks: Sequence[Task], report: Report | None = None
) -> list[Measured | None]:
    futures = [executor.submit(run_task, task) for task in tasks]
    found: list[Measured | None] = []
    try:
        for i, future in enumerate(futures):
            try:
                found.append(future.result())
            except Exception as error:
                found.append(_raised(error))
            if report is not None:
                num_seeds = len(tasks[i].seeds)
                report((i + 1) * num_seeds, len(tasks) * num_seeds)
        return found
    except BaseException:
        for future in futures:
            future.cancel()
        raise


@dataclasses.dataclass(frozen=True)
class Task:
    """One configuration for another process; its trace is sent only on request."""

    simulation: Simulation
    seeds: tuple[int, ...]
    metrics: tuple[Metric, ...]
    is_judging: bool
    trace_digest: str = ""
    replayed: dict[str, Any] = dataclasses.field(default_factory=dict)
    trace: Trace | None = None

    @classmethod
    def of(cls, simulation: Simulation, *shared: Any) -> Task:
        """A task with the digest of its trace instead of the trace; `shared`: its next fields."""
        workload = simulation.workload
        if not isinstance(workload, Trace) or not workload.sha256:
            return cls(simulation, *shared)
        task = cls(simulation.replace(workload=Trace()), *shared)
        digest, replayed = workload.sha256, workload._replayed()
        return dataclasses.replace(task, trace_digest=digest, replayed=replayed)

    def with_trace(self, simulation: Simulation) -> Task:
        """The task with the trace of `simulation`."""
        assert isinstance(simulation.workload, Trace)
        return dataclasses.replace(self, trace=simulation.workload)


_TRACES: dict[str, Trace] = {}


def run_task(task: Task) -> Measured | None:
    """Runs a task in this process, on one thread; None if this process lacks the trace."""
    simulation = task.simulation
    if task.trace_digest:
        if task.trace is not None:
            _TRACES.clear()  # a study has one trace
            _TRACES[task.trace_digest] = task.trace
        if task.trace_digest not in _TRACES:
            return None
        trace = _TRACES[task.trace_digest].replace(**task.replayed)
        simulation = simulation.replace(workload=trace)
    found = measure([simulation], task.seeds, task.metrics, threads=1, is_judging=task.is_judging)
    if found[0].error is not None:
        raise found[0].error
    return found[0]


def measure(
    simulations: Sequence[Simulation],
    seeds: Sequence[int],
    metrics: Sequence[Metric],
    threads: int | None,
    *,
    report: Report | None = None,
    is_judging: bool = False,
) -> list[Measured]:
    """The metrics of each simulation under each seed, with one call of `run_many` for all.

    There are several calls if the requests of all runs together take too much memory.
    """
    keep = is_judging or any(getattr(metric, "needs_requests", False) for metric in metrics)
    run = functools.partial(finished_runs, threads=threads, keep_requests=keep)
    found: dict[int, Measured] = {}
    done = 0
    total = len(simulations) * len(seeds)
    for places, portion in _portions(simulations, seeds, threads, keep=keep):
        part = [simulations[i] for i in places]
        progress = _shifted(report, done, total) or False
        outputs: list[Results | str | None]
        try:
            outputs = [*run(part, portion, progress=progress)]
        except _CANNOT_RUN:
            # A simulation that cannot be run stops all of them: find out which one it is.
            outputs = []
            for simulation in part:
                is_over = None in outputs  # Ctrl-C
                outputs.append(None if is_over else _run_alone(run, simulation, portion))
        done += len(part) * len(portion)
        for i, results in zip(places, outputs, strict=True):
            measurement = taken(results, metrics, is_judging=is_judging)
            found[i] = found[i].followed_by(measurement) if i in found else measurement
        if None in outputs:
            break
    return [found.get(i, _INTERRUPTED) for i in range(len(simulations))]


def _shifted(report: Report | None, before: int, total: int) -> Report | None:
    """A report of part of the runs, as one of all."""
    if report is None:
        return None
    return lambda done, _, remark="", /: report(before + done, total, remark)


def _portions(
    simulations: Sequence[Simulation], seeds: Sequence[int], threads: int | None, *, keep: bool
) -> Iterator[tuple[list[int], Sequence[int]]]:
    """Numbers of simulations and seeds of consecutive calls that keep few enough requests."""
    if not keep:
        yield list(range(len(simulations))), seeds
        return
    together: list[int] = []
    total = 0.0
    for i, simulation in enumerate(simulations):
        per_run = sum(need.num_bytes for need in memory.needs(simulation))
        num_bytes = per_run * len(seeds)
        if num_bytes > _MOST_KEPT_BYTES:
            # Two runs at least, which show whether seeds change anything.
            size = max(2, threads or processors(), int(_MOST_KEPT_BYTES / per_run))
            for first in range(0, len(seeds), size):
                yield [i], seeds[first : first + size]
            continue
        if total + num_bytes > _MOST_KEPT_BYTES:
            yield together, seeds
            together, total = [], 0.0
        together.append(i)
        total += num_bytes
    if together:
        yield together, seeds


def _run_alone(
    run: Callable[..., list[Results | None]], simulation: Simulation, seeds: Sequence[int]
) -> Results | str | None:
    try:
        return run([simulation], seeds)[0]
    except _CANNOT_RUN as error:
        return str(error)


def taken(
    results: Results | str | None, metrics: Sequence[Metric], *, is_judging: bool
) -> Measured:
    """The metrics of finished runs, or the failure: a text, or Ctrl-C (None)."""
    if results is None:
        return _INTERRUPTED
    if isinstance(results, str):
        return Measured(failure=results)
    try:
        rows = tuple(tuple(metric.of(result) for result in results) for metric in metrics)
    except NoFigureError as error:
        return Measured(failure=str(error))
    except Exception as error:
        return _raised(error)
    caveats: tuple[str, ...] = ()
    if results.is_resampled:
        summaries = [result.summary() for result in results]
        caveats = tuple(effective.caveat(metric.name, summaries) for metric in metrics)
    is_known = is_judging and all(result.has_requests for result in results)
    return Measured(
        rows,
        is_replicated=results.is_replicated,
        num_blocks=results.num_blocks,
        caveats=caveats,
        trends=tuple(map(_trend, results)) if is_known else (),
    )


def _raised(error: Exception) -> Measured:
    return Measured(failure=repr(error), error=error)


def _trend(result: Result) -> stationarity.Trend:
    return stationarity.trend(stationarity.backlog(result.requests, result.simulation.warm_up_s))
