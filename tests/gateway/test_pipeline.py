"""The gateway: admission, tenant queues, bands and limits, against plain models of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.runs import MS, ns
from support.runs import run_ns as run

from spillway import Result, Simulation, fleet, gateway, instance, simulate, workload

if TYPE_CHECKING:
    from collections.abc import Sequence


def admitted(result: Result) -> list[bool]:
    return (result.requests["outcome"] != "rejected").tolist()


# --- token bucket ---------------------------------------------------------------------------------


def bucket_oracle(
    arrival_ns: Sequence[int],
    costs: Sequence[int],
    capacity: float,
    rate: float,
    latency_ns: int = 0,
) -> list[bool]:
    """Who is admitted: the bucket starts full at 0; elapsed microseconds times the rate, over a
    million, flow in before each decision, up to the capacity; a prompt costs its tokens."""
    tokens, last_ns = capacity, 0
    verdicts = []
    for arrived, cost in zip(arrival_ns, costs, strict=True):
        now = arrived + latency_ns
        if now > last_ns:
            tokens = min(capacity, tokens + (now - last_ns) / 1000 * rate / 1e6)
            last_ns = now
        verdicts.append(tokens >= cost)
        tokens -= cost if tokens >= cost else 0
    return verdicts


@given(
    gaps_ns=st.lists(
        st.sampled_from([0, 1, MS, 10 * MS, 250 * MS]) | st.integers(0, 2 * 10**9), max_size=40
    ),
    costs=st.lists(st.integers(1, 120) | st.sampled_from([50, 100]), min_size=40, max_size=40),
    capacity=st.sampled_from([0.0, 1.0, 50.0, 100.0, 100.5]) | st.floats(0, 300),
    rate=st.sampled_from([0.0, 1.0, 100.0, 1000.0]) | st.floats(0, 2000),
    latency_ns=st.sampled_from([0, 1, 5 * MS]),
)
@example(gaps_ns=[0] * 3, costs=[50] * 40, capacity=100.0, rate=0.0, latency_ns=0)
@example(gaps_ns=[0, 250 * MS, 250 * MS], costs=[25] * 40, capacity=25.0, rate=100.0, latency_ns=0)
def test_token_bucket_equals_its_oracle(
    gaps_ns: list[int], costs: list[int], capacity: float, rate: float, latency_ns: int
) -> None:
    arrival_ns = np.cumsum([0, *gaps_ns]).tolist()[: len(costs)]
    costs = costs[: len(arrival_ns)]
    result = run(
        arrival_ns,
        costs,
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=capacity, refill_tokens_per_s=rate),
            admission_latency_s=latency_ns / 1e9,
        ),
    )
    expected = bucket_oracle(arrival_ns, costs, capacity, rate, latency_ns)
    assert admitted(result) == expected
    reasons = result.requests["reason"].tolist()
    assert reasons == ["" if one else "insufficient_tokens" for one in expected]


def test_oracle_meets_ties_and_both_verdicts() -> None:
    # A quarter of a second at 100 tokens/s is 25 tokens, exactly enough.
    assert bucket_oracle([0, 250 * MS, 500 * MS], [25, 25, 26], 25, 100) == [True, True, False]


@pytest.mark.parametrize(
    ("gap_ms", "rate", "cost"), [(9, 3000, 27), (18, 7000, 126), (10, 300, 3), (70, 300, 21)]
)
def test_refill_rounds_as_published(gap_ms: int, rate: int, cost: int) -> None:
    """Microseconds times rate over a million is exact here; seconds times rate falls short, or
    microseconds times the rate per microsecond does."""
    gap_ns = gap_ms * MS
    assert gap_ns / 1000 * rate / 1e6 == cost
    assert min(gap_ns / 1e9 * rate, gap_ns / 1000 * (rate / 1e6)) < cost
    bucket = gateway.TokenBucket(capacity_tokens=200, refill_tokens_per_s=rate)
    result = run([0, gap_ns], [200, cost], gateway={"admission": bucket})
    assert admitted(result) == [True, True]


@pytest.mark.parametrize(("tokens", "expected"), [(512, 19), (500, 20), (10_000, 1), (10_001, 0)])
def test_burst_is_the_capacity(tokens: int, expected: int) -> None:
    """10,000 tokens are 19 prompts of 512, all of 20 of 500, and never one of 10,001."""
    bucket = gateway.TokenBucket(capacity_tokens=10_000, refill_tokens_per_s=0)
    result = run([5 * MS] * 30, tokens, gateway={"admission": bucket})
    assert admitted(result) == [True] * expected + [False] * (30 - expected)
    assert result.ledger["rejected"] == {"insufficient_tokens": 30 - expected}


def test_idle_time_fills_the_bucket_no_further_than_its_capacity() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=1000)
    hour = 3600 * 10**9
    result = run([0, 0, hour, hour, hour], [100, 1, 60, 40, 1], gateway={"admission": bucket})
    assert admitted(result) == [True, False, True, True, False]


def test_refused_request_costs_nothing() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    result = run([0, 1, 2, 3], [60, 50, 40, 1], gateway={"admission": bucket})
    assert admitted(result) == [True, False, True, False]


def test_sustained_rate() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=1000, refill_tokens_per_s=5000)
    arrivals = [i * MS for i in range(10_000)]  # 10,000 tokens/s for 10 s
    result = run(arrivals, 10, gateway={"admission": bucket})
    assert sum(admitted(result)) * 10 == pytest.approx(1000 + 5000 * 10, abs=20)


# --- the chain ------------------------------------------------------------------------------------


def chain(*policies: Any) -> gateway.Gateway:
    return gateway.Gateway(admission=policies)


def test_first_rejection_wins() -> None:
    empty = gateway.TokenBucket(capacity_tokens=0)
    for policies, reason in (
        (("reject_all", empty), "reject_all"),
        ((empty, "reject_all"), "insufficient_tokens"),
        (("always_admit", "reject_all", empty), "reject_all"),
    ):
        result = run([0, 1], gateway=chain(*policies))
        assert result.ledger["rejected"] == {reason: 2}
        assert set(result.requests["reason"]) == {reason}
    assert run([0, 1], gateway=chain("always_admit", "always_admit")).ledger["admitted"] == 2


def test_rejection_by_a_later_policy_leaves_the_bucket_full() -> None:
    large = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    small = gateway.TokenBucket(capacity_tokens=55, refill_tokens_per_s=0)
    # The small bucket refuses the first; had the large one been charged for it all the same, it
    # would hold 40 and refuse the second.
    for policies in ((large, small), (small, large)):
        result = run([0, 0, 0, 0], [60, 50, 5, 1], gateway=chain(*policies))
        assert admitted(result) == [False, True, True, False]
    assert admitted(run([0, 0, 0], [60, 50, 50], gateway=chain(large))) == [True, False, False]


@given(
    costs=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    gaps_ns=st.lists(st.integers(0, 10**9), min_size=30, max_size=30),
    capacities=st.lists(st.integers(0, 150), min_size=1, max_size=3),
)
def test_chain_of_buckets_charges_all_or_none(
    costs: list[int], gaps_ns: list[int], capacities: list[int]
) -> None:
    arrival_ns = np.cumsum(gaps_ns[: len(costs)]).tolist()
    levels = [float(capacity) for capacity in capacities]
    rates = [10.0 * (i + 1) for i in range(len(capacities))]
    last_ns, expected = 0, []
    for now, cost in zip(arrival_ns, costs, strict=True):
        levels = [
            min(capacity, level + (now - last_ns) / 1000 * rate / 1e6)
            for capacity, level, rate in zip(capacities, levels, rates, strict=True)
        ]
        last_ns = now
        expected.append(min(levels) >= cost)
        if expected[-1]:
            levels = [level - cost for level in levels]
    policies = [
        gateway.TokenBucket(capacity_tokens=capacity, refill_tokens_per_s=rate)
        for capacity, rate in zip(capacities, rates, strict=True)
    ]
    assert admitted(run(arrival_ns, costs, gateway=chain(*policies))) == expected


# --- latencies of the gateway ---------------------------------------------------------------------


def test_stamps_contain_the_latencies_of_the_stages_before() -> None:
    arrivals = [0, 10**9, 2 * 10**9]
    plain = run(arrivals, 100, 3)
    delayed = run(
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
    result = run(
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


# --- limits and queues ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Passage:
    """One request's way through the gateway, in nanoseconds."""

    admitted: int
    dispatched: int
    ended: int


