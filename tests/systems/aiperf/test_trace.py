"""AIPerf's traces with sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.traces import prompts_of, written

from spillway import read_trace
from spillway.config.limits import MAX_TOKENS
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from pathlib import Path


def turn(session: str, tokens: int, answer: int, **changes: Any) -> dict[str, Any]:
    return {"session_id": session, "input_length": tokens, "output_length": answer} | changes


FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "aiperf": (
        [
            turn("a", 40, 8, timestamp=500),
            turn("b", 20, 1, timestamp=100.5),
            turn("a", 10, 2, timestamp=2500),
        ],
        [(100_500_000, 20, 1), (500_000_000, 40, 8), (2_500_000_000, 58, 2)],
    )
}
MALFORMED = [
    (turn("a", 9, 1, timestamp=1), "line 4, timestamp = 1: is earlier than the previous"),
    (turn("a", 9, 1, timestamp=9000, delay=1), "line 4, delay = 1: not together with"),
    (turn("a", 9, 1, delay=-1), "line 4, delay = -1: must be a number >= 0"),
    (turn("a", 9, 1, delay="1"), "line 4, delay = '1': must be a number"),
    (turn("c", 0, 1), "line 4, input_length = 0: must be a whole number >= 1"),
    (turn("c", 9, None), "line 4, output_length = None: must be a whole number"),  # type: ignore[arg-type]
    (turn("c", 9, 1) | {"session_id": 3}, "line 4, session_id = 3: must be text"),
    (turn("c", 9, 1, hash_ids=[1, 2]), "line 4, hash_ids = 2 ids: must be 1, one per"),
    (turn("c", 9, 1, hash_ids=[-1]), "line 4, hash_ids = [-1]: must be a list of whole"),
    (turn("a", MAX_TOKENS, 1, timestamp=9000), "line 4, input_length = 100000000: makes"),
    ({"session_id": "a", "text": "x"}, "line 4: not of the format aiperf: input_length,"),
]


def test_turns_wait_for_assumed_answers(tmp_path: Path) -> None:
    lines = [
        turn("a", 1000, 100, timestamp=1000, hash_ids=[7, 8]),
        turn("b", 1024, 10, timestamp=1000, hash_ids=[7, 9], delay=None),
        turn("a", 50, 10, delay=250),
        turn("a", 50, 10),
        turn("c", 100, 1, hash_ids=[7]),
    ]
    path = written(tmp_path, *lines)
    with pytest.warns(UserWarning, match="as if every answer took 1 s and 0.01 s per token"):
        trace = read_trace(path, answer_s=1, answer_s_per_token=0.01, conversation_interval_s=0.25)
    columns = trace._columns()
    second = 10**9
    expected = [second // 2, second, second, round(3.25 * second), round(4.35 * second)]
    assert columns["arrival_ns"].tolist() == expected
    assert columns["input_tokens"].tolist() == [100, 1000, 1024, 1150, 1210]
    prompts = ([content for content, _ in prompt] for prompt in prompts_of(trace))
    third, first, second_session, after, last = prompts
    assert (third, first, second_session) == ([7], [7, 8], [7, 9])
    # Later turns begin with the prompt and the answer before them.
    assert after[:2] == last[:2] == first
    assert last[: len(after)] == after
    assert columns["answer"].tolist() == [0, after[2], 0, last[4], 0]
    tokens = columns["segment_tokens"].tolist()
    assert tokens[columns["segment_begin"][4] :] == [512, 488, 100, 50, 10, 50]


def test_sessions_of_many_lines_are_read_whole(tmp_path: Path) -> None:
    lines = [turn(f"s{at % 7}", 9, 1, timestamp=at) for at in range(3000)]
    columns = read_trace(written(tmp_path, *lines))._columns()
    assert columns["input_tokens"].tolist() == [9 + 10 * (at // 7) for at in range(3000)]
    lines.append(turn("s0", 0, 1, timestamp=9000))
    with pytest.raises(TraceError, match="rows of the format aiperf cannot be skipped"):
        read_trace(written(tmp_path, *lines), skip_bad=True)
