"""Healthy random configurations have hardly any finding of high severity.

The rule: equal servers; at most 0.7 of the rate at which the fleet completes requests that all come
at once; in the run nothing is lost, and goodput is at least 0.99.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import spillway
from spillway import Simulation, simulate

COUNT = 300
MOST_LOAD = 0.7
LEAST_GOODPUT = 0.99
MOST_SEVERE = 0.05

MODELS = ("llama-3.1-8b", "qwen3-14b")
ROUTERS: tuple[Any, ...] = (
    "round_robin",
    "least_loaded",
    "weighted",
    {"kind": "weighted", "scorers": ["queue_depth", "kv_utilization"]},
    {"kind": "weighted", "scorers": ["prefix_affinity", "active_requests"]},
)
SIGNALS: tuple[Any, ...] = ("live", {"kind": "scraped", "period_s": 0.05})
GATEWAYS: tuple[Any, ...] = (
    {},
    {"limit": {"kind": "fixed", "max_in_flight": 512}},
    {"limit": "saturation", "bands": [{"priority": 0}, {"priority": -10}]},
    {"limit": {"kind": "fixed", "max_in_flight": 256}, "controller": {"kind": "aimd"}},
)
ARRIVALS: tuple[Any, ...] = ("poisson", {"kind": "gamma", "cv": 2})


def drawn(seed: int) -> dict[str, Any]:
    """A random configuration without its rate."""
    rng = random.Random(seed)
    clients = []
    for name in ("standard", "batch")[: rng.choice((1, 2))]:
        client = {
            "name": name,
            "tenant": name,
            "slo_class": name,
            "arrivals": rng.choice(ARRIVALS),
            "input_tokens": {"kind": "fixed", "tokens": rng.randrange(50, 3000)},
            "output_tokens": {"kind": "fixed", "tokens": rng.randrange(10, 400)},
        }
        if rng.random() < 0.3:
            client |= {"prefix_group": f"system of {name}", "prefix_tokens": 1000}
        clients.append(client)
    return {
        "schema": 1,
        "workload": {"kind": "synthetic", "num_requests": 1500, "clients": clients},
        "slo_classes": [
            {"name": "standard", "priority": 0, "target_ttft_s": 2, "target_tpot_s": 0.1},
            {"name": "batch", "priority": -1, "target_ttft_s": 10},
        ],
        "gateway": rng.choice(GATEWAYS),
        "router": rng.choice(ROUTERS),
        "signals": rng.choice(SIGNALS),
        "instances": {
            "server": {"model": rng.choice(MODELS), "gpu": "h100"},
            "count": rng.randrange(1, 9),
            "scheduler": rng.choice(("fcfs", "priority_fcfs")),
        },
    }


def at_rate(settings: dict[str, Any], requests_per_s: float) -> Simulation:
    workload = settings["workload"]
    each = requests_per_s / len(workload["clients"])
    clients = [{**client, "requests_per_s": each} for client in workload["clients"]]
    return spillway.loading.from_settings(
        {**settings, "workload": {**workload, "clients": clients}}
    )


@pytest.mark.slow
def test_healthy_runs_have_hardly_any_severe_finding() -> None:
    severe: list[str] = []
    healthy, seed = 0, 0
    while healthy < COUNT:
        seed += 1
        settings = drawn(seed)
        capacity = simulate(at_rate(settings | {"gateway": {}}, 1e6)).summary()[
            "request_throughput"
        ]
        load = random.Random(f"load {seed}").uniform(0.1, MOST_LOAD)
        result = simulate(at_rate(settings, load * float(capacity or 0)), seed)
        goodput = result.summary()["goodput"] or 0
        if goodput < LEAST_GOODPUT or result.ledger["completed"] < result.ledger["attempts"]:
            continue
        healthy += 1
        found = [finding for finding in result.findings() if finding.severity == "high"]
        severe += [f"{seed}: {finding}" for finding in found[:1]]
    share = len(severe) / COUNT
    print(f"\nhealthy runs with a severe finding: {share:.1%}, at most {MOST_SEVERE:.0%}")
    assert share <= MOST_SEVERE, severe
