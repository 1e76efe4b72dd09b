"""The limit of tokens of Envoy AI Gateway."""

from __future__ import annotations

from typing import Any

from spillway import gateway
from spillway.systems.envoy_ai_gateway import presets as envoy_ai_gateway

PARAMETERS: dict[str, dict[str, Any]] = {"envoy-ai-gateway": {"tokens": 2000, "window_s": 3600}}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    ("envoy-ai-gateway", "tokens", -1),
    ("envoy-ai-gateway", "window_s", 0),
]


def test_the_limit_is_of_tokens_when_the_answer_ends() -> None:
    settings = envoy_ai_gateway.token_limit().settings
    assert settings["gateway.admission"] == gateway.RateLimit(
        max_requests=None,
        max_tokens=100_000,
        window_s=60,
        window="aligned",
        key="tenant",
        tokens="total",
        charge="at_end",
        retry_after="none",
    )
