"""AIBrix: the rate limits of its gateway."""
