"""Who asks what, and when: traces, clients, arrivals, lengths, tenants, classes of service."""

from spillway import _config, _core
from spillway._core.workload import *  # noqa: F403

__all__ = _config.public_names(_core.workload)  # noqa: PLE0605
