"""Routing: each policy against a plain model of it, and what it is allowed to see."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import MS, ROUTER_STREAM, ns, steady
from support.runs import run_ns as run

from spillway import (
    ConfigError,
    Result,
    Simulation,
    _core,
    gateway,
    instance,
    router,
    signals,
    simulate,
    workload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def chosen(result: Result) -> list[int]:
    return result.requests["instance"].tolist()


# --- round robin and always busiest ---------------------------------------------------------------


def test_round_robin_takes_turns() -> None:
    result = run([i * MS for i in range(10)], instances={"count": 3}, router="round_robin")
    assert chosen(result) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_round_robin_counts_dispatches() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    result = run(
        [0, 1, 2, 3, 4, 5],
        [20, 500, 20, 500, 20, 20],
        instances={"count": 3},
        gateway={"admission": bucket},
    )
    assert chosen(result) == [0, -1, 1, -1, 2, 0]


def test_round_robin_ignores_load_and_speed() -> None:
    result = run(
        [0] * 6,
        output_tokens=20,
        instances=[{"latency": steady(1)}, {"count": 2, "latency": steady(50)}],
    )
    assert chosen(result) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("transport", ["live", {"kind": "on_read", "period_s": 0.005}])
def test_always_busiest_never_leaves_the_first(transport: Any) -> None:
    arrivals = [i * 7 * MS for i in range(40)]
    result = run(
        arrivals,
        output_tokens=9,
        instances={"count": 4},
        router="always_busiest",
        signals=transport,
    )
    assert set(chosen(result)) == {0}
    assert [one["completed"] for one in result.instances] == [40, 0, 0, 0]


# --- least loaded ---------------------------------------------------------------------------------


@dataclass
class Server:
    """What an instance reports, from the ways of the requests sent to it so far."""

    entry_ns: int
    sent: list[tuple[int, int]] = field(default_factory=list)  # routed, finished
    reading: int = 0
    measured: int = 0

    def reported(self, now: int) -> int:
        """Waiting and running: entries count from the next instant on, ends at once."""
        return sum(routed + self.entry_ns < now < finished for routed, finished in self.sent)

    def in_flight(self, now: int) -> int:
        """Routed and not finished: the router's own count."""
        return sum(now < finished for _, finished in self.sent)


def least_loaded_oracle(
    result: Result, servers: list[Server], period_ns: int | None, gateway_ns: tuple[int, int]
) -> list[list[int]]:
    """The least loaded instances at every routing, given how long each request took.

    Requests must be routed in the order of their arrival. Decisions on admission renew readings as
    routings do.
    """
    admission_ns, routing_ns = gateway_ns
    arrival = ns(result.requests["arrival_s"])
    finished = [at + e2e for at, e2e in zip(arrival, ns(result.requests["e2e_s"]), strict=True)]
    decisions = [(at + admission_ns, 0, row) for row, at in enumerate(arrival)]
    decisions += [(at + admission_ns + routing_ns, 1, row) for row, at in enumerate(arrival)]
    best = []
    for now, stage, row in sorted(decisions):
        for server in servers:
            if period_ns is None or now - server.measured >= period_ns:
                server.reading, server.measured = server.reported(now), now
        if stage == 0:
            continue
        loads = [server.reading + server.in_flight(now) for server in servers]
        best.append([i for i, load in enumerate(loads) if load == min(loads)])
        servers[chosen(result)[row]].sent.append((now, finished[row]))
    return best


