"""Tenant queues: bounds, timeouts, order within, and which requests are lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.effort import often, trials
from support.gateway_trials import trial
from support.random_gateways import random_simulation
from support.runs import fixed, ns, order, outcomes, run, ways

from spillway import Result, gateway, metrics, simulate, workload

CLASSES = [
    workload.SloClass(name="high", priority=4),
    workload.SloClass(name="mid", priority=2),
    workload.SloClass(name="low", priority=-1),
]


def one_band(queue: gateway.Queue, permits: int = 1, **settings: float) -> gateway.Gateway:
    return gateway.Gateway(limit=fixed(permits), bands=[gateway.Band(queue=queue)], **settings)


def check_ledger(result: Result) -> Counter[str]:
    """The ledger agrees with the requests, and its identities hold. Returns the outcomes."""
    ledger = result.ledger
    requests = result.requests
    counts = Counter(outcomes(result))
    for name in ("completed", "queued", "running", "in_transit", "expired", "evicted"):
        assert ledger[name] == counts[name], name
    refused = Counter(requests["reason"][requests["outcome"] == "rejected"].tolist())
    assert Counter(ledger["rejected"]) + Counter(ledger["worker_rejected"]) == refused
    rejected = sum(ledger["rejected"].values())
    assert ledger["attempts"] == ledger["at_admission"] + ledger["admitted"] + rejected
    lost = ledger["expired"] + ledger["evicted"] + ledger["cancelled"]
    assert ledger["admitted"] == ledger["queued"] + ledger["dispatched"] + lost
    served = ledger["in_transit"] + ledger["running"] + ledger["completed"] + ledger["failed"]
    assert ledger["dispatched"] == served + sum(ledger["worker_rejected"].values())
    assert ledger["admitted"] == int(requests["admitted"].sum())
    return counts


# --- against a plain twin -------------------------------------------------------------------------


def test_queues_equal_their_plain_twin() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(600):
        compared = trial(seed)
        assert compared is not None
        assert compared.outcomes() == compared.expected(), seed
        check_ledger(compared.result)
        queue = compared.result.simulation.gateway.bands[0].queue
        ends = {outcome for outcome, *_ in compared.outcomes()}
        reasons = {reason for _, reason, *_ in compared.outcomes()}
        dispatched = [way.dispatched for way in ways(compared.result) if way.dispatched is not None]
        seen[queue.ordering] += dispatched != sorted(dispatched)
        seen.update(f"{queue.drop} {outcome}" for outcome in ends)
        seen.update(reasons)
    assert min(seen["lifo"], seen["slo_deadline"]) > often(20)
    assert seen["shortest_output"] > often(10)
    assert seen["adaptive_lifo"] > 0
    assert seen["fcfs"] == seen["edf"] == 0
    assert seen["tail evicted"] == seen["head rejected"] == 0
    both = ("lowest_priority evicted", "lowest_priority rejected")
    assert min(seen[event] for event in ("tail rejected", "head evicted", *both)) > often(30)
    assert min(seen[name] for name in ("queue_timeout", "queue_full", "queue_delay")) > often(15)


def test_streaming_keeps_the_same_books() -> None:
    """Ids of lost requests are reused, like those of served ones."""
    seen: Counter[str] = Counter()
    for seed in trials(150):
        simulation = random_simulation(seed)
        exact = simulate(simulation, seed)
        streamed = simulate(simulation.with_({"metrics.streaming": True}), seed)
        assert streamed.ledger == exact.ledger, seed
        assert streamed.instances == exact.instances, seed
        assert (streamed.events, streamed.steps) == (exact.events, exact.steps), seed
        for ours, theirs in (
            ({"": exact.summary()}, {"": streamed.summary()}),
            (exact.by_tenant(), streamed.by_tenant()),
            (exact.by_class(), streamed.by_class()),
        ):
            for name, figures in ours.items():
                for count, value in figures.items():
                    if isinstance(value, int) and count != "priority_inversions":
                        assert theirs[name][count] == value, (seed, name, count)
        seen.update(check_ledger(exact).keys())
    assert min(seen[word] for word in ("expired", "evicted", "rejected", "queued")) > often(10)


# --- bounds ---------------------------------------------------------------------------------------


def test_bound_is_per_tenant_and_a_tenant_may_have_its_own() -> None:
    result = run(
        [0.0] * 13,
        tenant=["a"] + ["a", "b", "c"] * 4,
        tenants=[workload.Tenant(name="b", queue_max=3), workload.Tenant(name="c", queue_max=1)],
        gateway=one_band(gateway.Queue(max_requests=2)),
    )
    refused = Counter(way.tenant for way in ways(result) if way.outcome == "rejected")
    assert refused == {"a": 2, "b": 1, "c": 3}
    assert result.ledger["rejected"] == {"queue_full": 6}
    # The first four have got the places.
    assert outcomes(result)[:4] == ["completed"] * 4
    check_ledger(result)


def test_bound_of_a_tenant_holds_where_the_band_has_none() -> None:
    bounded = [workload.Tenant(name="a", queue_max=1)]
    gateway_ = one_band(gateway.Queue())
    result = run([0.0] * 6, tenant=list("aaabbb"), tenants=bounded, gateway=gateway_)
    assert outcomes(result) == ["completed", "completed", "rejected", *["completed"] * 3]


# The first request is served at once; two places for mid, low, low, high and mid.
@pytest.mark.parametrize(
    ("drop", "ordering", "lost"),
    [
        ("tail", "fcfs", {3: "rejected", 4: "rejected", 5: "rejected"}),
        ("head", "fcfs", {1: "evicted", 2: "evicted", 3: "evicted"}),
        ("head", "lifo", {2: "evicted", 3: "evicted", 4: "evicted"}),
        ("lowest_priority", "fcfs", {2: "evicted", 3: "rejected", 5: "rejected"}),
    ],
)
def test_victim_of_a_full_queue(drop: str, ordering: str, lost: dict[int, str]) -> None:
    result = run(
        [0, 0.1, 0.2, 0.3, 0.4, 0.5],
        slo_class=["high", "mid", "low", "low", "high", "mid"],
        slo_classes=CLASSES,
        gateway=one_band(gateway.Queue(max_requests=2, drop=drop, ordering=ordering)),
    )
    assert {row: end for row, end in enumerate(outcomes(result)) if end != "completed"} == lost
    reasons = result.requests["reason"].tolist()
    assert {reasons[row] for row in lost} == {"queue_full"}
    evicted = sum(outcome == "evicted" for outcome in lost.values())
    assert result.ledger["evicted"] == evicted
    assert sum(result.ledger["rejected"].values()) == len(lost) - evicted
    assert result.requests["admitted"].tolist() == [lost.get(row) != "rejected" for row in range(6)]
    check_ledger(result)


def test_lowest_priority_evicts_the_newest_of_the_least() -> None:
    result = run(
        [0, 0.1, 0.2, 0.3, 0.4],
        slo_class=["high", "low", "low", "mid", "high"],
        slo_classes=CLASSES,
        gateway=one_band(gateway.Queue(max_requests=3, drop="lowest_priority")),
    )
    assert outcomes(result) == ["completed", "completed", "evicted", "completed", "completed"]


# --- timeouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("timeout_s", "outcome"), [(1, "completed"), (1 - 1e-9, "expired")])
def test_grant_at_the_instant_of_the_timeout_wins(timeout_s: float, outcome: str) -> None:
    """The permit returns after a second."""
    result = run([0, 0], gateway=one_band(gateway.Queue(timeout_s=timeout_s)))
    assert outcomes(result) == ["completed", outcome]
    assert ns(result.requests["queue_s"]) == [0, 10**9 if outcome == "completed" else -1]


# A sample sees neither drain nor expiry of its instant.
@pytest.mark.parametrize(("timeout_s", "shed"), [(0.5, [0, 0, 1]), (0.5 - 1e-9, [0, 1, 1])])
def test_timeout_comes_to_the_nanosecond(timeout_s: float, shed: list[int]) -> None:
    result = run(
        [0, 0],
        gateway=one_band(gateway.Queue(timeout_s=timeout_s)),
        metrics=metrics.Metrics(timeline_step_s=0.5),
    )
    assert result.timeline["shed"][:, 0].tolist() == shed
    assert result.timeline["queued"][:, 0].tolist()[1:] == [1 - is_shed for is_shed in shed[1:]]
    assert result.requests["reason"].tolist() == ["", "queue_timeout"]
    assert result.ledger["expired"] == 1
    assert result.requests["admitted"].tolist() == [1, 1]


def test_timeout_runs_from_admission() -> None:
    settings = {"admission_latency_s": 0.4, "routing_latency_s": 0.3}
    alone = one_band(gateway.Queue(timeout_s=1.3 - 1e-9), **settings)
    assert outcomes(run([0, 0], gateway=alone)) == ["completed", "expired"]
    later = one_band(gateway.Queue(timeout_s=1.3), **settings)
    assert outcomes(run([0, 0], gateway=later)) == ["completed", "completed"]


def test_bands_time_out_by_themselves() -> None:
    bands = [
        gateway.Band(priority=3, queue=gateway.Queue(timeout_s=3.5)),
        gateway.Band(queue=gateway.Queue(timeout_s=2.5)),
    ]
    result = run(
        [0.0] * 9,
        slo_class=["high"] * 5 + ["low"] * 4,
        slo_classes=CLASSES,
        gateway=gateway.Gateway(limit=fixed(1), bands=bands),
    )
    assert outcomes(result) == ["completed"] * 4 + ["expired"] * 5
    assert order(result) == [0, 1, 2, 3]


# --- order within a queue -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ordering", "expected"),
    [
        ("fcfs", [0, 1, 2, 3, 4]),
        ("lifo", [0, 4, 3, 2, 1]),
        ("adaptive_lifo", [0, 1, 2, 3, 4]),
        ("edf", [0, 1, 2, 3, 4]),
        # Deadlines at 5.1, never, 2.3 and 2.3.
        ("slo_deadline", [0, 3, 4, 1, 2]),
    ],
)
def test_order_of_a_queue(ordering: str, expected: list[int]) -> None:
    result = run(
        [0, 0.1, 0.2, 0.3, 0.3],
        slo_class=["none", "long", "none", "short", "short"],
        slo_classes=[
            workload.SloClass(name="none"),
            workload.SloClass(name="long", target_ttft_s=5),
            workload.SloClass(name="short", target_ttft_s=2),
        ],
        gateway=one_band(gateway.Queue(ordering=ordering)),
    )
    assert order(result) == expected


def test_first_dispatch_after_a_timeout_takes_the_newest() -> None:
    """Row 1 expires at 0.9; with the permit of 1 s goes the newest, then the oldest again."""
    queue = gateway.Queue(ordering="adaptive_lifo", timeout_s=0.9)
    result = run([0, 0, 0.2, 0.3, 0.4], gateway=one_band(queue), horizon_s=1.05)
    assert order(result) == [0, 4]
    patient = gateway.Queue(ordering="adaptive_lifo", timeout_s=2.95)
    result = run([0, 0, 0, 0, 2.5, 2.6, 2.7], gateway=one_band(patient))
    # Row 3 expires at 2.95: then the newest, and once more the oldest.
    assert outcomes(result)[3] == "expired"
    assert order(result) == [0, 1, 2, 6, 4, 5]


# --- controlled delay -----------------------------------------------------------------------------


def test_codel_loses_those_that_waited_too_long() -> None:
    """A dispatch a second, from 0 on; intervals begin at 0, 3 and 6. In the second one even the
    shortest wait was 3 s, so the third one drops requests that waited more than 0.2 s: all that
    arrived at 0, from its second dispatch on, but not those that arrived at 6.8 s."""
    queue = gateway.Queue(codel_target_s=0.1, codel_interval_s=2.5)
    result = run([0.0] * 10 + [6.8 - 1e-9, 6.8], gateway=one_band(queue))
    them = ways(result)
    late = [row for row, way in enumerate(them) if way.outcome == "expired"]
    # Rows are in order of arrival: the eleventh came a nanosecond too early.
    assert late == [7, 8, 9, 10]
    assert {result.requests["reason"].tolist()[row] for row in late} == {"queue_delay"}
    assert [way.dispatched for way in them[:7]] == [i * 10**9 for i in range(7)]
    assert them[11].dispatched == 7 * 10**9
    assert result.ledger["expired"] == 4
    check_ledger(result)


def test_codel_leaves_short_waits_alone() -> None:
    queue = gateway.Queue(codel_target_s=1, codel_interval_s=0.5)
    assert set(outcomes(run([0.9 * i for i in range(8)], gateway=one_band(queue)))) == {"completed"}


# --- the loop that serves the queues --------------------------------------------------------------


@pytest.mark.parametrize(("latency_s", "shed"), [(0, 0), (1e-9, 8), (0.01, 8)])
def test_burst_is_shed_if_the_loop_wakes_late(latency_s: float, shed: int) -> None:
    """Ten at once, with a hundred free permits and two places to wait."""
    gate = one_band(gateway.Queue(max_requests=2), permits=100, drain_latency_s=latency_s)
    result = run([0.0] * 10, gateway=gate)
    assert outcomes(result).count("rejected") == shed
    assert result.ledger["rejected"] == ({"queue_full": shed} if shed else {})
    served = [way.dispatched for way in ways(result) if way.dispatched is not None]
    assert served == [round(latency_s * 1e9)] * (10 - shed)


def test_loop_also_notices_permits_late() -> None:
    result = run([0.0] * 3, gateway=one_band(gateway.Queue(), drain_latency_s=0.25))
    assert [way.dispatched for way in ways(result)] == [i * 10**9 // 4 for i in (1, 6, 11)]


# --- bands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop", ["tail", "head", "lowest_priority"])
@pytest.mark.parametrize("permits", [0, 5])
@pytest.mark.parametrize("where", ["queue", "tenant", "band", "gateway", "gateway, shedding"])
def test_a_bound_of_zero_refuses_every_request(drop: str, permits: int, where: str) -> None:
    """Each request passes through the queue, even if permits are free."""
    queue = gateway.Queue(drop=drop, max_requests=0 if where == "queue" else None)
    bounds: dict[str, Any] = {}
    if where.startswith("gateway"):
        bounds = {"max_queued": 0, "queue_shedding": "shedding" in where}
    result = run(
        [0, 0, 0.1],
        slo_class=["low", "high", "mid"],
        slo_classes=CLASSES,
        tenants=[workload.Tenant(name="a", queue_max=0 if where == "tenant" else None)],
        gateway=gateway.Gateway(
            limit=fixed(permits),
            bands=[gateway.Band(queue=queue, max_requests=0 if where == "band" else None)],
            **bounds,
        ),
    )
    assert outcomes(result) == ["rejected"] * 3
    assert check_ledger(result) == {"rejected": 3}


def test_bands_have_queues_of_their_own() -> None:
    """A full queue of one band neither rejects nor evicts requests of the other."""
    bands = [
        gateway.Band(priority=3, queue=gateway.Queue(max_requests=2, drop="lowest_priority")),
        gateway.Band(queue=gateway.Queue(max_requests=1)),
    ]
    result = run(
        [0, 0.1, 0.2, 0.3, 0.4, 0.5],
        slo_class=["low", "low", "low", "high", "high", "high"],
        slo_classes=CLASSES,
        gateway=gateway.Gateway(limit=fixed(1), bands=bands),
    )
    assert outcomes(result) == [
        "completed",
        "completed",
        "rejected",
        "completed",
        "completed",
        "rejected",
    ]
    assert order(result) == [0, 3, 4, 1]
    check_ledger(result)
