"""Traces and recordings of other systems."""

from spillway._lazy import lazy_modules

__all__ = ["blis", "recordings", "traces"]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