@given(
    gaps_ns=st.lists(
        st.sampled_from([0, 5 * MS, 10 * MS]) | st.integers(0, 40 * MS), min_size=3, max_size=30
    ),
    outputs=st.lists(st.integers(0, 15), min_size=31, max_size=31),
    steps_ms=st.lists(st.sampled_from([2, 5, 10, 30]), min_size=1, max_size=4),
    entry_ms=st.sampled_from([0, 5, 12]),
    period_ms=st.none() | st.sampled_from([1, 10, 35, 200]),
    latencies_ms=st.tuples(st.sampled_from([0, 5]), st.sampled_from([0, 3])),
    ties=st.sampled_from(["first", "random"]),
    seed=st.integers(0, 2**64 - 1),
)
def test_least_loaded_equals_its_oracle(
    *,
    gaps_ns: list[int],
    outputs: list[int],
    steps_ms: list[int],
    entry_ms: int,
    period_ms: int | None,
    latencies_ms: tuple[int, int],
    ties: str,
    seed: int,
) -> None:
    arrival_ns = np.cumsum([0, *gaps_ns]).tolist()
    transport = signals.Live() if period_ms is None else signals.OnRead(period_s=period_ms / 1000)
    result = run(
        arrival_ns,
        output_tokens=outputs[: len(arrival_ns)],
        seed=seed,
        router=router.LeastLoaded(ties=ties),
        signals=transport,
        instances=[{"latency": steady(step_ms, entry_ms)} for step_ms in steps_ms],
        gateway=gateway.Gateway(
            admission_latency_s=latencies_ms[0] / 1000, routing_latency_s=latencies_ms[1] / 1000
        ),
    )
    best = least_loaded_oracle(
        result,
        [Server(entry_ms * MS) for _ in steps_ms],
        None if period_ms is None else period_ms * MS,
        (latencies_ms[0] * MS, latencies_ms[1] * MS),
    )
    for row, (found, candidates) in enumerate(zip(chosen(result), best, strict=True)):
        if ties == "first" or len(candidates) == 1:
            assert found == candidates[0]
        else:
            # One draw of the router's stream, which belongs to this request alone.
            draws = _core.sim.Draws(seed=seed, stream=ROUTER_STREAM, entity=row)
            assert found == candidates[draws.below(len(candidates))]


def test_slower_server_gets_less() -> None:
    result = run(
        [i * 20 * MS for i in range(200)],
        output_tokens=5,
        router="least_loaded",
        instances=[{"latency": steady(40)}, {"latency": steady(10)}],
    )
    slow, fast = (one["completed"] for one in result.instances)
    assert slow + fast == 200
    assert fast > 2 * slow > 0


def test_reported_requests_count_twice() -> None:
    # The first request is in the engine of instance 0 when the third is routed: load 1 + 1. The
    # second is still on its way to instance 1: load 1.
    settings_: dict[str, Any] = {
        "router": "least_loaded",
        "instances": {"count": 2, "latency": steady(100, entry_ms=10)},
    }
    arrivals = [0, 15 * MS, 20 * MS]
    assert chosen(run(arrivals, **settings_)) == [0, 1, 1]
    # Before the first period has passed, all readings are zero: the loads are equal.
    stale = signals.OnRead(period_s=1)
    assert chosen(run(arrivals, signals=stale, **settings_)) == [0, 1, 0]


def test_readings_are_renewed_at_decisions() -> None:
    # The reading that the second request causes at 30 ms shows nobody yet, because the first one
    # enters later. It is good until 60 ms.
    def choose(third_ms: int) -> int:
        result = run(
            [0, 30 * MS, third_ms * MS],
            router="least_loaded",
            signals=signals.OnRead(period_s=0.03),
            instances=[
                {"latency": steady(500, entry_ms=31)},
                {"latency": steady(500, entry_ms=200)},
            ],
        )
        assert chosen(result)[:2] == [0, 1]
        return chosen(result)[2]

    assert choose(59) == 0
    assert choose(60) == 1


# --- ties and random numbers ----------------------------------------------------------------------

APART = [i * 10**9 for i in range(60)]  # everyone meets idle servers, so all are tied
FOUR: dict[str, Any] = {"instances": {"count": 4, "latency": steady(10)}}


def drawn(seed: int, rows: Sequence[int]) -> list[int]:
    return [_core.sim.Draws(seed=seed, stream=ROUTER_STREAM, entity=row).below(4) for row in rows]


