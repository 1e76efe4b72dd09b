"""Results of InferenceX."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.recordings import FILES, values

from spillway.data.recording import ServerFacts
from spillway.files.recordings import TraceError, read_points

if TYPE_CHECKING:
    from pathlib import Path

RESULT: dict[str, Any] = {
    "hw": "mi355x",
    "conc": 16,
    "model": "amd/GLM-5.1-MXFP4",
    "framework": "sglang",
    "precision": "fp4",
    "tp": 2,
    "ep": 1,
    "isl": 1024,
    "osl": 1024,
    "mean_ttft": 0.494,
    "mean_tpot": 0.0214,
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "agg_result.json"
    path.write_text(json.dumps(content))
    return path


def test_a_result_is_a_point(tmp_path: Path) -> None:
    (points,) = read_points(written(tmp_path, RESULT))
    assert (points.input_tokens, points.output_tokens) == (1024, 1024)
    assert values(points.concurrency) == [16]
    assert values(points.ttft_s) == [0.494]
    assert values(points.itl_s) == [0.0214]
    assert points.server == ServerFacts(
        model="amd/GLM-5.1-MXFP4", gpu="mi355x", engine="sglang", tensor_parallel_size=2
    )
    assert points.group["precision"] == "fp4"


def test_a_list_is_a_group_per_server() -> None:
    four, eight = sorted(
        read_points(FILES / "inferencex.json"),
        key=lambda points: points.server.tensor_parallel_size or 0,
    )
    assert values(eight.concurrency) == [4, 64]
    assert values(eight.ttft_s) == [0.25, 0.75]
    assert values(four.itl_s) == [0.01]
    assert (four.group["ep"], eight.group["ep"]) == ("4", "1")


def test_results_of_one_file_are_told_apart(tmp_path: Path) -> None:
    changes = ({}, {"conc": 4}, {"precision": "fp8"}, {"spec_decoding": "mtp"}, {"isl": 8192})
    groups = read_points(written(tmp_path, [RESULT | change for change in changes]))
    assert sorted(values(points.concurrency) for points in groups) == [[4, 16], [16], [16], [16]]


def test_numbers_as_text_and_milliseconds(tmp_path: Path) -> None:
    result = {key: value for key, value in RESULT.items() if not key.startswith("mean_")}
    result |= {"conc": "16", "tp": "4", "mean_ttft_ms": 494.0, "mean_itl_ms": 21.4}
    (points,) = read_points(written(tmp_path, result))
    assert values(points.concurrency) == [16]
    assert points.server.tensor_parallel_size == 4
    assert values(points.ttft_s) == [pytest.approx(0.494)]
    assert values(points.itl_s) == [pytest.approx(0.0214)]


@pytest.mark.parametrize("disagg", [True, "true"])
def test_disaggregated_serving_is_left_out(tmp_path: Path, disagg: Any) -> None:
    path = written(tmp_path, [RESULT, RESULT | {"disagg": disagg}])
    with pytest.warns(UserWarning, match="1 results of disaggregated serving are left out"):
        (points,) = read_points(path)
    assert len(points.concurrency) == 1
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(TraceError, match="holds only results of disaggregated serving"),
    ):
        read_points(written(tmp_path, RESULT | {"disagg": disagg}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conc": 0}, "conc = 0: must be a whole number >= 1"),
        ({"conc": 10**30}, "conc.*=.*1e.30: must be <= "),
        ({"isl": "long"}, "isl = 'long': must be a number"),
        ({"mean_ttft": -1}, "mean_ttft = -1: must be a number >= 0"),
        ({"mean_tpot": 21.4}, r"time per token is 21\.4 s .*: probably another unit"),
        ({"mean_ttft": None, "mean_tpot": None}, "holds no points with a load and a mean latency"),
        ({"hw": 7}, "hw = 7: must be text"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*they have no latency")
def test_invalid_values_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_points(written(tmp_path, RESULT | change))
