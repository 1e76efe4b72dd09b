"""The one verb."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, overload

from spillway import _core
from spillway.results import Result, Results

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway._core.cluster import Simulation

_MAX_SEED = 2**64 - 1


@overload
def simulate(simulation: Simulation, seed: int = 0) -> Result: ...
@overload
def simulate(simulation: Simulation, *, seeds: Iterable[int]) -> Results: ...
def simulate(
    simulation: Simulation, seed: int = 0, *, seeds: Iterable[int] | None = None
) -> Result | Results:
    """Runs a simulation under one seed, or under several.

    Parameters
    ----------
    simulation
        What to simulate.
    seed
        Seed of every random stream, 0 <= seed < 2**64. The result is a function of simulation and
        seed alone.
    seeds
        Several seeds, for means with confidence intervals. The same seeds give the same requests to
        every configuration of the same workload, so differences between configurations are paired.

    Returns
    -------
    Result for one seed, Results (one per seed, in order) for several.

    Raises
    ------
    ConfigError
        If the simulation cannot be run, e.g. its trace holds no requests.
    """
    if seeds is None:
        return _run(simulation, seed)
    results = [_run(simulation, one) for one in seeds]
    if not results:
        raise ValueError("seeds is empty; give at least one seed, e.g. seeds=range(8)")
    return Results(results)


def _run(simulation: Simulation, seed: int) -> Result:
    seed = operator.index(seed)
    if not 0 <= seed <= _MAX_SEED:
        raise ValueError(f"seed = {seed}: must be >= 0 and < 2**64")
    return Result(simulation, seed, _core.cluster.run(simulation, seed))