def test_ties() -> None:
    first = run(APART, router={"kind": "least_loaded", "ties": "first"}, **FOUR)
    assert set(chosen(first)) == {0}
    random = run(APART, router={"kind": "least_loaded", "ties": "random"}, seed=8, **FOUR)
    assert chosen(random) == drawn(8, range(60))
    assert set(chosen(random)) == {0, 1, 2, 3}
    other = run(APART, router={"kind": "least_loaded", "ties": "random"}, seed=9, **FOUR)
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
    assert chosen(run(APART, router=tied, gateway=gateway_, **FOUR)) == drawn(0, range(60))


def test_rejected_requests_leave_the_draws_of_the_others_alone() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    sizes = [500 if row % 3 else 1 for row in range(60)]
    tied = router.LeastLoaded(ties="random")
    result = run(APART, sizes, router=tied, gateway={"admission": bucket}, **FOUR)
    expected = [-1 if row % 3 else instance_ for row, instance_ in enumerate(drawn(0, range(60)))]
    assert chosen(result) == expected


# --- weighted: scorers ----------------------------------------------------------------------------

# Requests with sizes, gaps and servers so unequal that all signals take many values.
SKEWED: dict[str, Any] = {
    "arrival_ns": np.cumsum([(row * 7919) % 40 * MS for row in range(150)]).tolist(),
    "input_tokens": [16 + (row * 389) % 900 for row in range(150)],
    "output_tokens": [1 + (row * 101) % 60 for row in range(150)],
}
UNEQUAL = [
    instance.InstanceGroup(max_num_seqs=2, num_kv_blocks=200, latency=steady(30)),
    instance.InstanceGroup(max_num_seqs=3, num_kv_blocks=150, latency=steady(15, entry_ms=20)),
    instance.InstanceGroup(max_num_seqs=1, num_kv_blocks=300, latency=steady(8)),
    instance.InstanceGroup(max_num_seqs=9, num_kv_blocks=400, latency=steady(60)),
]


def weighted(*scorers: Any, picker: Any = "best") -> router.Weighted:
    return router.Weighted(scorers=scorers, picker=picker)


@dataclass
class Seen:
    """What every decision saw of every instance: one row per decision, one column per instance."""

    waiting: Floats
    running: Floats
    in_flight: Floats
    kv_utilization: Floats
    age_s: Floats
    score: Floats
    instance: list[int]


def seen(result: Result) -> Seen:
    """The log of a run that traced all candidates; NaN for who did not come into question."""
    log = result._output["decisions"]
    asked, place = np.nonzero(log["candidate_instance"] >= 0)
    at = log["candidate_instance"][asked, place]
    shape = (len(log["row"]), len(result.instances))
    assert log["candidate_instance"].shape == shape

    def column(name: str) -> Floats:
        values = np.full(shape, np.nan)
        values[asked, at] = log[f"candidate_{name}"][asked, place]
        return values

    return Seen(
        waiting=column("waiting"),
        running=column("running"),
        in_flight=column("in_flight"),
        kv_utilization=column("kv_utilization"),
        age_s=column("age_s"),
        score=column("score"),
        instance=log["instance"].tolist(),
    )


def watched(
    policy: Any, instances: Any = UNEQUAL, *, seed: int = 0, **settings_: Any
) -> tuple[Result, Seen]:
    """A run of SKEWED, unless `settings_` say otherwise, and what its router saw."""
    result = run(
        **{**SKEWED, **settings_},
        router=policy,
        instances=instances,
        metrics={"traced_candidates": 1000},
        seed=seed,
    )
    return result, seen(result)


