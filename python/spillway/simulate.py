"""Runs: one simulation, several seeds, or many configurations at once."""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex, overload

from spillway import _core
from spillway.config import memory
from spillway.config.limits import LONGEST_SPAN_S
from spillway.config.messages import checked, note
from spillway.config.progress import reporting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Progress, Report
    from spillway.loading import Configuration
    from spillway.result import Result, Results


_MAX_SEED = 2**64 - 1
_MOST_SEEDS = 10**6
_LEAST_DRAWS = 2
_LEVEL = 0.9


@overload
def simulate(
    simulation: Configuration, seed: int = 0, *, reference: bool = False, progress: Progress = False
) -> Result: ...
@overload
def simulate(
    simulation: Configuration,
    seed: int = 0,
    *,
    uncertainty: int,
    threads: int | None = None,
    reference: bool = False,
    progress: Progress = False,
) -> Mapping[str, tuple[float, float]]: ...
@overload
def simulate(
    simulation: Configuration,
    *,
    seeds: int | Iterable[int],
    threads: int | None = None,
    reference: bool = False,
    progress: Progress = False,
) -> Results: ...
def simulate(
    simulation: Configuration,
    seed: int = 0,
    *,
    seeds: int | Iterable[int] | None = None,
    uncertainty: int | None = None,
    threads: int | None = None,
    reference: bool = False,
    progress: Progress = False,
) -> Result | Results | Mapping[str, tuple[float, float]]:
    """Runs a simulation under one seed, under several, or with uncertain step times.

    Parameters
    ----------
    simulation
        The simulation, or the path of a configuration file.
    seed
        Seed of every random stream, 0 <= seed < 2**64. The result is a function of simulation and
        seed alone.
    seeds
        Several different seeds, or their number n for 0, …, n - 1, for means with confidence
        intervals. Configurations that share a
        workload see identical requests under the same seeds, so differences between configurations
        are paired. Where nothing is random (see `randomness.random_streams`) one run stands for all
        seeds, and the results say so.
    uncertainty
        Number of runs, >= 2, under the same seed, whose step times are drawn from what is known of
        the servers: those of the catalog, and profiles of `spillway calibrate`.
    threads
        With `seeds` or `uncertainty`: number of concurrent runs; None: one per CPU.
    reference
        Simulate every step of every instance separately, request by request. The result is
        identical, as `Result.digest` shows, but takes longer.
    progress
        True: if the run takes more than a second, show how far it is and the time left, as a bar
        of tqdm in a notebook, or as a line on standard error if that is a terminal. A function is
        called as progress(done, total), about ten times a second: with the finished runs or, for
        one seed, the requests that have arrived (where their number is not stated: the seconds of
        simulated time).

    Returns
    -------
    Result for one seed, Results (one per seed, in order) for several. With `uncertainty` the
    interval (low, high) of each figure of the summary that holds the central 90% of the runs.

    Raises
    ------
    ConfigError
        If the simulation cannot be run, e.g. its trace holds no requests, or if it would need more
        memory than is available. The environment variable SPILLWAY_MEMORY_GB sets another limit.
    RecursionError
        If policies of runs start runs, more than eight deep, as one does that simulates the
        simulation that it is part of.

    Examples
    --------
    >>> import spillway
    >>> from spillway import workload
    >>> arrivals = workload.Synthetic(num_requests=300, requests_per_s=20)
    >>> simulation = spillway.Simulation(workload=arrivals)
    >>> result = spillway.simulate(simulation)
    >>> result.summary()["completed"]
    300
    >>> print(spillway.simulate(simulation, seeds=3).summary()["p99_ttft_ms"])
    66.88 ± 24
    """
    from spillway import loading  # slow imports wait until they are needed
    from spillway.result import Result

    simulation = loading.as_simulation(simulation)
    if uncertainty is not None:
        if seeds is not None:
            raise TypeError("give seeds or uncertainty, not both")
        return _intervals(
            simulation, seed, uncertainty, threads=threads, reference=reference, progress=progress
        )
    if seeds is None:
        if threads is not None:
            raise TypeError("threads only makes sense with several seeds: give seeds=…")
        seed = _checked_seed(seed)
        reference = checked("reference", reference, bool, "True or False")
        if reference and progress is not False:
            raise TypeError("give progress or reference, not both")
        memory.check([simulation])
        with memory.explained([simulation]), reporting(progress, "requests") as report:
            if report is not None:
                return _watched(simulation, seed, report)
            return Result(simulation, seed, _core.cluster.run(simulation, seed, reference))
    if seed != 0:
        raise TypeError("give seed or seeds, not both")
    (results,) = run_many(
        [simulation],
        seeds,
        threads=threads,
        keep_requests=True,
        progress=progress,
        reference=reference,
    )
    return results


