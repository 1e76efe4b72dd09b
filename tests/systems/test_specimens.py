"""Files that load generators wrote are read with the figures that the tools report themselves."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import DATA

import spillway

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.recording import Recording

SPECIMENS = DATA / "specimens"
# The file with the requests, by tool.
LISTED = {
    "aiperf": "profile_export.jsonl",
    "guidellm": "benchmarks.json",
    "inference-perf": "reports/per_request_lifecycle_metrics.json",
    "sglang": "result.jsonl",
    "vllm": "result.json",
}
FOLDERS = sorted(path.parent for path in SPECIMENS.glob("*/*/specimen.json"))


def listed(folder: Path) -> Path:
    """The file with the requests of a specimen."""
    return folder / LISTED[json.loads((folder / "specimen.json").read_text())["tool"]]


def runs_of(folder: Path) -> tuple[Recording, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spillway.read(listed(folder)).recordings


def expected(folder: Path) -> list[dict[str, Any]]:
    """The tool's own figures, per run."""
    figures: list[dict[str, Any]] = json.loads((folder / "expected.json").read_text())
    return figures


READ = [path for path in FOLDERS if listed(path).is_file() and runs_of(path)]


def test_most_specimens_list_their_requests() -> None:
    """The others are aggregates, or state no times of sending: they are points, or refused."""
    others = {f"{path.parent.name}/{path.name}" for path in FOLDERS if path not in READ}
    assert {name.partition("/")[2] for name in others} <= {"not_detailed", "sweep", "rate"}


@pytest.mark.parametrize("folder", READ, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_figures_are_those_of_the_tool(folder: Path) -> None:
    runs, figures = runs_of(folder), expected(folder)
    if len(figures) > len(runs):  # one file of several stages
        runs, figures = runs[:1], []
    for run, tool in zip(runs, figures, strict=True):
        done = ~run.failed
        assert int(done.sum()) == tool["completed"]
        assert int(run.failed.sum()) == (tool.get("failed") or 0)  # SGLang does not count them
        mean_e2e_s = np.nanmean(run.e2e_s[done])
        # SGLang and vLLM time the last token, others the end of the answer after it.
        assert mean_e2e_s == pytest.approx(tool["mean_e2e_s"], rel=0.02)
        assert not run.is_sample
    for run in runs:
        assert run.mismatches == ()


@pytest.mark.parametrize("folder", READ, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_client_is_that_of_the_command(folder: Path) -> None:
    client = json.loads((folder / "specimen.json").read_text())["client"]
    limits = {run.client_max_in_flight for run in runs_of(folder)}
    assert client.get("max_in_flight") in limits
