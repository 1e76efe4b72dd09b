"""Reports of GuideLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.recordings import FILES, run_of, values

from spillway.files.recordings import read_recordings

if TYPE_CHECKING:
    from pathlib import Path


def test_guidellm() -> None:
    run = run_of("benchmarks.json")
    assert values(run.send_s) == [0, 1, 2]
    assert values(run.input_tokens) == [1000, 1010, 0]
    assert values(run.ttft_s) == [0.09, 0.1, None]
    assert values(run.e2e_s) == [1.5, 1.6, None]
    assert values(run.failed) == [False, False, True]  # the request that was never sent is not here
    assert run.server.model == "Qwen/Qwen3-14B"


def test_output_of_guidellm() -> None:
    run = run_of("guidellm_0_8.json")
    assert np.diff(run.send_s).tolist() == pytest.approx([0.25] * 4, abs=0.01)
    assert values(run.output_tokens[~run.failed]) == [9] * 4
    assert values(run.failed).count(True) == 1
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0122, abs=0.0005)
    assert run.server.model == "stub"
    assert run.failure_s[run.failed][0] < 0.05


def test_guidellm_names_several_benchmarks(tmp_path: Path) -> None:
    report = json.loads((FILES / "benchmarks.json").read_text())
    report["benchmarks"] *= 2
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(report))
    assert [run.name for run in read_recordings(path)] == ["sweep[0]", "sweep[1]"]


REFUSED = {
    "benchmarks.json": [
        ('"prompt_tokens": 1010, ', "", r"successful\[0\]\.prompt_tokens: missing"),
        ("101,", "10.5,", r"requests\.successful\[0\]\.output_tokens = 10\.5: must"),
        ('"errored": [', '"errored": [1, ', r"errored\[0\] = 1: must be an object"),
    ]
}
