"""Where the settings of servers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway._core.cluster import Simulation


def is_unvalidated(simulation: Simulation) -> bool:
    """Whether step times of an instance are computed, and nothing like them was measured."""
    return any("unvalidated" in group.provenance for group in simulation.instances)


def notes_on_servers(simulations: Iterable[Simulation]) -> list[str]:
    """A sentence if servers of these simulations are not validated."""
    if not any(map(is_unvalidated, simulations)):
        return []
    return [
        (
            "the servers' step times are computed, not measured (unvalidated); "
            "simulate(…, uncertainty=20) shows what follows from their uncertainty."
        )
    ]