def fewest(values: Floats) -> Floats:
    """1 for the fewest, 0 for the most, all 1 if they are equal."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    width = np.where(most == least, 1, most - least)
    return np.where(most == least, 1.0, (most - values) / width)


def fewest_in_flight(now: Seen) -> Floats:
    most = now.in_flight.max(axis=1, keepdims=True)
    some = (most - now.in_flight) / np.maximum(most, 1)
    return np.where(now.in_flight == 0, 1.0, some)


def effective_load(now: Seen) -> Floats:
    return now.waiting + now.running + now.in_flight


SCORES: list[tuple[Any, Callable[[Seen], Floats]]] = [
    (router.QueueDepth(), lambda now: fewest(now.waiting)),
    (router.QueueDepth(load="effective"), lambda now: fewest(effective_load(now))),
    (router.KvUtilization(), lambda now: 1 - now.kv_utilization),
    (router.LoadBalance(), lambda now: 1 / (1 + effective_load(now))),
    (router.ActiveRequests(), fewest_in_flight),
    (router.RunningRequests(), lambda now: fewest(now.running)),
    (router.LoadAware(), lambda now: 0.5 * (1 - np.minimum(now.waiting, 128) / 128)),
    (router.VllmDp(), lambda now: fewest(4 * now.waiting + now.running)),
]
NAMES_OF_SCORES = [
    f"{scorer.kind}-{scorer.load}" if scorer.kind == "queue_depth" else scorer.kind
    for scorer, _ in SCORES
]


@pytest.mark.parametrize("transport", ["live", {"kind": "on_read", "period_s": 0.3}])
@pytest.mark.parametrize(("scorer", "formula"), SCORES, ids=NAMES_OF_SCORES)
def test_score_is_that_of_the_formula(
    scorer: Any, formula: Callable[[Seen], Floats], transport: Any
) -> None:
    result, now = watched(weighted(scorer), signals=transport)
    assert (now.score == formula(now)).all()
    assert len(np.unique(now.score)) > 2
    assert now.waiting.max() > 3
    # The best score, and the first of equally good instances.
    assert chosen(result) == now.instance == now.score.argmax(axis=1).tolist()


def test_load_aware_ends_at_128_waiting_requests() -> None:
    one_by_one = {"max_num_seqs": 1, "latency": steady(1000)}
    _, now = watched(
        weighted("load_aware"),
        one_by_one,
        arrival_ns=list(range(0, 2000, 10)),
        input_tokens=1,
        output_tokens=1,
    )
    assert now.waiting.max() > 150
    assert (now.score[now.waiting >= 128] == 0).all()
    assert now.score[now.waiting == 64] == 0.25
    assert now.score[0] == 0.5


def test_prefix_affinity_is_the_share_of_full_blocks_sent_there() -> None:
    _, now = watched(
        weighted("prefix_affinity"),
        {"count": 2},
        arrival_ns=APART[:6],
        # 6 full blocks, 6 (5 shared ones are not full), 4, less than one, one that is another's, 5
        input_tokens=[100, 105, 64, 15, 100, 80],
        output_tokens=1,
        prefixes=[("A", 64), ("A", 64), ("A", 64), ("A", 15), ("B", 64), ("A", 64)],
    )
    assert now.score.tolist() == [[0, 0], [4 / 6, 0], [1, 0], [0, 0], [0, 0], [4 / 5, 0]]


def test_prefix_affinity_forgets_beyond_its_capacity() -> None:
    def last_score(capacity: int) -> float:
        _, now = watched(
            weighted("prefix_affinity"),
            {"count": 1},
            arrival_ns=APART[:3],
            input_tokens=[64, 160, 64],
            output_tokens=1,
            prefixes=[("A", 64), ("", 0), ("A", 64)],
            prefix_index={"capacity_blocks": capacity},
        )
        return float(now.score[-1, 0])

    # 4 blocks of A, then 10 of somebody else's. A without its first block is of no use.
    assert [last_score(capacity) for capacity in (10, 13, 14)] == [0, 0, 1]


def test_prefix_affinity_counts_blocks_of_its_own_size() -> None:
    _, now = watched(
        weighted("prefix_affinity"),
        {"count": 1},
        arrival_ns=APART[:2],
        input_tokens=100,
        output_tokens=1,
        prefixes=[("A", 70)] * 2,
        prefix_index={"block_size_tokens": 30},
    )
    assert now.score[:, 0].tolist() == [0, 2 / 3]


def test_precise_prefix_cache_knows_what_the_memory_lost() -> None:
    # The third request takes all ten blocks of instance 0.
    settings_: dict[str, Any] = {
        "instances": [{"num_kv_blocks": 10}, {"num_kv_blocks": 1000}],
        "arrival_ns": APART[:4],
        "input_tokens": [65, 65, 159, 65],
        "output_tokens": 1,
        "prefixes": [("A", 64), ("A", 64), ("", 0), ("A", 64)],
    }
    _, precise = watched(weighted("precise_prefix_cache"), **settings_)
    assert precise.score.tolist() == [[1, 1], [1, 0], [1, 1], [1, 1]]
    # The gateway's own record does not notice.
    _, recorded = watched(weighted("prefix_affinity"), **settings_)
    assert recorded.score.tolist() == [[0, 0], [1, 0], [0, 0], [1, 0]]


def test_cold_prompts_go_where_the_last_one_was_longest_ago() -> None:
    # B comes back while it is cached: all get one half, and nobody's turn is spent.
    _, now = watched(
        weighted("no_hit_lru"),
        {"count": 3},
        arrival_ns=APART[:7],
        input_tokens=100,
        output_tokens=1,
        prefixes=[("", 0), ("B", 64), ("B", 64), ("", 0), ("", 0), ("", 0), ("B", 64)],
    )
    half = [0.5] * 3
    assert now.score.tolist() == [
        [1, 0.5, 0],
        [0, 1, 0.5],
        half,
        [0.5, 0, 1],
        [1, 0.5, 0],
        [0, 1, 0.5],
        half,
    ]
    assert now.instance == [0, 1, 0, 2, 0, 1, 0]


# --- weighted: the sum ----------------------------------------------------------------------------

THREE = (
    router.LoadBalance(weight=3),
    router.KvUtilization(weight=0.7),
    router.ActiveRequests(weight=1.1),
)


def test_scores_are_added_in_the_listed_order() -> None:
    def added(now: Seen, order: Sequence[int]) -> Floats:
        columns = [1 / (1 + effective_load(now)), 1 - now.kv_utilization, fewest_in_flight(now)]
        total = sum(THREE[i].weight for i in order)
        result = np.zeros_like(now.score)
        for i in order:
            result += columns[i] * (THREE[i].weight / total)
        return result

    _, now = watched(weighted(*THREE))
    assert (now.score == added(now, [0, 1, 2])).all()
    assert (now.score != added(now, [2, 1, 0])).any()
    assert now.score == pytest.approx(added(now, [2, 1, 0]))


def test_weights_are_relative() -> None:
    _, single = watched(weighted(*THREE))
    for factor in (2, 0.25):
        scaled = [scorer.replace(weight=factor * scorer.weight) for scorer in THREE]
        _, now = watched(weighted(*scaled))
        assert now.instance == single.instance
        assert (now.score == single.score).all()
    other = THREE[0].replace(weight=0.1)
    assert watched(weighted(other, *THREE[1:]))[1].instance != single.instance


def test_weight_of_a_single_scorer_is_without_effect() -> None:
    scores = [watched(weighted(router.LoadBalance(weight=w)))[1].score for w in (0.3, 1, 77)]
    assert (scores[0] == scores[1]).all()
    assert (scores[0] == scores[2]).all()


ANY_SCORER = [
    "prefix_affinity",
    "precise_prefix_cache",
    "queue_depth",
    "kv_utilization",
    "load_balance",
    "active_requests",
    "running_requests",
    "load_aware",
    "no_hit_lru",
    "vllm_dp",
]


@pytest.mark.parametrize("scorer", ANY_SCORER)
def test_every_score_is_between_0_and_1(scorer: str) -> None:
    prefixes = [("AB"[row % 2], 16) for row in range(150)]
    _, now = watched(weighted(scorer), prefixes=prefixes)
    assert now.score.min() >= 0
    assert now.score.max() <= 1


def test_scorers_must_differ() -> None:
    message = r"router\.scorers\[2\]\.kind = 'queue_depth': must not occur twice"
    with pytest.raises(ConfigError, match=message):
        Simulation(
            router={
                "kind": "weighted",
                "scorers": [
                    "queue_depth",
                    "load_balance",
                    {"kind": "queue_depth", "load": "effective"},
                ],
            }
        )


def test_there_must_be_a_scorer() -> None:
    message = r"router\.scorers = \[\]: must hold at least one scorer"
    with pytest.raises(ConfigError, match=message):
        Simulation(router={"kind": "weighted", "scorers": []})
    with pytest.raises(ConfigError, match="must hold at least one scorer"):
        weighted()


@pytest.mark.parametrize("weight", [0, -1, math.inf, math.nan])
def test_weights_must_be_positive(weight: float) -> None:
    with pytest.raises(ConfigError, match="weight"):
        Simulation(router=weighted(router.QueueDepth(weight=weight)))


def test_unknown_scorers_are_refused() -> None:
    with pytest.raises(ConfigError, match="scorers"):
        Simulation(router={"kind": "weighted", "scorers": ["queue_dept"]})


# --- weighted: pickers ----------------------------------------------------------------------------

MANY: dict[str, Any] = {
    "arrival_ns": np.cumsum([(row * 7919) % 40 * MS for row in range(3000)]).tolist(),
    "input_tokens": 16,
    "output_tokens": [1 + (row * 101) % 60 for row in range(3000)],
}


def softmax(scores: Floats, temperature: float) -> Floats:
    weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares


def in_proportion(scores: Floats) -> Floats:
    sums = scores.sum(axis=1, keepdims=True)
    even = np.full_like(scores, 1 / scores.shape[1])
    return np.where(sums > 0, scores / np.where(sums > 0, sums, 1), even)


def better_of_two(scores: Floats) -> Floats:
    """Every instance meets every other one equally often; a tie is anybody's."""
    n = scores.shape[1]
    wins = (scores[:, :, None] > scores[:, None, :]).sum(axis=2)
    ties = (scores[:, :, None] == scores[:, None, :]).sum(axis=2) - 1
    shares: Floats = (wins + ties / 2) / (n * (n - 1) / 2)
    return shares


