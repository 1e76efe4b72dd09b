"""Data-parallel ranks: one instance that is several engines, against a fleet of such engines."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import in_parts, often, trials
from support.runs import MS, instants_ns, ns, simulated

from spillway import (
    ConfigError,
    Result,
    Simulation,
    instance,
    router,
    signals,
    simulate,
    trace,
    workload,
)
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def ranks_of(result: Result) -> list[int]:
    return result.requests["rank"].tolist()


def linear(**changes: float) -> instance.Linear:
    """Requests enter at once; a step takes a while, a prompt longer."""
    settings: dict[str, Any] = {
        "alpha0_us": 0,
        "alpha_input_us": 0,
        "beta0_us": 5000,
        "beta_prefill_us": 20,
    }
    return instance.Linear(**(settings | changes))


def one_of(group: dict[str, Any], ranks: int) -> dict[str, Any]:
    """An instance with ranks, where every decision is in the log."""
    return {
        "instances": BLIS_SERVER.replace(**group, data_parallel_size=ranks),
        "router": "round_robin",
        "metrics": {"traced_candidates": 1},
    }


def fleet_of(group: dict[str, Any], count: int) -> dict[str, Any]:
    """Separate instances, among which the rule of the ranks decides."""
    return {
        "instances": BLIS_SERVER.replace(**group, count=count),
        "router": router.Weighted(scorers=[router.VllmDp()], picker=router.Best(ties="first")),
        "metrics": {"traced_candidates": count},
    }


def in_order(log: Any, name: str) -> NDArray[np.float64]:
    """Per decision, in order of the instances."""
    order = np.argsort(log["candidate_instance"], axis=1)
    return np.take_along_axis(log[f"candidate_{name}"], order, axis=1)


def assert_same_requests(result: Result, other: Result, rows: slice = slice(None)) -> None:
    """All columns but the place of service; `rows` of the first are those of the other."""
    for name in result.requests:
        if name in ("request_id", "instance", "rank"):
            continue
        ours, theirs = result.requests[name][rows], other.requests[name]
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), name


# --- the rule -------------------------------------------------------------------------------------


def random_group(rng: random.Random) -> dict[str, Any]:
    """A group without an entry delay, with plenty of memory or too little."""
    latency: Any = linear(beta_context_us=rng.choice([0, 0.02]))
    if rng.random() < 0.3:
        latency = instance.Jittered(mean=latency, cv=0.2)
    return {
        "max_num_seqs": rng.choice([1, 3, 64]),
        "max_num_batched_tokens": rng.choice([64, 500, 2048]),
        "num_kv_blocks": rng.choice([45, 60, 80, 5000]),
        "kv_cache": {"prefix_caching": rng.random() < 0.7},
        "scheduler": rng.choice(["fcfs", "sjf"]),
        "preemption": rng.choice(["keep_emitted", "restart"]),
        "completion": rng.choice(["step_end", "step_end", "step_start"]),
        "latency": latency,
    }


def random_trace(rng: random.Random, gaps_ns: Sequence[int]) -> workload.Trace:
    n = rng.randint(20, 80)
    prefixes = [rng.choice([("", 0), ("A", 100), ("B", 250)]) for _ in range(n)]
    return trace(
        arrival_s=np.cumsum([rng.choice(gaps_ns) for _ in range(n)]) / 1e9,
        input_tokens=[tokens + rng.randint(1, 600) for _, tokens in prefixes],
        output_tokens=[rng.choice([0, 1, rng.randint(2, 150)]) for _ in range(n)],
        prefix_group=[group for group, _ in prefixes],
        prefix_tokens=[tokens for _, tokens in prefixes],
    ).replace(empty_outputs="served")


SUMS = ("completed", "refused", "preemptions", "steps", "kv_hits", "kv_misses", "kv_lookups")


@pytest.mark.parametrize("seeds", in_parts(trials(400), 4))
def test_ranks_are_a_fleet_that_is_routed_by_their_rule(seeds: range) -> None:
    """Every stamp, count and signal, if no two requests come at once and all enter at once."""
    shown = dict.fromkeys(("preemptions", "refused", "kv_hits", "horizon"), 0)
    for seed in seeds:
        rng = random.Random(seed)
        group, count = random_group(rng), rng.randint(2, 4)
        common: dict[str, Any] = {
            "workload": random_trace(rng, [1, MS, 5 * MS, 13 * MS + 1, 60 * MS]),
            "horizon_s": rng.choice([None, None, 0.4]),
        }
        accounting = {"metrics.accounting": rng.choice(["clock", "blis"])}
        together, apart = (
            simulate(Simulation(**common, **fleet).with_(accounting), seed)
            for fleet in (one_of(group, count), fleet_of(group, count))
        )
        assert ranks_of(together) == apart.requests["instance"].tolist()
        assert_same_requests(together, apart)
        plain = Simulation(**common, **one_of(group, count)).with_(accounting)
        assert simulate(plain, seed, reference=True).digest == together.digest
        (report,) = together.instances
        for name in SUMS:
            assert report[name] == sum(server[name] for server in apart.instances)
        waited = sum(server["mean_waiting"] for server in apart.instances)
        assert report["mean_waiting"] == pytest.approx(waited, rel=1e-9)
        assert together.ledger == apart.ledger
        seen, parts = together.decisions, apart.decisions
        for name in ("waiting", "running", "in_flight"):
            assert (seen[f"candidate_{name}"][:, 0] == in_order(parts, name).sum(axis=1)).all()
        mean = in_order(parts, "kv_utilization").mean(axis=1)
        assert seen["candidate_kv_utilization"][:, 0] == pytest.approx(mean, abs=1e-12)
        for name in ("preemptions", "refused", "kv_hits"):
            shown[name] += report[name] > 0
        shown["horizon"] += together.ledger["running"] > 0
    assert min(shown.values()) > often(3)


@pytest.mark.parametrize("seeds", in_parts(trials(120), 2))
def test_the_rank_is_the_one_with_the_least_load_as_a_request_is_sent(seeds: range) -> None:
    """4 waiting + running by the requests' stamps, one after the other where they come at once.

    A request on its way counts as waiting. Memory is plenty, so none goes back to the queue.
    """
    at_once = several = 0
    for seed in seeds:
        rng = random.Random(seed)
        group: dict[str, Any] = {
            "max_num_seqs": rng.choice([1, 2, 64]),
            "max_num_batched_tokens": rng.choice([200, 2048]),
            "max_model_len": rng.choice([0, 700]),
            "latency": linear(
                alpha0_us=rng.choice([0, 5000, 12_000]), alpha_input_us=rng.choice([0, 100])
            ),
        }
        count = rng.randint(2, 5)
        simulation = Simulation(
            workload=random_trace(rng, [0, 0, 5 * MS, 10 * MS, 7 * MS + 1]), **one_of(group, count)
        )
        result = simulate(simulation, seed)
        requests = result.requests
        assert sum(server["preemptions"] for server in result.instances) == 0
        arrival = ns(requests["arrival_s"])
        delay = (group["latency"].alpha_input_us, group["latency"].alpha0_us)
        entry = [
            at + round(1000 * (delay[1] + delay[0] * tokens))
            for at, tokens in zip(arrival, requests["input_tokens"].tolist(), strict=True)
        ]
        scheduled, finished = (
            instants_ns(result, span) for span in ("scheduling_delay_s", "e2e_s")
        )
        for row in np.flatnonzero(requests["outcome"] == "rejected").tolist():
            scheduled[row] = finished[row] = entry[row]  # when it is refused
        sent: list[list[int]] = [[] for _ in range(count)]
        for row, now in enumerate(arrival):
            loads = [
                sum(4 if scheduled[row] >= now else finished[row] > now for row in there)
                for there in sent
            ]
            assert ranks_of(result)[row] == loads.index(min(loads))
            at_once += any(arrival[there[-1]] == now for there in sent if there)
            several += min(loads) > 0 and len(set(loads)) > 1
            sent[ranks_of(result)[row]].append(row)
    assert at_once > often(100)
    assert several > often(100)


def test_requests_that_come_at_once_are_spread() -> None:
    """A fleet's router sees none of them until all are routed; an instance counts each as sent."""
    requests = trace(arrival_s=[0] * 6, input_tokens=[16] * 6, output_tokens=[1] * 6)
    group: dict[str, Any] = {"latency": linear()}
    together = simulate(Simulation(workload=requests, **one_of(group, 3)))
    apart = simulate(Simulation(workload=requests, **fleet_of(group, 3)))
    assert ranks_of(together) == [0, 1, 2, 0, 1, 2]
    assert apart.requests["instance"].tolist() == [0] * 6


