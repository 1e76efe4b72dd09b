"""Random gateways in front of a plain server: as configured, and as their plain twin."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from support.random_gateways import random_cost
from support.runs import SECOND, fixed, flat, ns, simulated
from support.twins import gateway as plain

from spillway import Result, gateway, trace, workload

if TYPE_CHECKING:
    from support.specimens import Specimen

CLASSES = (("urgent", 4, 0.3), ("plain", 3, None), ("lenient", -1, 1.0))
SERVER = plain.Server()


@dataclass(frozen=True)
class Trial:
    result: Result
    requests: list[plain.Request]

    def outcomes(self) -> list[tuple[str, str, int, int]]:
        columns = self.result.requests
        return list(
            zip(
                columns["outcome"].tolist(),
                columns["reason"].tolist(),
                ns(columns["queue_s"]),
                ns(columns["e2e_s"]),
                strict=True,
            )
        )

    def expected(self) -> list[tuple[str, str, int, int]]:
        return [
            (
                request.outcome,
                request.reason,
                -1 if request.dispatched is None else request.dispatched - request.arrival,
                -1 if request.ended is None else request.ended - request.arrival,
            )
            for request in self.requests
        ]


def random_queue(rng: random.Random) -> dict[str, Any]:
    drawn = {
        "max_requests": rng.choice((None, None, 1, 3)),
        "timeout_s": rng.choice((None, None, 0.05, 0.4, 2)),
        "ordering": rng.choice(("fcfs", "lifo", "adaptive_lifo", "edf", "slo_deadline")),
        "drop": rng.choice(("tail", "head", "lowest_priority")),
        "codel_target_s": rng.choice((None, None, 0.1)),
        "codel_interval_s": rng.choice((0.1, 0.5)),
    }
    if drawn["ordering"] == "fcfs" and drawn["codel_interval_s"] == 0.5:
        drawn["ordering"] = "shortest_output"  # the draws of the others stay as they are
    return drawn


def trial(seed: int, fairness: Specimen | None = None, charge_at: str = "dispatch") -> Trial | None:
    """One run and its twin; None if the run is ambiguous for the twin (`AmbiguousError`)."""
    kind = fairness.policy.kind if fairness else "fifo"
    rng = random.Random(f"{kind} {charge_at} {seed}")
    n, num_tenants = rng.randint(5, 60), rng.randint(1, 4)
    gaps = [
        rng.choice((0, 0, rng.randint(1, 6 * 10**7), rng.randint(1, 6 * 10**8))) for _ in range(n)
    ]
    weights = [rng.choice((1, 2, 0.5)) for _ in range(num_tenants)]
    queue_max = [rng.choice((None, None, 2)) for _ in range(num_tenants)]
    queue, cost = random_queue(rng), random_cost(rng, charge_at=charge_at).to_dict()
    policy, twin = gateway.GlobalFifo(), plain.GlobalFifo()
    if fairness:
        policy = fairness.random(rng, cost)
        twin = fairness.rule(policy, weights)
    permits, latency_s = rng.randint(1, 4), rng.choice((0, 0, 0.001))

    requests = []
    classes = []
    for arrival in np.cumsum(gaps).tolist():
        name, priority, target_s = rng.choice(CLASSES)
        classes.append(name)
        target = None if target_s is None else round(target_s * SECOND)
        tokens = rng.choice((0, 1, 2, rng.randint(1, 60)))
        tenant, prompt = rng.randrange(num_tenants), rng.randint(1, 300)
        requests.append(plain.Request(arrival, tenant, prompt, tokens, priority, target))

    result = simulated(
        workload=trace(
            arrival_s=np.array([request.arrival for request in requests]) / SECOND,
            input_tokens=[request.prompt for request in requests],
            output_tokens=[request.output for request in requests],
            tenant=[f"t{request.tenant}" for request in requests],
            slo_class=classes,
        ).replace(empty_outputs="served"),
        tenants=[
            workload.Tenant(name=f"t{i}", weight=weight, queue_max=most)
            for i, (weight, most) in enumerate(zip(weights, queue_max, strict=True))
        ],
        slo_classes=[
            workload.SloClass(name=name, priority=priority, target_ttft_s=target_s)
            for name, priority, target_s in CLASSES
        ],
        instances=flat(1, SERVER.first_ns / 1e9, reference_output_tokens=100),
        gateway=gateway.Gateway(
            bands=[gateway.Band(fairness=policy, queue=queue)],
            limit=fixed(permits),
            drain_latency_s=latency_s,
        ),
    )

    def span(name: str) -> int | None:
        return None if queue[name] is None else round(queue[name] * SECOND)

    twin_queues = plain.Queues(
        ordering=queue["ordering"],
        drop=queue["drop"],
        most=[queue["max_requests"] if most is None else most for most in queue_max],
        timeout=span("timeout_s"),
        target=span("codel_target_s"),
        interval=span("codel_interval_s"),
        flows=[[] for _ in weights],
    )
    twin_gateway = plain.Gateway(
        twin_queues,
        twin,
        permits,
        SERVER,
        cost=plain.Cost(**cost) if fairness else None,
        drain_latency=round(latency_s * SECOND),
    )
    try:
        twin_gateway.run(requests)
    except plain.AmbiguousError:
        return None
    return Trial(result, requests)