def passages(result: Result, admission_latency_ns: int = 0) -> list[Passage]:
    """The ways of the requests, all of which must have been completed."""
    requests = result.requests
    assert set(requests["outcome"]) == {"completed"}
    arrival = ns(requests["arrival_s"])
    return [
        Passage(at + admission_latency_ns, at + queue, at + e2e)
        for at, queue, e2e in zip(
            arrival, ns(requests["queue_s"]), ns(requests["e2e_s"]), strict=True
        )
    ]


def check_limit(ways: list[Passage], limit: int) -> int:
    """Never more than `limit` in flight, and never a request that waits beside a free permit.

    Returns how many requests waited.
    """
    instants = sorted({t for way in ways for t in (way.admitted, way.dispatched, way.ended)})
    for now in instants:
        in_flight = sum(way.dispatched <= now < way.ended for way in ways)
        waiting = sum(way.admitted <= now < way.dispatched for way in ways)
        assert in_flight <= limit
        assert waiting == 0 or in_flight == limit
    for way in ways:
        assert way.admitted <= way.dispatched < way.ended
    return sum(way.dispatched > way.admitted for way in ways)


@given(
    gaps_ns=st.lists(st.sampled_from([0, MS]) | st.integers(0, 80 * MS), min_size=1, max_size=30),
    outputs=st.lists(st.integers(0, 12), min_size=31, max_size=31),
    limit=st.integers(1, 6),
    latency_ns=st.sampled_from([0, 3 * MS]),
    routing_ns=st.sampled_from([0, 2 * MS]),
    data=st.data(),
)
def test_fixed_limit_holds_and_wastes_nothing(
    *,
    gaps_ns: list[int],
    outputs: list[int],
    limit: int,
    latency_ns: int,
    routing_ns: int,
    data: st.DataObject,
) -> None:
    arrival_ns = np.cumsum([0, *gaps_ns]).tolist()
    n = len(arrival_ns)
    tenants = data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n))
    result = run(
        arrival_ns,
        output_tokens=outputs[:n],
        tenant=tenants,
        instances={"count": 2},
        router="least_loaded",
        gateway=gateway.Gateway(
            limit=gateway.FixedLimit(max_in_flight=limit),
            admission_latency_s=latency_ns / 1e9,
            routing_latency_s=routing_ns / 1e9,
        ),
    )
    ways = passages(result, latency_ns)
    check_limit(ways, limit)
    # First in, first out over all tenants.
    dispatched = [way.dispatched for way in ways]
    assert dispatched == sorted(dispatched)


