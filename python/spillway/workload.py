"""The workload: traces, clients, arrivals, lengths, tenants, SLO classes."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.workload import *  # noqa: F403

__all__ = classes.names_of("workload")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("workload", globals())