def run_many(
    simulations: Iterable[Configuration],
    seeds: int | Iterable[int] = (0,),
    *,
    threads: int | None = None,
    keep_requests: bool = False,
    progress: Progress = False,
    reference: bool = False,
) -> list[Results]:
    """Runs many simulations on several threads, each under the same seeds.

    Simulations with the same workload see identical requests, which are generated once per seed.

    Parameters
    ----------
    simulations
        Simulations, or paths of configuration files.
    seeds
        Seeds of the runs of each simulation, all different, each 0 <= seed < 2**64, or their number
        n for 0, …, n - 1. A simulation in which nothing is random is run once for all of them.
    threads
        Number of concurrent runs; None: one per CPU. The results do not depend on it.
    keep_requests
        Whether to keep `Result.requests`, at about 90 bytes per request of every run.
    progress
        True: show how far the runs are, as for `simulate`. A function is called as progress(done,
        total) with the number of finished runs, about ten times a second and at the end, in the
        calling thread. If it raises, the runs end and the exception propagates.
    reference
        As for `simulate`.

    Returns
    -------
    One Results per simulation, in order, each with one Result per seed.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, within about a tenth of a second.
    ConfigError
        If one of the simulations cannot be run, or if the concurrent runs would need more memory
        than is available (see `simulate`). Nothing is run then.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> limited = simulation.with_({"gateway.limit": {"kind": "fixed", "max_in_flight": 4}})
    >>> alone, behind = spillway.run_many([simulation, limited], seeds=2)
    >>> [result.summary()["completed"] for result in behind]
    [300, 300]
    """
    found = finished_runs(
        simulations,
        seeds,
        threads=threads,
        keep_requests=keep_requests,
        progress=progress,
        reference=reference,
    )
    finished = [results for results in found if results is not None]
    if len(finished) < len(found):
        raise KeyboardInterrupt
    return finished


def finished_runs(
    simulations: Iterable[Configuration],
    seeds: int | Iterable[int] = (0,),
    *,
    threads: int | None = None,
    keep_requests: bool = False,
    progress: Progress = False,
    reference: bool = False,
) -> list[Results | None]:
    """The same as `run_many`, but after Ctrl-C None for each simulation that lacks a run."""
    from spillway import loading
    from spillway.result import Result, Results

    allowed = "several simulations, e.g. a list"
    if isinstance(simulations, str | os.PathLike):
        raise TypeError(f"simulations must be {allowed}, not {simulations!r:.60}")
    configurations = [
        loading.as_simulation(simulation)
        for simulation in checked("simulations", simulations, Iterable, allowed)
    ]
    seed_list = _checked_seeds(seeds)
    total = len(configurations) * len(seed_list)
    with reporting(progress, "runs") as report:
        threads = processors() if threads is None else threads
        if operator.index(checked("threads", threads, SupportsIndex, "a whole number")) < 1:
            raise ValueError(f"threads = {threads}: must be >= 1")
        reference = checked("reference", reference, bool, "True or False")
        keep_requests = checked("keep_requests", keep_requests, bool, "True or False")
        memory.check(configurations, len(seed_list), threads, keep_requests=keep_requests)
        with memory.explained(configurations):
            outputs = _core.cluster.run_batch(
                simulations=configurations,
                seeds=seed_list,
                threads=threads,
                reference=reference,
                keep_requests=keep_requests,
                progress=None if report is None else lambda done: report(done, total),
            )
    size = len(seed_list)
    groups = [outputs[i : i + size] for i in range(0, total, size)]
    return [
        Results(
            [
                Result(simulation, seed, output)
                for seed, output in zip(seed_list, group, strict=True)
                if output is not None
            ]
        )
        if None not in group
        else None
        for simulation, group in zip(configurations, groups, strict=True)
    ]


