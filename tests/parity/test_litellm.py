"""Decisions of LiteLLM's rate limiter, recorded from its own code."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

import pytest
from support.paths import REFERENCE

from spillway.gateway import ClassOutput
from spillway.systems.litellm import presets as litellm
from spillway.testing import Request, build
from spillway.workload import SloClass

RECORDED = REFERENCE / "litellm" / "parallel_request_limiter_v3.jsonl.gz"
pytestmark = pytest.mark.skipif(not RECORDED.exists(), reason="no recordings of LiteLLM")

TOKENS_PER_WORD = 0.735
"""Of LiteLLM's count of the recorded prompts, rounded down."""
NEAR_AN_EDGE_S = 1.0
"""LiteLLM keeps the beginning of a window in whole seconds."""
CLASSES = [SloClass(name=name) for name in ("standard", "50", "200")]
"""The `max_tokens` that recorded requests state, as classes."""


def cause(event: dict[str, Any]) -> str:
    if event["status"] == 200:
        return ""
    limit = event["reason"].partition("Limit type: ")[2].partition(".")[0]
    return {"max_parallel_requests": "parallel"}.get(limit, limit)


def replay(trace: dict[str, Any]) -> tuple[int, str]:
    """The number of equal decisions up to the first other one, and where that one is."""
    preset = litellm.rate_limits(
        rpm=trace["rpm"],
        tpm=trace["tpm"],
        max_parallel_requests=trace["max_parallel_requests"],
        window_s=trace["window_s"],
    )
    policy = preset.settings["gateway.admission"].replace(
        reserved_of_class=[
            ClassOutput(slo_class=name, output_tokens=int(name)) for name in ("50", "200")
        ]
    )
    limiter = build(policy, slo_classes=CLASSES)
    inside: dict[int, Request] = {}
    begins_s, equal = None, 0
    ends = {event["ended"]: event for event in trace["events"] if "ended" in event}
    for event in trace["events"]:
        now_s = event["at_s"]
        if "ended" in event:
            request = inside.pop(event["ended"], None)
            if request is not None:
                outcome = "completed" if event["succeeded"] else "failed"
                limiter.finished(request, outcome=outcome, now_s=now_s)
            continue
        is_near = False
        if begins_s is not None:
            is_near = abs(now_s - begins_s - trace["window_s"]) < NEAR_AN_EDGE_S
        if begins_s is None or now_s >= begins_s + trace["window_s"]:
            begins_s = now_s
        end = ends.get(event["arrives"])
        prompt = int(event["words"] * TOKENS_PER_WORD)
        # The usage that the end states, with the prompt as it was counted at the arrival.
        used = end["prompt_tokens"] + end["completion_tokens"] if end else prompt + 1
        request = Request(
            input_tokens=max(prompt, 1),
            output_tokens=max(used - prompt, 1),
            slo_class="standard" if event["max_tokens"] is None else str(event["max_tokens"]),
        )
        decision = limiter.decide(request, now_s=now_s)
        if decision.reason.removeprefix("rate_limit_") != cause(event):
            return equal, "near" if is_near else "far"
        if not decision.admitted:
            assert decision.retry_after_s == float(event["headers"]["retry-after"])
        else:
            inside[event["arrives"]] = request
        equal += 1
    return equal, ""


def test_decisions_are_those_of_litellm_but_near_the_edges_of_windows() -> None:
    with gzip.open(RECORDED, "rt") as lines:
        traces = [json.loads(line) for line in lines]
    found = [(trace["tpm"] is not None, *replay(trace)) for trace in traces]
    # A trace ends at its first other decision, because what follows depends on it.
    equal = sum(count for _, count, _ in found)
    assert equal > 0.7 * sum("arrives" in event for trace in traces for event in trace["events"])
    places = Counter((has_tokens, place) for has_tokens, _, place in found)
    assert places[False, "far"] == 0
    # The proxy's counter of tokens lives in a cache, with an age of its own.
    assert places[True, "far"] <= 0.1 * sum(has_tokens for has_tokens, _, _ in found)
    assert places[True, ""] + places[False, ""] > 0.5 * len(traces)
