"""Servers fitted to measurements."""

from spillway._lazy import lazy_modules

__all__ = ["calibrate", "hull", "profile", "refinement", "replay", "statistics"]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
