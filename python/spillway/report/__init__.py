"""Results as text, tables and figures."""

from spillway._lazy import lazy_modules

__all__ = ["plots"]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
