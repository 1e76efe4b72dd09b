"""If, when and for whom a request is let through: admission, bands, fairness, limits."""

from spillway import _config, _core
from spillway._core.gateway import *  # noqa: F403

__all__ = _config.public_names(_core.gateway)  # noqa: PLE0605
