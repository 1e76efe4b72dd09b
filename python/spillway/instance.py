"""Model servers: schedulers, latency models, memory."""

from spillway import _config, _core
from spillway._core.instance import *  # noqa: F403

__all__ = _config.public_names(_core.instance)  # noqa: PLE0605
