"""Where fits of step times begin."""

from __future__ import annotations

from spillway._core.instance import Roofline

START = Roofline(
    alpha0_us=5000,
    constant_us=2800,
    weights_us=9800,
    token_us=50,
    decode_us=30,
    decode_context_us=0.06,
    prefill_context_us=0.0017,
)
"""The coefficients with which a fit begins, and the means of its weak prior.

Estimates from datasheets: Qwen3-14B in bf16 on an H100, 90% of the memory bandwidth, 60% of the
arithmetic.
"""
