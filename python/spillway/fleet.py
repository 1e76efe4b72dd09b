"""Which instances are there when: a schedule, an autoscaler, slow readiness."""

from spillway import _config, _core
from spillway._core.fleet import *  # noqa: F403

__all__ = _config.public_names(_core.fleet)  # noqa: PLE0605
