"""The rate limits of LiteLLM's keys."""

from __future__ import annotations

from typing import Any

from spillway import gateway
from spillway.systems.litellm import presets as litellm

PARAMETERS: dict[str, dict[str, Any]] = {
    "litellm": {
        "rpm": 7,
        "tpm": 2000,
        "max_parallel_requests": 3,
        "max_tokens": 40,
        "window_s": 3,
    }
}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    ("litellm", "rpm", -1),
    ("litellm", "tpm", 2.5),
    ("litellm", "max_parallel_requests", "many"),
    ("litellm", "max_tokens", -1),
    ("litellm", "window_s", 0),
]


def test_limits_are_those_of_a_key() -> None:
    preset = litellm.rate_limits(rpm=5, tpm=500, max_parallel_requests=3)
    assert preset.settings["gateway.admission"] == gateway.RateLimit(
        max_requests=5,
        max_tokens=500,
        max_parallel=3,
        window_s=60,
        output_length="max_tokens",
        window="first_request",
        key="tenant",
        tokens="total",
        charge="reserve",
        reserved_output_tokens=125,  # a quarter of tpm
        counts_refused=True,
        retry_after="window",
    )
