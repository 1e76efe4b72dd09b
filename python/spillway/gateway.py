"""The gateway: admission, priority bands, queues, fairness, limits and their controllers."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.gateway import *  # noqa: F403

__all__ = classes.names_of("gateway")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("gateway", globals())