_STEP_S = 0.1  # of the clock on the wall


def _watched(simulation: Simulation, seed: int, report: Report) -> Result:
    """The result of a run that reports how far it is: the run is advanced in pieces."""
    from spillway.result import Result

    running = _core.cluster.Session(simulation, seed)
    num_requests, span_s = _extent(simulation)
    end_s = LONGEST_SPAN_S if simulation.horizon_s is None else simulation.horizon_s
    step_s = 1.0
    while running.has_pending_work and running.now_s < end_s:
        began = time.perf_counter()
        running.advance(min(running.now_s + step_s, end_s))
        took_s = time.perf_counter() - began
        step_s *= min(2.0, max(0.25, _STEP_S / max(took_s, 1e-9)))
        if num_requests:
            tenants = running.observe(True)["tenants"].values()
            arrived = sum(tenant["submitted"] for tenant in tenants)
            report(min(arrived, num_requests), num_requests, f"{running.now_s:,.0f} s simulated")
        else:
            report(math.floor(min(running.now_s, span_s)), math.ceil(span_s), "simulated seconds")
    return Result(simulation, seed, running.finish())


def _extent(simulation: Simulation) -> tuple[int, float]:
    """Number of requests, 0 if it is not stated, and the span of their arrivals, 0 if neither."""
    workload = simulation.workload
    if isinstance(workload, _core.workload.Trace):
        return workload.rows, 0.0
    ends = [workload.duration_s, *(client.duration_s for client in workload.clients)]
    if simulation.horizon_s is not None:
        ends = [simulation.horizon_s]
    known = [end_s for end_s in ends if end_s is not None]
    counts = [client.num_requests for client in workload.clients] or [None]
    if workload.num_requests is not None:
        return workload.num_requests, 0.0
    if known or None in counts:
        return 0, max(known, default=0.0)
    return sum(count for count in counts if count is not None), 0.0


def _intervals(
    simulation: Simulation,
    seed: int,
    draws: int,
    *,
    threads: int | None,
    reference: bool,
    progress: Progress,
) -> Mapping[str, tuple[float, float]]:
    """The figures of runs with drawn step times, as intervals."""
    from spillway.data.extrapolation import extrapolations
    from spillway.data.intervals import central_intervals
    from spillway.servers.uncertainty import drawn

    count = operator.index(checked("uncertainty", draws, SupportsIndex, "a whole number"))
    if count < _LEAST_DRAWS:
        raise ValueError(f"uncertainty = {draws}: must be >= {_LEAST_DRAWS} runs")
    drawn_runs = run_many(
        drawn(simulation, draws),
        seeds=[seed],
        threads=threads,
        reference=reference,
        progress=progress,
    )
    for results in drawn_runs:
        if remarks := extrapolations(results[0]):
            note(remarks[0])
            break
    return central_intervals([results[0].summary() for results in drawn_runs], _LEVEL)


def processors() -> int:
    """Number of processors that this process may use; of the machine where that is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _checked_seeds(seeds: int | Iterable[int]) -> list[int]:
    if isinstance(seeds, SupportsIndex):
        count = operator.index(seeds)
        if not 1 <= count <= _MOST_SEEDS:
            raise ValueError(f"seeds = {count}: their number must be >= 1 and <= {_MOST_SEEDS:,}")
        return list(range(count))
    allowed = "their number or several whole numbers, e.g. range(8)"
    seed_list = [_checked_seed(seed) for seed in checked("seeds", seeds, Iterable, allowed)]
    if not seed_list:
        raise ValueError("seeds is empty; give at least one seed, e.g. seeds=range(8)")
    if len(set(seed_list)) < len(seed_list):
        raise ValueError(f"seeds = {seed_list}: must differ; equal seeds give equal runs")
    return seed_list


def _checked_seed(seed: int) -> int:
    seed = operator.index(checked("seed", seed, SupportsIndex, "a whole number"))
    if not 0 <= seed <= _MAX_SEED:
        raise ValueError(f"seed = {seed}: must be >= 0 and < 2**64")
    return seed
