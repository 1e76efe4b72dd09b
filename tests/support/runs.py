"""Runs before a plain server, what their stamps tell, and random configurations of gateways."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from support.admission_policies import POLICIES

from spillway import Result, Simulation, gateway, instance, profiles, signals, simulate, workload
from spillway import trace as recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = 10**9  # nanoseconds
TENANTS = ("a", "b", "c")


def flat(e2e_s: float = 1, ttft_s: float = 0.25, **settings: Any) -> instance.InstanceGroup:
    """A server that takes the same time for every request, whoever else is inside."""
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[e2e_s], ttft_s=[ttft_s], **settings)
    return instance.InstanceGroup(plant=plant)


def run(
    arrival_s: Sequence[float],
    *,
    input_tokens: Sequence[int] | int = 16,
    output_tokens: Sequence[int] | int = 10,
    tenant: Sequence[str] | str = "a",
    slo_class: Sequence[str] | str = "standard",
    seed: int = 0,
    **settings: Any,
) -> Result:
    """A run of given requests; `settings` are those of the simulation."""
    n = len(arrival_s)
    requests = recorded(
        arrival_s=np.asarray(arrival_s, dtype=float),
        input_tokens=np.broadcast_to(input_tokens, n),
        output_tokens=np.broadcast_to(output_tokens, n),
        tenant=tenant,
        slo_class=slo_class,
    )
    return simulate(Simulation(workload=requests, **({"instances": flat()} | settings)), seed)


def ns(seconds: Any) -> list[int]:
    """Spans in whole nanoseconds, -1 for none."""
    return np.rint(np.nan_to_num(np.asarray(seconds) * 1e9, nan=-1)).astype(np.int64).tolist()


def fixed(permits: int) -> gateway.FixedLimit:
    return gateway.FixedLimit(max_in_flight=permits)


@dataclass(frozen=True)
class Way:
    """Instants of one request, in nanoseconds; None: it did not come so far."""

    arrived: int
    dispatched: int | None
    first_token: int | None
    ended: int | None
    tenant: str
    outcome: str
    input_tokens: int
    output_tokens: int

    def in_flight(self, now: int) -> bool:
        """A permit returns at the very instant of the last token."""
        if self.dispatched is None or self.dispatched > now:
            return False
        return self.ended is None or now < self.ended


def ways(result: Result) -> list[Way]:
    requests = result.requests
    arrived = ns(requests["arrival_s"])

    def instants(name: str) -> list[int | None]:
        spans = ns(requests[name])
        return [None if s < 0 else at + s for at, s in zip(arrived, spans, strict=True)]

    columns = [requests[name].tolist() for name in ("tenant", "outcome", "input_tokens")]
    return [
        Way(*one)
        for one in zip(
            arrived,
            *(instants(name) for name in ("queue_s", "ttft_s", "e2e_s")),
            *columns,
            requests["output_tokens"].tolist(),
            strict=True,
        )
    ]


def outcomes(result: Result) -> list[str]:
    return result.requests["outcome"].tolist()


def order(result: Result) -> list[int]:
    """Rows in order of dispatch."""
    dispatched = [(way.dispatched, row) for row, way in enumerate(ways(result))]
    return [row for at, row in sorted(one for one in dispatched if one[0] is not None)]


def peak(result: Result, at_ns: Sequence[int] | None = None) -> int:
    """Most requests in flight, at any instant or at some."""
    them = ways(result)
    instants = [way.dispatched for way in them if way.dispatched is not None]
    return max(sum(way.in_flight(now) for way in them) for now in at_ns or instants)


# --- random configurations ------------------------------------------------------------------------


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
    return gateway.Cost(**(settings | fixed_settings))


def random_fairness(rng: random.Random, cost: gateway.Cost) -> Any:
    lifts = ("min_backlogged", "last_departed", "max", "none")
    return rng.choice(
        (
            gateway.DeficitRoundRobin(quantum=rng.choice((1, 50, 1000)), cost=cost),
            gateway.StartTimeFair(cost=cost),
            gateway.VirtualTokenCounter(lift=rng.choice(lifts), cost=cost),
            gateway.LeastAttainedService(half_life_s=rng.choice((1, 60)), cost=cost),
        )
    )


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
    all_ = [
        fixed(rng.randint(2, 60)),
        gateway.WorkerBudget(cap_per_worker=rng.randint(1, 30)),
        gateway.PerTenant(max_in_flight=rng.randint(1, 20)),
        gateway.TokenBudget(
            max_tokens_in_flight=rng.choice((2000, 8000)), assumed_output_tokens=rng.choice((0, 50))
        ),
        gateway.DualLimit(
            max_in_flight=rng.randint(5, 50), max_awaiting_first_token=rng.randint(1, 10)
        ),
        gateway.Saturation(
            detector=rng.choice(("utilization", "concurrency")),
            queue_depth_threshold=rng.choice((1, 5)),
            max_concurrency=rng.choice((5, 30)),
        ),
    ]
    return rng.sample(all_, rng.choice((1, 1, 1, 2, 3)))


def random_sensor(rng: random.Random, **fixed_settings: Any) -> signals.Sensor:
    sources = ("ttft", "engine_ttft", "e2e", "e2e_per_token", "queue_delay", "kv_utilization")
    settings = {
        "source": rng.choice((*sources, "hit_rate")),
        "aggregation": rng.choice(("bucketed_quantile", "exact_quantile", "mean", "min", "ewma")),
        "tick_s": rng.choice((0.1, 1)),
        "window_s": rng.choice((1, 5)),
        "min_samples": rng.choice((1, 5)),
        "scope": rng.choice(("pooled", "max_over_tenants")),
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
    """Some gateway before some fleet, overloaded as a rule, of either profile."""
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
        target = rng.choice((0.1, 1))
        changes["gateway.controller"] = rng.choice(
            (gateway.Aimd(target_s=target), gateway.Gradient2(), gateway.Vegas(), gateway.Mimd())
        )
        changes["gateway.sensor"] = random_sensor(rng)
        movable = (gateway.FixedLimit, gateway.WorkerBudget, gateway.DualLimit)
        if not any(isinstance(limit, movable) for limit in limits):
            changes["gateway.limit"] = [*limits, fixed(20)]
    if rng.random() < 0.5:
        changes["gateway.admission"] = POLICIES[rng.choice(list(POLICIES))](rng)
    return base.with_(changes)
