"""Traces written as Mooncake JSONL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import spillway
from spillway import UsageError, read_trace
from spillway.files.traces import TraceError, trace
from spillway.systems.mooncake.write import write_mooncake

if TYPE_CHECKING:
    from pathlib import Path


def test_a_trace_goes_through_a_mooncake_file(tmp_path: Path) -> None:
    path = tmp_path / "written.jsonl"
    built = trace(
        arrival_s=[0, 0.0000015, 12.3],
        input_tokens=[40, 16, 33],
        output_tokens=[1, 2, 0],
        tenant=["gold", "", "ä"],
        slo_class=["standard", "batch", "standard"],
        request_id=["a", 'b"', "c"],
        hash_ids=[[1, 2, 3], [1], [1, 2, 9]],
        block_size_tokens=16,
    )
    write_mooncake(built, path, block_size_tokens=16)
    assert read_trace(path, block_size_tokens=16) == built
    assert json.loads(path.read_text().splitlines()[1]) == {
        "timestamp": 0.0015,
        "input_length": 16,
        "output_length": 2,
        "hash_ids": [1],
        "request_id": 'b"',
        "slo_class": "batch",
    }
    with pytest.raises(TraceError, match=r"cannot be written: No such file"):
        write_mooncake(built, tmp_path / "missing" / "file.jsonl", block_size_tokens=16)


def test_unshared_parts_of_a_prompt_get_ids_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "written.jsonl"
    built = trace(
        arrival_s=[0, 1, 2],
        input_tokens=[40, 50, 16],
        output_tokens=[1, 2, 0],
        prefix_group=["g", "g", None],
        prefix_tokens=[16, 16, 0],
    )
    write_mooncake(built, path, block_size_tokens=16)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["hash_ids"] for line in lines] == [[0, 1, 2], [0, 3, 4, 5], [6]]
    assert lines[2] == {"timestamp": 2000, "input_length": 16, "output_length": 0, "hash_ids": [6]}
    with pytest.raises(TraceError, match="request 0 shares segments of 16 tokens: must be blocks"):
        write_mooncake(built, path, block_size_tokens=8)
    with pytest.raises(TraceError, match="block_size_tokens = 0: must be >= 1"):
        write_mooncake(built, path, block_size_tokens=0)
    assert len(path.read_text().splitlines()) == 3  # left as it was
    bare = spillway.workload.Trace.from_dict(built.to_dict())
    with pytest.raises(UsageError, match="holds no requests"):
        write_mooncake(bare, path)
