"""Who asks what, and when: traces, clients, arrivals, lengths, tenants, classes of service."""

from typing import TYPE_CHECKING

from spillway import _config

if TYPE_CHECKING:
    from spillway._core.workload import *  # noqa: F403

__all__ = _config.names_of("workload")  # noqa: PLE0605
__getattr__, __dir__ = _config.lazy("workload", globals())
