"""Prefill and decode pools whose sizes change: schedule, autoscalers, their common budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.pools import group
from support.scaling import recommended

from spillway import ConfigError, Result, Simulation, fleet, simulate, workload

POLL_S = 0.5
BURST = workload.Synthetic(
    clients=[
        workload.Client(
            name="steady",
            input_tokens={"kind": "uniform", "min_tokens": 8, "max_tokens": 80},
            output_tokens=workload.Fixed(tokens=30),
            requests_per_s=100,
        ),
        workload.Client(
            name="burst",
            input_tokens={"kind": "uniform", "min_tokens": 8, "max_tokens": 80},
            output_tokens=workload.Fixed(tokens=90),
            requests_per_s=1500,
            start_s=2,
            duration_s=4,
        ),
    ],
    duration_s=20,
)


def simulation(counts: tuple[int, int] = (4, 4), **settings: Any) -> Simulation:
    """A burst in a prefill and a decode pool, sampled at every poll of their autoscalers."""
    roles = ("prefill", "decode")
    described: dict[str, Any] = {
        "workload": BURST,
        "instances": [group(role, count=n) for role, n in zip(roles, counts, strict=True)],
        "router": "least_loaded",
        "metrics": {"timeline_step_s": POLL_S},
    }
    return Simulation(**(described | settings))


def run(counts: tuple[int, int] = (4, 4), **settings: Any) -> Result:
    return simulate(simulation(counts, **settings), 3)


def same_requests(one: Result, other: Result) -> bool:
    columns = ("arrival_s", "ttft_s", "e2e_s", "prefill_instance", "instance", "transfer_s")
    return all(
        np.array_equal(one.requests[name], other.requests[name], equal_nan=True) for name in columns
    )


@pytest.mark.parametrize(("pool", "number"), [("prefill", 0), ("decode", 1)])
def test_pool_of_two_of_four_is_a_pool_of_two(pool: str, number: int) -> None:
    """The pool that is listed last, so that the numbers of the others are the same."""
    groups = simulation().instances
    groups = [groups[1 - number], groups[number]]
    partial = run(instances=groups, fleet={pool: {"initial_instances": 2}})
    small = run(instances=[groups[0], groups[1].replace(count=2)])
    assert same_requests(partial, small)
    ready = partial.timeline[f"{pool}_ready_instances"]
    assert set(ready.tolist()) == {2}
    assert set(partial.timeline["ready_instances"].tolist()) == {6}


def test_targets_change_each_pool_for_itself() -> None:
    steps = [(5, "prefill", 1), (8, "prefill", 3), (11, "decode", 2)]
    result = run(
        fleet={"startup_s": 2},
        changes=[
            {"at_s": at_s, "set": {f"fleet.{pool}.target_instances": n}} for at_s, pool, n in steps
        ],
    )
    times = result.timeline["time_s"]
    prefill, decode = (result.timeline[f"{pool}_ready_instances"] for pool in ("prefill", "decode"))
    assert (prefill == np.select([times < 5, times < 10], [4, 1], 3)).all()
    assert (decode == np.where(times < 11, 4, 2)).all()
    requests = result.requests
    arrived = requests["arrival_s"]
    assert set(requests["prefill_instance"][(arrived > 5) & (arrived < 10)]) == {0}
    assert set(requests["prefill_instance"][arrived > 10.1]) == {0, 1, 2}
    # Instances that have left the pool finish what they hold.
    assert set(requests["instance"][arrived > 11.1]) == {4, 5}
    assert result.ledger["completed"] == result.ledger["attempts"]


def test_without_a_prefill_instance_the_decode_pool_serves_alone() -> None:
    """Row 3 of the systems' truth table, for workers that leave politely."""
    result = run(changes=[{"at_s": 10, "set": {"fleet.prefill.target_instances": 0}}])
    dispatched = result.requests["arrival_s"] + result.requests["queue_s"]
    remote = result.requests["prefill_instance"] >= 0
    assert remote[dispatched < 10].all()
    assert not remote[dispatched > 10].any()
    assert (dispatched > 10).sum() > 500
    assert result.ledger["completed"] == result.ledger["attempts"]


