"""Signals: how instances report their state, and how old it is when a policy reads it."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.signals import *  # noqa: F403

__all__ = classes.names_of("signals")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("signals", globals())
