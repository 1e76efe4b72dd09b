"""Routing by Dynamo's cost, against a model that reads the outcome of every request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import MS, ROUTER_STREAM, instants_ns, ns, run_ns, steady

from spillway import (
    ConfigError,
    Result,
    Simulation,
    _core,
    instance,
    router,
    simulate,
    testing,
    trace,
)
from spillway.config.profiles import BLIS_SERVER
from spillway.testing import InstanceSignals, Request

NEVER = 2**62


@dataclass
class Load:
    """A request as the router charges it; the ends are the instants from which it does not."""

    chosen: int  # position among the ranks of all instances
    uncached: float
    blocks: float
    end_of_prefill: int
    end: int


def costs(
    cost: router.KvCost, blocks: float, overlaps: list[int], loads: list[Load], now: int
) -> list[float]:
    """The cost of every rank, for a prompt with these blocks and overlaps."""
    here = [[load for load in loads if load.chosen == i] for i in range(len(overlaps))]
    prefill = [sum(load.uncached for load in queue if now < load.end_of_prefill) for queue in here]
    held = [sum(load.blocks for load in queue if now < load.end) for queue in here]
    number = [sum(now < load.end for load in queue) for queue in here]
    all_costs = []
    for i, overlap in enumerate(overlaps):
        credit = cost.overlap_credit
        if cost.overlap_decay > 0:
            credit /= 1 + cost.overlap_decay * (prefill[i] - min(prefill)) / max(blocks, 1)
        to_compute = cost.prefill_load_scale * max(prefill[i] + blocks - credit * overlap, 0)
        to_hold = held[i] + blocks
        if not cost.track_prefill:
            counted = cost.request_weight * number[i]
            all_costs.append(max(to_hold + counted - cost.overlap_credit * overlap, 0))
        elif cost.rule == "product":
            all_costs.append(to_compute * (to_hold + 1))
        else:
            all_costs.append(to_compute + to_hold + cost.request_weight * number[i])
    return all_costs


def pick(costs_: list[float], temperature: float, draws: _core.sim.Draws) -> int:
    if temperature == 0:
        best = [i for i, cost in enumerate(costs_) if cost == min(costs_)]
        return best[draws.below(len(best))] if len(best) > 1 else best[0]
    width = max(costs_) - min(costs_) or 1.0
    weights = [math.exp(((min(costs_) - cost) / width) / temperature) for cost in costs_]
    left = draws.uniform() * sum(weights)
    for i, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return i
    return len(costs_) - 1


@dataclass
class Case:
    cost: router.KvCost
    arrival_ns: list[int]
    input_tokens: list[int]
    output_tokens: list[int]
    prefixes: list[tuple[str, int]]
    instances: list[instance.InstanceGroup]
    steps_ns: list[int]  # of every instance, without what prompts add
    entry_ns: int
    block_size: int
    gateway: dict[str, Any]
    seed: int

    def simulation(self) -> Simulation:
        return Simulation(
            workload=trace(
                arrival_s=np.array(self.arrival_ns) / 1e9,
                input_tokens=self.input_tokens,
                output_tokens=self.output_tokens,
                prefix_group=[group for group, _ in self.prefixes],
                prefix_tokens=[tokens for _, tokens in self.prefixes],
            ).replace(empty_outputs="served"),
            router=self.cost,
            instances=self.instances,
            gateway=self.gateway,
            prefix_index={"block_size_tokens": self.block_size},
            metrics={"traced_candidates": len(self.ranks)},
        )

    @property
    def ranks(self) -> list[tuple[int, int]]:
        """Of all instances, as (instance, rank)."""
        return [
            (i, rank)
            for i, group in enumerate(self.instances)
            for rank in range(group.data_parallel_size)
        ]

    def overlap(self, row: int, routed_there: list[int], scheduled: list[int], now: int) -> int:
        """Full blocks of the shared beginning that a rank has, by the word of `overlap`.

        Memory is plenty and no prompt is longer than a step's budget: a rank has a prompt's
        blocks from the instant on at which its step starts.
        """
        group, tokens = self.prefixes[row]
        others = [row for row in routed_there if self.prefixes[row] == (group, tokens)]
        if self.cost.overlap == "kv_events":
            others = [row for row in others if scheduled[row] < now]
        return tokens // self.block_size if group and others else 0


def assert_equals_model(case: Case) -> Result:
    result = simulate(case.simulation(), case.seed)
    log, requests = result.decisions, result.requests
    spans = ("ttft_s", "e2e_s", "scheduling_delay_s")
    first, end, scheduled = (instants_ns(result, span, NEVER) for span in spans)
    loads: list[Load] = []
    routed: list[list[int]] = [[] for _ in case.ranks]
    for at, row in enumerate(log["row"].tolist()):
        now = ns(log["time_s"][at : at + 1])[0]
        overlaps = [case.overlap(row, there, scheduled, now) for there in routed]
        blocks = math.ceil(case.input_tokens[row] / case.block_size)
        expected = costs(case.cost, blocks, overlaps, loads, now)
        rated = [*zip(log["candidate_instance"][at], log["candidate_rank"][at], strict=True)]
        order = sorted(range(len(rated)), key=lambda i: rated[i])
        assert [rated[i] for i in order] == case.ranks
        assert (-log["candidate_score"][at][order]).tolist() == expected
        draws = _core.sim.Draws(seed=case.seed, stream=ROUTER_STREAM, entity=row)
        chosen = pick(expected, case.cost.temperature, draws)
        assert (log["instance"][at], log["rank"][at]) == case.ranks[chosen]
        assert (requests["instance"][row], requests["rank"][row]) == case.ranks[chosen]
        assert log["regret"][at] == expected[chosen] - min(expected)
        if requests["outcome"][row] == "rejected":
            over = now + case.entry_ns + 1  # where it is refused, routings of that instant precede
        elif case.instances[case.ranks[chosen][0]].completion == "step_start":
            over = end[row] - case.steps_ns[case.ranks[chosen][0]] + 1  # the same
        else:
            over = end[row]
        loads.append(
            Load(chosen, max(blocks - overlaps[chosen], 0), blocks, min(first[row], over), over)
        )
        routed[chosen].append(row)
    return result


GROUPS = {" ": ("", 0), "A": ("A", 16), "B": ("B", 100), "C": ("C", 640), "D": ("D", 7)}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(2, 40))
    count = draw(st.integers(1, 4))
    gaps = st.sampled_from([0, 5 * MS, 10 * MS]) | st.integers(0, 40 * MS)
    prefixes = [GROUPS[draw(st.sampled_from(" AABBCD"))] for _ in range(n)]
    unshared = draw(st.lists(st.integers(1, 400), min_size=n, max_size=n))
    completion: Any = draw(st.sampled_from(["step_end", "step_end", "step_start"]))
    steps_ms = [draw(st.sampled_from([2, 5, 30])) for _ in range(count)]
    entry_ms = draw(st.sampled_from([0, 5, 12]))
    block_size = draw(st.sampled_from([16, 32]))
    gateways: list[dict[str, Any]] = [{}, {"routing_latency_s": 0.005}]
    gateways += [{"admission": {"kind": "token_bucket", "capacity_tokens": 2000}}]
    # A refusal frees a permit within its instant, so it may precede or follow a routing.
    longest = draw(st.sampled_from([0, 0, 700]))
    if longest == 0:
        gateways += [{"limit": {"kind": "fixed", "max_in_flight": 5}}]
    return Case(
        cost=router.KvCost(
            overlap=draw(st.sampled_from(["kv_events", "sent"])),
            rule=draw(st.sampled_from(["sum", "product"])),
            overlap_credit=draw(st.sampled_from([0, 0.5, 1, 1.7])),
            overlap_decay=draw(st.sampled_from([0, 0.3, 2])),
            prefill_load_scale=draw(st.sampled_from([0, 0.75, 1, 3])),
            request_weight=draw(st.sampled_from([0, 1.5, 40])),
            temperature=draw(st.sampled_from([0, 0, 0.2, 5])),
            track_prefill=draw(st.sampled_from([True, True, False])),
        ),
        arrival_ns=np.cumsum([draw(gaps) for _ in range(n)]).tolist(),
        input_tokens=[tokens + more for (_, tokens), more in zip(prefixes, unshared, strict=True)],
        output_tokens=draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)),
        prefixes=prefixes,
        instances=[
            BLIS_SERVER.replace(
                data_parallel_size=draw(st.sampled_from([1, 1, 2, 3])),
                max_num_seqs=draw(st.sampled_from([1, 2, 64])),
                max_num_batched_tokens=100_000,
                block_size_tokens=block_size,
                max_model_len=draw(st.sampled_from([0, longest])),
                kv_cache={"prefix_caching": True},
                completion=completion,
                latency=instance.Linear(
                    alpha0_us=1000 * entry_ms,
                    alpha_input_us=0,
                    alpha_output_us=0,
                    beta0_us=1000 * step_ms,
                    # Where effects precede the end of a step, its duration must be known.
                    beta_prefill_us=0 if completion == "step_start" else 30,
                    beta_decode_us=0,
                ),
            )
            for step_ms in steps_ms
        ],
        steps_ns=[step_ms * MS for step_ms in steps_ms],
        entry_ns=entry_ms * MS,
        block_size=block_size,
        gateway=draw(st.sampled_from(gateways)),
        seed=draw(st.integers(0, 2**64 - 1)),
    )


@given(case=cases())
def test_cost_and_choice_equal_the_model(case: Case) -> None:
    assert_equals_model(case)


@given(case=cases())
def test_costs_do_not_depend_on_the_stepping(case: Case) -> None:
    result = simulate(case.simulation(), case.seed)
    plain = simulate(case.simulation(), case.seed, reference=True)
    assert result.digest == plain.digest
    assert (result.decisions["candidate_score"] == plain.decisions["candidate_score"]).all()


# --- by hand --------------------------------------------------------------------------------------

SLOW = steady(100)


def run(
    arrival_ms: list[int],
    input_tokens: list[int],
    output_tokens: list[int],
    *,
    groups: str = "",
    seed: int = 0,
    count: int = 2,
    group: Any = None,
    index: Any = None,
    **cost: Any,
) -> Result:
    """Prompts of a group share 64 tokens; `group` has the settings of all instances.

    `index` has those of the gateway's record of prompts.
    """
    names = [group.strip() for group in groups]
    return run_ns(
        [MS * at for at in arrival_ms],
        input_tokens,
        output_tokens,
        prefixes=[(name, 64 if name else 0) for name in names] if names else None,
        seed=seed,
        router=router.KvCost(**cost),
        instances=BLIS_SERVER.replace(**{"count": count, "latency": SLOW} | (group or {})),
        metrics={"traced_candidates": count},
        prefix_index=index or {},
    )


def costs_of(result: Result) -> list[list[float]]:
    """Per decision, in order of the instances."""
    log = result.decisions
    order = np.argsort(log["candidate_instance"], axis=1)
    return (-np.take_along_axis(log["candidate_score"], order, 1)).tolist()


def test_prompt_counts_twice_until_its_first_token_and_once_until_its_end() -> None:
    """10 blocks arrive at once; the first token comes after 100 ms, the last one after 300."""
    result = run([0, 99, 100, 299, 300], [160, 1, 1, 1, 1], [3, 0, 0, 0, 0], count=1)
    small = 2  # one block of its own, to be computed and to be held
    # At 99 ms one joins, at 100 another; both have their first and last token at 200 ms.
    assert costs_of(result) == [[20], [20 + small], [10 + 2 + small], [10 + small], [2 + small]]


def test_blocks_are_rounded_up() -> None:
    result = run([0] * 4, [1, 16, 17, 32], [1] * 4, count=4, request_weight=0)
    assert [min(costs) for costs in costs_of(result)] == [2, 2, 4, 4]


def test_a_preempted_request_is_charged_for_its_first_token_once() -> None:
    """The request computes its prompt again, which the router does not see."""
    result = run(
        [0, 1, 1000],
        [64, 64, 16],
        [100, 100, 1],
        count=1,
        group={"num_kv_blocks": 12},
        request_weight=0,
    )
    assert sum(server["preemptions"] for server in result.instances) > 0
    assert result.requests["ttft_s"].tolist()[:2] == [0.1, 0.199]
    assert costs_of(result)[2] == [4 + 4 + 2]


def test_what_is_sent_is_believed_before_it_is_there() -> None:
    """The second prompt comes before the first one's step; 5 blocks, of which 4 are shared."""
    group = {"latency": SLOW.replace(alpha0_us=50_000)}
    sent, by_events = (
        run([0, 10], [80, 80], [1, 1], groups="AA", count=1, group=group, overlap=overlap)
        for overlap in ("sent", "kv_events")
    )
    assert costs_of(sent) == [[10], [5 + 1 + 10]]
    assert costs_of(by_events) == [[10], [5 + 5 + 10]]


