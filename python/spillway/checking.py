"""Settings of a simulation that cannot work, found from the configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.findings import registry
from spillway.findings.finding import Evidence, Finding
from spillway.findings.of_settings import BUCKET_EDGES_S
from spillway.loading import as_simulation

if TYPE_CHECKING:
    from spillway.loading import Configuration

__all__ = ["BUCKET_EDGES_S", "Evidence", "Finding", "check"]


def check(simulation: Configuration) -> list[Finding]:
    """The settings of a simulation that cannot work, the worst first; empty if none was found.

    `simulation` is a Simulation or the path of a configuration file. The checks compare settings
    with each other and with requests that arrive alone at an idle server. They are bounds: each
    finding holds for every run of the simulation, under any seed; one that needs a load says so. An
    empty list does not show that the settings are good ones: `Result.findings` says what went wrong
    in a run.

    Raises ConfigError or TraceError if the file is invalid, TypeError for anything else.

    Examples
    --------
    >>> import spillway
    >>> spillway.check(spillway.Simulation())
    []
    """
    return registry.of_settings(as_simulation(simulation))
