"""Named simulations that the benchmarks run, each as a function of the number of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import spillway
from spillway import gateway, profiles, router, signals, workload

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_REQUESTS = 20_000


def _poisson(
    requests_per_s: float, num_requests: int, input_tokens: int = 512, output_tokens: int = 128
) -> workload.Synthetic:
    client = workload.Client(
        input_tokens=workload.Fixed(tokens=input_tokens),
        output_tokens=workload.Fixed(tokens=output_tokens),
    )
    return workload.Synthetic(
        requests_per_s=requests_per_s, num_requests=num_requests, clients=[client]
    )


def w8(num_requests: int = NUM_REQUESTS) -> spillway.Simulation:
    """Eight instances in turn, 512 tokens in and 128 out, memory without bounds in practice."""
    return spillway.Simulation(
        workload=_poisson(96, num_requests),
        router="round_robin",
        instances=profiles.BLIS_SERVER.replace(count=8),
    )


def w8_full(
    num_requests: int = NUM_REQUESTS, refill_tokens_per_s: float = 80_000
) -> spillway.Simulation:
    """W8 with all that an experiment has as a rule.

    KV memory just above the need (few preemptions), a token bucket that lets everything through,
    four tenants, each with a class of service of its own, which has latency targets.
    """
    names = ("a", "b", "c", "d")
    clients = [
        workload.Client(
            name=name,
            tenant=name,
            slo_class=name,
            rate_fraction=0.25,
            input_tokens=workload.Fixed(tokens=512),
            output_tokens=workload.Fixed(tokens=128),
        )
        for name in names
    ]
    return spillway.Simulation(
        workload=workload.Synthetic(requests_per_s=96, num_requests=num_requests, clients=clients),
        tenants=[workload.Tenant(name=name) for name in names],
        slo_classes=[
            workload.SloClass(
                name=name, target_ttft_s=0.02 * (i + 1), target_tpot_s=0.01, target_e2e_s=2
            )
            for i, name in enumerate(names)
        ],
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(
                capacity_tokens=200_000, refill_tokens_per_s=refill_tokens_per_s
            )
        ),
        router="round_robin",
        instances=profiles.BLIS_SERVER.replace(count=8, num_kv_blocks=750),
    )


def _control(cap_per_worker: int, max_requests: int | None, timeout_s: float) -> gateway.Gateway:
    """Deficit round robin over bounded queues, and AIMD on the budget."""
    return gateway.Gateway(
        bands=gateway.Band(
            fairness=gateway.DeficitRoundRobin(),
            queue=gateway.Queue(max_requests=max_requests, timeout_s=timeout_s),
        ),
        limit=gateway.WorkerBudget(cap_per_worker=cap_per_worker),
        controller=gateway.Aimd(),
    )


def w8_control(num_requests: int = NUM_REQUESTS) -> spillway.Simulation:
    """W8-full with a gateway that queues, shares out and controls."""
    simulation = w8_full(num_requests)
    admission = simulation.gateway.admission
    return simulation.replace(gateway=_control(256, None, 30).replace(admission=admission))


def overload(num_requests: int = 2 * NUM_REQUESTS) -> spillway.Simulation:
    """Twice what the fleet can serve (64 seats each), before deficit round robin and AIMD."""
    simulation = w8_full(num_requests)
    return simulation.replace(
        workload=simulation.workload.replace(requests_per_s=480),
        gateway=_control(64, 64, 1),
        instances=profiles.BLIS_SERVER.replace(count=8, max_num_seqs=64),
    )


def w8_long(num_requests: int = NUM_REQUESTS) -> spillway.Simulation:
    """Eight instances, 1,000 tokens in and 4,000 out."""
    simulation = w8(num_requests)
    return simulation.replace(workload=_poisson(12, num_requests, 1000, 4000))


def w8_prefix(
    num_requests: int = NUM_REQUESTS, scrape_period_s: float | None = 0.05
) -> spillway.Simulation:
    """W8 with shared prompts, weighted scorers and scraped signals.

    Eight groups of 512 shared tokens, 256 of each prompt's own, 128 out. `scrape_period_s` None:
    live signals.
    """
    clients = [
        workload.Client(
            name=f"group {i}",
            input_tokens=workload.Fixed(tokens=256),
            output_tokens=workload.Fixed(tokens=128),
            prefix_group=f"group {i}",
            prefix_tokens=512,
        )
        for i in range(8)
    ]
    return spillway.Simulation(
        workload=workload.Synthetic(requests_per_s=96, num_requests=num_requests, clients=clients),
        router=router.Weighted(
            scorers=[
                router.PrefixAffinity(weight=3),
                router.QueueDepth(weight=2),
                router.KvUtilization(weight=2),
            ]
        ),
        signals=signals.Live()
        if scrape_period_s is None
        else signals.Scraped(period_s=scrape_period_s),
        instances=profiles.BLIS_SERVER.replace(count=8),
    )


def w64(num_requests: int = NUM_REQUESTS) -> spillway.Simulation:
    """W8 eight times as large."""
    return spillway.Simulation(
        workload=_poisson(768, num_requests),
        router="round_robin",
        instances=profiles.BLIS_SERVER.replace(count=64),
    )


def w1000(num_requests: int = 1_000_000) -> spillway.Simulation:
    """A thousand instances, the least loaded first."""
    return spillway.Simulation(
        workload=_poisson(12_000, num_requests),
        router="least_loaded",
        instances=profiles.BLIS_SERVER.replace(count=1000),
    )


def with_tenants(num_tenants: int, num_requests: int = NUM_REQUESTS) -> spillway.Simulation:
    """W8-control with its load from any number of tenants, all of one class."""
    simulation = w8_control(num_requests)
    first = simulation.workload.clients[0]
    names = [f"tenant {i}" for i in range(num_tenants)]
    clients = [first.replace(name=name, tenant=name) for name in names]
    return simulation.replace(
        workload=simulation.workload.replace(clients=clients),
        tenants=[workload.Tenant(name=name) for name in names],
    )


def with_gateways(replicas: int, num_requests: int = NUM_REQUESTS) -> spillway.Simulation:
    """W8-control behind any number of gateways.

    They route to the least loaded instance: in turn, all would choose the same one at a time.
    """
    simulation = w8_control(num_requests).replace(router="least_loaded")
    return simulation.with_({"gateway.replicas": replicas})


def sweep(num_requests: int = NUM_REQUESTS) -> list[spillway.Simulation]:
    """Thirty times W8-full, with another refill of the token bucket each."""
    return [w8_full(num_requests, 60_000 + 1_000 * i) for i in range(30)]


SCENARIOS: dict[str, Callable[..., spillway.Simulation]] = {
    "W8": w8,
    "W8-full": w8_full,
    "W8-control": w8_control,
    "W8-long": w8_long,
    "W8-prefix": w8_prefix,
    "W64": w64,
    "W1000": w1000,
    "overload": overload,
}


def make(name: str, num_requests: int | None = None) -> spillway.Simulation:
    """The scenario, with its own number of requests unless another is given."""
    scenario = SCENARIOS[name]
    return scenario() if num_requests is None else scenario(num_requests)