PICKERS: list[tuple[Any, Callable[[Floats], Floats]]] = [
    (router.Random(), lambda scores: np.full_like(scores, 1 / scores.shape[1])),
    (router.WeightedRandom(), in_proportion),
    (router.Softmax(temperature=0.1), lambda scores: softmax(scores, 0.1)),
    (router.Softmax(temperature=0.5), lambda scores: softmax(scores, 0.5)),
    (router.PowerOfTwo(), better_of_two),
]


@pytest.mark.parametrize("scorer", ["load_balance", "active_requests"])
@pytest.mark.parametrize(
    ("picker", "shares"), PICKERS, ids=["random", "weighted", "softmax", "softmax_wide", "two"]
)
def test_picker_takes_everyone_as_often_as_it_says(
    picker: Any, shares: Callable[[Floats], Floats], scorer: str
) -> None:
    """Given the scores of every decision, the picks are independent."""
    _, now = watched(weighted(scorer, picker=picker), seed=3, **MANY)
    expected = shares(now.score)
    taken = np.eye(expected.shape[1])[now.instance]
    assert (expected[taken > 0] > 0).all()
    sigma = np.sqrt((expected * (1 - expected)).sum(axis=0))
    assert (np.abs((taken - expected).sum(axis=0)) < 4 * sigma).all()
    # The same with regard to the better half of the decisions' candidates.
    good = expected > 1 / expected.shape[1] + 1e-9
    if good.any():
        sigma_good = np.sqrt((expected * (1 - expected))[good].sum())
        assert abs((taken - expected)[good].sum()) < 4 * sigma_good
    assert len(np.unique(now.score)) > 3


