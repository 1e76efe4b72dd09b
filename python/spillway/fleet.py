"""The instances in service over time: target, autoscaler, slow readiness."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.fleet import *  # noqa: F403

__all__ = classes.names_of("fleet")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("fleet", globals())
