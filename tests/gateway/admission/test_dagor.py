"""DAGOR under overload."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.runs import fixed, run, share_of

from spillway import Result, gateway


def overloaded(policy: Any, seed: int = 0) -> Result:
    """Twice the capacity of ten permits, in four equal classes and two hundred tenants."""
    rng = random.Random(seed)
    n = 6000
    return run(
        np.cumsum([rng.expovariate(20) for _ in range(n)]).tolist(),
        tenant=[f"t{rng.randrange(200)}" for _ in range(n)],
        slo_class=[rng.choice(("critical", "standard", "batch", "sheddable")) for _ in range(n)],
        seed=seed,
        gateway=gateway.Gateway(admission=policy, limit=fixed(10)),
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("user", ["tenant", "request"])
def test_dagor_admits_what_is_served_and_the_important_first(user: str, seed: int) -> None:
    """The capacity is half of the load; the level oscillates, so slightly less is served."""
    result = overloaded(gateway.Dagor(threshold_s=0.5, user=user), seed)
    critical, standard, batch, sheddable = shares = [
        share_of(result, name) for name in ("critical", "standard", "batch", "sheddable")
    ]
    assert critical > 0.8
    assert critical > standard + 0.15
    assert standard > batch + 0.15
    assert batch > sheddable + 0.05
    assert 0.37 < sum(shares) / 4 < 0.51
    assert np.nanmean(result.requests["queue_s"][result.requests["arrival_s"] > 50]) < 3


@pytest.mark.parametrize("seed", range(3))
def test_dagor_swings_with_a_single_level(seed: int) -> None:
    """A single level cannot be halved: all or nothing, window by window."""
    coarse = gateway.Dagor(threshold_s=0.5, user_levels=1, window_s=5)
    fine = coarse.replace(user="request", user_levels=128)

    def swing(policy: gateway.Dagor) -> float:
        rng = random.Random(seed)
        n = 6000
        result = run(
            np.cumsum([rng.expovariate(20) for _ in range(n)]).tolist(),
            gateway=gateway.Gateway(admission=policy, limit=fixed(10)),
        )
        columns = result.requests
        second = columns["arrival_s"].astype(int)
        refused = columns["outcome"] == "rejected"
        return float(np.std([refused[second == s].mean() for s in range(100, 290)]))

    assert swing(coarse) > 0.35
    assert swing(fine) < 0.25
