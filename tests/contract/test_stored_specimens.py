"""The specimens of load generators are complete, and agree with their recipes and their README."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.paths import DATA, ROOT

SPECIMENS = DATA / "specimens"
FOLDERS = sorted(path.parent for path in SPECIMENS.glob("*/*/specimen.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_specimen_is_complete(folder):
    facts = json.loads((folder / "specimen.json").read_text(encoding="utf-8"))
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {"specimen.json", "expected.json", *facts["files"]}
    assert f"{facts['tool']}-{facts['version']}" == folder.parent.name
    runs = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    answered = facts["server"]["received"]["statuses"]
    assert 0 < sum(run["completed"] for run in runs) <= answered["200"]
    assert sum(run.get("failed") or 0 for run in runs) <= sum(answered.values()) - answered["200"]
    for run in runs:
        assert 0 < run["mean_itl_s"] < run["mean_ttft_s"] < run["mean_e2e_s"]


def test_specimens_are_those_of_the_recipes():
    script = [sys.executable, "-m", "tools.specimens", "--list", "aiperf", "guidellm"]
    script += ["inference-perf", "sglang", "vllm"]
    listed = subprocess.check_output(script, cwd=ROOT, text=True).split()
    assert sorted(listed) == sorted(f"{path.parent.name}/{path.name}" for path in FOLDERS)


def test_readme_lists_the_specimens():
    text = (SPECIMENS / "README.md").read_text(encoding="utf-8")
    for folder in FOLDERS:
        tool, _, version = folder.parent.name.rpartition("-")
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {tool} | {version} |"))
        assert f"`{folder.name}`" in row