# --- what is a rank's own -------------------------------------------------------------------------

# Long and short answers in turns: equal loads, the first rank, whenever a long one comes.
UNEVEN = trace(
    arrival_s=[0, 0.1, 0.2, 0.3, 0.4, 0.5], input_tokens=[16] * 6, output_tokens=[400, 150] * 3
)


def test_a_hot_rank_preempts_while_another_is_idle() -> None:
    """Each has 60 blocks; three long answers need 78, three short ones 33."""
    group = {"num_kv_blocks": 60, "latency": linear()}
    result = simulate(Simulation(workload=UNEVEN, **one_of(group, 2)))
    assert ranks_of(result) == [0, 1, 0, 1, 0, 1]
    finished = result.requests["arrival_s"] + result.requests["e2e_s"]
    preempted = result.requests["preemptions"] > 0
    assert preempted.any()
    assert not preempted[1::2].any()
    # With the memory of both ranks, no request would have been preempted.
    assert finished[1::2].max() < finished[0::2].min()
    both = simulate(Simulation(workload=UNEVEN, instances=group | {"num_kv_blocks": 120}))
    assert both.instances[0]["preemptions"] == 0


def test_seats_are_those_of_a_rank() -> None:
    group = {"max_num_seqs": 1, "latency": linear()}
    requests = trace(arrival_s=[0, 0.01, 0.02], input_tokens=[16] * 3, output_tokens=[100] * 3)
    result = simulate(Simulation(workload=requests, **one_of(group, 2)))
    assert ranks_of(result) == [0, 1, 0]
    assert result.requests["scheduling_delay_s"].tolist()[:2] == [0, 0]
    # 0.51 s: the third waits for the first, although a seat of the other rank is as far away.
    first_ends = result.requests["e2e_s"][0]
    assert result.requests["scheduling_delay_s"][2] == pytest.approx(first_ends - 0.02, abs=1e-9)


