"""Which instances are there when: a schedule, an autoscaler, slow readiness."""

from typing import TYPE_CHECKING

from spillway import _config

if TYPE_CHECKING:
    from spillway._core.fleet import *  # noqa: F403

__all__ = _config.names_of("fleet")  # noqa: PLE0605
__getattr__, __dir__ = _config.lazy("fleet", globals())
