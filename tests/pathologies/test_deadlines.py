"""Earliest deadline first above capacity, and affinity that outweighs load, with their cures."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.runs import fixed, flat

from spillway import Results, Simulation, gateway, instance, router, run_many, workload

SEEDS = range(5)

# --- P25: the domino of earliest deadline first ---------------------------------------------------


def deadlines(load: float, **queue: Any) -> Simulation:
    """Ten permits of a second each, so ten requests/s; classes with 1.5 and 6 s to the token."""
    classes = [
        workload.SloClass(name="urgent", target_ttft_s=1.5),
        workload.SloClass(name="patient", target_ttft_s=6),
    ]
    clients = [
        workload.Client(name=slo_class.name, slo_class=slo_class.name, requests_per_s=5 * load)
        for slo_class in classes
    ]
    return Simulation(
        workload=workload.Synthetic(clients=clients, duration_s=300),
        slo_classes=classes,
        gateway=gateway.Gateway(limit=fixed(10), bands=[gateway.Band(queue=queue)]),
        instances=flat(e2e_s=1, ttft_s=0.25),
        warm_up_s=30,
    )


def goodput(simulation: Simulation) -> float:
    (results,) = run_many([simulation], SEEDS)
    return float(np.mean([result.summary()["goodput"] for result in results]))


def test_p25_earliest_deadline_first_collapses_above_capacity() -> None:
    # Below capacity it is the best order: nearly all requests are in time.
    assert goodput(deadlines(0.9, ordering="slo_deadline")) > 0.98
    # Above it, each late request makes the next one late: nearly none is in time, of either class.
    late = goodput(deadlines(1.2, ordering="slo_deadline"))
    assert late < 0.25
    # With a timeout, late requests are dropped: the others are served in time, at capacity.
    dropped = goodput(deadlines(1.2, ordering="slo_deadline", timeout_s=1.25))
    assert dropped > 0.75
    assert dropped > 3 * late
    # Newest first does so, too, without knowing any deadline.
    assert goodput(deadlines(1.2, ordering="lifo")) > 0.6


# --- P31: affinity outweighs load -----------------------------------------------------------------


def shared_prefix(affinity: float, load: float) -> Simulation:
    """The published burst of 500 requests on eight servers: 512 shared and some unique tokens.

    Where one instance keeps winning is a law of its own, see tests/router/test_routing_theory.py.
    """
    prompt = workload.Gaussian(mean_tokens=256, std_dev_tokens=100, min_tokens=64, max_tokens=512)
    client = workload.Client(
        prefix_group="system",
        prefix_tokens=512,
        input_tokens=prompt,
        output_tokens={"kind": "fixed", "tokens": 128},
    )
    scorers = [router.PrefixAffinity(weight=affinity), router.QueueDepth(weight=load)]
    return Simulation(
        workload=workload.Synthetic(requests_per_s=2000, num_requests=500, clients=[client]),
        router=router.Weighted(scorers=scorers),
        instances={"count": 8, "latency": instance.Linear.preset("llama-3.1-8b-h100-tp2")},
    )


def test_p31_a_little_more_weight_on_load_cures_the_cliff() -> None:
    sunk, fine = run_many([shared_prefix(4, 2), shared_prefix(4, 3)], SEEDS, keep_requests=True)

    def p99_ms(results: Results) -> float:
        return float(np.mean([result.summary()["p99_ttft_ms"] for result in results]))

    def share_of_busiest(results: Results) -> float:
        counts = [np.bincount(result.requests["instance"]).max() for result in results]
        return float(np.mean(counts)) / 500

    assert p99_ms(sunk) > 5 * p99_ms(fine)
    assert share_of_busiest(sunk) > 0.9
    assert share_of_busiest(fine) < 0.4
