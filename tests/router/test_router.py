"""Routing in turns, ties and their random numbers, fleets of unequal servers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from support.routing import APART, FOUR, chosen, drawn
from support.runs import MS, ns, run_ns, steady

from spillway import gateway, instance, router

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


# --- round robin and always busiest ---------------------------------------------------------------


def test_round_robin_takes_turns() -> None:
    result = run_ns([i * MS for i in range(10)], instances={"count": 3}, router="round_robin")
    assert chosen(result) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_round_robin_counts_dispatches() -> None:
    result = run_ns(
        [0, 1, 2, 3, 4, 5],
        [20, 500, 20, 500, 20, 20],
        instances={"count": 3},
        gateway={"admission": gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)},
    )
    assert chosen(result) == [0, -1, 1, -1, 2, 0]


def test_round_robin_ignores_load_and_speed() -> None:
    result = run_ns(
        [0] * 6,
        output_tokens=20,
        instances=[{"latency": steady(1)}, {"count": 2, "latency": steady(50)}],
    )
    assert chosen(result) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("transport", ["live", {"kind": "on_read", "period_s": 0.005}])
def test_always_busiest_never_leaves_the_first(transport: Any) -> None:
    result = run_ns(
        [i * 7 * MS for i in range(40)],
        output_tokens=9,
        instances={"count": 4},
        router="always_busiest",
        signals=transport,
    )
    assert set(chosen(result)) == {0}
    assert [server["completed"] for server in result.instances] == [40, 0, 0, 0]


def test_ties() -> None:
    first = run_ns(APART, router={"kind": "least_loaded", "ties": "first"}, **FOUR)
    assert set(chosen(first)) == {0}
    random = run_ns(APART, router={"kind": "least_loaded", "ties": "random"}, seed=8, **FOUR)
    assert chosen(random) == drawn(8, range(60))
    assert set(chosen(random)) == {0, 1, 2, 3}
    other = run_ns(APART, router={"kind": "least_loaded", "ties": "random"}, seed=9, **FOUR)
    assert chosen(other) == drawn(9, range(60)) != chosen(random)


@pytest.mark.parametrize(
    "gateway_",
    [
        gateway.Gateway(admission=["always_admit", gateway.TokenBucket(capacity_tokens=1e9)]),
        gateway.Gateway(admission_latency_s=0.25, routing_latency_s=0.125),
        gateway.Gateway(limit="fixed", bands=[gateway.Band(priority=3), gateway.Band()]),
    ],
    ids=["chain", "latencies", "limit"],
)
def test_admission_does_not_shift_the_draws_of_the_router(gateway_: gateway.Gateway) -> None:
    tied = router.LeastLoaded(ties="random")
    assert chosen(run_ns(APART, router=tied, gateway=gateway_, **FOUR)) == drawn(0, range(60))


def test_rejected_requests_leave_the_draws_of_the_others_alone() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    sizes = [500 if row % 3 else 1 for row in range(60)]
    tied = router.LeastLoaded(ties="random")
    result = run_ns(APART, sizes, router=tied, gateway={"admission": bucket}, **FOUR)
    expected = [-1 if row % 3 else instance_ for row, instance_ in enumerate(drawn(0, range(60)))]
    assert chosen(result) == expected


# --- fleets of unequal servers --------------------------------------------------------------------


def test_groups_are_numbered_in_order_and_keep_their_speed() -> None:
    groups = [
        instance.InstanceGroup(count=2, latency=steady(5, entry_ms=1)),
        instance.InstanceGroup(latency=steady(70, entry_ms=30)),
        instance.InstanceGroup(count=2, latency=steady(11)),
    ]
    result = run_ns(APART[:10], output_tokens=3, instances=groups)
    assert chosen(result) == [0, 1, 2, 3, 4] * 2
    assert ns(result.requests["ttft_s"])[:5] == [6 * MS, 6 * MS, 100 * MS, 11 * MS, 11 * MS]
    assert ns(result.requests["itl_mean_s"])[:5] == [5 * MS, 5 * MS, 70 * MS, 11 * MS, 11 * MS]
    assert len(result.instances) == 5


def test_memory_is_that_of_the_group() -> None:
    result = run_ns(APART[:4], 100, instances=[{"num_kv_blocks": 6}, {"num_kv_blocks": 7}])
    assert result.requests["reason"].tolist() == ["unservable", "", "unservable", ""]
    assert [server["refused"] for server in result.instances] == [2, 0]
    assert math.ceil((100 + 1) / 16) == 7


def test_scheduler_is_that_of_the_group() -> None:
    # One prompt at a time; the long one waits longest only where the shortest goes first.
    result = run_ns(
        [0, 0, 0, 0, 1, 1],
        [16, 16, 900, 900, 8, 8],
        instances=[
            {"scheduler": "fcfs", "max_num_seqs": 1, "latency": steady(10)},
            {"scheduler": "sjf", "max_num_seqs": 1, "latency": steady(10)},
        ],
    )
    delay = ns(result.requests["scheduling_delay_s"])
    assert chosen(result) == [0, 1] * 3
    assert (delay[2], delay[4]) == (10 * MS, 20 * MS - 1)
    assert (delay[3], delay[5]) == (20 * MS, 10 * MS - 1)


# --- decisions that overlap -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", ["least_loaded", {"kind": "weighted", "scorers": ["active_requests"]}]
)
def test_decisions_that_overlap_do_not_see_each_other(policy: Any) -> None:
    """Three pairs of requests, 5 ms apart, for four servers."""
    settings: dict[str, Any] = {"instances": FOUR["instances"], "router": policy}
    arrivals = [0, 0, 5 * MS, 5 * MS, 10 * MS, 10 * MS]

    def taken(latency_s: float) -> list[int]:
        control = gateway.Gateway(decision_latency_s=latency_s)
        return chosen(run_ns(arrivals, **settings, output_tokens=100, gateway=control))

    assert taken(0) == [0, 1, 2, 3, 0, 1]
    # Each pair sees the pairs that have been sent.
    assert taken(0.004) == [0, 0, 1, 1, 2, 2]
    assert taken(0.05) == [0] * 6
    # The time of the decision is that of the request.
    control = gateway.Gateway(decision_latency_s=0.004)
    late = run_ns([0], **settings, gateway=control).requests["ttft_s"]
    assert late[0] - run_ns([0], **settings).requests["ttft_s"][0] == pytest.approx(0.004)
