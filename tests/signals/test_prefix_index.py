"""The gateway's own record of the prompts sent to each instance, against a list of blocks."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials

from spillway import ConfigError, Simulation, presets, profiles, router, signals, simulate, trace


@dataclass
class Memory:
    """Blocks sent to one instance, the oldest first."""

    capacity: int
    blocks: OrderedDict[Any, None] = field(default_factory=OrderedDict)

    def matched(self, prompt: list[Any]) -> int:
        for count, block in enumerate(prompt):
            if block not in self.blocks:
                return count
        return len(prompt)

    def sent(self, prompt: list[Any]) -> None:
        for block in prompt:
            self.blocks.pop(block, None)
            self.blocks[block] = None
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)


def blocks_of(row: int, group: str, shared: int, tokens: int, size: int) -> list[Any]:
    """Requests with the same prefix share the blocks that end within it."""
    return [
        (group, shared, k) if group and (k + 1) * size <= shared else (row, k)
        for k in range(tokens // size)
    ]


# Weights differ, so that requests of one group go to several instances and come back.
POLICY = router.Weighted(
    scorers=[router.PrefixAffinity(), router.ActiveRequests(weight=0.3)], picker="weighted_random"
)


def random_case(rng: np.random.Generator) -> tuple[dict[str, list[Any]], int, int]:
    """Columns of a trace, tokens per block, and the capacity in blocks."""
    size = int(rng.integers(1, 65))
    capacity = int(rng.choice([1, 3, 8, 20, 60, 10_000]))
    rows = 60
    lengths = {name: int(rng.integers(1, 6 * size)) for name in "ABC"}
    groups = [str(rng.choice(["", "A", "B", "C"])) for _ in range(rows)]
    shared = [lengths[group] if group else 0 for group in groups]
    tokens = [max(1, beginning + int(rng.integers(0, 3 * size))) for beginning in shared]
    columns: dict[str, list[Any]] = {
        "prefix_group": groups,
        "prefix_tokens": shared,
        "input_tokens": tokens,
    }
    return columns, size, capacity


def test_record_equals_a_plain_list_of_blocks() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(60):
        columns, size, capacity = random_case(np.random.default_rng(seed))
        rows = len(columns["input_tokens"])
        simulation = Simulation(
            workload=trace(
                arrival_s=np.arange(rows) * 0.02, output_tokens=np.full(rows, 20), **columns
            ),
            router=POLICY.replace(scorers=[router.PrefixAffinity()]) if seed % 2 else POLICY,
            prefix_index={"capacity_blocks": capacity, "block_size_tokens": size},
            instances={"count": 3},
            metrics={"traced_candidates": 3},
        )
        log = simulate(simulation, seed)._output["decisions"]
        memories = [Memory(capacity) for _ in range(3)]
        for row in range(rows):
            prompt = blocks_of(
                row,
                columns["prefix_group"][row],
                columns["prefix_tokens"][row],
                columns["input_tokens"][row],
                size,
            )
            matched = [memory.matched(prompt) for memory in memories]
            in_flight = log["candidate_in_flight"][row]
            for place, candidate in enumerate(log["candidate_instance"][row]):
                share = matched[candidate] / len(prompt) if prompt else 0
                if seed % 2:
                    expected = share
                else:
                    most = in_flight.max()
                    idle = 1.0 if in_flight[place] == 0 else (most - in_flight[place]) / most
                    expected = share * (1 / 1.3) + idle * (0.3 / 1.3)
                assert log["candidate_score"][row][place] == expected
            memories[log["instance"][row]].sent(prompt)
            seen["partly"] += 0 < max(matched) < len(prompt)
            seen["wholly"] += bool(prompt) and max(matched) == len(prompt)
            seen["at several"] += sum(tokens > 0 for tokens in matched) > 1
            seen["forgotten"] += len(memories[0].blocks) == capacity
    assert min(seen[case] for case in ("partly", "wholly", "at several", "forgotten")) > often(50)


def test_record_is_of_what_was_sent_not_of_what_is_kept() -> None:
    """Unlike the engine's memory, it is always current, whatever the age of the signals."""
    requests = trace(
        arrival_s=[0, 0, 0],
        input_tokens=[64, 64, 64],
        output_tokens=[1, 1, 1],
        prefix_group=["A", "A", "A"],
        prefix_tokens=[64, 64, 64],
    )
    for transport in (signals.Live(), signals.OnRead(period_s=100)):
        simulation = Simulation(
            workload=requests,
            router=router.Weighted(scorers=["prefix_affinity"]),
            signals=transport,
            instances={"count": 2, "kv_cache": {"prefix_caching": False}},
            metrics={"traced_candidates": 2},
        )
        assert simulate(simulation)._output["decisions"]["score"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", ["capacity_blocks", "block_size_tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_must_be_positive(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"prefix_index\.{name} = {value}"):
        Simulation(prefix_index={name: value})


# --- its size by default --------------------------------------------------------------------------


def last_match(index: dict[str, Any], *groups: dict[str, Any]) -> list[float]:
    """Share of a prompt of 1,600 tokens that each instance is known to have had.

    Between its two requests, others fill 200 blocks of 16 tokens in the record.
    """
    simulation = Simulation(
        workload=trace(
            arrival_s=np.arange(4) * 10.0,
            input_tokens=[1600, 1600, 1600, 1600],
            output_tokens=[1] * 4,
            prefix_group=["A", "B", "C", "A"],
            prefix_tokens=[1600] * 4,
        ),
        router=router.Weighted(scorers=["prefix_affinity"]),
        prefix_index=index,
        instances=list(groups),
        metrics={"traced_candidates": 2},
    )
    scores: list[float] = simulate(simulation)._output["decisions"]["candidate_score"][-1].tolist()
    return scores[: sum(group.get("count", 1) for group in groups)]


def test_without_a_stated_capacity_it_remembers_as_much_as_the_caches_hold() -> None:
    assert Simulation().prefix_index.capacity_blocks is None
    assert last_match({}, {"num_kv_blocks": 300}) == [1]
    assert last_match({}, {"num_kv_blocks": 299}) == [0]
    assert last_match({"capacity_blocks": 299}, {"num_kv_blocks": 5000}) == [0]
    assert last_match({"capacity_blocks": 300}, {"num_kv_blocks": 299}) == [1]


def test_its_size_is_that_of_the_largest_memory_in_tokens() -> None:
    small, large = {"num_kv_blocks": 200}, {"num_kv_blocks": 300}
    assert max(last_match({}, small, large)) == 1
    # As many tokens in larger blocks, of the instances or of the record.
    assert last_match({}, {"num_kv_blocks": 150, "block_size_tokens": 32}) == [1]
    assert last_match({"block_size_tokens": 32}, {"num_kv_blocks": 300}) == [1]
    assert last_match({"block_size_tokens": 32}, {"num_kv_blocks": 298}) == [0]
    # A memory smaller than one block of the record.
    assert last_match({"block_size_tokens": 1600}, {"num_kv_blocks": 100}) == [0]


def test_systems_with_a_size_of_their_own_state_it() -> None:
    blis = profiles.blis_0_6()
    assert blis.prefix_index.capacity_blocks == 10_000
    sized = Simulation(prefix_index={"capacity_blocks": 500})
    assert profiles.blis_0_6(sized).prefix_index.capacity_blocks == 500
    assert profiles.name_of(blis) == "blis_0_6"
    assert profiles.name_of(sized) == "vllm"
    llm_d = presets.get("llm-d-flow-control").apply(Simulation())
    assert llm_d.prefix_index == signals.PrefixIndex(capacity_blocks=31_250, block_size_tokens=16)


def test_a_record_smaller_than_the_caches_that_was_full_is_noted() -> None:
    clients = [
        {
            "name": f"{group}",
            "prefix_group": f"{group}",
            "prefix_tokens": 1600,
            "input_tokens": {"kind": "fixed", "tokens": 16},
            "output_tokens": {"kind": "fixed", "tokens": 2},
        }
        for group in range(8)
    ]
    base = Simulation(
        workload={
            "kind": "synthetic",
            "requests_per_s": 20,
            "num_requests": 100,
            "clients": clients,
        },
        router=router.Weighted(scorers=["prefix_affinity", "queue_depth"]),
        instances={"count": 2},
    )

    def noted(changes: dict[str, Any]) -> list[str]:
        result = simulate(base.with_(changes))
        return [note for note in result.notes() if "record of prompts" in note]

    (note,) = noted({"prefix_index.capacity_blocks": 200})
    assert note.startswith(
        "the gateway's record of prompts was full: prefix_index.capacity_blocks = 200 holds 3,200 "
        "tokens per rank, the KV memory up to 430,304"
    )
    assert not noted({})
    assert not noted({"prefix_index.capacity_blocks": 20_000})
    assert not noted({"prefix_index.capacity_blocks": 200, "router": "round_robin"})
