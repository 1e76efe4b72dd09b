"""Traces of other systems, each from a small file."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from spillway import read_trace
from spillway.config.limits import MAX_TOKENS
from spillway.interop.traces import TraceError, format_of

if TYPE_CHECKING:
    from pathlib import Path

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def dynamo(received_ms: int, tokens: int = 100, **changes: Any) -> dict[str, Any]:
    replay = {
        "trace_block_size": 64,
        "input_length": tokens,
        "input_sequence_hashes": [2**64 - 1, received_ms][: -(-tokens // 64)],
    }
    request = {
        "request_id": f"r{received_ms}",
        "request_received_ms": received_ms,
        "output_tokens": 4,
        "replay": replay,
    }
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": received_ms + 10,
        "request": request | changes,
    }


TOOL = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": 1}
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
LENGTHS = {"timestamp": 1500, "input_length": 30, "output_length": 2}
OPENAI = {"id": "a", "created": 1760000001, "usage": {"prompt_tokens": 8, "completion_tokens": 3}}


def weka(*requests: Any, **changes: Any) -> dict[str, Any]:
    return {"id": "trace_1", "block_size": 64, "requests": list(requests)} | changes


FIRST = {"t": 0.5, "type": "s", "in": 130, "out": 7, "hash_ids": [1, 2, 3], "think_time": 0.1}
NEXT = {"t": 4, "type": "n", "in": 200, "out": 1, "hash_ids": [1, 2, 4]}
SUBAGENT = {"t": 2.0, "type": "subagent", "requests": [NEXT | {"t": 3.25}]}


def turn(session: str, tokens: int, answer: int, **changes: Any) -> dict[str, Any]:
    return {"session_id": session, "input_length": tokens, "output_length": answer} | changes


FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "azure": (  # as in 2024: six digits and a time zone
        [
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            "2024-05-10 00:00:00.009930+00:00,2162,5",
            "2024-05-10 00:00:00.017335+00:00,2399,6",
        ],
        [(0, 2162, 5), (7_405_000, 2399, 6)],
    ),
    "burstgpt": (
        [BURST, "5,ChatGPT,472,18,490,Conversation log", "45,GPT-4,1087,0,1087,API log"],
        [(5 * 10**9, 472, 18), (45 * 10**9, 1087, 0)],
    ),
    "bailian": ([BAILIAN], [(61_114_000_000, 40, 13)]),
    "aiperf": (
        [
            turn("a", 40, 8, timestamp=500),
            turn("b", 20, 1, timestamp=100.5),
            turn("a", 10, 2, timestamp=2500),
        ],
        [(100_500_000, 20, 1), (500_000_000, 40, 8), (2_500_000_000, 58, 2)],
    ),
    "mooncake_lengths": ([LENGTHS], [(1_500_000_000, 30, 2)]),
    "openai": (
        [OPENAI, OPENAI | {"created": 1760000000, "user": "u"}],
        [(0, 8, 3), (10**9, 8, 3)],
    ),
    "weka": (
        [weka(FIRST, NEXT, SUBAGENT), weka(FIRST | {"t": 1})],
        [(0, 130, 7), (500_000_000, 130, 7), (2_750_000_000, 200, 1), (3_500_000_000, 200, 1)],
    ),
    "dynamo": (
        [dynamo(2000), TOOL, dynamo(1500, 60)],
        [(0, 60, 4), (500_000_000, 100, 4)],
    ),
    "dynamo_wrapped": (
        [{"timestamp": 1, "event": one} for one in (dynamo(2000), TOOL, dynamo(1500, 60))],
        [(0, 60, 4), (500_000_000, 100, 4)],
    ),
}


def written(folder: Path, lines: list[Any]) -> Path:
    path = folder / "trace"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_detected_and_read(name: str, tmp_path: Path) -> None:
    lines, expected = FILES[name]
    path = written(tmp_path, lines)
    assert format_of(path).name == name
    columns = read_trace(path)._columns()
    numbers = (columns[key].tolist() for key in ("arrival_ns", "input_tokens", "output_tokens"))
    assert list(zip(*numbers, strict=True)) == expected


def test_blocks_are_shared(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, FILES["dynamo"][0]))._columns()
    assert columns["segment_begin"].tolist() == [0, 1, 3]
    assert columns["segment_content"].tolist() == [2**64 - 1, 2**64 - 1, 2000]
    assert columns["segment_tokens"].tolist() == [60, 64, 36]
    assert columns["request_id"] == ["r1500", "r2000"]
    columns = read_trace(written(tmp_path, [BAILIAN]))._columns()
    assert columns["segment_tokens"].tolist() == [16, 16, 8]


def test_conversations_share_only_their_own_blocks(tmp_path: Path) -> None:
    lines = [weka(FIRST, NEXT), weka(FIRST, SUBAGENT)]
    columns = read_trace(written(tmp_path, lines))._columns()
    content, begin = columns["segment_content"].tolist(), columns["segment_begin"].tolist()
    prompts = [content[one:end] for one, end in itertools.pairwise(begin)]
    first, other, spawned, following = prompts  # in order of arrival
    assert [len(one) for one in prompts] == [3, 3, 4, 4]
    assert following[:2] == first[:2] != other[:2] == spawned[:2]
    assert len({*first, *following, *other, *spawned}) == 10  # 3 + 2 each; the fourth is unshared
    assert columns["segment_tokens"].tolist() == [64, 64, 2, 64, 64, 2, *[64, 64, 64, 8] * 2]


def test_times_of_conversations_and_subagents(tmp_path: Path) -> None:
    path = written(tmp_path, [weka(FIRST, SUBAGENT), weka(FIRST, NEXT)])
    trace = read_trace(path, subagent_times="relative", conversation_interval_s=0.25)
    assert trace._columns()["arrival_ns"].tolist() == [0, 250_000_000, 3_750_000_000, 4_750_000_000]
    early = {"t": 5, "type": "subagent", "requests": [NEXT]}
    with pytest.raises(
        TraceError, match="line 1, t = 4: must be >= t of the subagent; --trace-sub"
    ):
        read_trace(written(tmp_path, [weka(FIRST, early)]))


def test_turns_wait_for_assumed_answers(tmp_path: Path) -> None:
    lines = [
        turn("a", 1000, 100, timestamp=1000, hash_ids=[7, 8]),
        turn("b", 1024, 10, timestamp=1000, hash_ids=[7, 9], delay=None),
        turn("a", 50, 10, delay=250),
        turn("a", 50, 10),
        turn("c", 100, 1, hash_ids=[7]),
    ]
    path = written(tmp_path, lines)
    with pytest.warns(UserWarning, match="as if every answer took 1 s and 0.01 s per token"):
        trace = read_trace(path, answer_s=1, answer_s_per_token=0.01, conversation_interval_s=0.25)
    columns = trace._columns()
    second = 10**9
    expected = [second // 2, second, second, round(3.25 * second), round(4.35 * second)]
    assert columns["arrival_ns"].tolist() == expected
    assert columns["input_tokens"].tolist() == [100, 1000, 1024, 1150, 1210]
    content, begin = columns["segment_content"].tolist(), columns["segment_begin"].tolist()
    third, first, second_session, after, last = (
        content[one:end] for one, end in itertools.pairwise(begin)
    )
    assert (third, first, second_session) == ([7], [7, 8], [7, 9])
    # The full blocks of a conversation are those of its next turn; the last, partial one is not.
    assert after[0] == last[0] == 7
    assert after[1] == last[1] != 8
    assert after[2] != last[2]


def test_sessions_of_many_lines_are_read_whole(tmp_path: Path) -> None:
    lines = [turn(f"s{at % 7}", 9, 1, timestamp=at) for at in range(3000)]
    columns = read_trace(written(tmp_path, lines))._columns()
    assert columns["input_tokens"].tolist() == [9 + 10 * (at // 7) for at in range(3000)]
    lines.append(turn("s0", 0, 1, timestamp=9000))
    with pytest.raises(TraceError, match="rows of the format aiperf cannot be skipped"):
        read_trace(written(tmp_path, lines), skip_bad=True)


def test_malformed_conversations_are_skipped(tmp_path: Path) -> None:
    lines = [weka(FIRST), weka(3), weka(FIRST, NEXT | {"in": 0}), weka(NEXT)]
    path = written(tmp_path, lines)
    with pytest.warns(
        UserWarning, match="2 malformed rows skipped; the first: .* line 2, requests"
    ):
        trace = read_trace(path, skip_bad=True)
    assert trace._columns()["input_tokens"].tolist() == [130, 130, 200]


def test_a_dynamo_trace_without_replay_shares_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, [dynamo(at, replay=None, input_tokens=9) for at in (1, 2)])
    columns = read_trace(path)._columns()
    assert columns["input_tokens"].tolist() == [9, 9]
    assert columns["segment_content"].tolist() == []


USER = OPENAI | {"user": 3}
MALFORMED = [
    ("azure", "2024-05-10,5,1", "line 4, TIMESTAMP = '2024-05-10': must be an instant"),
    ("azure", "2024-13-10 00:00:00,5,1", "line 4, TIMESTAMP"),
    ("azure", "2024-05-10 00:00:00.1,0,1", "line 4, ContextTokens = '0': must be a whole"),
    ("azure", "2024-05-10 00:00:00.1,5,", "line 4, GeneratedTokens = ''"),
    ("azure", "2024-05-09 00:00:00,5,1", "line 4, TIMESTAMP = '2024-05-09 00:00:00': is earlier"),
    ("azure", "2024-05-10 00:00:00.1;5;1", "line 4: holds 1 fields; the header row names 3"),
    ("burstgpt", "-1,m,5,1,6,l", "line 4, Timestamp = '-1': must be a decimal number"),
    ("burstgpt", "50,m,,1,6,l", "line 4, Request tokens = ''"),
    ("burstgpt", "50,m,5,1.5,6,l", "line 4, Response tokens = '1.5'"),
    ("burstgpt", "50,m,5,1", "line 4: holds 4 fields; the header row names 6"),
    ("burstgpt", "__import__('os').abort(),m,5,1,6,l", "line 4, Timestamp = "),
    ("bailian", BAILIAN | {"hash_ids": [1]}, "line 2, hash_ids = 1 ids: must be 3"),
    ("bailian", BAILIAN | {"hash_ids": [1, 2, -3]}, "line 2, hash_ids = [1, 2, -3]: must be a li"),
    ("bailian", BAILIAN | {"timestamp": "61"}, "line 2, timestamp = '61': must be a number"),
    ("bailian", BAILIAN | {"input_length": 40.0}, "line 2, input_length = 40.0"),
    ("aiperf", turn("a", 9, 1, timestamp=1), "line 4, timestamp = 1: is earlier than the previous"),
    ("aiperf", turn("a", 9, 1, timestamp=9000, delay=1), "line 4, delay = 1: not together with"),
    ("aiperf", turn("a", 9, 1, delay=-1), "line 4, delay = -1: must be a number >= 0"),
    ("aiperf", turn("a", 9, 1, delay="1"), "line 4, delay = '1': must be a number"),
    ("aiperf", turn("c", 0, 1), "line 4, input_length = 0: must be a whole number >= 1"),
    ("aiperf", turn("c", 9, None), "line 4, output_length = None: must be a whole number"),  # type: ignore[arg-type]
    ("aiperf", turn("c", 9, 1) | {"session_id": 3}, "line 4, session_id = 3: must be text"),
    ("aiperf", turn("c", 9, 1, hash_ids=[1, 2]), "line 4, hash_ids = 2 ids: must be 1, one per"),
    ("aiperf", turn("c", 9, 1, hash_ids=[-1]), "line 4, hash_ids = [-1]: must be a list of whole"),
    ("aiperf", turn("a", MAX_TOKENS, 1, timestamp=9000), "line 4, input_length = 100000000: makes"),
    ("aiperf", {"session_id": "a", "text": "x"}, "line 4: not of the format aiperf: input_length,"),
    ("mooncake_lengths", LENGTHS | {"timestamp": -1}, "line 2, timestamp = -1: must be a number"),
    ("mooncake_lengths", {"delay": 5}, "line 2: not of the format mooncake_lengths: timestamp, in"),
    ("mooncake_lengths", LENGTHS | {"tenant": 3}, "line 2, tenant = 3: must be text"),
    ("mooncake_lengths", LENGTHS | {"output_length": True}, "line 2, output_length = True"),
    ("mooncake_lengths", LENGTHS | {"tenant": "a\ud800"}, "line 2: not valid JSON: half of a"),
    ("mooncake_lengths", '{"a": NaN', "line 2: not valid JSON"),
    ("mooncake_lengths", "[" * 100_000, "line 2: not valid JSON"),
    ("openai", OPENAI | {"usage": None}, "line 3, usage.prompt_tokens = '': must be a whole"),
    ("openai", OPENAI | {"usage": {"prompt_tokens": 8}}, "line 3, usage.completion_tokens = ''"),
    ("openai", OPENAI | {"created": "now"}, "line 3, created = 'now': must be a number"),
    ("openai", USER, "line 3, user = 3: must be text"),
    ("dynamo", dynamo(5) | {"schema": "v2"}, "line 4, schema = 'v2': must be dynamo.request.tra"),
    ("dynamo", dynamo(5, output_tokens=None), "line 4, request.output_tokens = None"),
    ("dynamo", dynamo(5, request_received_ms="x"), "line 4, request.request_received_ms = 'x'"),
    ("dynamo", dynamo(5, replay=None), "line 4, request.replay = None: must be in every request"),
    ("dynamo", dynamo(5, 200), "line 4, request.replay.input_sequence_hashes = [18446744073709551"),
    ("dynamo", dynamo(2000), "line 4, request_id = 'r2000': must be unique; it is also on line 1"),
    ("dynamo", dynamo(5, request={}) | {"request": 3}, "line 4, request.replay = ''"),
    ("weka", weka(3), "line 3, requests = 3: must be an object of type n, s or subagent"),
    ("weka", weka(requests={}), "line 3, requests = {}: must be a list"),
    ("weka", weka(FIRST | {"type": "x"}), "line 3, requests = {'t': "),
    ("weka", weka(SUBAGENT | {"requests": [SUBAGENT]}), "line 3, requests = {'t': "),
    ("weka", weka(SUBAGENT | {"t": "now"}), "line 3, spawned_s = 'now': must be a number"),
    ("weka", weka(FIRST, hash_id_scope="global"), "line 3, hash_id_scope = 'global': must be 'loc"),
    ("weka", weka(FIRST, block_size=0), "line 3, block_size = 0: must be a whole number >= 1"),
    ("weka", weka(FIRST, block_size=32), "line 3: has blocks of 32 tokens, earlier lines of 64"),
    ("weka", weka(FIRST | {"t": None}), "line 3, t = None: must be a number"),
    ("weka", weka(FIRST | {"in": 0}), "line 3, in = 0: must be a whole number >= 1"),
    ("weka", weka(FIRST | {"out": "7"}), "line 3, out = '7': must be a whole number"),
    ("weka", weka(FIRST | {"hash_ids": [-1]}), "line 3, hash_ids = [-1]: must be a list of whole"),
    ("weka", weka(FIRST | {"in": 128}), "line 3, hash_ids = 3 ids: must be at most 2, one per 64"),
    ("weka", {"id": "a"}, "line 3: not of the format weka: requests missing"),
    ("dynamo_wrapped", {"timestamp": 1, "event": []}, "line 4, event.schema = ''"),
    ("dynamo_wrapped", {"timestamp": 1}, "line 4: not of the format dynamo_wrapped: event missing"),
]


@pytest.mark.parametrize(("name", "line", "message"), MALFORMED)
def test_a_malformed_line_gives_one_clear_error(
    name: str, line: Any, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, [*FILES[name][0], line])
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    text = str(caught.value)
    assert text.startswith(f"{path} {message}")
    assert "\n" not in text