def test_memory_of_all_ranks_serves_no_request_that_one_cannot_hold() -> None:
    requests = trace(arrival_s=[0, 1], input_tokens=[16 * 10, 16 * 9], output_tokens=[1, 1])
    result = simulate(Simulation(workload=requests, **one_of({"num_kv_blocks": 10}, 4)))
    assert result.requests["reason"].tolist() == ["unservable", ""]


def test_cached_prompts_are_those_of_a_rank() -> None:
    """A second request of a group finds its prompt at the rank of the first, not at the other."""
    requests = trace(
        arrival_s=[0, 1, 1.1, 1.2],
        input_tokens=[80] * 4,
        output_tokens=[1, 1000, 1000, 1000],
        prefix_group=["A"] * 4,
        prefix_tokens=[64] * 4,
    )
    result = simulate(Simulation(workload=requests, horizon_s=3, **one_of({}, 3)))
    assert ranks_of(result) == [0, 0, 1, 2]
    (report,) = result.instances
    assert (report["kv_hits"], report["kv_lookups"]) == (4, 20)


# Two prompts meet two ranks; then each comes again, and another one.
KNOWN_PROMPTS = trace(
    arrival_s=[0, 0.001, 1, 2, 3],
    input_tokens=[80, 144, 80, 144, 80],
    output_tokens=[1] * 5,
    prefix_group=["A", "B", "A", "B", "C"],
    prefix_tokens=[64, 128, 64, 128, 64],
)


