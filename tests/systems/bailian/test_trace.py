"""Traces of Bailian."""

from __future__ import annotations

import itertools
import random
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support.effort import trials
from support.runs import steady
from support.traces import written

from spillway import Simulation, instance, read_trace, simulate

if TYPE_CHECKING:
    from pathlib import Path

BAILIAN = {
    "chat_id": 159,
    "parent_chat_id": -1,
    "timestamp": 61.114,
    "input_length": 40,
    "output_length": 13,
    "type": "text",
    "turn": 1,
    "hash_ids": [1089, 1090, 1091],
}
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "bailian": ([BAILIAN], [(61_114_000_000, 40, 13)])
}
MALFORMED = [
    (BAILIAN | {"hash_ids": [1]}, "line 2, hash_ids = 1 ids: must be 3"),
    (BAILIAN | {"hash_ids": [1, 2, -3]}, "line 2, hash_ids = [1, 2, -3]: must be a li"),
    (BAILIAN | {"timestamp": "61"}, "line 2, timestamp = '61': must be a number"),
    (BAILIAN | {"input_length": 40.5}, "line 2, input_length = 40.5"),
]


def test_blocks_have_16_tokens(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, BAILIAN))._columns()
    assert columns["segment_tokens"].tolist() == [16, 16, 8]


class Call(NamedTuple):
    """The tokens of a prompt and of its answer, and the chat that it continues; -1: none."""

    prompt: list[int]
    answer: list[int]
    parent: int


def random_calls(rng: random.Random) -> list[Call]:
    """Chats that begin with one of two system prompts, go on, branch, and are sent again."""
    fresh = itertools.count(1000)
    calls: list[Call] = []
    systems = [[next(fresh) for _ in range(16 * blocks)] for blocks in (2, 5)]

    def some(most: int) -> list[int]:
        return [next(fresh) for _ in range(rng.randint(1, most))]

    for _ in range(rng.randint(2, 14)):
        kind = rng.random()
        if calls and kind < 0.6:
            parent = rng.randrange(len(calls))
            before = calls[parent]
            calls.append(Call(before.prompt + before.answer + some(60), some(60), parent))
        elif calls and kind < 0.75:
            again = rng.choice(calls)
            calls.append(Call(again.prompt, some(60), rng.choice((-1, again.parent))))
        else:
            calls.append(Call(rng.choice(systems) + some(40), some(60), -1))
    return calls


def lines_of(calls: list[Call]) -> list[dict[str, Any]]:
    """A block has the id of all tokens up to its end."""
    ids: dict[tuple[int, ...], int] = {}
    return [
        BAILIAN
        | {
            "chat_id": chat,
            "parent_chat_id": call.parent,
            "timestamp": 10 * chat,
            "input_length": len(call.prompt),
            "output_length": len(call.answer),
            "hash_ids": [
                ids.setdefault(tuple(call.prompt[: at + 16]), len(ids))
                for at in range(0, len(call.prompt), 16)
            ],
        }
        for chat, call in enumerate(calls)
    ]


def common(one: list[int], other: list[int]) -> int:
    """The length of what both begin with."""
    pairs = zip(one, other, strict=False)
    return next(
        (at for at, pair in enumerate(pairs) if len({*pair}) > 1), min(len(one), len(other))
    )


def found_blocks(calls: list[Call], size: int) -> int:
    """What a server finds that keeps all of what it has computed, call after call."""
    found = 0
    computed: list[list[int]] = []  # the last token of an answer never is
    for call in calls:
        longest = max((common(call.prompt, of) for of in computed), default=0)
        found += min(longest // size, (len(call.prompt) - 1) // size)
        computed.append(call.prompt + call.answer[:-1])
    return found


@pytest.mark.parametrize("size", [16, 4])
@pytest.mark.parametrize("seed", trials(60))
def test_turns_find_the_answers_before_them(seed: int, size: int, tmp_path: Path) -> None:
    calls = random_calls(random.Random(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        trace = read_trace(written(tmp_path, *lines_of(calls)))
    group = instance.InstanceGroup(
        block_size_tokens=size,
        num_kv_blocks=10_000,
        latency=steady(1, beta_prefill_us=1),
        kv_cache=instance.KvCache(generated_tokens=True),
    )
    result = simulate(Simulation(workload=trace, instances=group))
    assert result.instances[0]["kv_hits"] == found_blocks(calls, size)


def test_turns_are_counted_and_checked(tmp_path: Path) -> None:
    first = BAILIAN | {"chat_id": "a", "parent_chat_id": -1}
    after = {"chat_id": "b", "parent_chat_id": "a", "input_length": 60}
    like = first | after | {"hash_ids": [1089, 1090, 1, 2]}
    with pytest.warns(UserWarning, match="1 prompts follow another turn, and are read as beginni"):
        turns = read_trace(written(tmp_path, first, like))._columns()
    assert turns["segment_tokens"].tolist() == [16, 16, 8, 16, 16, 8, 13, 7]
    assert turns["segment_content"].tolist()[3:6] == [1089, 1090, 1091]
    assert turns["answer"].tolist() == [turns["segment_content"][6], 0]
    unlike = like | {"hash_ids": [1089, 7, 1, 2]}
    with pytest.warns(UserWarning, match="1 turns do not begin with the blocks of the turn before"):
        apart = read_trace(written(tmp_path, first, unlike))._columns()
    assert "answer" not in apart
