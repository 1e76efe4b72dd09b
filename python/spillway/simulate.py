"""Runs: one simulation, several seeds, or many configurations at once."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from spillway import _core
from spillway.config import memory
from spillway.config.messages import checked, note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway._core.cluster import Simulation
    from spillway.loading import Configuration
    from spillway.result import Result, Results

__all__ = ["processors", "run_many", "simulate"]


def __dir__() -> list[str]:
    return __all__


_MAX_SEED = 2**64 - 1
_LEAST_DRAWS = 2
_LEVEL = 0.9


@overload
def simulate(simulation: Configuration, seed: int = 0, *, reference: bool = False) -> Result: ...
@overload
def simulate(
    simulation: Configuration,
    seed: int = 0,
    *,
    uncertainty: int,
    threads: int | None = None,
    reference: bool = False,
) -> Mapping[str, tuple[float, float]]: ...
@overload
def simulate(
    simulation: Configuration,
    *,
    seeds: Iterable[int],
    threads: int | None = None,
    reference: bool = False,
) -> Results: ...
def simulate(
    simulation: Configuration,
    seed: int = 0,
    *,
    seeds: Iterable[int] | None = None,
    uncertainty: int | None = None,
    threads: int | None = None,
    reference: bool = False,
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
        Several different seeds, for means with confidence intervals. Configurations that share a
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

    Returns
    -------
    Result for one seed, Results (one per seed, in order) for several. With `uncertainty` the
    interval (low, high) of each figure of the summary that holds the central 90% of the runs.

    Raises
    ------
    ConfigError
        If the simulation cannot be run, e.g. its trace holds no requests, or if it would need more
        memory than is available. The environment variable SPILLWAY_MEMORY_GB sets another limit.
    """
    from spillway import loading  # slow imports wait until they are needed
    from spillway.result import Result

    simulation = loading.as_simulation(simulation)
    if uncertainty is not None:
        if seeds is not None:
            raise TypeError("give seeds or uncertainty, not both")
        return _intervals(simulation, seed, uncertainty, threads, reference=reference)
    if seeds is None:
        if threads is not None:
            raise TypeError("threads only makes sense with several seeds: give seeds=…")
        seed = _checked_seed(seed)
        reference = checked("reference", reference, bool, "True or False")
        memory.check([simulation])
        with memory.explained([simulation]):
            return Result(simulation, seed, _core.cluster.run(simulation, seed, reference))
    if seed != 0:
        raise TypeError("give seed or seeds, not both")
    many = _checked_seeds(seeds)
    outputs = _run_batch([simulation], many, threads, reference=reference, keep_requests=True)
    results = _results(simulation, many, outputs)
    if len(results) < len(many):
        raise KeyboardInterrupt
    return results


def run_many(
    simulations: Iterable[Configuration],
    seeds: Iterable[int] = (0,),
    *,
    threads: int | None = None,
    keep_requests: bool = False,
    progress: Callable[[int, int], object] | None = None,
    reference: bool = False,
) -> list[Results]:
    """Runs many simulations on several threads, each under the same seeds.

    Simulations with the same workload see identical requests, which are generated once per seed.

    Parameters
    ----------
    simulations
        Simulations, or paths of configuration files.
    seeds
        Seeds of the runs of each simulation, all different, each 0 <= seed < 2**64. A simulation
        in which nothing is random is run once for all of them.
    threads
        Number of concurrent runs; None: one per CPU. The results do not depend on it.
    keep_requests
        Whether to keep `Result.requests`, at about 90 bytes per request of every run.
    progress
        Called as progress(done, total) with the number of finished runs, about ten times a second
        and at the end, in the calling thread. If it raises, the runs end and the exception
        propagates.
    reference
        As for `simulate`.

    Returns
    -------
    One Results per simulation, in order, each with one Result per seed. After Ctrl-C, the finished
    runs only, with a RuntimeWarning that says how many are missing.

    Raises
    ------
    ConfigError
        If one of the simulations cannot be run, or if the concurrent runs would need more memory
        than is available (see `simulate`). Nothing is run then.
    """
    from spillway import loading

    allowed = "several simulations, e.g. a list"
    if isinstance(simulations, str | os.PathLike):
        raise TypeError(f"simulations must be {allowed}, not {simulations!r:.60}")
    configurations = [
        loading.as_simulation(one) for one in checked("simulations", simulations, Iterable, allowed)
    ]
    many = _checked_seeds(seeds)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of (done, total), not {progress!r:.60}")
    total = len(configurations) * len(many)
    outputs = _run_batch(
        configurations,
        many,
        threads,
        reference=reference,
        keep_requests=keep_requests,
        progress=None if progress is None else lambda done: progress(done, total),
    )
    if missing := outputs.count(None):
        note(f"interrupted: {missing} of {total} runs are missing", RuntimeWarning)
    return [
        _results(simulation, many, outputs[i * len(many) : (i + 1) * len(many)])
        for i, simulation in enumerate(configurations)
    ]


