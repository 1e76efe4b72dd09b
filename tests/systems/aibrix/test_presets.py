"""The rate limits of AIBrix's users."""

from __future__ import annotations

from typing import Any

from spillway import gateway
from spillway.systems.aibrix import presets as aibrix

PARAMETERS: dict[str, dict[str, Any]] = {"aibrix": {"rpm": 7, "tpm": 2000}}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [("aibrix", "rpm", -1), ("aibrix", "tpm", 2.5)]


def test_limits_are_those_of_a_user() -> None:
    assert aibrix.rate_limits().settings["gateway.admission"] == gateway.RateLimit(
        max_requests=100,
        max_tokens=100_000,
        window_s=60,
        window="aligned",
        key="tenant",
        tokens="total",
        charge="at_end",
        counts_refused=True,
        retry_after="none",
    )
