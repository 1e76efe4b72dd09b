"""Bouncer keeps its target."""

from __future__ import annotations

import random

import numpy as np
import pytest
from support.runs import fixed, outcomes, run, share_of

from spillway import gateway, workload


@pytest.mark.parametrize("seed", range(3))
def test_bouncer_keeps_the_target_and_starves_no_class(seed: int) -> None:
    """The hasty class passes only while the queue is empty, or by its share."""
    classes = [
        workload.SloClass(name="critical", priority=4, target_ttft_s=3.0),
        workload.SloClass(name="batch", priority=-1, target_ttft_s=0.3),
    ]

    def shares(min_share: float) -> tuple[float, float]:
        rng = random.Random(seed)
        n = 4000
        result = run(
            np.cumsum([rng.expovariate(20) for _ in range(n)]).tolist(),
            slo_class=[rng.choice(("critical", "batch")) for _ in range(n)],
            slo_classes=classes,
            gateway=gateway.Gateway(
                admission=gateway.Bouncer(min_share=min_share), limit=fixed(10)
            ),
        )
        critical = result.requests["slo_class"] == "critical"
        ttft_s = result.requests["ttft_s"][critical]
        assert np.nanquantile(ttft_s, 0.9) < 3.3
        return share_of(result, "critical"), share_of(result, "batch")

    starved = shares(0)
    served = shares(0.1)
    assert starved[1] < 0.05
    assert served[1] == pytest.approx(0.1, abs=0.03)
    assert starved[0] > 0.9


def test_bouncer_forgets_withdrawn_requests() -> None:
    """One at a time, each for 1 s; a target of 3 s leaves room for two in the queue."""
    arrivals = [
        *(0, 2),  # the first is measured, the second holds the permit
        *(2.1, 2.2, 2.3, 2.4),  # three queue until they are withdrawn, the fourth is refused
        2.9,  # to an empty queue
        5,  # withdrawn in flight
        *(6, 6.1, 6.2, 6.3, 6.4),  # as before: one in flight, three queue
    ]
    hasty = workload.Tenant(name="hasty", reaction=workload.Reaction(timeout_s=0.5))
    result = run(
        arrivals,
        tenant=[*"aa", *["hasty"] * 4, "a", "hasty", *"aaaaa"],
        tenants=[hasty],
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=3)],
        gateway=gateway.Gateway(
            admission=gateway.Bouncer(min_samples=1, min_share=0), limit=fixed(1)
        ),
    )
    went, withdrawn, refused = "completed", "cancelled", "rejected"
    assert outcomes(result) == [
        *(went, went),
        *(withdrawn, withdrawn, withdrawn, refused),
        went,
        withdrawn,
        *(went, went, went, went, refused),
    ]
