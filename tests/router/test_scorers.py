"""Scorers: the formula of each, and their sum in a weighted router."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.routing import APART, Seen, chosen, effective_load, fewest_in_flight, watched, weighted
from support.runs import steady
from support.specimens import examples, rules

from spillway import ConfigError, Simulation, router, simulate, testing, workload
from spillway.testing import InstanceSignals, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@pytest.mark.parametrize("transport", ["live", {"kind": "on_read", "period_s": 0.3}])
@pytest.mark.parametrize(
    ("scorer", "formula"), rules("Weighted.scorers"), ids=lambda policy: getattr(policy, "kind", "")
)
def test_score_is_that_of_the_formula(
    scorer: Any, formula: Callable[[Any, Seen], Floats], transport: Any
) -> None:
    result, now = watched(weighted(scorer), signals=transport)
    assert (now.score == formula(scorer, now)).all()
    assert len(np.unique(now.score)) > 2
    assert now.waiting.max() > 3
    # The best score, and the first of equally good instances.
    assert chosen(result) == now.instance == now.score.argmax(axis=1).tolist()


def test_load_aware_ends_at_128_waiting_requests() -> None:
    _, now = watched(
        weighted("load_aware"),
        {"max_num_seqs": 1, "latency": steady(1000)},
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

    # 4 blocks of A, then 10 of another prompt. A without its first block is of no use.
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
    # B returns while it is cached: all get one half, and no instance's turn is used up.
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


@pytest.mark.parametrize("scorer", examples("Weighted.scorers"), ids=lambda policy: policy.kind)
def test_every_score_is_between_0_and_1(scorer: Any) -> None:
    _, now = watched(weighted(scorer), prefixes=[("AB"[row % 2], 16) for row in range(150)])
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


# --- what instances report ------------------------------------------------------------------------


def test_free_blocks_are_scaled_and_the_hit_rate_is_a_share() -> None:
    reported = [
        InstanceSignals(free_blocks=10, prefix_hits=1, prefix_lookups=4),
        InstanceSignals(free_blocks=40, prefix_hits=0, prefix_lookups=0),
        InstanceSignals(free_blocks=20, prefix_hits=9, prefix_lookups=9),
    ]
    free = testing.build(router.FreeKvBlocks()).decide(Request(), instances=reported)
    assert free == (0, 1, pytest.approx(1 / 3))
    hits = testing.build(router.CacheHitRate()).decide(Request(), instances=reported)
    assert hits == (0.25, 0, 1)


def test_reported_figures_are_those_of_the_instances() -> None:
    """The second of two equal prompts finds its blocks; the instance of the first has less room."""
    for scorer, scores in (("cache_hit_rate", [0, 0]), ("free_kv_blocks", [1, 1])):
        _, now = watched(
            weighted(scorer),
            {"count": 2},
            arrival_ns=APART[:3],
            input_tokens=64,
            output_tokens=1,
            prefixes=[("A", 64)] * 3,
        )
        assert now.score[0].tolist() == scores
        assert now.score[2, 0] > 0 if scorer == "cache_hit_rate" else now.score[2, 0] == 1


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_stays_until_its_time_is_over() -> None:
    scorer = testing.build(router.SessionAffinity(ttl_s=10))
    idle = [InstanceSignals()] * 3

    def asked(group: str | None, now_s: float, to: int | None = None) -> tuple[float, ...]:
        tokens = 0 if group is None else 16
        request = Request(input_tokens=32, prefix_group=group, prefix_tokens=tokens)
        scores = scorer.decide(request, instances=idle, now_s=now_s)
        if to is not None:
            scorer.learn(request, instance=to)
        return scores

    assert asked("A", 0, to=1) == (0, 0, 0)
    assert asked("A", 5, to=1) == (0, 1, 0)
    assert asked("B", 6, to=2) == (0, 0, 0)
    assert asked("A", 14.9) == (0, 1, 0)  # of the last request, not of the first
    assert asked("A", 15) == (0, 0, 0)
    assert asked("B", 15.9, to=0) == (0, 0, 1)
    assert asked("B", 15.95) == (1, 0, 0)
    assert asked(None, 16, to=1) == asked(None, 16) == (0, 0, 0)


def test_sessions_below_a_system_prompt_are_told_apart_by_their_second_segment() -> None:
    """Two conversations of four turns each of three users, below one system prompt."""
    users = [
        workload.Client(
            name=tenant,
            tenant=tenant,
            start_s=0.01 * i,
            num_requests=8,
            arrivals=workload.ClosedLoop(users=1, turns=4, think_time_s=0.05),
            prefix_group="system",
            prefix_tokens=64,
        )
        for i, tenant in enumerate("abc")
    ]

    def instances(segments: int) -> dict[str, list[int]]:
        affinity = router.SessionAffinity(weight=100, session_segments=segments)
        simulation = Simulation(
            workload=workload.Synthetic(clients=users),
            instances={"count": 3, "latency": steady(10)},
            router=router.Weighted(scorers=[affinity, "active_requests"]),
        )
        requests = simulate(simulation).requests
        return {user: requests["instance"][requests["tenant"] == user].tolist() for user in "abc"}

    apart = instances(2)
    for taken in apart.values():
        assert len(set(taken[:4])) == len(set(taken[4:])) == 1
    assert {taken[0] for taken in apart.values()} == {0, 1, 2}
    together = instances(1)
    assert {i for taken in together.values() for i in taken} == {0}
