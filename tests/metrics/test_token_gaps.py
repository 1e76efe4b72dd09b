"""Gaps between tokens are logged by request if there are many tenants: figures stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.effort import trials

from spillway import Simulation, simulate, workload
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_CLIENTS = 150
ALONE = 5  # tenants that have one client in either case


def of_tenants(tenant_of: Callable[[int], str], changes: dict[str, Any]) -> Simulation:
    """Two classes, and more load than the KV memory holds."""
    clients = tuple(
        workload.Client(
            name=f"{i}",
            tenant=tenant_of(i),
            slo_class="a" if i % 3 else "b",
            input_tokens=workload.Lognormal(mu=5.5, sigma=1, max_tokens=3000),
            output_tokens=workload.Lognormal(mu=4, sigma=0.8, max_tokens=800),
        )
        for i in range(NUM_CLIENTS)
    )
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=30, num_requests=1000, clients=clients),
        slo_classes=(workload.SloClass(name="a"), workload.SloClass(name="b")),
        router="least_loaded",
        instances=(BLIS_SERVER.replace(count=2, max_num_seqs=32, num_kv_blocks=500),),
    )
    return simulation.with_(changes)


@pytest.mark.parametrize("seed", trials(3))
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"warm_up_s": 10, "horizon_s": 25},
        {"metrics.accounting": "blis"},
        {"metrics.streaming": True},
        {"instances.completion": "step_start"},
    ],
    ids=str,
)
def test_figures_do_not_depend_on_the_number_of_tenants(changes: dict[str, Any], seed: int) -> None:
    many = simulate(of_tenants(str, changes), seed)
    few = simulate(of_tenants(lambda i: str(i) if i < ALONE else "others", changes), seed)
    expected = dict(few.summary())
    del expected["jain_tenant"]
    assert {name: many.summary()[name] for name in expected} == expected
    assert expected["num_itl"] > 10_000
    if not changes:
        assert expected["preemptions"] > 5
    assert many.by_class() == few.by_class()
    for tenant in map(str, range(ALONE)):
        assert many.by_tenant()[tenant] == few.by_tenant()[tenant]