def test_blocks_of_a_step_are_reported_after_its_start() -> None:
    """The second prompt comes in the instant in which the first one's step starts."""
    result = run([0, 0, 1], [80] * 3, [1] * 3, groups="AAA", count=1, group={"max_num_seqs": 1})
    assert costs_of(result) == [[10], [20], [11 + 15]]


def test_memory_reports_evicted_blocks() -> None:
    """A long prompt takes all blocks, and the next one of the group is cold again.

    The record of what was sent holds more blocks than the memory.
    """
    settings = {"count": 1, "group": {"num_kv_blocks": 10}, "index": {"capacity_blocks": 1000}}
    at_ms, tokens = [0, 1000, 2000, 3000], [80, 80, 159, 80]
    sent, by_events = (
        run(at_ms, tokens, [1] * 4, groups="AA A", overlap=overlap, **settings)
        for overlap in ("sent", "kv_events")
    )
    assert costs_of(sent) == [[10], [1 + 5], [20], [1 + 5]]
    assert costs_of(by_events) == [[10], [1 + 5], [20], [5 + 5]]


def test_without_prefix_caching_events_report_nothing() -> None:
    group = {"kv_cache": {"prefix_caching": False}}
    result = run([0, 1000], [80, 80], [1, 1], groups="AA", group=group, overlap="kv_events")
    assert costs_of(result) == [[10, 10], [10, 10]]


