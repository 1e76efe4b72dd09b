"""The charges of tenants and their instants, from which the order of dispatch follows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.effort import often, trials
from support.gateway_trials import trial
from support.random_gateways import random_simulation
from support.runs import fixed, flat, order, run, simulated
from support.specimens import Specimen, at

from spillway import gateway, instance, simulate, trace

MOMENTS = ("enqueue", "dispatch", "first_token", "token", "completion")
TRIALS = trials(90)


@pytest.mark.parametrize(
    ("fairness", "charge_at"),
    [
        pytest.param(specimen, moment, id=f"{specimen.policy.kind}-{moment}")
        for specimen in at("Band.fairness")
        for moment in MOMENTS
        if specimen.rule and (specimen.rule.tells_tokens or moment != "token")
    ],
)
def test_gateway_equals_its_plain_twin(fairness: Specimen, charge_at: str) -> None:
    seen: Counter[str] = Counter()
    for seed in TRIALS:
        compared = trial(seed, fairness, charge_at)
        if compared is None:
            continue
        seen["compared"] += 1
        assert compared.outcomes() == compared.expected(), seed
        seen.update(request.outcome for request in compared.requests)
        seen["estimated"] += sum(request.cost_output > 0 for request in compared.requests)
        dispatched = [request.dispatched for request in compared.requests if request.dispatched]
        seen["reordered"] += dispatched != sorted(dispatched)
    assert seen["compared"] >= len(TRIALS) - 2
    assert min(seen[word] for word in ("expired", "evicted", "rejected", "reordered")) >= often(15)
    if charge_at == "token":
        assert seen["estimated"] == 0
    else:
        assert seen["estimated"] >= often(32)


def test_jumps_charge_tokens_as_single_steps_do() -> None:
    """Counters are read between steps; what they read is what token-by-token charging has."""
    seen: Counter[str] = Counter()
    differs_from_completion = 0
    for seed in trials(240):
        simulation = random_simulation(seed, unit="weighted_tokens", charge_at="token")
        result = simulate(simulation, seed)
        plain = simulate(simulation, seed, reference=True)
        assert result.digest == plain.digest, seed
        assert order(result) == order(plain), seed
        for name, column in result.control.items():
            assert np.array_equal(column, plain.control[name], equal_nan=True), (seed, name)
        group = simulation.instances[0]
        seen[group.completion] += 1
        seen["several instances"] += group.count > 1
        seen["preempted"] += any(server["preemptions"] for server in result.instances)
        seen["jittered"] += isinstance(group.latency, instance.Jittered)
        seen["expired"] += result.ledger["expired"] > 0
        later = random_simulation(seed, unit="weighted_tokens", charge_at="completion")
        differs_from_completion += simulate(later, seed).digest != result.digest
    assert seen["preempted"] > often(50)
    assert seen["several instances"] > often(50)
    assert seen["jittered"] > often(50)
    assert seen["expired"] > often(30)
    assert min(seen["step_end"], seen["step_start"]) > often(50)
    assert differs_from_completion > often(50)


# With the same prefix as a request before, 16 of 80 tokens are left; tags advance by them.
@pytest.mark.parametrize(
    ("unit", "expected"), [("prompt_tokens", "ababab"), ("uncached_tokens", "abaabb")]
)
def test_uncached_tokens_are_those_that_were_not_sent_before(unit: str, expected: str) -> None:
    n = 3
    tenants = ["a", *("a" * n), *("b" * n)]
    fairness = gateway.StartTimeFair(cost=gateway.Cost(unit=unit))
    result = simulated(
        workload=trace(
            arrival_s=[0.0] + [0.5] * (2 * n),
            input_tokens=[80] * (2 * n + 1),
            output_tokens=[1] * (2 * n + 1),
            prefix_group=["P" if tenant == "a" else "" for tenant in tenants],
            prefix_tokens=[64 if tenant == "a" else 0 for tenant in tenants],
            tenant=tenants,
        ),
        gateway=gateway.Gateway(limit=fixed(1), bands=[gateway.Band(fairness=fairness)]),
        instances=flat(),
    )
    assert "".join(tenants[row] for row in order(result)[1:]) == expected


def test_request_that_times_out_gets_its_charge_back() -> None:
    """Tenant a is charged five requests that are never served, and b two: with the charges back,
    a has been served less, and goes first."""
    tenants = ["c", *("a" * 5), "b", "b", "a"]
    fairness = gateway.VirtualTokenCounter(
        lift="none", cost=gateway.Cost(unit="requests", charge_at="enqueue")
    )
    result = run(
        [0, *([0.1] * 5), 0.7, 0.7, 0.8],
        tenant=tenants,
        gateway=gateway.Gateway(
            limit=fixed(1),
            bands=[gateway.Band(fairness=fairness, queue=gateway.Queue(timeout_s=0.5))],
        ),
    )
    assert result.ledger["expired"] == 7
    assert [tenants[row] for row in order(result)] == ["c", "a"]


@pytest.mark.parametrize(("settles", "expected"), [(False, "cabca"), (True, "cabcb")])
def test_settlement_charges_what_the_estimate_left_out(settles: bool, expected: str) -> None:
    """a has had a long answer, b a short one; nothing was estimated of either."""
    tenants = ["c", "c", "a", "b", "b", "a"]
    cost = gateway.Cost(unit="weighted_tokens", charge_at="dispatch", settles=settles)
    fairness = gateway.VirtualTokenCounter(lift="none", cost=cost)
    result = run(
        [0, 0, 0.1, 0.2, 2.5, 2.6],
        output_tokens=[10, 10, 100, 10, 10, 10],
        tenant=tenants,
        gateway=gateway.Gateway(limit=fixed(1), bands=[gateway.Band(fairness=fairness)]),
        horizon_s=4.5,
    )
    assert "".join(tenants[row] for row in order(result)) == expected
