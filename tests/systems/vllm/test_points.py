"""Means of `vllm bench serve` and `vllm bench sweep`."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from support.recordings import FILES, values

import spillway
from spillway.data.recording import ServerFacts
from spillway.files.recordings import TraceError, read_points

if TYPE_CHECKING:
    from pathlib import Path

RESULT: dict[str, Any] = {
    "date": "20260818-021333",
    "backend": "openai",
    "model_id": "facebook/opt-125m",
    "num_prompts": 8,
    "request_rate": "inf",
    "max_concurrency": 2,
    "duration": 1.365,
    "completed": 8,
    "failed": 0,
    "total_input_tokens": 256,
    "total_output_tokens": 128,
    "request_throughput": 5.86,
    "mean_ttft_ms": 217.3,
    "mean_tpot_ms": 8.2,
}


def written(folder: Path, *results: dict[str, Any]) -> Path:
    path = folder / "result.json"
    path.write_text("\n".join(json.dumps(RESULT | result) for result in results))
    return path


def test_a_result_is_a_point(tmp_path: Path) -> None:
    (points,) = read_points(written(tmp_path, {}))
    assert (points.input_tokens, points.output_tokens) == (32, 16)
    assert values(points.concurrency) == [2]
    assert values(points.ttft_s) == [pytest.approx(0.2173)]
    assert values(points.itl_s) == [pytest.approx(0.0082)]
    assert points.requests_per_s is None
    assert points.server == ServerFacts(model="facebook/opt-125m")
    assert points.group == {"backend": "openai"}
    assert (points.format, len(points.sha256)) == ("vllm_bench_points", 64)


def test_a_sweep_is_a_group_per_server() -> None:
    few, many = read_points(FILES / "vllm_points.json")
    assert few.server == ServerFacts(model="facebook/opt-125m", max_num_seqs=32)
    assert values(few.concurrency) == [2, 4]
    assert values(few.ttft_s) == [0.03, 0.04]
    assert values(few.itl_s) == [0.008, 0.009]
    assert few.input_tokens == 32  # 32 and 33 on average are the same kind of requests
    assert many.server.max_num_seqs == 64


def test_the_table_of_a_sweep(tmp_path: Path) -> None:
    """summary.csv holds the same as summary.json."""
    results = json.loads((FILES / "vllm_points.json").read_text())
    path = tmp_path / "summary.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(results[0]))
        writer.writeheader()
        writer.writerows(results)
    of_table, of_list = read_points(path), read_points(FILES / "vllm_points.json")
    for table, listed in zip(of_table, of_list, strict=True):
        assert values(table.concurrency) == values(listed.concurrency)
        assert values(table.ttft_s) == values(listed.ttft_s)
        assert table.server == listed.server
        assert table.group == listed.group


def test_other_models_backends_and_lengths_are_other_groups(tmp_path: Path) -> None:
    results: list[dict[str, Any]] = [
        {},
        {"max_concurrency": 4},
        {"model_id": "facebook/opt-1.3b"},
        {"backend": "vllm"},
        {"total_input_tokens": 2560},
        {"tp": "2"},  # `--metadata tp=2`
    ]
    groups = read_points(written(tmp_path, *results))
    assert sorted(values(points.concurrency) for points in groups) == [[2]] * 4 + [[2, 4]]
    assert {points.server.tensor_parallel_size for points in groups} == {None, 2}
    assert {points.input_tokens for points in groups} == {32, 320}


def test_rates_without_a_limit_are_said(tmp_path: Path) -> None:
    limits = {"max_concurrency": None}
    path = written(tmp_path, limits | {"request_rate": 8}, limits | {"request_rate": 2.5})
    with pytest.warns(UserWarning, match=r"2 points state the rate .* and no limit in flight"):
        (points,) = read_points(path)
    assert values(points.concurrency) == [0, 0]
    assert points.requests_per_s is not None
    assert values(points.requests_per_s) == [2.5, 8]
    (limited,) = read_points(written(tmp_path, {"request_rate": 8}))
    assert values(limited.concurrency) == [2]
    assert values(limited.requests_per_s) == [8]
    with pytest.warns(UserWarning, match="no limit in flight"):
        (burst,) = read_points(written(tmp_path, limits))
    assert values(burst.requests_per_s) == [math.inf]
    assert burst.group["num_prompts"] == "8"
    with pytest.warns(UserWarning, match="the rate of requests rises during the run"):
        read_points(written(tmp_path, {"request_rate": 8, "ramp_up_strategy": "linear"}))


def test_missing_means_and_failures_are_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="3 failed requests are in none of the means"):
        read_points(written(tmp_path, {"failed": 3}))
    with pytest.warns(UserWarning, match="1 points have no ttft_s"):
        (points,) = read_points(written(tmp_path, {"mean_ttft_ms": None}))
    assert values(points.ttft_s) == [None]
    with pytest.warns(UserWarning, match="1 results are left out: no request was completed"):
        read_points(written(tmp_path, {}, {"completed": 0}))
    with pytest.raises(TraceError, match=r"result\.json: no request was completed"):
        read_points(written(tmp_path, {"completed": 0}))


def test_another_unit_is_refused_on_suspicion(tmp_path: Path) -> None:
    path = written(tmp_path, {"mean_tpot_ms": 8200.0})
    with pytest.raises(TraceError, match=r"time per token is 8\.2 s .*: probably another unit"):
        read_points(path)
    (points,) = read_points(path, check_units=False)
    assert values(points.itl_s) == [8.2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"request_rate": -1}, "request_rate = -1: must be > 0 or inf"),
        ({"mean_ttft_ms": -5}, "mean_ttft_ms = -5: must be a number >= 0"),
        ({"total_input_tokens": None}, "total_input_tokens: missing"),
        ({"max_concurrency": 1.5}, "max_concurrency = 1.5: must be a whole number"),
        ({"completed": "8"}, "completed = '8': must be a number"),
    ],
)
def test_invalid_values_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_points(written(tmp_path, change))


def test_evidence_shows_points(tmp_path: Path) -> None:
    limits = {"max_concurrency": None, "request_rate": 2.5}
    evidence = spillway.read(written(tmp_path, {}, limits, {"max_concurrency": None}))
    text = evidence.text()
    assert "points of model=facebook/opt-125m" in text
    assert "2 in flight: TTFT 0.2173 s, ITL 0.0082 s" in text
    assert "2.5 requests/s: TTFT" in text
    assert "all at once: TTFT" in text
    json.dumps(evidence.to_dict()["points"], allow_nan=False)
