"""Bounds of the core that its field descriptors do not state."""

MAX_TOKENS = 100_000_000
"""Maximum length of a prompt or an output (`kMaxTokens`)."""

LONGEST_SPAN_S = 3_200_000_000
"""Range of the core's clock, in seconds (`kLongestSpan_s`)."""

MAX_NAMES = 65_535
"""Maximum number of tenants, and of classes (`kMaxNames`): the core counts them with 16 bits."""
