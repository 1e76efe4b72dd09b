"""Model servers: schedulers, latency models, memory."""

from typing import TYPE_CHECKING

from spillway import _config

if TYPE_CHECKING:
    from spillway._core.instance import *  # noqa: F403

__all__ = _config.names_of("instance")  # noqa: PLE0605
__getattr__, __dir__ = _config.lazy("instance", globals())
