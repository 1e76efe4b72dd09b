"""If, when and for whom a request is let through: admission, bands, fairness, limits."""

from typing import TYPE_CHECKING

from spillway import _config

if TYPE_CHECKING:
    from spillway._core.gateway import *  # noqa: F403

__all__ = _config.names_of("gateway")  # noqa: PLE0605
__getattr__, __dir__ = _config.lazy("gateway", globals())
