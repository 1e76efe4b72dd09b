"""Routers: which instance serves a dispatched request."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.router import *  # noqa: F403

__all__ = classes.names_of("router")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("router", globals())
