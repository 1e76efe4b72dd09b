"""How old the state of the instances is that decisions see."""

from spillway import _config, _core
from spillway._core.signals import *  # noqa: F403

__all__ = _config.public_names(_core.signals)  # noqa: PLE0605
