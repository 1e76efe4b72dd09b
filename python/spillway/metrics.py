"""What is measured and how."""

from typing import TYPE_CHECKING

from spillway import _config

if TYPE_CHECKING:
    from spillway._core.metrics import *  # noqa: F403

__all__ = _config.names_of("metrics")  # noqa: PLE0605
__getattr__, __dir__ = _config.lazy("metrics", globals())