def test_power_of_two_never_takes_the_worst() -> None:
    _, now = watched(weighted("load_balance", picker="power_of_two"), seed=5, **MANY)
    own = now.score[np.arange(len(now.instance)), now.instance]
    is_alone_at_the_end = (now.score == now.score.min(axis=1, keepdims=True)).sum(axis=1) == 1
    assert is_alone_at_the_end.sum() > 1000
    assert (own > now.score.min(axis=1))[is_alone_at_the_end].all()


def test_power_of_two_of_two_is_the_best() -> None:
    two = UNEQUAL[:2]
    _, now = watched(weighted("load_balance", picker="power_of_two"), two)
    own = now.score[np.arange(len(now.instance)), now.instance]
    assert (own == now.score.max(axis=1)).all()


@pytest.mark.parametrize("picker", ["best", "random", "weighted_random", "softmax", "power_of_two"])
def test_single_instance_is_everyones_pick(picker: str) -> None:
    result = run(APART, router=weighted("queue_depth", picker=picker), instances={"count": 1})
    assert set(chosen(result)) == {0}


def test_very_cold_softmax_takes_the_best() -> None:
    cold = weighted("load_balance", picker=router.Softmax(temperature=1e-9))
    _, now = watched(cold, **MANY)
    own = now.score[np.arange(len(now.instance)), now.instance]
    assert (own == now.score.max(axis=1)).all()


