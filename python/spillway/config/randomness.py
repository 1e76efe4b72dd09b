"""What of a configuration is random, and what seeds are worth."""

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
    "What does replicate: windows or a block bootstrap of the trace, each as a trace of its own; a "
    "generated workload; instances[0].latency = jittered"
)
"""What to do where seeds change nothing."""


def random_streams(simulation: Simulation) -> tuple[str, ...]:
    """The random streams that can change a run of a simulation.

    Of arrivals, input_lengths, output_lengths, admission, router, step_durations, controller,
    scrapes, gateways (the split between replicas) and retries. Without any the run is the same
    under every seed: a second seed is no second observation.
    """
    return _core.cluster.random_streams(simulation)


def note_on_copies(simulations: Iterable[Simulation]) -> str:
    """Why the runs of these simulations are the same under all seeds, as a sentence."""
    streams = dict.fromkeys(name for one in simulations for name in random_streams(one))
    if not streams:
        return "seeds change nothing: nothing in the configuration is random, so there is one run."
    return (
        "seeds change nothing: all runs are the same, although random numbers could change "
        f"{', '.join(streams)}."
    )
