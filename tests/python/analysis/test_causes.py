"""Time by cause: the causes add up to the latencies, and each one where only it can occur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import trials
from support.random_gateways import random_simulation as random_gateway
from support.random_simulations import random_simulation
from support.runs import fixed, flat, run, steady

import spillway
from spillway import Result, Simulation, UsageError, instance, simulate, workload
from spillway.analysis.causes import MEANINGS, time_by_cause
from spillway.config.profiles import blis_0_6

if TYPE_CHECKING:
    from pathlib import Path

STEP_MS = 10.0


def server(**settings: Any) -> instance.InstanceGroup:
    """Every step takes 10 ms; a step with prompt tokens 1 ms more for each of them."""
    latency = steady(STEP_MS, beta_prefill_us=1000)
    plain = {"latency": latency, "async_scheduling": False, "num_kv_blocks": 1000}
    return instance.InstanceGroup(**(plain | settings))


def ms(result: Result, row: int) -> dict[str, float]:
    """The causes of a request in milliseconds, without those of its own work."""
    own = result.time_by_cause().seconds(row)
    return {name: round(value * 1e3, 6) for name, value in own.items()}


def check_sums(result: Result) -> int:
    causes = result.time_by_cause()
    e2e_s = result.requests["e2e_s"]
    done = ~np.isnan(e2e_s)
    assert (causes.ns >= 0).all()
    assert not causes.ns[~done].any()
    assert causes.ns[done].sum(axis=1).tolist() == np.rint(e2e_s[done] * 1e9).tolist()
    return int(done.sum())


def test_causes_add_up_in_random_simulations() -> None:
    found = 0
    for draw in (random_gateway, lambda seed: random_simulation(seed).simulation):
        for seed in trials(300):
            simulation = draw(seed)
            metrics = simulation.metrics
            if metrics.accounting == "clock" and not metrics.streaming:
                found += check_sums(simulate(simulation, seed))
    assert found > 1000


def test_work_alone() -> None:
    """The prompt in one step of 10 + 16 ms, nine more tokens in steps of 10 ms."""
    alone = run([0.0], instances=server())
    assert ms(alone, 0) == {"prefill_own": 26, "decode": 90}


def test_seats() -> None:
    result = run([0.0, 0.0], instances=server(max_num_seqs=1))
    assert ms(result, 1) == {"seats": 116, "prefill_own": 26, "decode": 90}


def test_seats_behind_limits_of_the_ingress() -> None:
    limits = instance.VllmQueueLimits(max_num_queued_reqs=9)
    result = run([0.0, 0.0], instances=server(max_num_seqs=1, ingress=limits))
    assert ms(result, 1) == {"seats": 116, "prefill_own": 26, "decode": 90}


def test_memory() -> None:
    """A request of 16 + 10 tokens takes two blocks in the end; there are two."""
    group = server(num_kv_blocks=2, kv_cache={"reserve_full_prompt": True})
    result = run([0.0, 0.0], input_tokens=17, instances=group)
    assert ms(result, 1) == {"kv_memory": 117, "prefill_own": 27, "decode": 90}


def test_token_budget() -> None:
    result = run([0.0, 0.0], instances=server(max_num_batched_tokens=16))
    assert ms(result, 1)["token_budget"] == 26


def test_a_step_under_way() -> None:
    """It comes 5 ms after the start of a step of 26 ms."""
    result = run([0.0, 0.005], instances=server())
    assert ms(result, 1) == {"step_under_way": 21, "prefill_own": 26, "decode": 90}


def test_prompts_of_others() -> None:
    """The second prompt adds 16 ms to one step of the first request."""
    result = run([0.0, 0.030], instances=server())
    assert ms(result, 0) == {"prefill_own": 26, "prefill_of_others": 16, "decode": 90}


def test_gateway_and_ingress() -> None:
    latency = steady(STEP_MS, entry_ms=3, beta_prefill_us=1000)
    result = run([0.0, 0.0], instances=server(latency=latency), gateway={"limit": fixed(1)})
    assert ms(result, 1) == {"gateway_queue": 119, "ingress": 3, "prefill_own": 26, "decode": 90}


def test_client() -> None:
    """Refused at once, and again in its second attempt after a second."""
    parallel = {"kind": "rate_limit", "max_requests": None, "max_parallel": 1}
    gateway = {"admission": parallel}
    reaction = {"retries": [{"max_attempts": 5, "backoff_s": 1, "jitter": "none"}]}
    result = run([0.0, 0.0], instances=server(), gateway=gateway, reaction=reaction)
    assert ms(result, 1) == {"client": 1000, "prefill_own": 26, "decode": 90}


def test_preemption() -> None:
    """Three blocks, for two requests of which each needs two in the end."""
    group = server(num_kv_blocks=3, kv_cache={"prefix_caching": False})
    result = run([0.0, 0.0], input_tokens=12, output_tokens=12, instances=group)
    (victim,) = np.flatnonzero(result.requests["preemptions"]).tolist()
    own = ms(result, victim)
    assert own["preemption"] > 0
    assert own["recomputation"] > STEP_MS
    assert "preemption" not in ms(result, 1 - victim)


def test_lockstep() -> None:
    """A prompt of the other rank of 16 ms."""
    group = server(data_parallel_size=2, lockstep_ranks=True)
    result = run([0.0, 0.030], instances=group)
    assert ms(result, 0) == {"prefill_own": 26, "decode": 90, "lockstep": 16}


def test_a_server_without_steps() -> None:
    assert ms(run([0.0], instances=flat(2.0)), 0) == {"service": 2000}


def test_waits_for_a_seat_follow_pollaczek_and_khinchine() -> None:
    """M/D/1 at a load of 0.5: the mean wait is half of the service, which is 100 ms."""
    arrivals = workload.Synthetic(
        num_requests=40_000, requests_per_s=5,
        clients=[{"input_tokens": {"kind": "fixed", "tokens": 1},
                  "output_tokens": {"kind": "fixed", "tokens": 10}}],
    )  # fmt: skip
    group = server(max_num_seqs=1, latency=steady(STEP_MS))
    causes = simulate(Simulation(workload=arrivals, instances=group), 1).time_by_cause()
    means = causes.mean_s()
    waits_s = means["seats"] + means["step_under_way"]
    assert waits_s == pytest.approx(0.05, rel=0.05)
    assert means["decode"] == pytest.approx(0.09, abs=1e-9)
    busy_s = causes.fleet_s["prefill"] + causes.fleet_s["decode"]
    assert busy_s == pytest.approx(40_000 * 0.1, abs=1e-6)


def test_views_of_causes() -> None:
    result = run([0.0, 0.0, 1.0], tenant=["a", "b", "b"], instances=server(max_num_seqs=1))
    causes = result.time_by_cause()
    assert set(causes.names) == set(MEANINGS)
    assert sum(causes.share().values()) == pytest.approx(1)
    assert set(causes.groups()) == {"all", "slo_class standard", "tenant a", "tenant b"}
    assert causes.groups()["tenant b"]["seats"] == pytest.approx(0.058)
    assert causes.slowest().tolist() == [False, True, False]
    assert sum(causes.fleet_s.values()) == pytest.approx(result.end_s)
    assert "for a seat in the batch" in repr(causes)
    assert list(causes.to_frame()["group"]) == list(causes.groups())
    assert causes.to_dict()["slowest_s"]["seats"] == pytest.approx(0.116)


def test_servers_without_steps_are_not_idle() -> None:
    causes = run([0.0], instances=flat()).time_by_cause()
    assert causes.fleet_s == {}
    assert repr(causes).endswith("servers: without steps")
    mixed = run([0.0, 0.0], instances=[flat(), server()], router="round_robin").time_by_cause()
    assert sum(mixed.fleet_s.values()) == pytest.approx(1)  # one engine, up to the last event


def test_a_saved_run_is_repeated(tmp_path: Path) -> None:
    simulation = Simulation(workload=workload.Synthetic(num_requests=50))
    result = simulate(simulation, 3)
    result.save(tmp_path / "run.npz")
    loaded = Result.load(tmp_path / "run.npz")
    assert (loaded.time_by_cause().ns == result.time_by_cause().ns).all()


def test_runs_without_causes_say_why() -> None:
    with pytest.raises(UsageError, match="accounting = clock"):
        simulate(blis_0_6()).time_by_cause()
    result = simulate(Simulation(workload=workload.Synthetic(num_requests=50)), 3)
    other = spillway.Result(result.simulation, 4, dict(result._output))
    with pytest.raises(UsageError, match="cannot be repeated"):
        time_by_cause(other)
    assert "cannot be repeated" in str(other.explain())