def test_limit_makes_requests_wait() -> None:
    result = run([0] * 9, output_tokens=20, gateway={"limit": gateway.FixedLimit(max_in_flight=4)})
    assert check_limit(passages(result), 4) == 5
    # A permit is free from the last token on, for whoever waits at this instant.
    ways = passages(result)
    assert ways[4].dispatched in {way.ended for way in ways[:4]}


def test_checker_notices_what_it_checks() -> None:
    with pytest.raises(AssertionError):
        check_limit([Passage(0, 0, 10), Passage(0, 5, 12)], 1)
    with pytest.raises(AssertionError):
        check_limit([Passage(0, 0, 10), Passage(0, 11, 12)], 1)


def test_unlimited_dispatches_at_once() -> None:
    result = run([0] * 50, output_tokens=5, instances={"max_num_seqs": 1})
    assert ns(result.requests["queue_s"]) == [0] * 50
    assert result.requests["scheduling_delay_s"].max() > 0.1


def test_refusal_by_a_worker_returns_the_permit() -> None:
    entry_ns = 3 * MS
    latency = instance.Linear(
        alpha0_us=3000, alpha_input_us=0, alpha_output_us=0, beta0_us=10_000, beta_prefill_us=0
    )
    result = run(
        [0, 0],
        [16 * 100, 16],
        gateway={"limit": gateway.FixedLimit(max_in_flight=1)},
        instances={"num_kv_blocks": 50, "latency": latency},
    )
    assert result.requests["outcome"].tolist() == ["rejected", "completed"]
    assert result.ledger["worker_rejected"] == {"unservable": 1}
    assert ns(result.requests["queue_s"]) == [0, entry_ns]
    assert ns(result.requests["ttft_s"]) == [-1, entry_ns + entry_ns + 10 * MS]


