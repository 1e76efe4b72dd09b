"""Request traces of Dynamo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.traces import written

from spillway import read_trace

if TYPE_CHECKING:
    from pathlib import Path


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
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "dynamo": ([dynamo(2000), TOOL, dynamo(1500, 60)], [(0, 60, 4), (500_000_000, 100, 4)]),
    "dynamo_wrapped": (
        [{"timestamp": 1, "event": event} for event in (dynamo(2000), TOOL, dynamo(1500, 60))],
        [(0, 60, 4), (500_000_000, 100, 4)],
    ),
}
MALFORMED = [
    (dynamo(5) | {"schema": "v2"}, "line 4, schema = 'v2': must be dynamo.request.tra"),
    (dynamo(5, output_tokens=None), "line 4, request.output_tokens = None"),
    (dynamo(5, request_received_ms="x"), "line 4, request.request_received_ms = 'x'"),
    (dynamo(5, replay=None), "line 4, request.replay = None: must be in every request"),
    (dynamo(5, 200), "line 4, request.replay.input_sequence_hashes = [18446744073709551"),
    (dynamo(2000), "line 4, request_id = 'r2000': must be unique; it is also on line 1"),
    (dynamo(5, request={}) | {"request": 3}, "line 4, request.replay = ''"),
    ({"timestamp": 1, "event": []}, "line 4, event.schema = ''", "dynamo_wrapped"),
    ({"timestamp": 1}, "line 4: not of the format dynamo_wrapped: event missing", "dynamo_wrapped"),
]


def test_a_dynamo_trace_without_replay_shares_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, *(dynamo(at, replay=None, input_tokens=9) for at in (1, 2)))
    columns = read_trace(path)._columns()
    assert columns["input_tokens"].tolist() == [9, 9]
    assert columns["segment_content"].tolist() == []


def test_blocks_are_shared(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, *FILES["dynamo"][0]))._columns()
    assert columns["segment_begin"].tolist() == [0, 1, 3]
    assert columns["segment_content"].tolist() == [2**64 - 1, 2**64 - 1, 2000]
    assert columns["segment_tokens"].tolist() == [60, 64, 36]
    assert columns["request_id"] == ["r1500", "r2000"]
