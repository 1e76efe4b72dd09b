"""Bounds of the core that its field descriptors do not state."""

__all__ = ["LONGEST_SPAN_S", "MAX_TOKENS"]


def __dir__() -> list[str]:
    return __all__


MAX_TOKENS = 100_000_000
"""Of a prompt or an output (`kMaxTokens`)."""

LONGEST_SPAN_S = 3_200_000_000
"""How far its clock reaches, in seconds (`kLongestSpan_s`)."""