def test_release_precedes_the_arrivals_of_its_instant() -> None:
    alone = run([0], output_tokens=3)
    end_ns = ns(alone.requests["e2e_s"])[0]
    bands = [gateway.Band(priority=0), gateway.Band()]
    result = run(
        [0, 1, end_ns],
        output_tokens=3,
        slo_class=["standard", "batch", "standard"],
        gateway=gateway.Gateway(limit={"kind": "fixed", "max_in_flight": 1}, bands=bands),
    )
    # The permit goes to the batch request, which waits, before the more important one arrives.
    batch, late = passages(result)[1:]
    assert batch.dispatched == end_ns
    assert late.dispatched == batch.ended


# --- bands ----------------------------------------------------------------------------------------

PRIORITIES = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}


def band_of(slo_class: str, bands: Sequence[int]) -> int:
    """The highest band whose priority the class reaches; the lowest takes the rest."""
    reached = [band for band in bands if PRIORITIES[slo_class] >= band]
    return max(reached, default=min(bands))


@given(
    gaps_ns=st.lists(st.sampled_from([0]) | st.integers(0, 30 * MS), min_size=5, max_size=30),
    bands=st.lists(st.integers(-4, 5), min_size=1, max_size=4, unique=True),
    limit=st.integers(1, 2),
    data=st.data(),
)
def test_bands_are_strict_and_in_order_within(
    gaps_ns: list[int], bands: list[int], limit: int, data: st.DataObject
) -> None:
    arrival_ns = np.cumsum([0, *gaps_ns]).tolist()
    n = len(arrival_ns)
    classes = data.draw(st.lists(st.sampled_from(sorted(PRIORITIES)), min_size=n, max_size=n))
    tenants = data.draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n))
    result = run(
        arrival_ns,
        output_tokens=3,
        slo_class=classes,
        tenant=tenants,
        gateway=gateway.Gateway(
            bands=[gateway.Band(priority=band) for band in bands],
            limit=gateway.FixedLimit(max_in_flight=limit),
        ),
    )
    ways = passages(result)
    check_limit(ways, limit)
    rank = [(-band_of(one, bands), row) for row, one in enumerate(classes)]
    for row, way in enumerate(ways):
        # Whoever had come before this dispatch and is dispatched later ranks lower.
        overtaken = [
            other
            for other in range(n)
            if ways[other].admitted < way.dispatched < ways[other].dispatched
        ]
        assert all(rank[row] < rank[other] for other in overtaken)


