"""Prompts of one prefix group whose shared beginnings differ in length share the shorter."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spillway
from spillway import Simulation, instance, simulate, traffic, workload
from spillway.files.traces import write_csv

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 16


def trace(lengths: list[int], **changes: Any) -> workload.Trace:
    """One group; the requests are far apart."""
    rows = len(lengths)
    return spillway.trace(
        **{
            "arrival_s": 100.0 * np.arange(rows),
            "input_tokens": [max(lengths) + 100] * rows,
            "output_tokens": [2] * rows,
            "prefix_group": ["u1"] * rows,
            "prefix_tokens": lengths,
            **changes,
        }
    )


def hits(workload_: workload.Trace) -> int:
    """Cached KV blocks that the requests reused."""
    group = instance.InstanceGroup(num_kv_blocks=100_000, block_size_tokens=BLOCK)
    return int(simulate(Simulation(workload=workload_, instances=group)).instances[0]["kv_hits"])


def shared_blocks(lengths: list[int]) -> int:
    """Of each request, the most that an earlier one has cached."""
    return sum(
        max(min(length, earlier) // BLOCK for earlier in lengths[:row])
        for row, length in enumerate(lengths)
        if row
    )


def test_two_lengths() -> None:
    unequal = simulate(Simulation(workload=trace([21073, 21202]))).requests["ttft_s"]
    assert unequal[1] < unequal[0] / 10
    assert hits(trace([21073, 21202])) == hits(trace([21202, 21073])) == 21073 // BLOCK


@pytest.mark.parametrize("seed", range(20))
def test_any_two_prompts_share_the_shorter_beginning(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 900) for _ in range(rng.randint(2, 25))]
    assert hits(trace(lengths)) == shared_blocks(lengths)


def test_equal_lengths_are_one_segment_as_before() -> None:
    columns = trace([300, 300, 0, 300])._columns()
    assert columns["segment_begin"].tolist() == [0, 1, 2, 2, 3]
    assert columns["segment_tokens"].tolist() == [300] * 3
    assert columns["segment_content"].tolist() == [0] * 3


def test_the_number_of_segments_is_bounded() -> None:
    lengths = list(range(1000, 4000))
    assert np.diff(trace(lengths)._columns()["segment_begin"].astype(int)).max() <= 65
    loss = 1 - hits(trace(lengths[::50])) / shared_blocks(lengths[::50])
    assert loss == 0  # 60 lengths
    many = lengths[::20]
    assert hits(trace(many)) > 0.97 * shared_blocks(many)
    assert hits(trace([*many, many[-1]])) - hits(trace(many)) == many[-1] // BLOCK


def test_groups_of_their_own_and_none() -> None:
    groups = ["a", "b", None, "a", "b", "a"]
    lengths = [64, 640, 0, 320, 320, 0]
    columns = trace(lengths, prefix_group=groups)._columns()
    assert columns["segment_content"].tolist() == [0, 1, 1, 0, 0, 1]
    assert columns["segment_tokens"].tolist() == [64, 320, 320, 64, 256, 320]
    assert columns["segment_begin"].tolist() == [0, 1, 3, 3, 5, 6, 6]


def test_every_way_into_a_trace(tmp_path: Path) -> None:
    lengths = [640, 320, 1600]
    direct = trace(lengths)
    path = tmp_path / "trace.csv"
    write_csv(direct, path)
    assert "0,1600" in path.read_text()
    assert spillway.read_trace(path) == direct
    lines = tmp_path / "log.jsonl"
    lines.write_text(
        "".join(
            f'{{"at": {100 * row}, "p": 1700, "o": 2, "u": "u1", "s": {length}}}\n'
            for row, length in enumerate(lengths)
        )
    )
    columns = {
        "arrival_s": "at",
        "input_tokens": "p",
        "output_tokens": "o",
        "prefix_group": "u",
        "prefix_tokens": "s",
    }
    ways = {
        "json": spillway.read_trace(lines, columns=columns, time_unit="s"),
        "shifted": direct.replace(transforms=[workload.Shift(by_s=5)]),
        "session": direct.replace(session_segments=1, transforms=[workload.Thin(keep_share=1)]),
        "merged": traffic.merged(direct),
    }
    for name, way in ways.items():
        assert hits(way) == (320 + 640) // BLOCK, name


def test_a_group_is_one_session() -> None:
    copies = workload.Superpose(copies=2)
    twice = trace([640, 320, 1600]).replace(session_segments=1, transforms=[copies])
    columns = traffic.applied(twice)._columns()
    assert len(set(columns["segment_content"].tolist())) == 2  # the copy has its own content
