"""Which parts of a configuration are random, and what seeds change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway._core.cluster import Simulation

__all__ = ["REPLICATION", "note_on_copies", "random_streams"]


def __dir__() -> list[str]:
    return __all__


REPLICATION = (
    "To replicate: use windows or a block bootstrap of the trace, each as a trace of its own; a "
    "generated workload; or instances[0].latency = jittered"
)
"""Advice where seeds change nothing."""


def random_streams(simulation: Simulation) -> tuple[str, ...]:
    """The random streams that can change a run of a simulation.

    They are among arrivals, input_lengths, output_lengths, admission, router, step_durations,
    controller, scrapes, gateways (the split between replicas) and retries. Without any, runs are
    identical under all seeds: a second seed is not a second observation.
    """
    return _core.cluster.random_streams(simulation)


def note_on_copies(simulations: Iterable[Simulation]) -> str:
    """Why the runs of these simulations are identical under all seeds, as a sentence."""
    streams = dict.fromkeys(name for one in simulations for name in random_streams(one))
    if not streams:
        return "seeds change nothing: nothing in the configuration is random, so there is one run."
    return (
        "seeds change nothing: all runs are identical, although random numbers could change "
        f"{', '.join(streams)}."
    )
