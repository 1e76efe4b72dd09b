"""The policies of `examples/python_policies.py` decide as those of the core do."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials
from support.paths import ROOT, importing_from

from spillway import Simulation, gateway, policies, router, simulate

with importing_from(ROOT / "examples"):
    import python_policies as example


def surroundings(draws: random.Random) -> Simulation:
    """A random system under a random load, mostly too high."""
    names = ["gold", "silver", "free"][: draws.randint(1, 3)]
    count = draws.randint(1, 5)
    limits: list[Any] = [{"kind": "fixed", "max_in_flight": draws.randint(1, 8 * count)}]
    if draws.random() < 0.3:
        limits.append({"kind": "per_tenant", "max_in_flight": draws.randint(1, 8)})
    if draws.random() < 0.3:
        limits.append({"kind": "token_budget", "max_tokens_in_flight": draws.randint(500, 9000)})
    lengths = {"kind": "uniform", "min_tokens": 1, "max_tokens": draws.randint(10, 1500)}
    return Simulation(
        tenants=[{"name": name, "weight": draws.choice([0.3, 1, 1, 2.5])} for name in names],
        instances=[
            {
                "count": count,
                "max_num_seqs": draws.randint(1, 16),
                "num_kv_blocks": draws.randint(200, 2000),
                "latency": {"kind": "linear", "beta0_us": draws.uniform(2000, 20000)},
            }
        ],
        gateway={
            "limit": limits,
            "replicas": draws.choice([1, 1, 2]),
            "bands": [{"queue": {"timeout_s": draws.choice([None, 0.5])}}],
        },
        signals=draws.choice(["live", {"kind": "scraped", "period_s": draws.uniform(0.01, 1)}]),
        workload={
            "kind": "synthetic",
            "requests_per_s": draws.uniform(5, 60 * count),
            "num_requests": 120,
            "clients": [
                {
                    "name": name,
                    "tenant": name,
                    "input_tokens": lengths,
                    "output_tokens": {"kind": "uniform", "min_tokens": 1, "max_tokens": 60},
                }
                for name in names
            ],
        },
    )


def token_buckets(draws: random.Random) -> tuple[str, Any, Any]:
    capacity, rate = draws.uniform(100, 9000), draws.uniform(100, 30000)
    settings = {"capacity_tokens": capacity, "refill_tokens_per_s": rate}
    written = functools.partial(example.TokenBucket, **settings)
    return "gateway.admission", gateway.TokenBucket(**settings), written


def deficit_round_robins(draws: random.Random) -> tuple[str, Any, Any]:
    unit = draws.choice(["requests", "prompt_tokens"])
    quantum = draws.uniform(0.4, 3) * (1 if unit == "requests" else 300)
    written = functools.partial(example.DeficitRoundRobin, quantum=quantum)
    cost = {"unit": unit}
    return (
        "gateway.bands[0].fairness",
        gateway.DeficitRoundRobin(quantum=quantum, cost=cost),
        policies.settings(written).replace(cost=cost),
    )


def least_loaded(_draws: random.Random) -> tuple[str, Any, Any]:
    return "router", router.LeastLoaded(), example.LeastLoaded


@pytest.mark.parametrize("pair", [token_buckets, deficit_round_robins, least_loaded])
def test_twins_agree_decision_by_decision(pair: Any) -> None:
    matters = 0
    for seed in trials(200):
        draws = random.Random(f"{pair.__name__} {seed}")
        around = surroundings(draws)
        path, compiled, written = pair(draws)
        result, other = (simulate(around.with_({path: each}), seed) for each in (compiled, written))
        assert set(result.requests) == set(other.requests)
        for column, values in result.requests.items():
            if column != "reason":  # which the core names otherwise
                np.testing.assert_array_equal(
                    values, other.requests[column], f"seed {seed}: {column}"
                )
        matters += result.outcome_digest != simulate(around, seed).outcome_digest
    assert matters >= often(80)
