"""Pathologies that clients cause (spec: mechanisms, part C), each with its cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spillway import Simulation, gateway, instance, metrics, run_many, signals, workload
from spillway.config.profiles import BLIS_SERVER
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

if TYPE_CHECKING:
    from spillway import Results

SEEDS = range(5)


def mean(results: Results, name: str) -> float:
    return float(np.mean([result.summary()[name] for result in results]))


# --- P29: a retry storm outlives its trigger ------------------------------------------------------

TRIGGER_S = (120.0, 150.0)


def storm(retries: list[workload.Retry], surge_per_s: float = 12) -> Simulation:
    """Two L4 at three quarters of their capacity, hit by a surge of half a minute."""
    usual = workload.Client(name="usual", requests_per_s=4.4)
    surge = workload.Client(
        name="surge",
        requests_per_s=surge_per_s,
        start_s=TRIGGER_S[0],
        duration_s=TRIGGER_S[1] - TRIGGER_S[0],
    )
    return Simulation(
        workload=workload.Synthetic(clients=[usual, surge], duration_s=600),
        slo_classes=[workload.SloClass(target_e2e_s=25)],
        reaction=workload.Reaction(timeout_s=25, retries=retries),
        instances=vllm_on_eks.toy_plant().instances,
        router="least_loaded",
        horizon_s=640,
        warm_up_s=30,
    )


BLIND = workload.Retry(max_attempts=6, backoff_s=0.5, multiplier=1, jitter="none")
SPREAD = workload.Retry(max_attempts=6, backoff_s=5, jitter="full")
CURED = workload.Retry(max_attempts=6, backoff_s=1, budget_ratio=0.1, jitter="full")
SHARED = workload.Retry(max_attempts=6, backoff_s=1, active_share=0.2, jitter="full")


@pytest.mark.slow
def test_p29_a_retry_storm_outlives_its_trigger_and_a_budget_cures_it() -> None:
    storms = [storm(rules) for rules in ([], [BLIND], [SPREAD], [CURED], [SHARED])]
    replications = run_many(storms, SEEDS, keep_requests=True)
    silent, blind, spread, cured, shared = (
        [result.recovery(*TRIGGER_S, step_s=10) for result in results] for results in replications
    )
    attempts = [
        np.mean([r.ledger["attempts"] / r.ledger["logical_requests"] for r in results])
        for results in replications
    ]
    assert min(run.before for runs in (silent, blind, spread, cured, shared) for run in runs) > 0.9
    # No request is served in time for the remaining 450 s, at three quarters of the capacity.
    for runs in (blind, spread):
        assert all(run.is_metastable for run in runs), "longer and random waits are not enough"
        assert max(run.after for run in runs) < 0.02
    for runs in (silent, cured, shared):
        assert max(run.recovered_after_s for run in runs) <= 60
    assert min(run.after for run in (*silent, *cured)) > 0.9
    # A fifth of what is under way is more than a tenth of what arrives.
    assert min(run.after for run in shared) > 0.85
    assert attempts[0] == 1
    assert attempts[1] > attempts[2] > 4
    assert attempts[3] < 1.1
    assert attempts[4] < 1.1


def test_p29_without_a_trigger_the_same_retries_do_no_harm() -> None:
    (calm,) = run_many([storm([BLIND], surge_per_s=0.001)], SEEDS)
    assert min(result.summary()["goodput"] for result in calm) > 0.97


# --- servers that do not notice that clients have left --------------------------------------------

BURST_S = (30.0, 45.0)


def left_behind(notices_after_s: float | None, burst_per_s: float = 140) -> Simulation:
    """Two H100 at three quarters of their capacity; impatient clients try twice."""
    usual = workload.Client(name="usual", requests_per_s=70)
    burst = workload.Client(
        name="burst",
        requests_per_s=burst_per_s,
        start_s=BURST_S[0],
        duration_s=BURST_S[1] - BURST_S[0],
    )
    return Simulation(
        workload=workload.Synthetic(clients=[usual, burst], duration_s=150),
        slo_classes=[workload.SloClass(target_ttft_s=1)],
        reaction=workload.Reaction(
            first_token_timeout_s=5, retries=[workload.Retry(max_attempts=2)]
        ),
        instances=instance.InstanceGroup(count=2, notices_departure_after_s=notices_after_s),
        router="least_loaded",
    )


@pytest.mark.slow
def test_departures_that_no_server_notices_make_a_burst_last() -> None:
    """The same clients recover within a minute where servers notice departures at once."""
    noticed, late, never = run_many(
        [left_behind(after_s) for after_s in (0, 20, None)], SEEDS[:3], keep_requests=True
    )
    for result in noticed:
        found = result.recovery(*BURST_S)
        assert found.recovered_after_s is not None
        assert found.recovered_after_s < 60
        assert "completed_in_vain" not in result.ledger
    for result in (*late, *never):
        assert result.recovery(*BURST_S).is_metastable
        assert result.recovery(*BURST_S).after < 0.05
        assert result.summary()["wasted_tokens"] > 5 * noticed[0].summary()["wasted_tokens"]
    assert min(result.ledger["completed_in_vain"] for result in never) > 5000
    for calm in run_many([left_behind(None, burst_per_s=0.001)], SEEDS[:3])[0]:
        assert calm.summary()["goodput"] > 0.99


# --- P32: agents whose contexts outgrow the KV cache ----------------------------------------------


def agents(users: int, **settings: Any) -> Simulation:
    """Agents in conversations of ten turns, on a server that holds the contexts of about eight.

    A turn brings in 1,500 tokens (the output of a tool, say) and answers with 30.
    """
    client = workload.Client(
        arrivals=workload.ClosedLoop(users=users, turns=10, think_time_s=0.5),
        input_tokens={"kind": "fixed", "tokens": 1500},
        output_tokens={"kind": "fixed", "tokens": 30},
    )
    return Simulation(
        workload=workload.Synthetic(clients=[client], duration_s=200),
        instances=BLIS_SERVER.replace(num_kv_blocks=8000, max_num_seqs=64),
        metrics=metrics.Metrics(timeline_step_s=1),
        warm_up_s=50,
        horizon_s=200,
        **settings,
    )


def controlled(ordering: str) -> gateway.Gateway:
    """CONCUR's rule on the number of requests in flight."""
    return gateway.Gateway(
        limit=gateway.FixedLimit(max_in_flight=16),
        bands=[gateway.Band(queue={"ordering": ordering})],
        controller=gateway.Concur(high_kv_utilization=0.3, decrease_factor=0.75),
        sensor=signals.Sensor(source="kv_utilization", tick_s=5),
    )


