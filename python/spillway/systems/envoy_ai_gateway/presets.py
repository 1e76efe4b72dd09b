"""Envoy AI Gateway: its limit of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._core.gateway import RateLimit
from spillway.presets.preset import Preset, check, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PRESETS", "token_limit"]


def token_limit(*, tokens: int = 100_000, window_s: float = 60) -> Preset:
    """The limit of tokens of a client of Envoy AI Gateway 0.1; a client is a tenant.

    Parameters
    ----------
    tokens
        Tokens of prompts and outputs in a window, >= 0.
    window_s
        Length of a window in s, > 0: a second, minute, hour or day of Envoy's rate limit service.
    """
    check(is_whole(tokens, 0), "tokens", tokens, "must be a whole number >= 0")
    check(window_s > 0, "window_s", window_s, "must be > 0")
    return Preset(
        name="envoy-ai-gateway",
        kind="gateway",
        doc="A limit of tokens per client, charged when answers end.",
        source="Envoy AI Gateway 0.1, its documentation",
        settings={
            "gateway.admission": RateLimit(
                max_requests=None,
                max_tokens=tokens,
                window_s=window_s,
                window="aligned",
                charge="at_end",
                retry_after="none",
            )
        },
    )


PRESETS: tuple[Callable[..., Preset], ...] = (token_limit,)
"""The functions of the presets."""
