"""Results as JSON of `vllm bench serve`, read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spillway import Result, Simulation, cli, read_recordings, simulate

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(
        Simulation(
            workload={"kind": "synthetic", "num_requests": 300, "requests_per_s": 100},
            gateway={"admission": {"kind": "token_bucket", "refill_tokens_per_s": 20_000}},
        )
    )


def test_a_written_run_reads_back(result: Result, tmp_path: Path) -> None:
    result.write(tmp_path, requests="vllm_bench")
    (run,) = read_recordings(tmp_path / "vllm_bench.json")
    requests = result.requests
    done = requests["outcome"] == "completed"
    assert 0 < done.sum() < 300
    assert (run.failed == ~done).all()
    assert (run.input_tokens == requests["input_tokens"]).all()
    sent_s = requests["arrival_s"] - requests["arrival_s"][0]
    assert run.send_s == pytest.approx(sent_s, abs=1e-9)
    for name in ("output_tokens", "ttft_s", "e2e_s"):
        assert getattr(run, name)[done] == pytest.approx(requests[name][done], rel=1e-9)
    assert run.server.model == "simulated"


def test_statistics_are_those_of_the_run(result: Result) -> None:
    found = result.vllm_bench("Qwen/Qwen3-14B")
    json.dumps(found, allow_nan=False)
    summary = result.summary()
    assert found["model_id"] == "Qwen/Qwen3-14B"
    assert found["completed"] == summary["completed"]
    assert found["completed"] + found["failed"] == found["num_prompts"] == 300
    assert found["mean_ttft_ms"] == pytest.approx(summary["mean_ttft_ms"], rel=1e-6)
    done = result.requests["outcome"] == "completed"
    tpot_s = result.requests["tpot_s"][done]
    assert found["p99_tpot_ms"] == pytest.approx(np.percentile(tpot_s, 99) * 1e3, rel=1e-6)
    assert set(np.array(found["errors"])[~done]) == {"insufficient_tokens"}


def test_a_run_without_completed_requests() -> None:
    found = simulate(
        Simulation(
            workload={"kind": "synthetic", "num_requests": 2}, gateway={"admission": "reject_all"}
        )
    ).vllm_bench()
    assert (found["completed"], found["failed"], found["request_throughput"]) == (0, 2, 0)
    assert "mean_ttft_ms" not in found
    json.dumps(found, allow_nan=False)


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("schema: 1\nworkload: {kind: synthetic, num_requests: 20}\n")
    command = ["run", str(config), "--out", str(tmp_path / "out"), "--out-format"]
    for name, file in (("vllm_bench", "vllm_bench.json"), ("csv", "requests.csv")):
        assert cli.main([*command, name]) == 0
        assert (tmp_path / "out" / file).exists()
