"""Prompts that a load generator sends again."""

from __future__ import annotations

import numpy as np
import pytest
from support.paths import SHARED

from spillway import read_recordings
from spillway.files.recordings.repeats import repeat_period

pytestmark = pytest.mark.filterwarnings("ignore:.*(unused columns|without output tokens)")


def test_a_cycle_of_prompts_is_found() -> None:
    rng = np.random.default_rng(0)
    cycle = rng.integers(400, 440, 100)
    lengths = np.tile(cycle, 9)
    assert repeat_period(lengths) == 100
    lengths[rng.integers(0, 900, 15)] += 1
    assert repeat_period(lengths) == 100


def test_other_lengths_have_no_cycle() -> None:
    rng = np.random.default_rng(0)
    assert repeat_period(np.full(500, 128)) is None
    assert repeat_period(rng.integers(1, 2000, 500)) is None
    assert repeat_period(np.where(rng.random(500) < 0.97, 128, 256)) is None
    assert repeat_period(np.array([5])) is None


@pytest.mark.parametrize(
    ("folder", "period"),
    [("vllm_h100", 100), ("vllm_h100_qwen3_14b", None), ("llmservingsim", None)],
)
def test_real_runs(folder: str, period: int | None) -> None:
    path = SHARED / "data" / folder
    if not path.is_dir():
        pytest.skip(f"{path} is missing")
    for run in read_recordings(path):
        if run.failed.mean() < 0.01:
            assert repeat_period(run.input_tokens) == period, run.name
