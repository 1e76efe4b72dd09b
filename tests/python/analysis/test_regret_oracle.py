"""Rejected requests on an idle fleet: each simulated by hand, alone."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.changes import targets
from support.effort import trials

from spillway import Result, Simulation, UsageError, fleet, simulate, trace, workload
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FIGURES = ("ttft_s", "tpot_s", "e2e_s")
TARGET_S = 1.0


def by_hand(simulation: Simulation, prompt: int, output: int) -> list[float]:
    """TTFT, TPOT and E2E of the only request of a run, on the group that answers first."""
    best = [np.nan] * 3
    request = trace(arrival_s=[0], input_tokens=[prompt], output_tokens=[output])
    parts = ("admission_latency_s", "drain_latency_s", "routing_latency_s")
    for group in simulation.instances:
        alone = Simulation(
            workload=request.replace(empty_outputs="served"),
            gateway={name: getattr(simulation.gateway, name) for name in parts},
            instances=group,
            metrics={"accounting": simulation.metrics.accounting},
            quantum_ns=simulation.quantum_ns,
        )
        requests = simulate(alone).requests
        latencies_s = [float(requests[name][0]) for name in FIGURES]
        if np.isnan(best[0]) or latencies_s[0] < best[0]:
            best = latencies_s
    return best


def check(result: Result, output_of: Callable[[int], int], most: int = 6) -> int:
    """Compares some of the rows, evenly spread, with `by_hand`; how many were rejected."""
    regret = result.admission_regret()
    rejected = np.flatnonzero(result.requests["outcome"] == "rejected")
    assert regret["row"].tolist() == rejected.tolist()
    places = np.unique(np.linspace(0, len(rejected) - 1, most).astype(int))
    for place in places if rejected.size else ():
        row = int(rejected[place])
        prompt = int(result.requests["input_tokens"][row])
        unloaded = [float(regret[f"unloaded_{name}"][place]) for name in FIGURES]
        np.testing.assert_array_equal(unloaded, by_hand(result.simulation, prompt, output_of(row)))
    return len(rejected)


# --- settings of the run that have no bearing on an idle fleet ------------------------------------


def fixed(max_in_flight: int) -> dict[str, Any]:
    return {"kind": "fixed", "max_in_flight": max_in_flight}


def bucket(**settings: Any) -> dict[str, Any]:
    return {"kind": "token_bucket", "capacity_tokens": 2000, "refill_tokens_per_s": 5000} | settings


RETRY = {"max_attempts": 2, "backoff_s": 0.5}
FULL = {"kind": "engine_request_limit", "max_requests": 1, "queue_size": 1}
SHORT_QUEUE = {"kind": "vllm_queue_limits", "max_num_queued_tokens": 100}
SCALER = fleet.QueueScaler(min_instances=1, max_instances=3)
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "timeout": {"reaction": {"timeout_s": 5}},
    "short timeout": {"reaction": {"timeout_s": 0.001}},
    "first token timeout": {"reaction": {"first_token_timeout_s": 0.001}},
    "deadline": {"reaction": {"deadline_s": 3}},
    "timeout and retry": {"reaction": {"timeout_s": 5, "retries": [RETRY]}},
    "tenant's timeout": {"tenants": [{"name": "default", "reaction": {"timeout_s": 0.001}}]},
    "tenant's queue": {"tenants": [{"name": "default", "queue_max": 3}]},
    "tenant's permits": {"tenants": [{"name": "default", "max_in_flight": 1}]},
    "initial instances": {"fleet": {"initial_instances": 2}},
    "no instances at first": {"fleet": {"initial_instances": 0}, "changes": targets((1, 3))},
    "changes of the fleet": {"changes": targets((1, 3), (5, 1))},
    "autoscaler": {"fleet": {"initial_instances": 1, "autoscaler": SCALER, "startup_s": 1}},
    "late to serve": {"fleet": {"initial_instances": 3, "startup_s": 100}},
    "horizon": {"horizon_s": 6},
    "warm-up": {"warm_up_s": 4},
    "replicas": {
        "gateway.replicas": 3,
        "gateway.split": "random",
        "gateway.admission": [bucket(refill_tokens_per_s=1500)],
    },
    "queue bound": {"gateway.max_queued": 1, "gateway.limit": fixed(1)},
    "limit and controller": {"gateway.limit": fixed(2), "gateway.controller": "aimd"},
    "latencies of the gateway": {
        "gateway.admission_latency_s": 0.002000001,
        "gateway.drain_latency_s": 0.25,
        "gateway.routing_latency_s": 0.003000007,
    },
    "one per attempt": {"gateway.dispatch": "one_per_attempt", "gateway.attempt_period_s": 0.1},
    "old signals": {"signals": {"kind": "scraped", "period_s": 5, "delay_s": 3}},
    "busy monitor": {"busy_monitor": {"active_decode_blocks_threshold": 0}},
    "router": {"router": "weighted", "signals": "on_read"},
    "timeline": {"metrics.timeline_step_s": 1},
    "quantum": {"quantum_ns": 1_000_000},
    "ranks": {"instances[0].data_parallel_size": 4},
    "full ingress": {"instances[0].ingress": FULL},
    "queue limits of the server": {"instances[0].ingress": SHORT_QUEUE},
    "steps that begin with their effects": {"instances[0].completion": "step_start"},
    "plant": {"instances[0].plant": "processor_sharing"},
    "two groups": {
        "instances": [{"count": 2, "max_model_len": 700}, {"latency": {"kind": "linear"}}]
    },
}


def base(requests: Any = None, **settings: Any) -> Simulation:
    return Simulation(
        workload=requests or workload.Synthetic(requests_per_s=40, num_requests=400),
        slo_classes=[{"name": "standard", "target_ttft_s": TARGET_S}],
        gateway={"admission": bucket()},
        instances=BLIS_SERVER.replace(count=3),
        **settings,
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_only_what_an_idle_fleet_has_counts(name: str) -> None:
    simulation = base().with_(SETTINGS[name])
    result = simulate(simulation)
    outputs = simulate(base().with_({"gateway": {}})).requests["output_tokens"]
    rejected = check(result, lambda row: int(outputs[row]))
    assert rejected > 100
    summary = result.admission_regret().summary()
    assert summary["rejected"] == summary["with_targets"] == rejected
    assert summary["would_meet_on_idle_fleet"] == rejected


@pytest.mark.parametrize("bound", ["num_requests", "duration_s", "horizon_s"])
@pytest.mark.parametrize("turns", [1, 4])
def test_rows_of_a_closed_loop_are_those_of_the_run(bound: str, turns: int) -> None:
    limits = {"num_requests": 60, "duration_s": 8, "horizon_s": 8}
    clients = [
        workload.Client(
            name=f"{output}",
            tenant=f"{output}",
            arrivals=workload.ClosedLoop(users=5, think_time_s=0.3, turns=turns),
            input_tokens=workload.Exponential(mean_tokens=300),
            output_tokens=workload.Fixed(tokens=output),
            **({bound: limits[bound]} if bound == "num_requests" else {}),
        )
        for output in (1, 20, 150)
    ]
    requests = workload.Synthetic(
        clients=clients, **({bound: limits[bound]} if bound == "duration_s" else {})
    )
    horizon_s = limits[bound] if bound == "horizon_s" else None
    result = simulate(base(requests, horizon_s=horizon_s), seed=5)
    tenants = result.requests["tenant"]
    assert check(result, lambda row: int(tenants[row]), most=20) > 20


def test_effects_at_the_start_of_a_step_leave_none_of_it_to_the_next_request() -> None:
    """A step outlasts the request that completed as it began."""
    n = 12
    requests = trace(
        arrival_s=np.arange(n) * 0.001,
        input_tokens=[2000 - row for row in range(n)],
        output_tokens=[1] * n,
    )
    simulation = Simulation(
        workload=requests,
        gateway={"admission": "reject_all"},
        instances=BLIS_SERVER.replace(
            completion="step_start",
            max_num_batched_tokens=4000,
            latency={"kind": "linear", "alpha0_us": 0, "alpha_input_us": 0, "beta0_us": 50_000},
        ),
    )
    assert check(simulate(simulation), lambda _: 1, most=n) == n


# --- random configurations ------------------------------------------------------------------------


def random_group(draw: random.Random) -> dict[str, Any]:
    linear = {
        "kind": "linear",
        "alpha0_us": draw.choice([0, 1700]),
        "alpha_input_us": draw.choice([0, 3.3]),
        "alpha_output_us": draw.choice([0, 40]),
        "beta0_us": draw.choice([500, 5000]),
        "beta_prefill_us": draw.uniform(1, 50),
        "beta_decode_us": draw.uniform(1, 200),
        "beta_context_us": draw.choice([0, 0.01]),
    }
    group: dict[str, Any] = {
        "count": draw.randint(1, 3),
        "data_parallel_size": draw.choice([1, 1, 3]),
        "max_num_seqs": draw.choice([1, 4, 256]),
        "max_num_batched_tokens": draw.choice([64, 512, 2048]),
        "long_prefill_token_threshold": draw.choice([0, 100]),
        "max_model_len": draw.choice([0, 0, 900]),
        "block_size_tokens": draw.choice([1, 16, 50]),
        "num_kv_blocks": draw.choice([40, 2000]),
        "kv_cache": {
            "prefix_caching": draw.random() < 0.7,
            "allocation": draw.choice(["check_then_act", "roll_back"]),
            "stores_last_token": draw.random() < 0.5,
            "reserve_full_prompt": False,
        },
        "latency": linear,
        "completion": draw.choice(["step_end", "step_start"]),
        "preemption": draw.choice(["keep_emitted", "restart"]),
        "output_overhead": draw.choice(["in_step", "reported"]),
        "ingress": draw.choice(
            ["open", {"kind": "vllm_queue_limits", "max_num_queued_reqs": 1}, "controlled_delay"]
        ),
    }
    if draw.random() < 0.2:
        reference = draw.choice([None, 128])
        group["plant"] = {"kind": "processor_sharing", "reference_output_tokens": reference}
    return group


def random_settings(draw: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "gateway": {
            "admission": draw.choice(["reject_all", bucket(), {"kind": "probabilistic"}]),
            "admission_latency_s": draw.choice([0, 0.001]),
            "drain_latency_s": draw.choice([0, 0.004]),
            "routing_latency_s": draw.choice([0, 0.002]),
            "limit": draw.choice(["unlimited", fixed(2)]),
            "max_queued": draw.choice([None, 2]),
            "replicas": draw.choice([1, 2]),
        },
        "instances": [
            BLIS_SERVER.replace(**random_group(draw)) for _ in range(draw.choice([1, 1, 2, 3]))
        ],
        "metrics": {"accounting": draw.choice(["clock", "clock", "blis"])},
        "quantum_ns": draw.choice([1, 1000]),
        "router": draw.choice(["round_robin", "least_loaded"]),
    }
    total = sum(group.count for group in settings["instances"])
    reaction = draw.choice([{}, {"timeout_s": 0.5}, {"deadline_s": 1}])
    if draw.random() < 0.5:
        reaction = reaction | {"retries": [{"max_attempts": 2, "backoff_s": 0.1}]}
    settings["reaction"] = reaction
    if draw.random() < 0.5:
        settings["fleet"] = {"initial_instances": draw.randint(1, total)}
        settings["changes"] = targets((1, total))
    if draw.random() < 0.3:
        settings["horizon_s"] = 2
    return settings


@pytest.mark.parametrize("seed", trials(60))
def test_a_rejected_request_meets_what_it_meets_by_itself(seed: int) -> None:
    draw = random.Random(seed)
    outputs = [draw.choice([0, 1, 2, 7, 60, 300]) for _ in range(80)]
    requests = trace(
        arrival_s=np.cumsum([draw.expovariate(30) for _ in outputs]),
        input_tokens=[draw.choice([1, 16, 63, 400, 1500]) for _ in outputs],
        output_tokens=outputs,
        prefix_group=[draw.choice(["", "g", "h"]) for _ in outputs],
        prefix_tokens=[draw.choice([0, 1]) for _ in outputs],
    ).replace(empty_outputs="served")
    result = simulate(Simulation(workload=requests, **random_settings(draw)), seed)
    check(result, lambda row: outputs[row], most=8)


def test_random_step_times_are_drawn_for_every_request() -> None:
    n = 200
    requests = trace(arrival_s=np.arange(n) * 0.01, input_tokens=[500] * n, output_tokens=[20] * n)
    group = {"latency": {"kind": "jittered", "cv": 0.3}}
    simulation = Simulation(
        workload=requests,
        gateway={"admission": "reject_all"},
        instances=BLIS_SERVER.replace(**{"count": 2, **group}),
    )
    regret = simulate(simulation, seed=3).admission_regret()
    apart = trace(arrival_s=np.arange(n) * 1000.0, input_tokens=[500] * n, output_tokens=[20] * n)
    spaced = simulate(Simulation(workload=apart, instances=group), seed=3).requests
    assert regret["unloaded_ttft_s"].tolist() == spaced["ttft_s"].tolist()
    assert regret["unloaded_e2e_s"].tolist() == spaced["e2e_s"].tolist()
    assert len(np.unique(regret["unloaded_ttft_s"])) == n
    other = simulate(simulation, seed=4).admission_regret()
    assert (other["unloaded_ttft_s"] != regret["unloaded_ttft_s"]).all()


# --- results that come from a file ----------------------------------------------------------------


def closed_loop() -> Simulation:
    users = workload.ClosedLoop(users=20, think_time_s=0.2, turns=3)
    client = workload.Client(arrivals=users, prefix_group="g", prefix_tokens=10)
    return base(workload.Synthetic(clients=[client], duration_s=6))


def recorded() -> Simulation:
    n = 100
    requests = trace(
        arrival_s=np.arange(n) * 0.01,
        input_tokens=[100 + row for row in range(n)],
        output_tokens=list(range(n)),
        prefix_group=["a", "", "b", "b"] * (n // 4),
        prefix_tokens=[20] * n,
    )
    return base(requests)


def same(first: Any, second: Any) -> None:
    assert list(first) == list(second)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("simulation", [base, closed_loop, recorded])
def test_a_loaded_result_knows_what_its_requests_asked_for(
    simulation: Callable[[], Simulation], tmp_path: Path
) -> None:
    result = simulate(simulation().with_({"metrics.traced_candidates": 1}), seed=2)
    regret = result.admission_regret()
    assert regret["row"].size > 20
    result.save(tmp_path / "result.npz")
    loaded = Result.load(tmp_path / "result.npz")
    loaded.save(tmp_path / "again.npz")
    for again in (loaded, Result.load(tmp_path / "again.npz"), pickle.loads(pickle.dumps(result))):
        same_regret = again.admission_regret()
        # There is no second run of a trace that is not saved, nor of users that wait for answers.
        is_paired = simulation is base or (
            simulation is recorded
            and again.simulation.workload.rows
            and bool(again.simulation.workload._columns())
        )
        assert same_regret.is_paired == is_paired
        kept = [name for name in regret if is_paired or "all_admitted" not in name]
        assert list(same_regret) == list(regret)
        same({name: same_regret[name] for name in kept}, {name: regret[name] for name in kept})
        same(again.admission_by_group_age(step_s=1), result.admission_by_group_age(step_s=1))
        assert again.why(int(regret["row"][0])) == result.why(int(regret["row"][0]))
        assert again.digest == result.digest


def test_group_age_in_a_closed_loop_follows_the_requests_of_the_run() -> None:
    clients = [
        workload.Client(
            name=name,
            tenant=name,
            start_s=start_s,
            arrivals=workload.ClosedLoop(users=4, think_time_s=0.2),
            prefix_group=group,
            prefix_tokens=50 if group else 0,
        )
        for name, group, start_s in (("a", "A", 0), ("b", "B", 3), ("none", "", 0))
    ]
    result = simulate(base(workload.Synthetic(clients=clients, duration_s=6)))
    table = result.admission_by_group_age(step_s=1, new_for_s=1.5)
    requests = result.requests
    arrival_s, tenant = requests["arrival_s"], requests["tenant"]
    first_s = {name: arrival_s[tenant == name].min() for name in ("a", "b")}
    for age in ("new", "established"):
        for kind in ("offered", "admitted"):
            counts = np.zeros(len(table["start_s"]), dtype=int)
            for at_s, name, admitted in zip(arrival_s, tenant, requests["admitted"], strict=True):
                if name == "none" or (at_s - first_s[name] < 1.5) != (age == "new"):
                    continue
                counts[int(at_s)] += admitted if kind == "admitted" else 1
            assert table[f"{age}_{kind}"].tolist() == counts.tolist()
    assert table["new_offered"].sum() > 5
    assert table["established_offered"].sum() > 5


def test_longer_than_the_clock_is_an_error() -> None:
    simulation = Simulation(
        workload=trace(arrival_s=[0] * 3, input_tokens=[1] * 3, output_tokens=[100_000_000] * 3),
        gateway={"admission": "reject_all"},
        instances=BLIS_SERVER.replace(
            latency={"kind": "linear", "beta0_us": 1.5e7}, block_size_tokens=1_000_000
        ),
    )
    problem = "one of the 3 rejected requests takes longer than 800000000 s"
    with pytest.raises(UsageError, match=problem):
        simulate(simulation).admission_regret()


# --- in words -------------------------------------------------------------------------------------


def refused(targets: dict[str, float], output: int = 20, **columns: Any) -> Result:
    lengths = {"input_tokens": [500] * 8, "output_tokens": [output] * 8}
    simulation = Simulation(
        workload=trace(arrival_s=[0] * 8, **lengths, **columns),
        slo_classes=[{"name": "standard", **targets}],
        gateway={"admission": "reject_all"},
        metrics={"traced_candidates": 1},
        instances=BLIS_SERVER,
    )
    return simulate(simulation)


def latencies(result: Result) -> Sequence[str]:
    first = result.admission_regret().of(0) or {}
    return [f"{name[:-2]} {first[f'unloaded_{name}'] * 1e3:.3f} ms" for name in FIGURES]


@pytest.mark.parametrize(
    ("targets", "verdict"),
    [
        ({"target_ttft_s": 1}, "; it would have met its targets"),
        ({"target_ttft_s": 1, "target_tpot_s": 0.0001}, "; it would have missed its targets"),
        ({"target_e2e_s": 0.0125}, "; it would have missed its targets"),
        ({}, "; its class has no latency targets"),
    ],
)
def test_why_says_what_is_compared(targets: dict[str, float], verdict: str) -> None:
    result = refused(targets)
    expected = []
    for name, text in zip(FIGURES, latencies(result), strict=True):
        target = targets.get(f"target_{name}")
        expected.append(text if target is None else f"{text} (target {target * 1e3:g} ms)")
    assert f"\non an idle fleet: {', '.join(expected)}{verdict}\n" in result.why("0")


def test_why_leaves_out_latencies_that_there_are_none_of() -> None:
    line = refused({"target_tpot_s": 0.001}, output=1).why("0").splitlines()[-2]
    assert line.startswith("on an idle fleet: ttft ")
    assert "tpot" not in line
    assert line.endswith("it would have met its targets")


def test_why_takes_an_id_or_a_row() -> None:
    result = refused({}, request_id=list("abcdefgh"))
    assert result.why(2) == result.why(np.int64(2)) == result.why("c")
    assert result.why(2).startswith("request c of ")
    for unknown in ("x", "2", 8, -1):
        with pytest.raises(KeyError):
            result.why(unknown)
