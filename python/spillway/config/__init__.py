"""The settings of simulations: their classes, files, descriptions and profiles."""

from spillway._lazy import lazy_modules

__all__ = [
    "classes",
    "describe",
    "extras",
    "files",
    "filesystem",
    "limits",
    "memory",
    "messages",
    "profiles",
    "randomness",
    "schema",
    "text",
    "yaml",
]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
