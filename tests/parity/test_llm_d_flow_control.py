"""Agreement with the flow control of llm-d-router @ ebab687, as its own code answered.

A trace is a run of its FlowController on a virtual clock in front of a server that takes a time for
each request that follows from its output alone. Its attempts come at whole milliseconds, arrivals
and completions between them, so that no two coincide.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.paths import vectors
from support.runs import concurrency, flat, ns

import spillway
from spillway import Result, gateway, simulate, workload
from spillway.systems.llm_d import presets

TRACES = vectors("llm_d/flow_trace")
TTL_S = {"60s": 60, "1500ms": 1.5, "0s": None, "400ms": 0.4}
OUTCOMES = {"Dispatched": "completed", "RejectedCapacity": "rejected", "EvictedTTL": "expired"}
FAIRNESS = {
    "round-robin-fairness-policy": gateway.TenantRoundRobin(),
    "global-strict-fairness-policy": gateway.GlobalFifo(),
    "program-aware-fairness": gateway.LeastAttainedService(),
}
BAND = 5000

pytestmark = pytest.mark.skipif(not TRACES, reason="needs recorded answers of llm-d")


def usage_limit(trace: dict[str, Any]) -> Any:
    if trace["usage_limit"] == "soft-reflective-ceiling-policy":
        return gateway.SoftReflective()
    held = re.search(r"minCeiling: ([0-9.]+), domain: (\w+)", trace["config"])
    if held:
        return gateway.PriorityHoldback(min_ceiling=float(held[1]), domain=held[2])
    return gateway.StaticCeilings()


def class_of(arrival: dict[str, Any]) -> tuple[int, float, float]:
    return arrival["priority"], arrival.get("slo_ttft_ms") or 0, arrival.get("ttl_ms") or 0


def simulated(trace: dict[str, Any]) -> Result:
    """The trace with the preset of its version."""
    arrivals = trace["arrivals"]
    kinds = sorted({class_of(arrival) for arrival in arrivals})
    preset = presets.flow_control(
        version="2026-08",
        priorities=trace["priorities"],
        detector="concurrency",
        fairness=FAIRNESS[trace["fairness"]],
        ordering=trace["ordering"].removesuffix("-ordering-policy").replace("-", "_"),
        usage_limit=usage_limit(trace),
    )
    settings = {
        "gateway.limit": [concurrency(trace["limit"])],
        "gateway.max_queued": trace["max_requests"] or None,
        "gateway.bands": [
            band.with_(
                {
                    "max_requests": trace["band_max_requests"] or BAND,
                    "queue.timeout_s": TTL_S[trace["default_ttl"]],
                }
            )
            if band.priority in trace["priorities"]
            else band
            for band in preset.gateway.bands
        ],
        "slo_classes": [
            workload.SloClass(
                name=f"c{i}",
                priority=priority,
                target_ttft_s=slo_ms / 1000 if slo_ms else None,
                queue_timeout_s=ttl_ms / 1000 if ttl_ms else None,
            )
            for i, (priority, slo_ms, ttl_ms) in enumerate(kinds)
        ],
        "tenants": [
            workload.Tenant(name=name) for name in sorted({arrival["flow"] for arrival in arrivals})
        ],
        # 20 tokens per ms.
        "instances": [flat(0.00005, 0.00005, reference_output_tokens=1)],
        "workload": spillway.trace(
            arrival_s=np.array([arrival["at_ms"] for arrival in arrivals]) / 1000,
            input_tokens=[arrival["input_tokens"] for arrival in arrivals],
            output_tokens=[arrival["output_tokens"] for arrival in arrivals],
            tenant=[arrival["flow"] for arrival in arrivals],
            slo_class=[f"c{kinds.index(class_of(arrival))}" for arrival in arrivals],
        ),
    }
    return simulate(preset.apply().with_(settings), seed=0)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: f"trace-{trace['id']}")
def test_every_request_leaves_the_queue_when_it_left_there(trace: dict[str, Any]) -> None:
    result = simulated(trace)
    requests = result.requests
    recorded = trace["results"]
    assert requests["outcome"].tolist() == [OUTCOMES[there["outcome"]] for there in recorded]
    dispatched = [
        None if wait < 0 else at + wait
        for at, wait in zip(ns(requests["arrival_s"]), ns(requests["queue_s"]), strict=True)
    ]
    assert dispatched == [
        round(there["at_ms"] * 1e6) if there["outcome"] == "Dispatched" else None
        for there in recorded
    ]
