"""The error of all that reads traces and recordings."""

__all__ = ["TraceError"]


def __dir__() -> list[str]:
    return __all__


class TraceError(ValueError):
    """A trace, or another system's recorded results, that cannot be used.

    Names file, line (the header row is line 1), column and value.
    """
