"""Analyses of the results of runs."""

from spillway._lazy import lazy_modules

__all__ = [
    "group_age",
    "recovery",
    "regret",
    "routing",
    "stationarity",
    "steady_state",
]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
