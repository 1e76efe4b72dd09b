"""AIBrix: the rate limits of its gateway plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.gateway import RateLimit
from spillway.presets.preset import Preset, check, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PRESETS", "rate_limits"]

RPM = 100
TOKENS_PER_REQUEST = 1000
FIXED: dict[str, Any] = {
    "window_s": 60,
    "window": "aligned",
    "charge": "at_end",
    "retry_after": "none",
}


def rate_limits(*, rpm: int = RPM, tpm: int | None = None) -> Preset:
    """The limits of a user of AIBrix @ e3e10f9; a user is a tenant.

    Parameters
    ----------
    rpm
        Requests in a minute, >= 0.
    tpm
        Tokens in a minute, >= 0; None: 1,000 x rpm.
    """
    check(is_whole(rpm, 0), "rpm", rpm, "must be a whole number >= 0")
    allowed = "must be a whole number >= 0 or None"
    check(tpm is None or is_whole(tpm, 0), "tpm", tpm, allowed)
    return Preset(
        name="aibrix",
        kind="gateway",
        doc="Rate limits per user in aligned minutes; tokens count at the end.",
        source="AIBrix @ e3e10f9, read and not run",
        settings={
            "gateway.admission": RateLimit(
                max_requests=rpm,
                max_tokens=TOKENS_PER_REQUEST * rpm if tpm is None else tpm,
                **FIXED,
            )
        },
    )


PRESETS: tuple[Callable[..., Preset], ...] = (rate_limits,)
"""The functions of the presets."""
