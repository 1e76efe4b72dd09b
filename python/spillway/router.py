"""Which instance takes a dispatched request."""

from typing import TYPE_CHECKING

from spillway import _config

if TYPE_CHECKING:
    from spillway._core.router import *  # noqa: F403

__all__ = _config.names_of("router")  # noqa: PLE0605
__getattr__, __dir__ = _config.lazy("router", globals())