def test_credit_cannot_make_a_prompt_cost_less_than_nothing() -> None:
    result = run([0, 1000], [80, 80], [1, 1], groups="AA", count=1, overlap_credit=1000)
    assert costs_of(result)[1] == [5]


def test_decay_takes_credit_from_the_instance_that_is_behind() -> None:
    """24 blocks ahead of the other: of 4 blocks, a request of 8 gets 4 / (1 + 0.5 * 24 / 8)."""
    result = run(
        [0, 1000, 1001], [64, 448, 128], [1, 1, 1], groups="AAA", overlap_decay=0.5, overlap="sent"
    )
    first, second = result.requests["instance"].tolist()[:2]
    assert first == second
    here = 24 + 8 - 4 / (1 + 0.5 * 24 / 8) + 28 + 8
    assert costs_of(result)[2][first] == pytest.approx(here, abs=1e-12)
    assert costs_of(result)[2][1 - first] == 16


def test_no_load_at_all_is_a_tie_of_all_instances() -> None:
    n, count = 60, 4
    result = run([1000 * i for i in range(n)], [16] * n, [1] * n, count=count, seed=7)
    draws = [_core.sim.Draws(seed=7, stream=ROUTER_STREAM, entity=row) for row in range(n)]
    assert result.requests["instance"].tolist() == [draw.below(count) for draw in draws]


