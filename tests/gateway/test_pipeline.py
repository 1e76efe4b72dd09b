"""The stages of the gateway together: their latencies, the order within an instant, streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.changes import targets
from support.runs import MS, ns, passages, run_ns

from spillway import Result, Simulation, fleet, gateway, simulate, workload
from spillway.config.profiles import BLIS_SERVER

# --- latencies of the gateway ---------------------------------------------------------------------


def test_stamps_contain_the_latencies_of_the_stages_before() -> None:
    arrivals = [0, 10**9, 2 * 10**9]
    plain = run_ns(arrivals, 100, 3)
    delayed = run_ns(
        arrivals,
        100,
        3,
        gateway=gateway.Gateway(admission_latency_s=0.007, routing_latency_s=0.011),
    )
    # Queueing ends with the dispatch, so the way to the router is no part of it.
    assert ns(plain.requests["queue_s"]) == [0, 0, 0]
    assert ns(delayed.requests["queue_s"]) == [7 * MS] * 3
    for name in ("scheduling_delay_s", "ttft_s", "e2e_s"):
        later = np.array(ns(delayed.requests[name])) - np.array(ns(plain.requests[name]))
        assert later.tolist() == [18 * MS] * 3, name
    assert np.array_equal(delayed.requests["itl_mean_s"], plain.requests["itl_mean_s"])
    assert np.array_equal(delayed.requests["arrival_s"], plain.requests["arrival_s"])


def test_horizon_finds_requests_at_every_stage() -> None:
    result = run_ns(
        [0, 100 * MS, 150 * MS, 195 * MS],
        output_tokens=1000,
        gateway=gateway.Gateway(
            admission_latency_s=0.01, routing_latency_s=0.02, limit={"kind": "fixed",
            "max_in_flight": 2},
        ),
        horizon_s=0.2,
    )  # fmt: skip
    assert result.requests["outcome"].tolist() == ["running", "running", "queued", "in_transit"]
    ledger = result.ledger
    assert (ledger["running"], ledger["queued"], ledger["at_admission"]) == (2, 1, 1)


# --- order within one instant ---------------------------------------------------------------------


def joins(at_s: float) -> dict[str, Any]:
    """An instance that joins, which runs one request at a time in order of entry."""
    return {
        "instances": BLIS_SERVER.replace(max_num_seqs=1),
        "fleet": fleet.Fleet(initial_instances=0, startup_s=0),
        "changes": targets((at_s, 1)),
    }


def served(result: Result) -> list[int]:
    """Rows in the order in which an instance with one seat has served them."""
    first_token = result.requests["arrival_s"] + result.requests["ttft_s"]
    assert len(set(first_token.tolist())) == len(first_token)
    return np.argsort(first_token).tolist()


@pytest.mark.parametrize("latency_s", [0, 0.125])
@pytest.mark.parametrize("semantics", ["corrected", "verbatim"])
def test_requests_enter_an_instance_in_order_of_dispatch(latency_s: float, semantics: str) -> None:
    """A worker joins and all go at once, five of tenant b for one of tenant a."""
    tenants = "a" * 9 + "b" * 8
    fairness = gateway.DeficitRoundRobin(
        quantum=1, cost=gateway.Cost(unit="requests"), semantics=semantics
    )
    result = run_ns(
        [0] * 17,
        tenant=list(tenants),
        tenants=[workload.Tenant(name="a", weight=1), workload.Tenant(name="b", weight=5)],
        gateway=gateway.Gateway(
            bands=[gateway.Band(fairness=fairness)], routing_latency_s=latency_s
        ),
        **joins(1),
    )
    assert len({way.dispatched for way in passages(result)}) == 1
    assert "".join(tenants[row] for row in served(result)) == "ABBBBBABBBAAAAAAA".lower()


def test_a_more_important_request_is_not_overtaken_after_its_dispatch() -> None:
    result = run_ns(
        [0, 0],
        slo_class=["sheddable", "critical"],
        gateway=gateway.Gateway(bands=[gateway.Band(priority=0), gateway.Band()]),
        **joins(1),
    )
    assert served(result) == [1, 0]


@pytest.mark.parametrize("ordering", ["lifo", "slo_deadline"])
def test_order_of_a_queue_is_that_of_the_instance(ordering: str) -> None:
    result = run_ns(
        [0, 0, 0],
        slo_class=["batch", "standard", "critical"],
        slo_classes=[
            workload.SloClass(name=name, target_ttft_s=target_s)
            for name, target_s in (("batch", 3), ("standard", 2), ("critical", 1))
        ],
        gateway=gateway.Gateway(bands=[gateway.Band(queue=gateway.Queue(ordering=ordering))]),
        **joins(1),
    )
    assert served(result) == [2, 1, 0]


@pytest.mark.parametrize("latency_s", [0, 0.125])
def test_requests_are_admitted_in_the_order_of_arrival(latency_s: float) -> None:
    """At 1 s a new request and a retry arrive, in this order; there are tokens for one."""
    result = run_ns(
        [0, 0, 1_000_000_000],
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=16, refill_tokens_per_s=16),
            admission_latency_s=latency_s,
        ),
        reaction=workload.Reaction(
            retries=[workload.Retry(backoff_s=1 - latency_s, max_attempts=2, jitter="none")]
        ),
    )
    assert (result.requests["outcome"] != "rejected").tolist() == [True, False, True]


# --- common random numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"gateway.admission": "reject_all"},
        {"gateway.admission": {"kind": "token_bucket", "capacity_tokens": 3000}},
        {"gateway.limit": {"kind": "fixed", "max_in_flight": 2}},
        {"gateway.admission_latency_s": 0.5},
        {"router": {"kind": "least_loaded", "ties": "random"}},
        {"instances.count": 5},
        {"instances.preemption": "restart"},
        {"tenants": [{"name": "default", "weight": 3}]},
    ],
    ids=",".join,
)
def test_policies_do_not_shift_the_workload(changes: dict[str, Any]) -> None:
    base = Simulation(
        workload=workload.Synthetic(
            num_requests=200,
            clients=[
                workload.Client(name="a", arrivals="gamma", input_tokens="lognormal"),
                workload.Client(
                    name="b", input_tokens="gaussian", output_tokens="exponential", rate_fraction=2
                ),
            ],
        ),
        instances=BLIS_SERVER,
    )
    before, after = simulate(base, 5).requests, simulate(base.with_(changes), 5).requests
    for name in ("arrival_s", "input_tokens", "tenant", "slo_class"):
        assert np.array_equal(before[name], after[name])
    both = (before["outcome"] == "completed") & (after["outcome"] == "completed")
    assert np.array_equal(before["output_tokens"][both], after["output_tokens"][both])
    assert not np.array_equal(before["arrival_s"], simulate(base, 6).requests["arrival_s"])
