"""Budgets of tenants."""

from __future__ import annotations

from support.runs import flat, outcomes, run

from spillway import gateway


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
