"""The error of reading traces and recordings."""

__all__ = ["TraceError"]


def __dir__() -> list[str]:
    return __all__


class TraceError(ValueError):
    """An invalid trace, or invalid recorded results of another system.

    The message names file, line (the header row is line 1), column and value.
    """
