"""How old the state of the instances is that decisions see."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.signals import *  # noqa: F403

__all__ = classes.names_of("signals")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("signals", globals())
