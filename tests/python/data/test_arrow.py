"""Requests, timeline and control as Arrow tables and Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from spillway import ConfigError, Simulation, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from spillway import Result

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(
        Simulation(
            workload={"kind": "synthetic", "num_requests": 300, "requests_per_s": 100},
            gateway={
                "admission": {"kind": "token_bucket", "refill_tokens_per_s": 20_000},
                "limit": "fixed",
                "controller": "aimd",
            },
            metrics={"timeline_step_s": 0.5},
        )
    )


def test_requests(result: Result) -> None:
    table = result.requests.to_arrow()
    assert table.column_names == list(result.requests)
    rejected = result.requests["outcome"] == "rejected"
    assert 0 < rejected.sum() < 300
    for name in ("request_id", "outcome", "reason", "tenant", "slo_class"):
        assert table[name].to_pylist() == result.requests[name].tolist()
    for name in ("ttft_s", "instance"):
        assert table[name].null_count == rejected.sum()
        assert table[name].is_null().to_pylist() == rejected.tolist()
    assert pa.table(result.requests) == table


def test_requested_output_tokens(result: Result) -> None:
    requests = result.requests
    assert len(list(requests)) == len(requests)
    asked, delivered = requests["requested_output_tokens"], requests["output_tokens"]
    completed = requests["outcome"] == "completed"
    assert (asked[completed] == delivered[completed]).all()
    assert (asked[~completed] > 0).all()
    assert (delivered[~completed] == 0).all()


def test_timeline_and_control(result: Result) -> None:
    for data in (result.timeline, result.control):
        table = pa.table(data)
        assert table.column_names == list(data)
        for name in data:
            values = data[name]
            got = np.array(table[name].to_pylist(), dtype=float).reshape(values.shape)
            assert np.array_equal(got, values.astype(float), equal_nan=True)


def test_parquet(result: Result, tmp_path: Path) -> None:
    result.write(tmp_path, requests="parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["requests.parquet", "summary.json"]
    assert parquet.read_table(tmp_path / "requests.parquet") == result.requests.to_arrow()
    with pytest.raises(ConfigError, match="requests = 'orc': must be one of csv, parquet, aiperf"):
        result.write(tmp_path, requests="orc")
