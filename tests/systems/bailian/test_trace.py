"""Traces of Bailian."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.traces import written

from spillway import read_trace

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