def test_very_hot_softmax_is_even() -> None:
    hot = weighted("load_balance", picker=router.Softmax(temperature=1e6))
    _, now = watched(hot, **MANY)
    counts = np.bincount(now.instance, minlength=4)
    assert np.abs(counts - 750).max() < 4 * math.sqrt(3000 * 0.25 * 0.75)
    assert len(np.unique(now.score)) > 3


def test_best_resolves_ties() -> None:
    first = run(APART, router=weighted("queue_depth", picker=router.Best(ties="first")), **FOUR)
    assert set(chosen(first)) == {0}
    tied = weighted("queue_depth", picker=router.Best(ties="random"))
    assert chosen(run(APART, router=tied, seed=8, **FOUR)) == drawn(8, range(60))


def test_best_draws_among_the_best_alone() -> None:
    tied = weighted("active_requests", picker=router.Best(ties="random"))
    _, now = watched(tied, seed=8)
    several = 0
    for row, (scores, found) in enumerate(zip(now.score, now.instance, strict=True)):
        best = np.flatnonzero(scores == scores.max()).tolist()
        draws = _core.sim.Draws(seed=8, stream=ROUTER_STREAM, entity=row)
        assert found == (best[0] if len(best) == 1 else best[draws.below(len(best))])
        several += len(best) > 1
    assert 10 < several < 140


def test_random_is_one_draw_of_the_request() -> None:
    result = run(APART, router=weighted("queue_depth", picker="random"), seed=4, **FOUR)
    assert chosen(result) == drawn(4, range(60))


def test_pickers_leave_the_workload_alone() -> None:
    """Common random numbers: all policies meet the same requests."""
    client = workload.Client(
        input_tokens=workload.Exponential(mean_tokens=300),
        output_tokens=workload.Exponential(mean_tokens=40),
    )
    requests = workload.Synthetic(requests_per_s=40, num_requests=300, clients=[client])

    def offered(picker: str) -> tuple[list[Any], list[int]]:
        policy = weighted("load_balance", picker=picker)
        result = simulate(Simulation(workload=requests, router=policy, **FOUR), 6)
        columns = ("arrival_s", "input_tokens", "output_tokens")
        return [result.requests[name].tolist() for name in columns], chosen(result)

    runs = [
        offered(picker)
        for picker in ("best", "random", "weighted_random", "softmax", "power_of_two")
    ]
    assert all(columns == runs[0][0] for columns, _ in runs)
    assert len({tuple(instances) for _, instances in runs}) == len(runs)


# --- weighted: filters ----------------------------------------------------------------------------


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
    """What one decision saw of some of the instances."""
    names = ("waiting", "running", "in_flight", "kv_utilization", "age_s", "score")
    columns = {name: getattr(now, name)[row : row + 1, kept] for name in names}
    return Seen(**columns, instance=[now.instance[row]])


