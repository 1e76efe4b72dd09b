"""Which parts of a configuration are random, and what seeds change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spillway import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway._core.cluster import Simulation


REPLICATION = (
    "To replicate: a block bootstrap of the trace (spillway.traffic.resampled); a generated "
    "workload; or instances[0].latency = jittered"
)
"""Advice where seeds change nothing."""


def random_streams(simulation: Simulation) -> tuple[str, ...]:
    """The random streams that can change a run of a simulation.

    They are among arrivals, input_lengths, output_lengths, admission, router, step_durations,
    controller, scrapes, gateways (the split between replicas), retries and traffic (random
    transforms of a trace). Without any, runs are identical under all seeds: a second seed is not a
    second observation.
    """
    return _core.cluster.random_streams(simulation)


def is_resampled(simulation: Simulation) -> bool:
    """Whether each seed replays another block bootstrap of a trace.

    The runs are then resamples, and their standard deviation is the standard error of a figure: it
    does not shrink as seeds are added.
    """
    workload = simulation.workload
    return isinstance(workload, _core.workload.Trace) and any(
        isinstance(transform, _core.workload.BlockResample) for transform in workload.transforms
    )


def blocks(simulation: Simulation) -> tuple[float, float] | None:
    """How many blocks of a bootstrap its trace holds, and their length in a run, in seconds.

    Of several bootstraps, that with the fewest blocks. None without one, or if the trace holds no
    requests, only their digest.
    """
    workload = simulation.workload
    if not isinstance(workload, _core.workload.Trace) or not workload.has_requests:
        return None
    outline = _core.workload._outline  # type: ignore[attr-defined]
    found = []
    rate = 1.0  # of time in a run over time at the transform
    for i, transform in reversed(list(enumerate(workload.transforms))):
        if isinstance(transform, _core.workload.ScaleRate):
            rate *= transform.factor
        if isinstance(transform, _core.workload.BlockResample):
            count = float(outline(workload, i)["length_s"] / transform.block_s)
            found.append((count, transform.block_s / rate))
    return min(found, default=None)


def num_blocks(simulation: Simulation) -> float | None:
    """How many blocks of a bootstrap its trace holds; None without a bootstrap.

    Infinite if the trace holds no requests, only their digest: the number is then unknown.
    """
    if not is_resampled(simulation):
        return None
    found = blocks(simulation)
    return math.inf if found is None else found[0]


def note_on_copies(simulations: Iterable[Simulation]) -> str:
    """Why the runs of these simulations are identical under all seeds, as a sentence."""
    streams = dict.fromkeys(
        name for simulation in simulations for name in random_streams(simulation)
    )
    if not streams:
        return "seeds change nothing: nothing in the configuration is random, so there is one run."
    return (
        "seeds change nothing: all runs are identical, although random numbers could change "
        f"{', '.join(streams)}."
    )
