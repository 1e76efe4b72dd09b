"""What is measured and how."""

from spillway import _config, _core
from spillway._core.metrics import *  # noqa: F403

__all__ = _config.public_names(_core.metrics)  # noqa: PLE0605