@pytest.mark.parametrize("rule", ["sum", "product"])
@pytest.mark.parametrize("overlap", ["sent", "kv_events"])
@pytest.mark.parametrize("completion", ["step_end", "step_start"])
def test_rows_that_are_used_again_change_no_cost(completion: str, overlap: Any, rule: Any) -> None:
    """Streaming: ids go from one request to another, and with them what a request was charged."""
    rng = np.random.default_rng(3)
    n = 3000
    groups = rng.integers(0, 40, n)
    simulation = Simulation(
        workload=trace(
            arrival_s=np.cumsum(rng.exponential(0.02, n)),
            input_tokens=400 + rng.integers(1, 900, n),
            output_tokens=rng.integers(0, 120, n),
            prefix_group=[f"group {g}" for g in groups],
            prefix_tokens=10 * groups,
        ),
        router=router.KvCost(overlap=overlap, rule=rule, overlap_decay=0.5, request_weight=2),
        instances=BLIS_SERVER.replace(
            count=3, max_num_seqs=16, num_kv_blocks=900, max_model_len=1350, completion=completion
        ),
    )
    exact = simulate(simulation, 4)
    streamed = simulate(simulation.with_({"metrics.streaming": True}), 4)
    assert streamed.instances == exact.instances
    assert streamed.ledger == exact.ledger
    assert (streamed.steps, streamed.events) == (exact.steps, exact.events)
    for name in ("mean_ttft_ms", "mean_e2el_ms", "cache_hit_rate"):
        assert streamed.summary()[name] == pytest.approx(exact.summary()[name], rel=1e-9)
    assert exact.digest == simulate(simulation, 4, reference=True).digest
    assert min(server["refused"] for server in exact.instances) > 0


