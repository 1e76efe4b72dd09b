"""The error of reading traces and recordings."""


class TraceError(ValueError):
    """An invalid trace, or invalid recorded results of another system.

    The message names file, line (the header row is line 1), column and value.
    """


def in_a_line(error: Exception) -> str:
    """The problems that an error lists, one a line, in one line."""
    return "; ".join(str(error).split("\n"))
