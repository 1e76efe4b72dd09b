"""No policy decides by how long an output will be, unless it says so.

Two runs differ in the true lengths of outputs alone, and end before any of these is complete: what
a gateway, a router and a scheduler decide until then depends on what a deployed system knows, the
same in both. Policies that use an output length read the prediction (`length_prediction`), which is
here the mean of a class, of which nothing is complete yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.runs import steady
from support.specimens import at, examples

import spillway
from spillway import Result, Simulation, gateway, router, simulate, workload

N = 80
HORIZON_S = 1.0  # 100 steps
LENGTHS = {"short": 130 + np.arange(N) % 7, "long": 900 - 9 * np.arange(N)}
CLASSES = ("critical", "standard", "batch")
SEAMS = {
    "Gateway.admission": "gateway.admission",
    "Gateway.limit": "gateway.limit",
    "Gateway.usage_limit": "gateway.usage_limit",
    "Gateway.controller": "gateway.controller",
    "Band.fairness": "gateway.bands[0].fairness",
    "Simulation.router": "router",
    "Weighted.filters": "router",
    "Weighted.scorers": "router",
    "Weighted.picker": "router",
    "InstanceGroup.scheduler": "instances[0].scheduler",
    "InstanceGroup.ingress": "instances[0].ingress",
    "Fleet.autoscaler": "fleet.autoscaler",
    "Disaggregation.decider": "disaggregation.decider",
}
ORACLES: dict[str, dict[str, Any]] = {
    "estimator exact": {
        "gateway.admission": {
            "kind": "predictive_ttft",
            "estimator": "exact",
            "protected_priority": None,
            "budgets": [{"slo_class": name, "budget_s": 5} for name in CLASSES],
        },
        "instances[0].max_num_seqs": 4,  # the wait is for the end of others
        "gateway.limit": ["unlimited"],
    },
    "output_estimate oracle": {
        "gateway.bands[0].fairness": {
            "kind": "virtual_token_counter",
            "cost": {
                "unit": "weighted_tokens",
                "charge_at": "dispatch",
                "output_estimate": "oracle",
            },
        }
    },
}
"""Policies that know the truth, as their settings say."""
PREDICTED: dict[str, dict[str, Any]] = {
    "sjf": {"instances[0].scheduler": {"kind": "sjf", "length": "output"}},
    "shortest_output": {"gateway.bands[0].queue.ordering": "shortest_output"},
    "token_budget": {
        "gateway.limit": {
            "kind": "token_budget",
            "output_length": "predicted",
            "max_tokens_in_flight": 3000,
        }
    },
    "rate_limit": {
        "gateway.admission": {
            "kind": "rate_limit",
            "output_length": "predicted",
            "max_requests": None,
            "max_tokens": 4000,
        }
    },
    "output_estimate": {
        "gateway.bands[0].fairness": {
            "kind": "virtual_token_counter",
            "cost": {
                "unit": "weighted_tokens",
                "charge_at": "dispatch",
                "output_estimate": "predicted",
            },
        }
    },
}
"""Policies that read the prediction."""


def around(lengths: str) -> Simulation:
    rng = np.random.default_rng(7)
    return Simulation(
        workload=spillway.trace(
            arrival_s=np.sort(rng.uniform(0, 0.3, N)),
            input_tokens=rng.integers(20, 300, N),
            output_tokens=LENGTHS[lengths],
            tenant=rng.choice(["a", "b", "c"], N).tolist(),
            slo_class=rng.choice(CLASSES, N).tolist(),
            prefix_group=rng.choice(["x", "y", ""], N).tolist(),
            prefix_tokens=[16] * N,
        ),
        slo_classes=[
            workload.SloClass(name="critical", priority=4, target_ttft_s=0.3, target_tpot_s=0.02),
            workload.SloClass(name="standard", target_ttft_s=0.2, target_tpot_s=0.011),
            workload.SloClass(name="batch", priority=-1, target_ttft_s=0.4),
        ],
        instances={
            "count": 4,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 64,
            "num_kv_blocks": 4000,
            "latency": steady(10, beta_decode_us=100),
        },
        length_prediction={"model": "class_mean", "prior_tokens": 64},
        horizon_s=HORIZON_S,
        # What waits may go at first tokens, because nothing ends.
        gateway=gateway.Gateway(
            limit=gateway.DualLimit(max_in_flight=1000, max_awaiting_first_token=12)
        ),
    )


def results(settings: dict[str, Any]) -> tuple[Result, Result]:
    """The runs with short and with long outputs."""
    both = [simulate(around(lengths).with_(settings)) for lengths in LENGTHS]
    assert not any(result.ledger["completed"] for result in both)
    assert not any("unservable" in set(result.requests["reason"]) for result in both)
    return both[0], both[1]


def differ(settings: dict[str, Any]) -> bool:
    """Whether any request fares differently before the end of both runs."""
    short, long = results(settings)
    return not all(
        np.array_equal(
            short.requests[name], long.requests[name], equal_nan=values.dtype.kind == "f"
        )
        for name, values in short.requests.items()
        if name != "requested_output_tokens"
    )


def placed(seam: str, policy: Any) -> dict[str, Any]:
    path = SEAMS[seam]
    more: dict[str, Any] = {}
    if seam.startswith("Weighted."):
        field = seam.partition(".")[2]
        return {"router": router.Weighted(**{field: policy if field == "picker" else [policy]})}
    if seam == "Gateway.usage_limit":
        more["gateway.limit"] = [{"kind": "saturation"}]
    if seam == "Disaggregation.decider":
        servers = around("short").instances[0]
        more["instances"] = [servers.replace(role=role) for role in ("prefill", "decode")]
        more["gateway.limit"] = ["unlimited"]
        if policy.kind == "uncached_tokens":
            more["disaggregation.order"] = "decode_first"
    return {**more, path: policy}


@pytest.mark.parametrize("seam", SEAMS)
def test_decisions_do_not_depend_on_true_lengths(seam: str) -> None:
    policies = examples(seam)
    assert len(policies) >= len(at(seam)) > 0
    for policy in policies:
        assert not differ(placed(seam, policy)), policy


@pytest.mark.parametrize("name", PREDICTED)
def test_predictions_are_read_and_by_default_exact(name: str) -> None:
    assert not differ(PREDICTED[name])
    assert differ({**PREDICTED[name], "length_prediction": {"model": "oracle"}})


@pytest.mark.parametrize("name", ORACLES)
def test_policies_that_know_the_truth_say_so(name: str) -> None:
    assert differ(ORACLES[name])
