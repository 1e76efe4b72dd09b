"""Summaries of AIPerf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.recordings import FILES, values

from spillway.data.recording import ServerFacts
from spillway.files.recordings import TraceError, read_points

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.recording import LatencyPoints


def points_of(folder: Path, **changes: Any) -> LatencyPoints:
    path = folder / "profile_export_aiperf.json"
    summary = json.loads((FILES / "aiperf_points.json").read_text())
    path.write_text(json.dumps(summary | changes))
    (points,) = read_points(path)
    return points


def test_a_summary_is_a_point(tmp_path: Path) -> None:
    points = points_of(tmp_path)
    assert (points.input_tokens, points.output_tokens) == (64, 12)
    assert values(points.concurrency) == [3]
    assert values(points.ttft_s) == [pytest.approx(0.0875)]
    assert values(points.itl_s) == [pytest.approx(0.0065)]
    assert points.requests_per_s is None
    assert points.server == ServerFacts(model="llama")


def test_loads_of_other_versions(tmp_path: Path) -> None:
    loads = {"concurrency": 2, "request_rate": 40.0}
    points = points_of(tmp_path, input_config={"loadgen": loads})
    assert values(points.concurrency) == [2]
    assert points.requests_per_s is not None
    assert values(points.requests_per_s) == [40]
    phases = [{"name": "profiling", "type": "poisson", "rate": 12.0}]
    with pytest.warns(UserWarning, match="1 points state the rate of requests and no limit in fli"):
        points = points_of(tmp_path, input_config={"phases": phases})
    assert values(points.concurrency) == [0]


def test_failures_and_missing_means_are_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="2 failed requests are in none of the means"):
        points_of(tmp_path, error_request_count={"avg": 2.0, "unit": "requests"})
    with pytest.warns(UserWarning, match="1 points have no ttft_s"):
        points_of(tmp_path, time_to_first_token=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_to_first_token": {"avg": 5}}, r"time_to_first_token\.unit = '': must be one of"),
        ({"time_to_first_token": {"avg": -5}}, r"time_to_first_token\.avg = -5: must be a number"),
        ({"output_sequence_length": None}, r"output_sequence_length\.avg = None: must be a number"),
    ],
)
def test_invalid_values_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        points_of(tmp_path, **changes)