@pytest.mark.parametrize(
    "setting",
    [
        {"overlap": "guess"},
        {"rule": "maximum"},
        {"overlap_credit": -1},
        {"overlap_decay": -1},
        {"prefill_load_scale": math.inf},
        {"request_weight": -1},
        {"temperature": -0.1},
        {"host_cache_hit_weight": -1},
        {"disk_cache_hit_weight": math.inf},
    ],
)
def test_settings_are_checked(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(ConfigError, match=rf"router\.{name}"):
        Simulation(router={"kind": "kv_cost"} | setting, instances=BLIS_SERVER)


def test_in_tokens_a_block_counts_for_what_of_it_a_prompt_fills() -> None:
    result = run([0] * 4, [1, 16, 17, 32], [1] * 4, count=4, prefill_unit="tokens")
    assert [min(costs) for costs in costs_of(result)] == [1 / 16 + 1, 2, 17 / 16 + 2, 4]


@pytest.mark.parametrize(
    ("after_s", "cost"), [(0, 1 + 5), (0.199, 1 + 5), (0.2, 5 + 5), (10, 5 + 5)]
)
def test_overlap_is_that_of_the_queue_until_it_is_refreshed(after_s: float, cost: float) -> None:
    """The second prompt waits 200 ms for the first, which leaves 4 of its 5 blocks in memory."""
    result = run_ns(
        [0, 0],
        80,
        [2, 1],
        prefixes=[("A", 64)] * 2,
        router=router.KvCost(overlap_refresh_after_s=after_s),
        gateway={"limit": {"kind": "fixed", "max_in_flight": 1}},
        instances=BLIS_SERVER.replace(count=1, latency=SLOW),
        metrics={"traced_candidates": 1},
    )
    assert costs_of(result) == [[10], [cost]]


# --- tiers, which only tests script ---------------------------------------------------------------

PROMPT = Request(input_tokens=160)  # 10 blocks


def costs_with(held: InstanceSignals, **cost: Any) -> list[float]:
    """Of an instance that holds nothing, and of one that holds this."""
    built = testing.build(router.KvCost(**cost))
    decision = built.decide(PROMPT, instances=[InstanceSignals(), held], learn=False)
    return [-score for score in decision.scores]


TIERED = InstanceSignals(cached_blocks=2, host_blocks=4, disk_blocks=2)


@pytest.mark.parametrize(
    ("cost", "saved"),
    [
        ({}, 2 + 0.75 * 4 + 0.25 * 2),
        ({"host_cache_hit_weight": 1}, 2 + 4 + 0.25 * 2),
        ({"disk_cache_hit_weight": 0}, 2 + 0.75 * 4),
        ({"overlap_credit": 0.5}, 1 + 0.75 * 4 + 0.25 * 2),
        ({"overlap_credit": 0}, 0.75 * 4 + 0.25 * 2),
        ({"track_prefill": False}, 2 + 0.75 * 4 + 0.25 * 2),
        ({"track_prefill": False, "overlap_credit": 0}, 0),
    ],
)
def test_a_block_in_another_tier_is_worth_its_weight(cost: dict[str, Any], saved: float) -> None:
    without, held = costs_with(TIERED, **cost)
    assert without - held == saved


def test_records_of_what_was_sent_know_no_tiers() -> None:
    assert costs_with(InstanceSignals(sent_blocks=2, host_blocks=4), overlap="sent") == [20, 18]


def test_tiers_that_hold_more_than_the_prompt_make_it_count_for_that() -> None:
    """10 and 4 blocks are 13; credit 0.5 leaves 5 of the 10, and the 3, to be saved."""
    full = InstanceSignals(cached_blocks=10, host_blocks=4)
    assert costs_with(full, overlap_credit=0.5)[1] == 10 + 13 - (5 + 3)
    assert costs_with(InstanceSignals(cached_blocks=10), overlap_credit=0.5)[1] == 10 + 5


def test_a_request_is_charged_for_what_no_tier_holds() -> None:
    built = testing.build(router.KvCost())
    seen = [InstanceSignals(), TIERED]
    assert built.decide(PROMPT, instances=seen).instance == 1
    nothing = [InstanceSignals()] * 2
    scores = built.decide(PROMPT, instances=nothing, learn=False).scores
    assert [-score for score in scores] == [20, 20 + 10 + (10 - 5.5)]


def test_decay_spares_the_other_tiers() -> None:
    """The second prompt is of 10 blocks, which are the load of one instance to begin with.

    There the credit for 2 blocks halves, that for the other tiers does not.
    """
    built = testing.build(router.KvCost(overlap_decay=1))
    busy = built.decide(PROMPT, instances=[InstanceSignals()] * 2).instance
    scores = built.decide(PROMPT, instances=[TIERED] * 2, learn=False).scores
    assert -scores[1 - busy] == 20 - (2 + 3.5)
    assert -scores[busy] == 40 - (2 / 2 + 3.5)


def test_a_run_has_no_tiers() -> None:
    runs = [
        run([0, 10, 20], [80] * 3, [1] * 3, groups="AAA", **weights)
        for weights in ({}, {"host_cache_hit_weight": 1000, "disk_cache_hit_weight": 1000})
    ]
    assert costs_of(runs[0]) == costs_of(runs[1])
