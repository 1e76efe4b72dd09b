"""LiteLLM: the rate limits of its proxy's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._core.gateway import RateLimit
from spillway.presets.preset import Preset, check, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PRESETS", "rate_limits"]


def rate_limits(
    *,
    rpm: int | None = 100,
    tpm: int | None = 100_000,
    max_parallel_requests: int | None = None,
    max_tokens: int | None = None,
    window_s: float = 60,
) -> Preset:
    """The limits of a key of LiteLLM 1.110's proxy; the proxy itself has none by default.

    A key is a tenant. The proxy reserves the prompt and `max_tokens`, and settles them at the end.
    Where a request states no `max_tokens`, it sets a quarter of `tpm`: that it cuts answers at this
    length is not imitated.

    Parameters
    ----------
    rpm
        Requests of a key in a window, >= 0; None: no limit.
    tpm
        Tokens of a key in a window, >= 0; None: no limit.
    max_parallel_requests
        Unfinished requests of a key, >= 0; None: no limit.
    max_tokens
        Output that is reserved for a request, >= 0; None: the `max_tokens` that it states, or a
        quarter of `tpm`.
    window_s
        Length of a window in s, > 0 (LITELLM_RATE_LIMIT_WINDOW_SIZE).
    """
    allowed = "must be a whole number >= 0 or None"
    limits = {
        "rpm": rpm,
        "tpm": tpm,
        "max_parallel_requests": max_parallel_requests,
        "max_tokens": max_tokens,
    }
    for name, value in limits.items():
        check(value is None or is_whole(value, 0), name, value, allowed)
    check(window_s > 0, "window_s", window_s, "must be > 0")
    return Preset(
        name="litellm",
        kind="gateway",
        doc="Rate limits per key, from its first request; tokens are reserved.",
        source="LiteLLM 1.110.2, parallel_request_limiter_v3 without Redis",
        settings={
            "gateway.admission": RateLimit(
                max_requests=rpm,
                max_tokens=tpm,
                max_parallel=max_parallel_requests,
                window_s=window_s,
                window="first_request",
                charge="reserve",
                reserved_output_tokens=(tpm or 0) // 4 if max_tokens is None else max_tokens,
                output_length="max_tokens" if max_tokens is None else "fixed",
                retry_after="window",
            )
        },
    )


PRESETS: tuple[Callable[..., Preset], ...] = (rate_limits,)
"""The functions of the presets."""
