"""Loads that are followed from change to change, against runs that read every load anew."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.changes import targets
from support.effort import in_parts, trials
from support.routing import chosen
from support.runs import steady
from support.specimens import examples

from spillway import Simulation, fleet, gateway, instance, router, simulate, workload
from spillway.config.profiles import BLIS_SERVER

SCORERS = examples("Weighted.scorers")


def random_router(draw: random.Random) -> Any:
    ties = draw.choice(["first", "random"])
    best = router.Best(ties=ties)
    return draw.choice(
        [
            router.LeastLoaded(ties=ties),
            router.AlwaysBusiest(),
            *(router.Weighted(scorers=[scorer], picker=best) for scorer in SCORERS),
        ]
    )


def random_instances(draw: random.Random) -> list[instance.InstanceGroup]:
    """Small batches and little memory, so that requests wait and are preempted."""

    ingresses = [
        "open",
        "open",
        "controlled_delay",
        instance.VllmQueueLimits(max_num_queued_reqs=2),
        instance.DualLimitGate(request_limit=8, wait_limit=1, queue_size=30),
    ]
    plants = [
        "step_loop",
        "step_loop",
        instance.ProcessorSharing(concurrency=[0], e2e_s=[0.2], ttft_s=[0.05]),
    ]

    def group() -> instance.InstanceGroup:
        ingress = draw.choice(ingresses)
        return BLIS_SERVER.replace(
            count=draw.randint(1, 6),
            data_parallel_size=draw.choice([1, 1, 3]),
            max_num_seqs=draw.choice([2, 8]),
            max_num_batched_tokens=draw.choice([64, 512]),
            num_kv_blocks=draw.choice([20, 200]),
            latency=steady(draw.choice([5, 20]), draw.choice([0, 0, 7])),
            completion="step_start" if ingress == "open" and draw.random() < 0.3 else "step_end",
            ingress=ingress,
            plant=draw.choice(plants),
        )

    return [group() for _ in range(draw.randint(1, 3))]


def random_simulation(draw: random.Random) -> Simulation:
    groups = random_instances(draw)
    most = sum(group.count for group in groups)
    client = workload.Client(
        arrivals=draw.choice(["poisson", "constant"]),
        input_tokens=workload.Exponential(mean_tokens=100, max_tokens=300),
        output_tokens=workload.Exponential(mean_tokens=15, max_tokens=60),
    )
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=draw.choice([20, 100, 400]), num_requests=300, clients=[client]
        ),
        reaction=workload.Reaction(timeout_s=draw.choice([None, 0.1, 1])),
        gateway=gateway.Gateway(
            replicas=draw.choice([1, 1, 3]),
            limit=draw.choice(["unlimited", gateway.FixedLimit(max_in_flight=12)]),
            routing_latency_s=draw.choice([0, 0.005]),
        ),
        router=random_router(draw),
        instances=groups,
        **draw.choice(
            [
                {},
                {
                    "fleet": fleet.Fleet(initial_instances=1, startup_s=draw.choice([0, 0.2])),
                    "changes": targets(
                        *((at_s, draw.randint(0, most)) for at_s in (0.1, 0.5, 1, 2, 4)), (8, 1)
                    ),
                },
            ]
        ),
        horizon_s=60,
    )


@pytest.mark.parametrize("seeds", in_parts(trials(1200), 6), ids=lambda seeds: f"from {seeds[0]}")
def test_followed_loads_choose_the_same(seeds: range) -> None:
    for seed in seeds:
        simulation = random_simulation(random.Random(seed))
        followed = simulate(simulation, seed)
        read_anew = simulate(simulation, seed, reference=True)
        assert chosen(followed) == chosen(read_anew), simulation
        assert followed.digest == read_anew.digest, simulation
        # A log of decisions holds every score.
        logged = simulate(simulation.with_({"metrics.traced_candidates": 1}), seed)
        assert chosen(logged) == chosen(followed), simulation