def test_a_router_of_instances_sees_the_rank_that_has_most() -> None:
    """Rank 0 holds 4 of 5 blocks of A, rank 1 holds 8 of 9 of B: both are known of the instance."""
    group = {"latency": linear(), "count": 2}
    by_cache = router.Weighted(
        scorers=[router.PrecisePrefixCache()], picker=router.Best(ties="first")
    )
    result = simulated(
        workload=KNOWN_PROMPTS,
        **one_of(group, 2) | {"router": by_cache, "metrics": {"traced_candidates": 2}},
    )
    assert result.requests["instance"].tolist()[:4] == [0] * 4
    assert ranks_of(result)[:2] == [0, 1]
    assert in_order(result.decisions, "score")[2:4].tolist() == [[1, 0]] * 2
    assert (result.decisions["candidate_rank"] == -1).all()


@pytest.mark.parametrize("overlap", ["kv_events", "sent"])
def test_a_router_of_ranks_sees_each(overlap: Any) -> None:
    """Each known prompt costs its last block at the rank that holds it, all of it at the other."""
    settings = one_of({"latency": linear()}, 2) | {
        "router": router.KvCost(overlap=overlap),
        "metrics": {"traced_candidates": 2},
    }
    result = simulate(Simulation(workload=KNOWN_PROMPTS, **settings))
    a, b = ranks_of(result)[:2]
    assert {a, b} == {0, 1}
    assert ranks_of(result)[2:4] == [a, b]
    log = result.decisions
    assert log["rank"].tolist() == ranks_of(result)
    costs = np.take_along_axis(-log["candidate_score"], np.argsort(log["candidate_rank"], 1), 1)
    for row, at, known, new in ((2, a, 1 + 5, 5 + 5), (3, b, 1 + 9, 9 + 9)):
        assert (costs[row, at], costs[row, 1 - at]) == (known, new)
    assert costs[4].tolist() == [5 + 5] * 2


def test_a_rank_that_the_router_chose_is_obeyed() -> None:
    """By blocks in flight, where the instance would count requests: 3 short prompts to one rank."""
    requests = trace(
        arrival_s=[0, 0.1, 0.2, 0.3], input_tokens=[8000, 16, 16, 16], output_tokens=[900] * 4
    )
    shown = {}
    for policy in ("round_robin", "kv_cost"):
        settings = one_of({"latency": linear()}, 2) | {"router": policy}
        result = simulate(Simulation(workload=requests, horizon_s=1, **settings))
        shown[policy] = [rank == ranks_of(result)[0] for rank in ranks_of(result)]
    assert shown["round_robin"] == [True, False, True, False]
    assert shown["kv_cost"] == [True, False, False, False]


def test_a_rank_of_another_worker_may_cost_less() -> None:
    """Three ranks on two workers: each gets one of three prompts."""
    requests = trace(arrival_s=[0, 0.1, 0.2], input_tokens=[8000] * 3, output_tokens=[900] * 3)
    group = BLIS_SERVER.replace(latency=linear())
    for seed in range(10):
        simulation = Simulation(
            workload=requests,
            instances=[group.replace(data_parallel_size=2), group],
            router="kv_cost",
            horizon_s=1,
            metrics={"traced_candidates": 9},
        )
        result = simulate(simulation, seed)
        places = zip(result.requests["instance"].tolist(), ranks_of(result), strict=True)
        assert {*places} == {(0, 0), (0, 1), (1, 0)}
        assert result.decisions["candidate_instance"].shape == (3, 3)
        row = result.requests["request_id"][1]
        where = f"instance {result.requests['instance'][1]}, rank {ranks_of(result)[1]}"
        assert where in result.why(row)


