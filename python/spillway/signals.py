"""How old the state of the instances is that decisions see."""

from typing import TYPE_CHECKING

from spillway import _config

if TYPE_CHECKING:
    from spillway._core.signals import *  # noqa: F403

__all__ = _config.names_of("signals")  # noqa: PLE0605
__getattr__, __dir__ = _config.lazy("signals", globals())
