"""Files of recordings, and what is read from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import DATA, SHARED

from spillway.files.recordings import TraceError, read_recordings

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.recording import Recording

FILES = DATA / "recordings"
MEASURED = SHARED / "data"
FORMAT_OF = {
    "list_of_runs/runs.json": "folder",
    "object_of_runs/runs.json": "folder",
    "engine_timestamps/runs.json": "folder",
    "list_of_runs/chat.csv": "csv",
    "list_of_runs/code.csv": "csv",
    "object_of_runs/two_tenants.csv": "csv",
    "engine_timestamps/pro6000.csv": "csv",
    "requests.csv": "csv",
    "vllm_bench.json": "vllm_bench",
    "profile_export.jsonl": "aiperf",
    "aiperf_0_13.jsonl": "aiperf",
    "benchmarks.json": "guidellm",
    "guidellm_0_8.json": "guidellm",
    "guidellm_points.json": "guidellm_points",
    "per_request_lifecycle_metrics.json": "inference_perf",
    "inference_perf_0_7.json": "inference_perf",
    "sglang.jsonl": "sglang",
    "sglang_points.jsonl": "sglang_points",
    "blis.csv": "blis",
    "serve.log": "vllm_steps",
    "metrics.prom": "prometheus",
    "silicon.csv": "silicon",
    "aiperf_points.json": "aiperf_points",
    "vllm_points.json": "vllm_bench_points",
    "inferencex.json": "inferencex",
    "lmbench.csv": "lmbench",
}
GATEWAY = {
    "columns": {
        "send_s": "t0",
        "input_tokens": "prompt",
        "output_tokens": "answer",
        "ttft_s": "first_ms",
        "e2e_s": "last_us",
        "failed": "bad",
        "tenant": "key",
    },
    "units": {"t0": "s"},
}


def run_of(path: str | Path, **options: Any) -> Recording:
    """The only run of a file, which may be named relative to the files of these tests."""
    (run,) = read_recordings(FILES / path, **options)
    return run


def values(column: Any) -> list[Any]:
    """A column as a list; None for NaN."""
    listed = column.tolist()
    return [None if isinstance(value, float) and math.isnan(value) else value for value in listed]


def check_refused(name: str, change: tuple[str, str], message: str, folder: Path) -> None:
    """Another text in a file gives an error that names the file."""
    text = (FILES / name).read_text()
    assert change[0] in text
    path = folder / name
    path.write_text(text.replace(*change, 1))
    with pytest.raises(TraceError, match=message) as caught:
        read_recordings(path, FORMAT_OF[name])
    assert str(path) in str(caught.value)
