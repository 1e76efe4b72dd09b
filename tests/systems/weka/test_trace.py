"""Weka traces of coding agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.traces import prompts_of, refusal, written

from spillway import read_trace

if TYPE_CHECKING:
    from pathlib import Path


def weka(*requests: Any, **changes: Any) -> dict[str, Any]:
    return {"id": "trace_1", "block_size": 64, "requests": list(requests)} | changes


FIRST = {"t": 0.5, "type": "s", "in": 130, "out": 7, "hash_ids": [1, 2, 3], "think_time": 0.1}
NEXT = {"t": 4, "type": "n", "in": 200, "out": 1, "hash_ids": [1, 2, 4]}
SUBAGENT = {"t": 2.0, "type": "subagent", "requests": [NEXT | {"t": 3.25}]}
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "weka": (
        [weka(FIRST, NEXT, SUBAGENT), weka(FIRST | {"t": 1})],
        [(0, 130, 7), (500_000_000, 130, 7), (2_750_000_000, 200, 1), (3_500_000_000, 200, 1)],
    )
}
MALFORMED = [
    (weka(3), "line 3, requests = 3: must be an object of type n, s or subagent"),
    (weka(requests={}), "line 3, requests = {}: must be a list"),
    (weka(FIRST | {"type": "x"}), "line 3, requests = {'t': "),
    (weka(SUBAGENT | {"requests": [SUBAGENT]}), "line 3, requests = {'t': "),
    (weka(SUBAGENT | {"t": "now"}), "line 3, spawned_s = 'now': must be a number"),
    (weka(FIRST, hash_id_scope="global"), "line 3, hash_id_scope = 'global': must be 'loc"),
    (weka(FIRST, block_size=0), "line 3, block_size = 0: must be a whole number >= 1"),
    (weka(FIRST, block_size=32), "line 3: has blocks of 32 tokens, earlier lines of 64"),
    (weka(FIRST | {"t": None}), "line 3, t = None: must be a number"),
    (weka(FIRST | {"in": 0}), "line 3, in = 0: must be a whole number >= 1"),
    (weka(FIRST | {"out": "7"}), "line 3, out = '7': must be a whole number"),
    (weka(FIRST | {"hash_ids": [-1]}), "line 3, hash_ids = [-1]: must be a list of whole"),
    (weka(FIRST | {"in": 128}), "line 3, hash_ids = 3 ids: must be at most 2, one per 64"),
    ({"id": "a"}, "line 3: not of the format weka: requests missing"),
]


def test_conversations_share_only_their_own_blocks(tmp_path: Path) -> None:
    lines = [weka(FIRST, NEXT), weka(FIRST, SUBAGENT)]
    prompts = prompts_of(read_trace(written(tmp_path, *lines)))
    first, other, spawned, following = prompts  # in order of arrival
    lengths = [[tokens for _, tokens in prompt] for prompt in prompts]
    assert lengths == [[64, 64, 2], [64, 64, 2], *[[64, 64, 64, 8]] * 2]
    assert following[:2] == first[:2] != other[:2] == spawned[:2]
    assert len({*first, *following, *other, *spawned}) == 10  # 3 + 2 each; the fourth is unshared


def test_times_of_conversations_and_subagents(tmp_path: Path) -> None:
    path = written(tmp_path, weka(FIRST, SUBAGENT), weka(FIRST, NEXT))
    trace = read_trace(path, subagent_times="relative", conversation_interval_s=0.25)
    assert trace._columns()["arrival_ns"].tolist() == [0, 250_000_000, 3_750_000_000, 4_750_000_000]
    early = {"t": 5, "type": "subagent", "requests": [NEXT]}
    words = "line 1, t = 4: must be >= t of the subagent; --trace-sub"
    assert refusal(tmp_path, weka(FIRST, early)).startswith(words)


def test_malformed_conversations_are_skipped(tmp_path: Path) -> None:
    lines = [weka(FIRST), weka(3), weka(FIRST, NEXT | {"in": 0}), weka(NEXT)]
    path = written(tmp_path, *lines)
    with pytest.warns(
        UserWarning, match="2 malformed rows skipped; the first: .* line 2, requests"
    ):
        trace = read_trace(path, skip_bad=True)
    assert trace._columns()["input_tokens"].tolist() == [130, 130, 200]
