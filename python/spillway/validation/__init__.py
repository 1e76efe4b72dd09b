"""Comparisons of whole runs with recordings of other systems and of real servers."""

from spillway._lazy import lazy_modules

__all__ = ["blis", "real", "recording", "vllm_scheduler"]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