def kept_by(
    filters: Sequence[Any],
    now: Seen,
    share: Floats,
    stale_after_s: float,
    draws: _core.sim.Draws,
) -> NDArray[np.bool_]:
    """Which instances a decision's filters leave; `now` is that decision alone."""
    kept: NDArray[np.bool_] = ~np.isnan(now.score[0])
    # A value that was never measured is as good as a stale one.
    is_stale = ~(np.rint(now.age_s[0] * 1e9) < stale_after_s * 1e9)
    for one in filters:
        if isinstance(one, router.PrefixCacheAffinity):
            if one.exploration > 0 and draws.uniform() < one.exploration:
                continue
            left = kept & (share >= one.threshold)
        else:
            factor = 1 + one.headroom
            left = kept & ~is_stale
            left &= now.waiting[0] < one.queue_depth_threshold * factor
            left &= now.kv_utilization[0] < one.kv_utilization_threshold * factor
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
    scorer=st.sampled_from(range(len(SCORES))),
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
    scorer: int,
    picker: Any,
    transport: Any,
    groups: list[str],
    seed: int,
) -> None:
    """The scorers look at what is left alone; the rest stands in the log with minus infinity."""
    prefixes = [("", 0) if g == " " else (g, 64 * (1 + "ABCD".index(g))) for g in groups]
    inputs = [16 + tokens + (row * 389) % 300 for row, (_, tokens) in enumerate(prefixes)]
    policy, formula = SCORES[scorer]
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
        expected[kept] = formula(of_some(now, row, kept))[0]
        assert np.array_equal(now.score[row], expected, equal_nan=True)
        choice = np.flatnonzero(kept)[picked(picker, expected[kept].tolist(), draws)]
        assert now.instance[row] == choice
        assert result.decisions["regret"][row] == expected[kept].max() - expected[choice]


def test_affinity_filter_holds_from_its_threshold_on() -> None:
    def instances(threshold: float) -> list[int]:
        """4 of the second prompt's 5 full blocks were sent to instance 0, which is still busy."""
        result = run(
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
    result = run(
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
    explores = [int(one.uniform() < 0.1) for one in draws][1::2]
    assert chosen(result)[0::2] == [0] * pairs
    assert chosen(result)[1::2] == explores
    assert abs(sum(explores) - 0.1 * pairs) < 4 * math.sqrt(0.09 * pairs)


@pytest.mark.parametrize(("threshold", "headroom", "second"), [(1, 0, 1), (1, 0.5, 0), (2, 0, 0)])
def test_queue_at_its_threshold_is_too_long(threshold: float, headroom: float, second: int) -> None:
    """One request waits at instance 0, which the scorer likes best; none does at instance 1."""
    result = run(
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
        result = run(
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


# --- fleets of unequal servers --------------------------------------------------------------------


def test_groups_are_numbered_in_order_and_keep_their_speed() -> None:
    groups = [
        instance.InstanceGroup(count=2, latency=steady(5, entry_ms=1)),
        instance.InstanceGroup(latency=steady(70, entry_ms=30)),
        instance.InstanceGroup(count=2, latency=steady(11)),
    ]
    result = run(APART[:10], output_tokens=3, instances=groups)
    assert chosen(result) == [0, 1, 2, 3, 4] * 2
    assert ns(result.requests["ttft_s"])[:5] == [6 * MS, 6 * MS, 100 * MS, 11 * MS, 11 * MS]
    assert ns(result.requests["itl_mean_s"])[:5] == [5 * MS, 5 * MS, 70 * MS, 11 * MS, 11 * MS]
    assert len(result.instances) == 5


def test_memory_is_that_of_the_group() -> None:
    result = run(
        APART[:4],
        100,
        instances=[{"num_kv_blocks": 6}, {"num_kv_blocks": 7}],
    )
    assert result.requests["reason"].tolist() == ["unservable", "", "unservable", ""]
    assert [one["refused"] for one in result.instances] == [2, 0]
    assert math.ceil((100 + 1) / 16) == 7


def test_scheduler_is_that_of_the_group() -> None:
    # One prompt at a time; the long one waits longest only where the shortest goes first.
    result = run(
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