def _intervals(
    simulation: Simulation, seed: int, draws: int, threads: int | None, *, reference: bool
) -> Mapping[str, tuple[float, float]]:
    """The figures of runs with drawn step times, as intervals."""
    from spillway.catalog.servers.uncertainty import drawn
    from spillway.data.extrapolation import extrapolations
    from spillway.data.statistics import central_intervals

    if (
        operator.index(checked("uncertainty", draws, SupportsIndex, "a whole number"))
        < _LEAST_DRAWS
    ):
        raise ValueError(f"uncertainty = {draws}: must be >= {_LEAST_DRAWS} runs")
    many = run_many(drawn(simulation, draws), seeds=[seed], threads=threads, reference=reference)
    for one in many:
        if remarks := extrapolations(one[0]):
            note(remarks[0])
            break
    return central_intervals([one[0].summary() for one in many], _LEVEL)


def _results(
    simulation: Simulation, seeds: list[int], outputs: list[dict[str, Any] | None]
) -> Results:
    """The finished runs."""
    from spillway.result import Result, Results

    pairs = zip(seeds, outputs, strict=True)
    return Results([Result(simulation, seed, out) for seed, out in pairs if out is not None])


def processors() -> int:
    """Number of processors that this process may use; of the machine where that is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_batch(
    simulations: list[Simulation],
    seeds: list[int],
    threads: int | None,
    *,
    reference: bool,
    keep_requests: bool,
    progress: Callable[[int], object] | None = None,
) -> list[dict[str, Any] | None]:
    if threads is None:
        threads = processors()
    if operator.index(checked("threads", threads, SupportsIndex, "a whole number")) < 1:
        raise ValueError(f"threads = {threads}: must be >= 1")
    reference = checked("reference", reference, bool, "True or False")
    keep_requests = checked("keep_requests", keep_requests, bool, "True or False")
    memory.check(simulations, len(seeds), threads, keep_requests=keep_requests)
    with memory.explained(simulations):
        return _core.cluster.run_batch(
            simulations=simulations,
            seeds=seeds,
            threads=threads,
            reference=reference,
            keep_requests=keep_requests,
            progress=progress,
        )


def _checked_seeds(seeds: Iterable[int]) -> list[int]:
    allowed = "several whole numbers, e.g. range(8)"
    many = [_checked_seed(one) for one in checked("seeds", seeds, Iterable, allowed)]
    if not many:
        raise ValueError("seeds is empty; give at least one seed, e.g. seeds=range(8)")
    if len(set(many)) < len(many):
        raise ValueError(f"seeds = {many}: must differ; equal seeds give equal runs")
    return many


def _checked_seed(seed: int) -> int:
    seed = operator.index(checked("seed", seed, SupportsIndex, "a whole number"))
    if not 0 <= seed <= _MAX_SEED:
        raise ValueError(f"seed = {seed}: must be >= 0 and < 2**64")
    return seed
