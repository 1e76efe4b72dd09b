"""Reports of GuideLLM that list no requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.guidellm import benchmark_of, mean, report_of
from support.recordings import values

import spillway
from spillway import TraceError
from spillway.files.recordings import read_points, read_recordings

if TYPE_CHECKING:
    from pathlib import Path


def test_points_of_a_report_that_lists_no_requests(tmp_path: Path) -> None:
    metrics = {
        "time_to_first_token_ms": mean(50.0),
        "inter_token_latency_ms": mean(12.0),
        "prompt_token_count": mean(99.7),
        "output_token_count": mean(50.0),
    }
    many = {"type_": "concurrent", "streams": 8}
    benchmarks = [
        benchmark_of([], counts=(200, 0, 0), metrics=metrics, strategy=many),
        benchmark_of([], counts=(20, 0, 0), metrics=metrics, strategy={"type_": "synchronous"}),
        benchmark_of([], counts=(20, 0, 0), metrics=metrics),
    ]
    path = report_of(tmp_path / "run.json", benchmarks, args={"model": "acme/m"})
    with pytest.warns(UserWarning, match="1 benchmarks state no requests in flight"):
        (points,) = read_points(path)
    assert values(points.concurrency) == [1, 8]
    assert (points.input_tokens, points.output_tokens) == (100, 50)
    assert values(points.ttft_s) == [0.05, 0.05]
    assert values(points.itl_s) == [0.012, 0.012]
    assert points.server.model == "acme/m"
    with pytest.raises(TraceError, match=r"--sample-requests.* gives points, not rec"):
        read_recordings(path)
    assert spillway.read(path).offers == ("points",)


def test_points_need_means_above_zero(tmp_path: Path) -> None:
    names = ("time_to_first_token_ms", "inter_token_latency_ms", "prompt_token_count")
    metrics = {name: mean(0.0) for name in (*names, "output_token_count")}
    benchmark = benchmark_of([], metrics=metrics, strategy={"type_": "synchronous"})
    path = report_of(tmp_path / "run.json", benchmark)
    with pytest.raises(TraceError, match=r"prompt_token_count\.successful\.mean = 0\.0: must be"):
        read_points(path)


def test_requests_of_other_lengths_are_other_points(tmp_path: Path) -> None:
    means = {"time_to_first_token_ms": mean(50.0), "inter_token_latency_ms": mean(12.0)}
    benchmarks = [
        benchmark_of(
            [],
            counts=(10, 0, 0),
            metrics={**means, "prompt_token_count": mean(tokens), "output_token_count": mean(5.0)},
            strategy={"type_": "concurrent", "streams": 4},
        )
        for tokens in (100.0, 104.0, 200.0)
    ]
    path = report_of(tmp_path / "run.json", benchmarks)
    alike, longer = read_points(path)
    assert (alike.input_tokens, longer.input_tokens) == (102, 200)
    assert values(alike.concurrency) == [4, 4]


def test_a_limit_above_the_number_of_requests(tmp_path: Path) -> None:
    """The limit that the tool sets for `throughput` is 512, of which 6 requests fill 6."""
    names = ("time_to_first_token_ms", "inter_token_latency_ms", "prompt_token_count")
    metrics = {name: mean(10.0) for name in (*names, "output_token_count")}
    strategy = {"type_": "throughput", "max_concurrency": 512}
    benchmark = benchmark_of([], counts=(6, 0, 0), metrics=metrics, strategy=strategy)
    (points,) = read_points(report_of(tmp_path / "run.json", benchmark))
    assert values(points.concurrency) == [6]


def test_a_rate_is_no_point(tmp_path: Path) -> None:
    metrics = {"time_to_first_token_ms": mean(50.0), "inter_token_latency_ms": mean(12.0)}
    path = report_of(tmp_path / "run.json", benchmark_of([], metrics=metrics, counts=(3, 0, 0)))
    with pytest.raises(TraceError, match="gives recordings, not points"):
        read_points(path)
