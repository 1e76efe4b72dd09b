"""Where the settings of servers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config import acceptance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway._core.cluster import Simulation


def is_unvalidated(simulation: Simulation) -> bool:
    """Whether step times of an instance are computed, and nothing like them was measured."""
    return any("unvalidated" in group.provenance for group in simulation.instances)


def notes_on_servers(simulations: Iterable[Simulation]) -> list[str]:
    """Sentences on servers of these simulations that are not validated, or do not hold."""
    simulations = list(simulations)
    negative = notes_on_verdicts(simulations)
    if not any(map(is_unvalidated, simulations)):
        return negative
    return [
        *negative,
        (
            "the servers' step times are computed, not measured (unvalidated); "
            "simulate(…, uncertainty=20) shows what follows from their uncertainty."
        ),
    ]


def notes_on_verdicts(simulations: Iterable[Simulation]) -> list[str]:
    """A sentence for each server that a recording of production has refuted."""
    found = [
        acceptance.rejection(group) for simulation in simulations for group in simulation.instances
    ]
    return [
        f"a recording of production refutes the servers ({text}): results are off as well; judge "
        "anew with spillway validate recording."
        for text in dict.fromkeys(filter(None, found))
    ]
