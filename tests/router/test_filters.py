"""Filters leave those instances that a plain model leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.routing import UNEQUAL, Seen, chosen, watched
from support.runs import MS, ROUTER_STREAM, run_ns, steady
from support.specimens import rules

from spillway import (
    ConfigError,
    Simulation,
    _core,
    gateway,
    router,
    signals,
    simulate,
    testing,
    trace,
)
from spillway.testing import InstanceSignals, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass
class Prompts:
    """Prompts whose beginning, if any, is a whole segment that others share."""

    input_tokens: list[int]
    prefixes: list[tuple[str, int]]

    def shares_sent(self, instances: Sequence[int], count: int) -> Floats:
        """Per decision and instance: the share of the prompt's full blocks sent there before."""
        sent: list[set[tuple[str, int]]] = [set() for _ in range(count)]
        shares = np.zeros((len(instances), count))
        for row, chosen_ in enumerate(instances):
            group, tokens = self.prefixes[row]
            for i in range(count):
                if self.prefixes[row] in sent[i]:
                    shares[row, i] = (tokens // 16) / (self.input_tokens[row] // 16)
            if group:
                sent[chosen_].add(self.prefixes[row])
        return shares


def of_some(now: Seen, row: int, kept: NDArray[np.bool_]) -> Seen:
    """The signals of some instances at one decision."""
    names = ("waiting", "running", "in_flight", "kv_utilization", "age_s", "score")
    columns = {name: getattr(now, name)[row : row + 1, kept] for name in names}
    return Seen(**columns, instance=[now.instance[row]])


def kept_by(
    filters: Sequence[Any], now: Seen, share: Floats, stale_after_s: float, draws: _core.sim.Draws
) -> NDArray[np.bool_]:
    """The instances that a decision's filters leave; `now` is that decision alone."""
    kept: NDArray[np.bool_] = ~np.isnan(now.score[0])
    # A value that was never measured is as good as a stale one.
    is_stale = ~(np.rint(now.age_s[0] * 1e9) < stale_after_s * 1e9)
    for policy in filters:
        if isinstance(policy, router.PrefixCacheAffinity):
            if policy.exploration > 0 and draws.uniform() < policy.exploration:
                continue
            left = kept & (share >= policy.threshold)
        else:
            factor = 1 + policy.headroom
            left = kept & ~is_stale
            left &= now.waiting[0] < policy.queue_depth_threshold * factor
            left &= now.kv_utilization[0] < policy.kv_utilization_threshold * factor
        if left.any():
            kept = left
    return kept


def picked(picker: Any, scores: list[float], draws: _core.sim.Draws) -> int:
    """The position that a picker takes with these draws."""
    n = len(scores)
    if isinstance(picker, router.Random):
        return draws.below(n)
    if isinstance(picker, router.PowerOfTwo):
        if n == 1:
            return 0
        first, second = draws.below(n), draws.below(n - 1)
        second += second >= first
        return second if scores[second] > scores[first] else first
    if isinstance(picker, router.Softmax):
        weights = [math.exp((score - max(scores)) / picker.temperature) for score in scores]
        left = draws.uniform() * sum(weights)
        for i, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return i
        return n - 1
    best = [i for i, score in enumerate(scores) if score == max(scores)]
    return best[draws.below(len(best))] if picker.ties == "random" and len(best) > 1 else best[0]


AFFINITY = st.builds(
    router.PrefixCacheAffinity,
    threshold=st.sampled_from([0, 0.25, 0.5, 0.8, 1]),
    exploration=st.sampled_from([0, 0.01, 0.4, 1]),
)
UTILIZATION = st.builds(
    router.UtilizationFilter,
    queue_depth_threshold=st.sampled_from([0.5, 1, 2, 5]),
    kv_utilization_threshold=st.sampled_from([0.1, 0.5, 0.8, 1]),
    headroom=st.sampled_from([0, 0.5, 2]),
)


@given(
    filters=st.lists(AFFINITY | UTILIZATION, min_size=1, max_size=3),
    scorer=st.sampled_from(rules("Weighted.scorers")),
    picker=st.sampled_from(
        [
            router.Best(ties="first"),
            router.Best(ties="random"),
            router.Random(),
            router.Softmax(temperature=0.3),
            router.PowerOfTwo(),
        ]
    ),
    transport=st.sampled_from(
        [
            signals.Live(),
            signals.OnRead(period_s=0.1),
            signals.Scraped(period_s=0.05, loss_probability=0.5, stale_after_s=0.12),
            signals.Scraped(period_s=0.05, jitter=0.8, stale_after_s=0.06, when_stale="fail_open"),
            signals.Scraped(
                period_s=0.05, loss_probability=0.7, stale_after_s=0.1, when_stale="fail_closed"
            ),
        ]
    ),
    groups=st.lists(st.sampled_from("ABCD "), min_size=60, max_size=60),
    seed=st.integers(0, 2**64 - 1),
)
def test_filters_leave_what_their_model_leaves(
    *,
    filters: list[Any],
    scorer: tuple[Any, Any],
    picker: Any,
    transport: Any,
    groups: list[str],
    seed: int,
) -> None:
    """The scorers rate only the instances that remain; the log has -inf for the others."""
    prefixes = [("", 0) if g == " " else (g, 64 * (1 + "ABCD".index(g))) for g in groups]
    inputs = [16 + tokens + (row * 389) % 300 for row, (_, tokens) in enumerate(prefixes)]
    policy, formula = scorer
    result, now = watched(
        router.Weighted(filters=filters, scorers=[policy], picker=picker),
        seed=seed,
        arrival_ns=np.cumsum([(row * 7919) % 17 * MS for row in range(60)]).tolist(),
        input_tokens=inputs,
        output_tokens=[1 + (row * 101) % 60 for row in range(60)],
        prefixes=prefixes,
        signals=transport,
    )
    share = Prompts(inputs, prefixes).shares_sent(now.instance, len(UNEQUAL))
    stale_after_s = getattr(transport, "stale_after_s", None) or math.inf
    everyone = np.ones(len(UNEQUAL), dtype=bool)
    for row in range(60):
        draws = _core.sim.Draws(seed=seed, stream=ROUTER_STREAM, entity=row)
        kept = kept_by(filters, of_some(now, row, everyone), share[row], stale_after_s, draws)
        expected = np.where(np.isnan(now.score[row]), np.nan, -np.inf)
        expected[kept] = formula(policy, of_some(now, row, kept))[0]
        assert np.array_equal(now.score[row], expected, equal_nan=True)
        choice = np.flatnonzero(kept)[picked(picker, expected[kept].tolist(), draws)]
        assert now.instance[row] == choice
        assert result.decisions["regret"][row] == expected[kept].max() - expected[choice]


def test_affinity_filter_holds_from_its_threshold_on() -> None:
    def instances(threshold: float) -> list[int]:
        """4 of the second prompt's 5 full blocks were sent to instance 0, which is still busy."""
        result = run_ns(
            [0, MS],
            [64, 80],
            prefixes=[("A", 64), ("A", 64)],
            instances={"count": 2, "latency": steady(100)},
            router=router.Weighted(
                filters=[router.PrefixCacheAffinity(threshold=threshold, exploration=0)],
                scorers=["load_balance"],
            ),
        )
        return chosen(result)

    assert instances(0.8) == [0, 0]
    assert instances(math.nextafter(0.8, 1)) == [0, 1]


def test_exploration_lets_as_many_go_as_it_says() -> None:
    """Of every pair the second is held by the busy instance 0, unless its own draw sets it free."""
    pairs = 1000
    result = run_ns(
        [i * 10**9 + delay for i in range(pairs) for delay in (0, MS)],
        80,
        prefixes=[(f"pair {i}", 80) for i in range(pairs) for _ in range(2)],
        instances={"count": 2, "latency": steady(100)},
        router=router.Weighted(
            filters=[router.PrefixCacheAffinity(threshold=1, exploration=0.1)],
            scorers=["load_balance"],
        ),
        seed=5,
    )
    draws = [_core.sim.Draws(seed=5, stream=ROUTER_STREAM, entity=row) for row in range(2 * pairs)]
    explores = [int(draw.uniform() < 0.1) for draw in draws][1::2]
    assert chosen(result)[0::2] == [0] * pairs
    assert chosen(result)[1::2] == explores
    assert abs(sum(explores) - 0.1 * pairs) < 4 * math.sqrt(0.09 * pairs)


@pytest.mark.parametrize(("threshold", "headroom", "second"), [(1, 0, 1), (1, 0.5, 0), (2, 0, 0)])
def test_queue_at_its_threshold_is_too_long(threshold: float, headroom: float, second: int) -> None:
    """One request waits at instance 0, which has the best score; none does at instance 1."""
    result = run_ns(
        [0, MS, 2 * MS],
        instances={"count": 2, "max_num_seqs": 1, "latency": steady(100)},
        router=router.Weighted(
            filters=[
                router.UtilizationFilter(
                    queue_depth_threshold=threshold, kv_utilization_threshold=1, headroom=headroom
                )
            ],
            scorers=["prefix_affinity"],  # all equal, so the first that is left
        ),
    )
    assert chosen(result) == [0, 0, second]


def test_two_filters_in_either_order() -> None:
    """Where the sticky instance is overloaded, the filter that comes first decides."""
    sticky = router.PrefixCacheAffinity(threshold=0.5, exploration=0)
    roomy = router.UtilizationFilter(queue_depth_threshold=1)

    def last(*filters: Any) -> int:
        result = run_ns(
            [0, MS, 2 * MS],
            64,
            prefixes=[("A", 64)] * 3,  # one runs, one waits
            instances={"count": 2, "max_num_seqs": 1, "latency": steady(100)},
            router=router.Weighted(filters=filters, scorers=["load_balance"]),
        )
        assert chosen(result)[:2] == [0, 0]
        return chosen(result)[2]

    assert last(sticky, roomy) == 0
    assert last(roomy, sticky) == 1


def test_filters_are_checked() -> None:
    for filters in (
        [{"kind": "prefix_cache_affinity", "threshold": 1.1}],
        [{"kind": "prefix_cache_affinity", "exploration": -0.1}],
        [{"kind": "utilization", "queue_depth_threshold": 0}],
        [{"kind": "utilization", "kv_utilization_threshold": 1.5}],
        [{"kind": "utilization", "headroom": -1}],
    ):
        with pytest.raises(ConfigError, match=r"router\.filters\[0\]"):
            Simulation(router={"kind": "weighted", "filters": filters})


# --- ranges of lengths ----------------------------------------------------------------------------


def test_context_ranges_keep_long_prompts_off_servers_for_short_ones() -> None:
    """Instance 2 is in two ranges, instance 3 in none."""
    ranges = [
        router.ContextRange(max_tokens=100),
        router.ContextRange(first_instance=1, num_instances=2, min_tokens=101, max_tokens=1000),
        router.ContextRange(first_instance=2, min_tokens=2000),
    ]
    built = testing.build(router.ContextLength(ranges=ranges))
    idle = [InstanceSignals()] * 4
    kept = {
        tokens: built.decide(Request(input_tokens=tokens), instances=idle)
        for tokens in (1, 100, 101, 1000, 1001, 2000, 90_000)
    }
    assert kept == {
        1: (0, 3),
        100: (0, 3),
        101: (1, 2, 3),
        1000: (1, 2, 3),
        1001: (3,),
        2000: (2, 3),
        90_000: (2, 3),
    }


def test_a_range_must_not_be_empty() -> None:
    with pytest.raises(ConfigError, match=r"max_tokens.*must be >= min_tokens \(11\)"):
        Simulation(
            router=router.Weighted(
                filters=[
                    router.ContextLength(ranges=[router.ContextRange(min_tokens=11, max_tokens=10)])
                ]
            )
        )


# --- caps and gates of loads ----------------------------------------------------------------------


@given(
    loads=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    threshold=st.integers(1, 12),
    load=st.sampled_from(["in_flight", "running"]),
)
def test_unequal_loads_leave_the_least_loaded(loads: list[int], threshold: int, load: Any) -> None:
    """The other load says the opposite."""
    other = "running" if load == "in_flight" else "in_flight"
    seen = [InstanceSignals(**{load: count, other: 12 - count}) for count in loads]
    built = testing.build(router.LoadImbalance(threshold=threshold, load=load))
    is_unequal = max(loads) - min(loads) >= threshold
    expected = [i for i, count in enumerate(loads) if count == min(loads) or not is_unequal]
    assert list(built.decide(Request(), instances=seen)) == expected


@pytest.mark.parametrize("threshold", [1, 3, None])
def test_a_gate_before_prefix_routing_bounds_what_a_popular_prefix_can_do(
    threshold: int | None,
) -> None:
    """20 prompts of one prefix: without the gate, one of two servers takes all of them."""
    gate = [] if threshold is None else [router.LoadImbalance(threshold=threshold)]
    arrivals = [i * MS for i in range(20)]
    result = run_ns(
        arrivals,
        32,
        prefixes=[("A", 32)] * 20,
        instances={"count": 2, "latency": steady(1000)},
        router=router.Weighted(filters=gate, scorers=["prefix_affinity"]),
    )
    sent = np.array(chosen(result))
    ahead = np.abs(np.cumsum(sent == 0) - np.cumsum(sent == 1)).max()  # none has ended
    assert ahead == (threshold or 20)


# --- no candidate ---------------------------------------------------------------------------------


def full_of_one(if_none: Any) -> router.Weighted:
    return router.Weighted(
        filters=[router.ConcurrencyFilter(max_concurrency=1, if_none=if_none)],
        scorers=["active_requests"],
    )


def test_a_filter_that_leaves_none_is_ignored_or_rejects() -> None:
    """Two servers of 10 ms each take one request at a time."""
    servers = {"count": 2, "latency": steady(10)}
    arrivals = [0, 0, 0, 5 * MS, 25 * MS]
    ignored = run_ns(arrivals, instances=servers, router=full_of_one("keep_all"))
    assert set(ignored.requests["outcome"]) == {"completed"}
    result = run_ns(arrivals, instances=servers, router=full_of_one("reject"))
    assert result.requests["reason"].tolist() == ["", "", "no_candidate", "no_candidate", ""]
    assert chosen(result) == [0, 1, -1, -1, 0]
    assert result.ledger["router_rejected"] == {"no_candidate": 2}
    assert result.ledger["dispatched"] == 5
    assert result.requests.http_status("llm-d").tolist() == [200, 200, 503, 503, 200]
    assert "2 router rejected (no_candidate)" in str(result)


@pytest.mark.parametrize("decision_latency_s", [0, 0.001])
@pytest.mark.parametrize("reference", [False, True])
def test_the_permit_of_a_rejected_request_returns_at_once(
    decision_latency_s: float, *, reference: bool
) -> None:
    """A limit of three, two servers: every third request is rejected and makes room."""
    control = gateway.Gateway(
        limit=gateway.FixedLimit(max_in_flight=3), decision_latency_s=decision_latency_s
    )
    same = run_ns(
        [0] * 6,
        instances={"count": 2, "latency": steady(10)},
        router=full_of_one("reject"),
        gateway=control,
    )
    result = simulate(same.simulation, reference=reference)
    assert result.digest == same.digest
    outcomes = result.requests["outcome"].tolist()
    if decision_latency_s == 0:
        assert outcomes == ["completed"] * 2 + ["rejected"] * 4
    else:  # three decide together, before any of them counts
        assert outcomes == ["completed"] * 6
    refused = result.ledger.get("router_rejected", {})
    assert sum(refused.values()) == outcomes.count("rejected")


def test_a_built_router_says_that_it_rejects() -> None:
    built = testing.build(full_of_one("reject"))
    decision = built.decide(Request(), instances=[InstanceSignals(in_flight=1)])
    assert decision.instance == -1
    assert built.decide(Request(), instances=[InstanceSignals()]).instance == 0


def test_requests_that_the_router_rejects_leave_the_gateways_record() -> None:
    """A burst that is rejected is no load for the estimates of later requests."""
    arrival_s = [i * 0.001 for i in range(500)] + [200 + 2.0 * i for i in range(10)]
    admission = gateway.PredictiveTtft(estimator="queue_depth", avg_step_s=0.01)
    result = simulate(
        Simulation(
            workload=trace(
                arrival_s=arrival_s,
                input_tokens=[500] * len(arrival_s),
                output_tokens=[20] * len(arrival_s),
            ),
            slo_classes=[{"name": "standard", "target_ttft_s": 2}],
            gateway=gateway.Gateway(admission=admission),
            router=full_of_one("reject"),
            instances={"count": 2},
        )
    )
    assert sum(result.ledger["router_rejected"].values()) > 100
    assert result.requests["outcome"][-10:].tolist() == ["completed"] * 10