def test_without_a_decode_instance_requests_wait() -> None:
    changes = [
        {"at_s": 10, "set": {"fleet.decode.target_instances": 0}},
        {"at_s": 12, "set": {"fleet.decode.target_instances": 2}},
    ]
    result = run(fleet={"startup_s": 1}, changes=changes)
    arrived, queued = result.requests["arrival_s"], result.requests["queue_s"]
    waits = (arrived > 10) & (arrived < 13)
    assert np.allclose((arrived + queued)[waits], 13, atol=0.5)
    ended = result.requests["outcome"] == "completed"
    # Only prompts whose computation ended in between found no instance to go on at.
    lost = result.requests["reason"][~ended]
    assert set(lost) <= {"no_decode_instance"}
    assert (~ended).sum() < 10


def test_run_ends_if_the_decode_pool_stays_empty() -> None:
    """The polls of the prefill pool bring no decode instance."""
    scaler = fleet.TargetScaler(max_instances=4)
    result = run(fleet={"prefill": {"autoscaler": scaler}, "decode": {"target_instances": 0}})
    figures = result.summary()
    assert figures["unfinished"] == figures["offered"] > 0


METRICS = {"running": 1, "waiting": 3, "kv_utilization": 0.3}


@pytest.mark.parametrize("pool", ["prefill", "decode"])
@pytest.mark.parametrize("metric", METRICS)
def test_target_scaler_reads_its_pool(pool: str, metric: str) -> None:
    scaler = fleet.TargetScaler(
        metric=metric,
        target=METRICS[metric],
        poll_s=POLL_S,
        max_instances=4,
        down_stabilization_s=1,
    )
    sized = {pool: {"initial_instances": 1, "autoscaler": scaler}, "startup_s": 0}
    timeline = run(fleet=sized).timeline
    seen = timeline[f"{pool}_{metric}"][1:]
    if metric == "kv_utilization":
        seen = seen * 4  # the mean over all instances of the pool
    found = timeline[f"{pool}_ready_instances"][1:].tolist()
    assert found == recommended(scaler, seen.tolist(), POLL_S)
    other = "decode" if pool == "prefill" else "prefill"
    assert set(timeline[f"{other}_ready_instances"].tolist()) == {4}
    assert max(found) > 1


def planner(**settings: Any) -> fleet.PlannerScaler:
    return fleet.PlannerScaler(poll_s=POLL_S, max_instances=4, **settings)


def test_planner_has_a_threshold_in_each_pool() -> None:
    """As in Dynamo: prompt tokens in the prefill pool, KV memory in the decode pool."""

    def most(pool: str, **settings: float) -> int:
        sized = {pool: {"initial_instances": 1, "autoscaler": planner(**settings)}, "startup_s": 0}
        return int(run(fleet=sized).timeline[f"{pool}_ready_instances"].max())

    never, always = 1e9, 0.0
    assert most("prefill", prefill_tokens_threshold=always, kv_utilization_threshold=1) > 1
    assert most("prefill", prefill_tokens_threshold=never, kv_utilization_threshold=1e-9) == 1
    assert most("decode", prefill_tokens_threshold=always, kv_utilization_threshold=1) == 1
    assert most("decode", prefill_tokens_threshold=never, kv_utilization_threshold=1e-9) > 1


def test_planner_has_a_latency_in_each_pool() -> None:
    def most(pool: str, **targets: float) -> int:
        scaler = planner(optimization_target="sla", **targets)
        sized = {pool: {"initial_instances": 1, "autoscaler": scaler}, "startup_s": 0}
        return int(run(fleet=sized).timeline[f"{pool}_ready_instances"].max())

    assert most("prefill", ttft_s=1e-6, itl_s=1e6) > 1
    assert most("prefill", ttft_s=1e6, itl_s=1e-6) == 1
    assert most("decode", ttft_s=1e-6, itl_s=1e6) == 1
    assert most("decode", ttft_s=1e6, itl_s=1e-6) > 1


def test_planner_counts_a_prompt_that_would_come_next() -> None:
    """A mean prompt of 44 tokens takes 540 us, so an idle instance misses 300 us and meets 1 ms."""

    def last(ttft_s: float) -> int:
        scaler = planner(optimization_target="sla", ttft_s=ttft_s)
        sized = {"prefill": {"initial_instances": 1, "autoscaler": scaler}, "startup_s": 0}
        return int(run(fleet=sized).timeline["prefill_ready_instances"][-1])

    assert (last(3e-4), last(1e-3)) == (4, 1)


