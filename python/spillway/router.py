"""Which instance takes a dispatched request."""

from spillway import _config, _core
from spillway._core.router import *  # noqa: F403

__all__ = _config.public_names(_core.router)  # noqa: PLE0605
