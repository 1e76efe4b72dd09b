"""Where nothing else is due, effects take place without events; nothing else differs."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials
from support.runs import run

from spillway import Result, Simulation, gateway, instance, router, signals, simulate, workload

ADMISSIONS: tuple[Any, ...] = (
    gateway.AlwaysAdmit(),
    gateway.TokenBucket(capacity_tokens=2000, refill_tokens_per_s=8000),
    gateway.Probabilistic(),
    gateway.PredictiveTtft(
        instance="routed", budgets=[gateway.TtftBudget(slo_class="standard", budget_s=0.02)]
    ),
)


def steps_of(duration_s: float) -> instance.InstanceGroup:
    """An instance without entry delay whose steps all take as long."""
    latency = instance.Linear(
        alpha0_us=0,
        alpha_input_us=0,
        alpha_output_us=0,
        beta0_us=duration_s * 1e6,
        beta_prefill_us=0,
        beta_decode_us=0,
    )
    return instance.InstanceGroup(latency=latency)


def random_gateway(rng: random.Random) -> gateway.Gateway:
    """A gateway that never holds a request, or one that is close to it."""
    never_holds = gateway.Gateway(
        admission=[rng.choice(ADMISSIONS) for _ in range(rng.randint(1, 2))],
        bands=[gateway.Band(priority=priority) for priority in rng.choice(([-1000], [-1000, 0]))],
        replicas=rng.choice((1, 1, 3)),
        split=rng.choice(("round_robin", "tenant_hash", "random")),
    )
    other: dict[str, Any] = rng.choice(
        (
            {"limit": gateway.FixedLimit(max_in_flight=rng.choice((3, 20)))},
            {
                "limit": gateway.WorkerBudget(cap_per_worker=4),
                "controller": gateway.Aimd(target_s=0.1),
                "bands": gateway.Band(
                    fairness=gateway.DeficitRoundRobin(),
                    queue=gateway.Queue(max_requests=5, timeout_s=0.3),
                ),
            },
            {"limit": gateway.Saturation(queue_depth_threshold=2)},
            {"max_queued": 0},
            {"admission_latency_s": 0.001},
            {"drain_latency_s": 0.001},
            {"routing_latency_s": 0.001},
            {"dispatch": "one_per_attempt"},
        )
    )
    return rng.choice((never_holds, never_holds.replace(**other)))


def random_simulation(seed: int) -> Simulation:
    """Requests that arrive, and steps that end, at the same instant as others as a rule."""
    rng = random.Random(seed)
    client = workload.Client(
        arrivals=rng.choice((workload.Constant(), workload.Poisson(), workload.ClosedLoop())),
        input_tokens=workload.Empirical(values=(1, 64, 500)),
        output_tokens=workload.Empirical(values=(0, 1, 2, 30)),
    )
    clients = [client.replace(name=name, tenant=name) for name in ("a", "b")]
    if client.arrivals.kind == "closed_loop":
        users = workload.ClosedLoop(users=6, think_time_s=rng.choice((0, 0.05)))
        clients = [client.replace(arrivals=users, duration_s=0.4) for client in clients]
    latency = instance.Linear(
        alpha0_us=rng.choice((0, 1000)), alpha_input_us=0, beta0_us=1000, beta_decode_us=0
    )
    base = Simulation(
        workload=workload.Synthetic(requests_per_s=200, num_requests=150, clients=clients),
        gateway=random_gateway(rng),
        router=rng.choice(("round_robin", "least_loaded", router.KvCost())),
        signals=rng.choice((signals.Live(), signals.OnRead(period_s=0.02))),
        instances=instance.InstanceGroup(
            count=rng.choice((1, 3)), latency=latency, max_num_seqs=rng.choice((2, 64))
        ),
        quantum_ns=1_000_000,
        horizon_s=rng.choice((None, 0.5)),
    )
    retry = workload.Retry(
        on=["rate_limited", "saturated", "timeout"], max_attempts=2, jitter="none"
    )
    return base.with_(
        {
            "reaction": rng.choice(
                (
                    workload.Reaction(),
                    workload.Reaction(first_token_timeout_s=0.02, retries=[retry]),
                    workload.Reaction(timeout_s=0.02, retries=[retry]),
                )
            ),
            "metrics.timeline_step_s": rng.choice((None, 0.01)),
            "metrics.traced_candidates": rng.choice((0, 2)),
        }
    )


def shown(result: Result) -> dict[str, Any]:
    """Everything that a result shows, but the number of events and how steps were performed."""
    metrics = result.simulation.metrics
    tables = {"requests": result.requests, "control": result.control}
    if metrics.timeline_step_s is not None:
        tables["timeline"] = result.timeline
    if metrics.traced_candidates:
        tables["decisions"] = result.decisions
    columns = {
        f"{table}.{name}": values for table, rows in tables.items() for name, values in rows.items()
    }
    instances = [server | {"stepping": ""} for server in result.instances]
    return columns | result.to_dict() | {"steps": result.steps, "instances": instances}


def test_shortcuts_change_nothing_but_the_number_of_events() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(300):
        simulation = random_simulation(seed)
        quick, plain = simulate(simulation, seed), simulate(simulation, seed, reference=True)
        assert quick.digest == plain.digest, seed
        expected = shown(plain)
        for name, value in shown(quick).items():
            np.testing.assert_equal(value, expected[name], err_msg=f"{name}, seed {seed}")
        seen["fewer events"] += quick.events < plain.events
        arrivals = quick.requests["arrival_s"]
        seen["simultaneous"] += len(set(arrivals.tolist())) < len(arrivals)
        seen["rejected"] += bool(quick.ledger["rejected"]) or quick.ledger["at_admission"] > 0
        seen["retried"] += bool((quick.requests["attempts"] > 1).any())
        seen["waited"] += bool((quick.requests["queue_s"] > 0).any())
    for word in ("fewer events", "simultaneous", "rejected", "retried", "waited"):
        assert seen[word] > often(15), (word, seen)


@pytest.mark.parametrize(
    "through",
    [
        gateway.Gateway(),
        gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=1)),
        gateway.Gateway(
            bands=gateway.Band(fairness=gateway.DeficitRoundRobin()),
            limit=gateway.WorkerBudget(cap_per_worker=1),
            admission=gateway.TokenBucket(capacity_tokens=1e6),
        ),
    ],
)
def test_a_request_alone_takes_three_events(through: gateway.Gateway) -> None:
    """The arrival, the entry and the end of the step."""
    result = run([0.0, 1.0, 2.5], output_tokens=1, gateway=through, instances=steps_of(0.1))
    assert result.steps == 3
    assert result.events == 9


def test_the_permit_of_a_request_lets_the_next_one_go_without_an_event() -> None:
    """One permit, two requests at once: the second arrival is an event for admission, too."""
    one_in_flight = gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=1))
    result = run([0.0, 0.01], output_tokens=1, gateway=one_in_flight, instances=steps_of(0.1))
    assert result.requests["queue_s"].tolist() == pytest.approx([0, 0.09])
    assert result.events == 6
