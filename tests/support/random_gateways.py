"""Random gateways in front of random fleets, usually overloaded."""

from __future__ import annotations

import random
from typing import Any

from support.runs import fixed
from support.specimens import at, drawable

from spillway import Simulation, gateway, instance, profiles, signals, workload

TENANTS = ("a", "b", "c")


def random_cost(rng: random.Random, **fixed_settings: Any) -> gateway.Cost:
    settings = {
        "unit": rng.choice(("requests", "prompt_tokens", "uncached_tokens", "weighted_tokens")),
        "prompt_weight": rng.choice((0, 1, 0.37)),
        "output_weight": rng.choice((1, 2, 0.1)),
        "output_estimate": rng.choice(("none", "mean", "oracle")),
        "estimate_bias": rng.choice((1, 0.5, 3)),
        "charge_at": rng.choice(("enqueue", "dispatch", "first_token", "token", "completion")),
        "settles": rng.random() < 0.5,
    }
    if settings["output_estimate"] == "oracle" and settings["prompt_weight"] == 1:
        settings["output_estimate"] = "predicted"  # the draws of the others stay as they are
    return gateway.Cost(**(settings | fixed_settings))


def random_fairness(rng: random.Random, cost: gateway.Cost) -> Any:
    return rng.choice([draw(rng, cost) for draw in drawable("Band.fairness")])


def random_queue(rng: random.Random) -> gateway.Queue:
    return gateway.Queue(
        max_requests=rng.choice((None, None, 3, 20)),
        timeout_s=rng.choice((None, None, 0.5, 3)),
        ordering=rng.choice(("fcfs", "lifo", "adaptive_lifo", "edf", "slo_deadline")),
        drop=rng.choice(("tail", "head", "lowest_priority")),
        codel_target_s=rng.choice((None, None, None, 0.2)),
        codel_interval_s=rng.choice((0.1, 1)),
    )


def random_limits(rng: random.Random) -> list[Any]:
    all_ = [draw(rng) for draw in drawable("Gateway.limit")]
    return rng.sample(all_, rng.choice((1, 1, 1, 2, 3)))


def random_sensor(rng: random.Random, **fixed_settings: Any) -> signals.Sensor:
    sources = ("ttft", "engine_ttft", "e2e", "e2e_per_token", "queue_delay", "kv_utilization")
    settings = {
        "source": rng.choice((*sources, "hit_rate")),
        "aggregation": rng.choice(("bucketed_quantile", "exact_quantile", "mean", "min", "ewma")),
        "tick_s": rng.choice((0.1, 1)),
        "window_s": rng.choice((1, 5)),
        "min_samples": rng.choice((1, 5)),
        "scope": rng.choice(("pooled", "max_over_tenants", "tenant", "slo_class")),
        "tenant": rng.choice(TENANTS),
        "slo_class": "standard",
        "includes_refusals": rng.random() < 0.5,
    }
    return signals.Sensor(**(settings | fixed_settings))


def random_client(rng: random.Random, name: str) -> workload.Client:
    return workload.Client(
        name=name,
        tenant=name,
        slo_class=rng.choice(("critical", "standard", "batch")),
        rate_fraction=rng.choice((1, 0.5, 3)),
        arrivals=rng.choice((workload.Poisson(), workload.Constant(), workload.Gamma(cv=3))),
        input_tokens=rng.choice(
            (
                workload.Fixed(tokens=100),
                workload.Exponential(mean_tokens=150, max_tokens=600),
                workload.Empirical(values=(1, 16, 64, 500)),
            )
        ),
        output_tokens=rng.choice(
            (
                workload.Fixed(tokens=rng.choice((0, 1, 40))),
                workload.Exponential(mean_tokens=60, max_tokens=400),
                workload.Empirical(values=(0, 1, 2, 30, 200)),
            )
        ),
    )


def random_simulation(seed: int, **costs: Any) -> Simulation:
    """A random gateway and fleet, usually overloaded, of either profile."""
    rng = random.Random(seed)
    base = rng.choice((profiles.vllm, profiles.vllm, profiles.blis_0_6))()
    bands = [
        gateway.Band(
            fairness=random_fairness(rng, random_cost(rng, **costs)), queue=random_queue(rng)
        )
    ]
    if rng.random() < 0.3:
        fairness = random_fairness(rng, random_cost(rng, **costs))
        ceiling = rng.choice((1, 0.7, 1.3))
        queue = random_queue(rng)
        bands.append(gateway.Band(priority=3, ceiling=ceiling, fairness=fairness, queue=queue))
    tells_tokens = any(band.fairness.cost.charge_at == "token" for band in bands)
    default = instance.Linear()
    limits = random_limits(rng)
    any_split = rng.choice(("round_robin", "tenant_hash", "random"))
    changes: dict[str, Any] = {
        "workload": workload.Synthetic(
            num_requests=rng.choice((60, 150, 300)),
            requests_per_s=rng.choice((10, 40, 200)),
            clients=[random_client(rng, name) for name in TENANTS],
        ),
        "tenants": [
            workload.Tenant(
                name=name,
                weight=rng.choice((1, 2, 0.5)),
                queue_max=rng.choice((None, None, 5)),
                max_in_flight=rng.choice((None, 4)),
            )
            for name in TENANTS
        ],
        "gateway.bands": bands,
        "gateway.limit": limits,
        "gateway.drain_latency_s": rng.choice((0, 0, 0, 0.001)),
        "gateway.routing_latency_s": rng.choice((0, 0.002)),
        "gateway.replicas": rng.choice((1, 1, 1, 2)),
        "gateway.split": any_split if not tells_tokens else "tenant_hash",
        "router": rng.choice(("round_robin", "least_loaded")),
        "instances.count": rng.choice((1, 1, 2, 3)),
        "instances.latency": rng.choice(
            (
                default,
                default.replace(beta0_us=5000, beta_prefill_us=10, beta_decode_us=100),
                instance.Jittered(mean=default, cv=0.1),
            )
        ),
        "instances.max_num_seqs": rng.choice((4, 16, 64)),
        "instances.num_kv_blocks": rng.choice((60, 120, 10000)),
        "instances.max_num_batched_tokens": rng.choice((256, 2048)),
        "horizon_s": rng.choice((30, 30, 4)),
    }
    if rng.random() < 0.4:
        changes["gateway.controller"] = rng.choice(drawable("Gateway.controller"))(rng)
        changes["gateway.sensor"] = random_sensor(rng)
        movable = tuple(specimen.policy for specimen in at("Gateway.limit") if specimen.movable)
        if not any(isinstance(limit, movable) for limit in limits):
            changes["gateway.limit"] = [*limits, fixed(20)]
    if rng.random() < 0.5:
        changes["gateway.admission"] = rng.choice(drawable("Gateway.admission"))(rng)
    return base.with_(changes)