def test_budget_of_both_pools_goes_to_the_prefill_pool_first() -> None:
    scaler = fleet.TargetScaler(metric="in_flight", target=1e-3, poll_s=POLL_S, max_instances=4)
    size = {"initial_instances": 1, "autoscaler": scaler}
    sized: dict[str, Any] = {"prefill": size, "decode": size, "startup_s": 0}
    timeline = run(fleet=sized | {"max_pool_instances": 6}).timeline
    assert timeline["prefill_ready_instances"].max() == 4
    assert timeline["decode_ready_instances"].max() == 2
    assert timeline["ready_instances"].max() == 6
    unlimited = run(fleet=sized).timeline
    assert unlimited["ready_instances"].max() == 8


def scaled_pools(**settings: Any) -> Simulation:
    scaler = {
        "kind": "target",
        "metric": "waiting",
        "target": 1,
        "up_instances": 1,
        "up_share": 0,
        "poll_s": POLL_S,
        "max_instances": 4,
        "down_stabilization_s": 1,
    }
    size = {"initial_instances": 1, "autoscaler": scaler}
    return simulation(
        fleet={"prefill": size, "decode": size, "startup_s": 0, "max_pool_instances": 7},
        **settings,
    )


def test_run_with_autoscalers_is_that_of_their_decisions_as_a_schedule() -> None:
    scaled = simulate(scaled_pools(), 3)
    changes = []
    for pool in ("prefill", "decode"):
        ready = scaled.timeline[f"{pool}_ready_instances"]
        for at in np.flatnonzero(np.diff(ready)) + 1:
            sized = {f"fleet.{pool}.target_instances": int(ready[at])}
            changes.append({"at_s": float(scaled.timeline["time_s"][at]), "set": sized})
    assert len(changes) >= 6
    initial = {"initial_instances": 1}
    scheduled = run(
        fleet={"prefill": initial, "decode": initial, "startup_s": 0},
        changes=sorted(changes, key=lambda change: change["at_s"]),
    )
    assert same_requests(scaled, scheduled)


@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
def test_plain_run_is_the_same(order: str) -> None:
    settings = scaled_pools(disaggregation={"order": order}, horizon_s=12)
    assert simulate(settings, 8).digest == simulate(settings, 8, reference=True).digest


@pytest.mark.parametrize(
    ("settings", "clue"),
    [
        (
            {"prefill": {"initial_instances": 5}},
            "fleet.prefill.initial_instances = 5: must be <= the number of instances of the pre",
        ),
        (
            {"decode": {"target_instances": 5}},
            "fleet.decode.target_instances = 5: must be <= the number of instances of the decode",
        ),
        (
            {"decode": {"autoscaler": {"kind": "planner", "max_instances": 9}}},
            "fleet.decode.autoscaler.max_instances = 9: must be <= the number",
        ),
        (
            {"prefill": {"autoscaler": {"kind": "target", "metric": "sensor"}}},
            "fleet.prefill.autoscaler.metric = sensor: cannot be a metric of a pool",
        ),
        (
            {
                "prefill": {"autoscaler": {"kind": "planner", "min_instances": 2}},
                "decode": {"autoscaler": {"kind": "planner", "min_instances": 2}},
                "max_pool_instances": 3,
            },
            "fleet.max_pool_instances = 3: must be >= the sum of min_instances of both pools (4)",
        ),
        ({"target_instances": 3}, "fleet.target_instances = 3: must be that of fleet.prefill or"),
    ],
)
def test_size_that_is_not_possible(settings: dict[str, Any], clue: str) -> None:
    with pytest.raises(ConfigError) as caught:
        simulation(fleet=settings)
    assert clue in str(caught.value)


@pytest.mark.parametrize("roles", [("both", "both"), ("prefill", "both")])
def test_pools_share_no_instance(roles: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs instances with the roles prefill and decode"):
        simulation(
            instances=[group(role, count=2) for role in roles],
            fleet={"prefill": {"initial_instances": 1}},
        )
