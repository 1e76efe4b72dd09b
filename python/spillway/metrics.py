"""Which measurements a run records."""

from typing import TYPE_CHECKING

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.metrics import *  # noqa: F403

__all__ = classes.names_of("metrics")  # noqa: PLE0605
__getattr__, __dir__ = classes.lazy("metrics", globals())