def test_important_requests_overtake() -> None:
    classes = ["batch", "batch", "background", "critical", "standard", "critical"]
    result = run(
        [0, 1, 2, 3, 4, 5],
        output_tokens=2,
        slo_class=classes,
        gateway=gateway.Gateway(
            bands=[gateway.Band(priority=-2), gateway.Band(priority=4), gateway.Band(priority=0)],
            limit={"kind": "fixed", "max_in_flight": 1},
        ),
    )
    order = np.argsort([way.dispatched for way in passages(result)], kind="stable")
    # Background is below every band and joins the lowest, behind the batch request.
    assert order.tolist() == [0, 3, 5, 4, 1, 2]


def test_one_band_knows_no_priorities() -> None:
    result = run(
        [0, 1, 2],
        output_tokens=2,
        slo_class=["background", "batch", "critical"],
        gateway={"limit": gateway.FixedLimit(max_in_flight=1)},
    )
    dispatched = [way.dispatched for way in passages(result)]
    assert dispatched == sorted(dispatched)


def test_priorities_are_those_of_the_classes() -> None:
    swapped = [
        workload.SloClass(name="batch", priority=9),
        workload.SloClass(name="critical", priority=-9),
    ]
    result = run(
        [0, 1, 2],
        output_tokens=2,
        slo_class=["standard", "critical", "batch"],
        slo_classes=swapped,
        gateway=gateway.Gateway(
            bands=[gateway.Band(priority=5), gateway.Band()],
            limit={"kind": "fixed", "max_in_flight": 1},
        ),
    )
    ways = passages(result)
    assert ways[2].dispatched < ways[1].dispatched


# --- order within one instant ---------------------------------------------------------------------


def joins(at_s: float) -> dict[str, Any]:
    """An instance that joins, which runs one request at a time in order of entry."""
    return {
        "instances": instance.InstanceGroup(max_num_seqs=1),
        "fleet": fleet.Fleet(
            initial_instances=0,
            schedule=[fleet.FleetChange(at_s=at_s, instances=1)],
            startup_s=0,
        ),
    }


def served(result: Result) -> list[int]:
    """Rows in the order in which an instance with one seat has served them."""
    first_token = result.requests["arrival_s"] + result.requests["ttft_s"]
    assert len(set(first_token.tolist())) == len(first_token)
    return np.argsort(first_token).tolist()


@pytest.mark.parametrize("latency_s", [0, 0.125])
@pytest.mark.parametrize("semantics", ["corrected", "verbatim"])
def test_requests_enter_an_instance_in_the_order_of_dispatch(
    latency_s: float, semantics: str
) -> None:
    """A worker joins and all go at once, five of tenant b for one of tenant a."""
    tenants = "a" * 9 + "b" * 8
    fairness = gateway.DeficitRoundRobin(
        quantum=1, cost=gateway.Cost(unit="requests"), semantics=semantics
    )
    result = run(
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
    result = run(
        [0, 0],
        slo_class=["sheddable", "critical"],
        gateway=gateway.Gateway(bands=[gateway.Band(priority=0), gateway.Band()]),
        **joins(1),
    )
    assert served(result) == [1, 0]


@pytest.mark.parametrize("ordering", ["lifo", "slo_deadline"])
def test_order_of_a_queue_is_that_of_the_instance(ordering: str) -> None:
    result = run(
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
    result = run(
        [0, 0, 1_000_000_000],
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=16, refill_tokens_per_s=16),
            admission_latency_s=latency_s,
        ),
        reaction=workload.Reaction(
            retries=[workload.Retry(backoff_s=1 - latency_s, max_attempts=2, jitter="none")]
        ),
    )
    assert admitted(result) == [True, False, True]


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
        )
    )
    before, after = simulate(base, 5).requests, simulate(base.with_(changes), 5).requests
    for name in ("arrival_s", "input_tokens", "tenant", "slo_class"):
        assert np.array_equal(before[name], after[name])
    both = (before["outcome"] == "completed") & (after["outcome"] == "completed")
    assert np.array_equal(before["output_tokens"][both], after["output_tokens"][both])
    other = simulate(base, 6).requests
    assert not np.array_equal(before["arrival_s"], other["arrival_s"])
