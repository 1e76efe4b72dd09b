"""Model servers: schedulers, latency models, KV memory."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.instance import *  # noqa: F403

__all__ = classes.names_of("instance")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("instance", globals())