def test_every_rank_has_noise_of_its_own() -> None:
    noisy = instance.Jittered(mean=linear(), cv=0.3)
    requests = trace(arrival_s=[0, 1e-6], input_tokens=[16] * 2, output_tokens=[50] * 2)
    alike, apart = (
        simulate(Simulation(workload=requests, **one_of({"latency": latency}, 2)))
        for latency in (linear(), noisy)
    )
    assert ranks_of(alike) == ranks_of(apart) == [0, 1]
    assert alike.requests["e2e_s"][0] == alike.requests["e2e_s"][1]
    assert apart.requests["e2e_s"][0] != apart.requests["e2e_s"][1]
    assert apart.instances[0]["stepping"] == "plain"


# --- ranks in a run -------------------------------------------------------------------------------


def test_instances_with_ranks_do_not_know_of_each_other() -> None:
    """Every second request goes to an instance, which serves it as if there were no other."""
    base = {"num_kv_blocks": 80, "latency": linear()}
    fleets: list[Any] = [
        [base | {"count": 2, "data_parallel_size": 3}],
        [base | {"data_parallel_size": 3}, base],
        [base, base | {"data_parallel_size": 2}],
    ]
    rng = np.random.default_rng(1)
    arrival_s, inputs, outputs = (
        np.cumsum(rng.exponential(0.02, 200)),
        rng.integers(1, 700, 200),
        rng.integers(1, 200, 200),
    )
    for fleet in fleets:
        whole = simulated(
            workload=trace(arrival_s=arrival_s, input_tokens=inputs, output_tokens=outputs),
            instances=fleet,
            router="round_robin",
        )
        for k in range(2):
            group = fleet[min(k, len(fleet) - 1)] | {"count": 1}
            mine = slice(k, None, 2)
            alone = simulated(
                workload=trace(
                    arrival_s=arrival_s[mine],
                    input_tokens=inputs[mine],
                    output_tokens=outputs[mine],
                ),
                instances=group,
            )
            assert_same_requests(whole, alone, mine)
            if "data_parallel_size" in group:
                assert ranks_of(whole)[mine] == ranks_of(alone)
                assert len(set(ranks_of(alone))) == group["data_parallel_size"]
        assert sum(server["preemptions"] for server in whole.instances) > 0


def test_scrapes_show_the_sum_of_the_ranks() -> None:
    """Long answers fill the ranks in turn, as a router would fill a fleet that it does not see."""
    requests = trace(
        arrival_s=0.013 + 0.05 * np.arange(60),
        input_tokens=[300 + 10 * row for row in range(60)],
        output_tokens=[10_000] * 60,
    )
    common: dict[str, Any] = {
        "workload": requests,
        "signals": signals.Scraped(period_s=0.09, delay_s=0.02),
        "horizon_s": 3.5,
    }
    group = {"max_num_seqs": 16, "latency": linear()}
    together = simulate(Simulation(**common, **one_of(group, 3)))
    turns = fleet_of(group, 3) | {"router": "round_robin"}
    apart = simulate(Simulation(**common, **turns))
    assert ranks_of(together) == apart.requests["instance"].tolist()
    seen, parts = together.decisions, apart.decisions
    for name in ("waiting", "running"):
        assert (seen[f"candidate_{name}"][:, 0] == in_order(parts, name).sum(axis=1)).all()
    mean = in_order(parts, "kv_utilization").mean(axis=1)
    assert seen["candidate_kv_utilization"][:, 0] == pytest.approx(mean, abs=1e-12)
    ages = [np.nan_to_num(in_order(log, "age_s"), nan=-1) for log in (seen, parts)]
    assert (ages[0] == ages[1]).all()
    assert ages[0].min() == -1
    assert len(np.unique(mean)) > 20
    assert seen["candidate_waiting"].max() > 3


