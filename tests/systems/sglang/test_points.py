"""Means of SGLang's load generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.recordings import FILES, values
from support.sglang import line_of, written

import spillway
from spillway import TraceError
from spillway.files.recordings import read_points, read_recordings

if TYPE_CHECKING:
    from pathlib import Path


def test_points() -> None:
    (points,) = read_points(FILES / "sglang_points.jsonl")
    assert values(points.concurrency) == [8, 32]
    assert (points.input_tokens, points.output_tokens) == (128, 64)
    assert values(points.ttft_s) == [0.0415, 0.0925]
    assert values(points.itl_s) == [0.0075, 0.0095]
    assert points.server.model == "Qwen/Qwen3-14B"
    assert points.group["random_range_ratio"] == "1.0"
    assert spillway.read(FILES / "sglang_points.jsonl").offers == ("points",)


def test_lines_of_other_requests_are_other_points(tmp_path: Path) -> None:
    lines = [
        line_of(limit=4),
        line_of(limit=2, mean_ttft_ms=300.0),
        line_of(random_output_len=50, total_output_tokens=200),
        line_of(backend="vllm"),
    ]
    found = read_points(written(tmp_path / "out.jsonl", *lines))
    assert [values(points.concurrency) for points in found] == [[2, 4], [2], [2]]
    assert values(found[0].ttft_s) == [0.3, 0.5]
    assert [points.output_tokens for points in found] == [3, 3, 50]
    assert found[1].server.engine == "vllm"


@pytest.mark.parametrize(
    ("others", "concurrency"),
    [
        ({"limit": 8}, 4),  # 4 requests in all
        ({"limit": None, "concurrency": 2.6}, 3),
        ({"rate": 12.0, "concurrency": 0.2}, 1),
        ({"rate": 12.0, "limit": 3, "concurrency": None, "duration": 1.0}, 3),  # 4 · 0.76 s in 1 s
    ],
)
@pytest.mark.filterwarnings("ignore:.* keeps no number of requests in flight")
def test_concurrency(others: dict[str, Any], concurrency: int, tmp_path: Path) -> None:
    (points,) = read_points(written(tmp_path / "out.jsonl", line_of(**others)))
    assert values(points.concurrency) == [concurrency]


def test_a_rate_is_noted(tmp_path: Path) -> None:
    path = written(tmp_path / "out.jsonl", line_of(rate=12.0))
    with pytest.warns(UserWarning, match=r"request_rate of 12\.0 keeps no .* their mean, 1\.52"):
        read_points(path)
    with pytest.raises(TraceError, match=r"--output-details.* gives points, not recordi"):
        read_recordings(path)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"mean_ttft_ms": None}, r"line 1\.mean_ttft_ms: missing; points are of means"),
        ({"mean_ttft_ms": 0}, r"line 1\.mean_ttft_ms = 0: must be a number > 0"),
        ({"count": 0}, r"line 1\.completed = 0: must be"),
        ({"max_concurrency": -1}, r"line 1\.max_concurrency = -1: must be a whole number >= 0"),
    ],
)
def test_invalid_values(others: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message):
        read_points(written(tmp_path / "out.jsonl", line_of(**others)))


def test_itl_without_tpot(tmp_path: Path) -> None:
    """A median of 0 and no TPOT: answers of several tokens a chunk."""
    (points,) = read_points(written(tmp_path / "out.jsonl", line_of(mean_tpot_ms=None)))
    assert values(points.itl_s) == [0.125]
