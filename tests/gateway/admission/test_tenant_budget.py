"""Budgets of tenants."""

from __future__ import annotations

from support.runs import flat, outcomes, run

from spillway import Simulation, gateway, instance
from spillway.testing import Request, build


def test_budget_counts_what_is_in_flight() -> None:
    policy = gateway.TenantBudget(default_share=0.5)
    seats = Simulation(instances=[instance.InstanceGroup(max_num_seqs=2)])
    budget = build(policy, simulation=seats)
    first, second, third = (Request(slo_class="sheddable") for _ in range(3))
    for now_s, request in ((1.0, first), (2.0, second)):
        assert budget.decide(request, now_s=now_s).admitted
        budget.dispatched(request, now_s=now_s)
    assert not budget.decide(third, now_s=3.0).admitted  # two of one seat
    budget.first_token(first, now_s=4.0)
    budget.finished(first, now_s=5.0)
    assert budget.decide(third, now_s=6.0).admitted


def test_burst_at_one_instant_passes_a_tenant_budget() -> None:
    """As in the published policy, a dispatch counts once its instant is over."""
    result = run(
        [0.0] * 5 + [0.1] * 5,
        slo_class="sheddable",
        gateway=gateway.Gateway(admission=gateway.TenantBudget(default_share=0)),
    )
    assert outcomes(result) == ["completed"] * 5 + ["rejected"] * 5


def test_tenant_budget_is_a_share_of_all_seats() -> None:
    """A tenth of 2·20 seats is 4: a fifth is admitted while there are no more than 4."""
    policy = gateway.TenantBudget(budgets=[gateway.TenantShare(tenant="a", share=0.1)])
    result = run(
        [0.01 * i for i in range(20)],
        tenant=["a", "b"] * 10,
        slo_class="batch",
        gateway=gateway.Gateway(admission=policy),
        instances=flat().replace(count=2, max_num_seqs=20),
    )
    assert outcomes(result)[::2] == ["completed"] * 5 + ["rejected"] * 5
    assert outcomes(result)[1::2] == ["completed"] * 10