BUSY = workload.Synthetic(
    requests_per_s=60,
    num_requests=1500,
    clients=[
        workload.Client(
            name=f"client {i}",
            input_tokens=workload.Lognormal(mu=5, sigma=1, max_tokens=1500),
            output_tokens=workload.Exponential(mean_tokens=60, max_tokens=500),
            prefix_group=f"group {i}",
            prefix_tokens=100 + 50 * i,
        )
        for i in range(5)
    ],
)


@pytest.mark.parametrize("transport", ["live", "on_read", "scraped"])
@pytest.mark.parametrize("policy", ["least_loaded", "weighted", "kv_cost"])
def test_ranks_do_not_depend_on_the_stepping(policy: str, transport: str) -> None:
    simulation = Simulation(
        workload=BUSY,
        router=policy,
        signals=transport,
        instances=BLIS_SERVER.replace(
            count=2, data_parallel_size=2, max_num_seqs=16, num_kv_blocks=300
        ),
        metrics={"traced_candidates": 2},
    )
    result, plain = simulate(simulation, 2), simulate(simulation, 2, reference=True)
    assert result.digest == plain.digest
    for name in result.decisions:
        assert np.array_equal(result.decisions[name], plain.decisions[name], equal_nan=True)
    assert min(server["preemptions"] for server in result.instances) > 0
    assert result.ledger["completed"] == 1500
    assert [server["stepping"] for server in result.instances] == ["jumps"] * 2


@pytest.mark.parametrize("horizon_s", [None, 10])
def test_streaming_counts_the_same_with_ranks(horizon_s: float | None) -> None:
    simulation = Simulation(
        workload=BUSY,
        router="least_loaded",
        horizon_s=horizon_s,
        instances=BLIS_SERVER.replace(
            count=2, data_parallel_size=3, max_num_seqs=16, num_kv_blocks=200
        ),
    )
    exact = simulate(simulation, 2)
    streamed = simulate(simulation.with_({"metrics.streaming": True}), 2)
    assert streamed.instances == exact.instances
    assert streamed.ledger == exact.ledger
    assert (streamed.steps, streamed.events) == (exact.steps, exact.events)
    for name in ("mean_ttft_ms", "mean_e2el_ms", "cache_hit_rate", "completed"):
        assert streamed.summary()[name] == pytest.approx(exact.summary()[name], rel=1e-9)


def test_a_request_that_is_never_sent_has_no_rank() -> None:
    """A request on its way at the end of the run has one."""
    result = simulated(
        workload=trace(arrival_s=[0, 1, 2], input_tokens=[500, 10, 10], output_tokens=[1] * 3),
        gateway={"admission": {"kind": "token_bucket", "capacity_tokens": 100}},
        horizon_s=2.1,
        **one_of({"latency": linear(alpha0_us=500_000)}, 2),
    )
    assert result.requests["outcome"].tolist() == ["rejected", "completed", "in_transit"]
    assert ranks_of(result) == [-1, 0, 0]


def test_one_rank_is_an_instance() -> None:
    settings: dict[str, Any] = {"workload": BUSY, "router": "least_loaded"}
    single = simulated(3, **settings, instances=BLIS_SERVER.replace(count=2, data_parallel_size=1))
    plain = simulate(Simulation(**settings, instances=BLIS_SERVER.replace(count=2)), 3)
    assert single.digest == plain.digest
    assert set(ranks_of(single)) == {0}


@pytest.mark.parametrize("size", [0, -1, 1025])
def test_number_of_ranks_is_checked(size: int) -> None:
    with pytest.raises(ConfigError, match=r"instances\[0\]\.data_parallel_size"):
        Simulation(instances={"data_parallel_size": size})


def test_there_may_be_very_many_ranks() -> None:
    n = 1024
    requests = trace(arrival_s=np.arange(n) / 1e6, input_tokens=[16] * n, output_tokens=[1000] * n)
    result = simulate(Simulation(workload=requests, horizon_s=1, **one_of({}, n)))
    assert ranks_of(result) == list(range(n))
