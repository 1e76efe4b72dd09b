"""Token buckets of tenants."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.effort import trials
from support.runs import outcomes, run

from spillway import gateway, workload


@pytest.mark.parametrize("seed", trials(10))
def test_bucket_of_a_single_tenant_is_the_plain_one(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {
        "capacity_tokens": rng.uniform(500, 3000),
        "refill_tokens_per_s": rng.uniform(300, 2500),
    }
    n = 300
    arrivals = np.cumsum([rng.expovariate(10) for _ in range(n)]).tolist()
    prompts = [rng.randint(1, 900) for _ in range(n)]

    def verdicts(policy: Any) -> list[str]:
        admission = gateway.Gateway(admission=policy)
        return outcomes(run(arrivals, input_tokens=prompts, gateway=admission))

    plainly = verdicts(gateway.TokenBucket(**sizes))
    assert verdicts(gateway.TenantTokenBucket(**sizes)) == plainly
    assert 50 < plainly.count("rejected") < 250


def test_buckets_share_by_weight_and_owners_take_no_part() -> None:
    """All tenants offer ten times the refill, in prompts of 10 tokens."""
    n, names = 3000, ("a", "b", "c")
    result = run(
        [0.01 * (i // 3) for i in range(n)],
        input_tokens=10,
        tenant=[names[i % 3] for i in range(n)],
        tenants=[
            workload.Tenant(name="a", weight=1),
            workload.Tenant(name="b", weight=3),
            workload.Tenant(name="c", weight=50),
        ],
        gateway=gateway.Gateway(
            admission=gateway.TenantTokenBucket(
                capacity_tokens=400,
                refill_tokens_per_s=400,
                own=[gateway.TenantRate(tenant="c", capacity_tokens=20, refill_tokens_per_s=10)],
            )
        ),
    )
    columns = result.requests
    admitted = Counter(columns["tenant"][columns["outcome"] == "completed"].tolist())
    # Over 9.99 s: bursts of 100, 300 and 20 tokens, then 100, 300 and 10 tokens/s.
    assert admitted == {"a": 109, "b": 329, "c": 11}


def test_class_leaves_its_reserve_to_the_others() -> None:
    """Ten prompts of 100 tokens fit; sheddable ones may take six of them."""
    policy = gateway.TenantTokenBucket(
        capacity_tokens=1000,
        refill_tokens_per_s=0,
        reserves=[gateway.ClassReserve(slo_class="sheddable", share=0.4)],
    )
    result = run(
        [0.1 * i for i in range(30)],
        input_tokens=100,
        slo_class=["sheddable"] * 15 + ["critical"] * 15,
        gateway=gateway.Gateway(admission=policy),
    )
    assert [row for row, outcome in enumerate(outcomes(result)) if outcome == "completed"] == [
        *range(6),
        *range(15, 19),
    ]
