"""The data of runs: columns, figures, files, statistics over several runs."""

from spillway._lazy import lazy_modules

__all__ = [
    "archive",
    "columns",
    "decisions",
    "figures",
    "recording",
    "replications",
    "requests",
    "result",
    "statistics",
    "timeline",
]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
