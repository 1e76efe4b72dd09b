"""Traces, recordings and configuration files of other systems."""

from spillway._lazy import lazy_modules

__all__ = ["deployments", "recordings", "traces"]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