def test_p32_agents_thrash_the_cache_before_memory_is_full_and_concur_cures_it() -> None:
    sizes = (4, 12, 16, 24, 48)
    swept = run_many([agents(users) for users in sizes], SEEDS[:3])
    tokens = [mean(results, "output_throughput") for results in swept]
    hits = [mean(results, "cache_hit_rate") for results in swept]
    # Throughput rises with the agents until their contexts do not fit any more, and then halves,
    assert max(tokens) == tokens[1] > 2 * tokens[0]
    assert tokens[-1] < 0.5 * tokens[1]
    # because what each turn could have found in the cache is computed again,
    assert hits[1] > 0.75
    assert hits[-1] < 0.05
    # while running requests hold little more than half of the memory.
    for result in swept[-1]:
        used = result.timeline["kv_utilization"][result.timeline["time_s"] > 50]
        assert used.mean() < 0.6
        assert result.summary()["preemptions"] == 0

    # A limit helps if it keeps the same agents at work: the one that was served last goes first.
    crowd, newest, oldest = run_many(
        [
            agents(32),
            *(agents(32, gateway=controlled(discipline)) for discipline in ("lifo", "fcfs")),
        ],
        SEEDS[:3],
    )
    assert mean(newest, "output_throughput") > 1.6 * mean(crowd, "output_throughput")
    assert mean(newest, "cache_hit_rate") > 0.5
    # First come, first served lets all of them take turns, and nothing is gained.
    assert mean(oldest, "output_throughput") < 1.1 * mean(crowd, "output_throughput")
