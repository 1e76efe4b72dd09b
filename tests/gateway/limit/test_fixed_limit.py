"""A fixed limit holds, wastes no capacity, and gets its permits back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import MS, Passage, check_limit, ns, passages, run_ns

from spillway import gateway, instance


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
    result = run_ns(
        arrival_ns,
        output_tokens=outputs[:n],
        tenant=data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n)),
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
    result = run_ns(
        [0] * 9, output_tokens=20, gateway={"limit": gateway.FixedLimit(max_in_flight=4)}
    )
    assert check_limit(passages(result), 4) == 5
    # A permit is free from the last token on, for a request that waits at this instant.
    ways = passages(result)
    assert ways[4].dispatched in {way.ended for way in ways[:4]}


def test_checker_notices_what_it_checks() -> None:
    with pytest.raises(AssertionError):
        check_limit([Passage(0, 0, 10), Passage(0, 5, 12)], 1)
    with pytest.raises(AssertionError):
        check_limit([Passage(0, 0, 10), Passage(0, 11, 12)], 1)


def test_unlimited_dispatches_at_once() -> None:
    result = run_ns([0] * 50, output_tokens=5, instances={"max_num_seqs": 1})
    assert ns(result.requests["queue_s"]) == [0] * 50
    assert result.requests["scheduling_delay_s"].max() > 0.1


def test_refusal_by_a_worker_returns_the_permit() -> None:
    entry_ns = 3 * MS
    latency = instance.Linear(
        alpha0_us=3000, alpha_input_us=0, alpha_output_us=0, beta0_us=10_000, beta_prefill_us=0
    )
    result = run_ns(
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
    end_ns = ns(run_ns([0], output_tokens=3).requests["e2e_s"])[0]
    bands = [gateway.Band(priority=0), gateway.Band()]
    result = run_ns(
        [0, 1, end_ns],
        output_tokens=3,
        slo_class=["standard", "batch", "standard"],
        gateway=gateway.Gateway(limit={"kind": "fixed", "max_in_flight": 1}, bands=bands),
    )
    # The permit goes to the batch request, which waits, before the more important one arrives.
    batch, late = passages(result)[1:]
    assert batch.dispatched == end_ns
    assert late.dispatched == batch.ended
