"""Reports of inference-perf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.recordings import FILES, run_of, values

if TYPE_CHECKING:
    from pathlib import Path


def test_inference_perf() -> None:
    run = run_of("per_request_lifecycle_metrics.json")
    assert values(run.send_s) == [0, 0.5, 1]
    assert values(run.input_tokens) == [571, 580, 0]
    assert values(run.output_tokens) == [4, 3, 0]
    assert values(run.ttft_s) == [0.0625, 0.125, None]
    assert values(run.e2e_s) == [0.125, 0.1875, None]
    assert values(run.failure_s) == [None, None, 300]
    assert run.token_gaps is not None
    assert values(run.token_gaps.of(1)) == [0.015625, 0.015625]


def test_output_of_inference_perf() -> None:
    run = run_of("inference_perf_0_7.json")
    done = ~run.failed
    assert (run.num_requests, int(done.sum())) == (6, 4)
    assert values(run.input_tokens) == [0, 35, 23, 33, 32, 0]
    assert values(run.output_tokens[done]) == [9] * 4
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0125, abs=0.0005)
    assert run.token_gaps is not None
    assert values(np.diff(run.token_gaps.offsets)) == [0, 8, 8, 8, 8, 0]


def test_the_server_counts_tokens(tmp_path: Path) -> None:
    """The usage that a server reports has precedence over the tokenizer of the client."""
    content = json.loads((FILES / "inference_perf_0_7.json").read_text())
    response = content[1]["info"]["response_metrics"]
    response["server_usage"] |= {"prompt_tokens": 40, "completion_tokens": 10}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    assert (run_of(path).input_tokens[1], run_of(path).output_tokens[1]) == (40, 10)
    response["server_usage"] = None
    path.write_text(json.dumps(content))
    assert (run_of(path).input_tokens[1], run_of(path).output_tokens[1]) == (35, 9)


REFUSED = {
    "per_request_lifecycle_metrics.json": [('"start_time": 7061.75, ', "", "start_time: missing")]
}
