"""Measured runs of real servers."""

from __future__ import annotations

import numpy as np
import pytest
from support.recordings import MEASURED

from spillway.files.recordings import read_recordings

pytestmark = pytest.mark.filterwarnings("ignore:.*(unused columns|without output tokens)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "runs"), [("vllm_h100", 12), ("vllm_h100_qwen3_14b", 8), ("llmservingsim", 4)]
)
def test_measured_runs_are_read(folder: str, runs: int) -> None:
    if not (MEASURED / folder).is_dir():
        pytest.skip(f"{MEASURED / folder} is missing: it is not part of the repository")
    read = read_recordings(MEASURED / folder)
    assert len(read) >= runs
    for run in read:
        assert run.num_requests == run.to_trace()._columns()["arrival_ns"].size + run.failed.sum()
        assert run.server.model
        assert run.server.tensor_parallel_size
        limit = run.client_max_in_flight or run.num_requests
        assert 1 <= run.in_flight() <= limit


def test_measured_figures_are_the_published_ones() -> None:
    folder = MEASURED / "vllm_h100_qwen3_14b"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: it is not part of the repository")
    by_name = {run.name: run for run in read_recordings(folder)}
    for name, ttft_ms, e2e_ms, itl_ms, most in (
        ("sweep_rate_agg_2rps", 65, 1624, 12.3, 13),
        ("sweep_rate_agg_6rps", 70, 1993, 15.1, 31),
        ("w5_agg30", 1056, 14638, 107, 256),
        ("w7_agg18", 15790, 30582, 117, 256),
    ):
        run = by_name[name]
        assert np.median(run.ttft_s) * 1e3 == pytest.approx(ttft_ms, abs=0.5)
        assert np.median(run.e2e_s) * 1e3 == pytest.approx(e2e_ms, abs=0.5)
        assert np.median(run.itl_s) * 1e3 == pytest.approx(itl_ms, rel=0.005)
        assert run.in_flight() == most
