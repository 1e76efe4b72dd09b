"""The token bucket against a plain model of it, its changes during a run, chains of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.runs import MS, SECOND, outcomes, run_ns

from spillway import Result, gateway

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
    """Verdicts: the bucket starts full at 0; elapsed microseconds times the rate, over a million,
    flow in before each decision, up to the capacity; a prompt costs its tokens."""
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
    result = run_ns(
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
    assert reasons == ["" if admitted else "insufficient_tokens" for admitted in expected]


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
    assert admitted(run_ns([0, gap_ns], [200, cost], gateway={"admission": bucket})) == [True, True]


@pytest.mark.parametrize(("tokens", "expected"), [(512, 19), (500, 20), (10_000, 1), (10_001, 0)])
def test_burst_is_the_capacity(tokens: int, expected: int) -> None:
    """10,000 tokens are 19 prompts of 512, all of 20 of 500, and never one of 10,001."""
    bucket = gateway.TokenBucket(capacity_tokens=10_000, refill_tokens_per_s=0)
    result = run_ns([5 * MS] * 30, tokens, gateway={"admission": bucket})
    assert admitted(result) == [True] * expected + [False] * (30 - expected)
    assert result.ledger["rejected"] == {"insufficient_tokens": 30 - expected}


def test_idle_time_fills_the_bucket_no_further_than_its_capacity() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=1000)
    hour = 3600 * 10**9
    result = run_ns([0, 0, hour, hour, hour], [100, 1, 60, 40, 1], gateway={"admission": bucket})
    assert admitted(result) == [True, False, True, True, False]


def test_refused_request_costs_nothing() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    result = run_ns([0, 1, 2, 3], [60, 50, 40, 1], gateway={"admission": bucket})
    assert admitted(result) == [True, False, True, False]


def test_sustained_rate() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=1000, refill_tokens_per_s=5000)
    arrivals = [i * MS for i in range(10_000)]  # 10,000 tokens/s for 10 s
    result = run_ns(arrivals, 10, gateway={"admission": bucket})
    assert sum(admitted(result)) * 10 == pytest.approx(1000 + 5000 * 10, abs=20)


def test_token_bucket_is_sized_as_its_guide_says() -> None:
    """10,000 tokens and 1,000/s pass a burst of 19 prompts of 512, then 1.95/s."""
    bucket = gateway.Gateway(
        admission=gateway.TokenBucket(capacity_tokens=10_000, refill_tokens_per_s=1000)
    )
    assert outcomes(run_ns([0] * 40, 512, gateway=bucket)) == ["completed"] * 19 + ["rejected"] * 21
    long = run_ns(range(0, 1000 * SECOND, SECOND // 4), 512, gateway=bucket)
    assert (outcomes(long).count("completed") - 19) / 1000 == pytest.approx(1.95, abs=0.1)


def test_a_change_keeps_the_level_up_to_the_new_capacity() -> None:
    """A smaller capacity takes what exceeds it at once, a larger one adds nothing, and a new rate
    refills from the change on. Requests arrive after the change of their instant."""
    place = "gateway.admission[token_bucket]"
    result = run_ns(
        [second * SECOND for second in (1, 3, 3, 7, 7)],
        [41, 41, 40, 21, 20],
        gateway={"admission": gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)},
        changes=[
            {"at_s": 1, "set": {f"{place}.capacity_tokens": 40}},
            {"at_s": 3, "set": {f"{place}.capacity_tokens": 100}},
            {"at_s": 5, "set": {f"{place}.refill_tokens_per_s": 10}},
        ],
    )
    assert admitted(result) == [False, False, True, False, True]


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
        result = run_ns([0, 1], gateway=chain(*policies))
        assert result.ledger["rejected"] == {reason: 2}
        assert set(result.requests["reason"]) == {reason}
    assert run_ns([0, 1], gateway=chain("always_admit", "always_admit")).ledger["admitted"] == 2


def test_rejection_by_a_later_policy_leaves_the_bucket_full() -> None:
    large = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    small = gateway.TokenBucket(capacity_tokens=55, refill_tokens_per_s=0)
    # The small bucket refuses the first; had the large one been charged for it all the same, it
    # would hold 40 and refuse the second.
    for policies in ((large, small), (small, large)):
        result = run_ns([0, 0, 0, 0], [60, 50, 5, 1], gateway=chain(*policies))
        assert admitted(result) == [False, True, True, False]
    assert admitted(run_ns([0, 0, 0], [60, 50, 50], gateway=chain(large))) == [True, False, False]


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
    assert admitted(run_ns(arrival_ns, costs, gateway=chain(*policies))) == expected
