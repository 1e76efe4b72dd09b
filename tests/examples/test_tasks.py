"""Every script of examples/tasks/ answers, at its smallest size."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.paths import ROOT

import spillway

TASKS = ROOT / "examples" / "tasks"
SHELL = sorted(TASKS.glob("*.sh"))
COMMAND = "import sys, spillway_cli; sys.exit(spillway_cli.main())"
SHOWN = {
    "busy.py": r"baseline 0\.85, 4 seeds",
    "capacity.py": r"feasible at \d+, infeasible at \d+[\s\S]*p99 TTFT \(ms\), 90% over servers: ",
    "deploy.sh": r"llm-d@\S+ does not carry:[\s\S]*\nvllm@\S+ carries every setting",
    "mooncake.py": r"baseline least loaded, 3 seeds",
    "noisy.py": r"no gateway\n[\s\S]*drr \+ aimd\n",
    "own_policy.sh": r"shed longest +baseline [\s\S]* rejected \(python_saturated\)",
    "predictive.py": r"each alone, in its place: \[",
    "results.py": r"cache_hit_rate +0\.\d+",
    "routers.py": r"baseline least loaded, 3 seeds",
    "storm.py": r"storm .* never recovered\n[\s\S]*budget 10% .* recovered after \d+ s\n",
    "weights.py": r"2 fresh seeds[\s\S]*'router\.scorers\[queue_depth\]\.weight': 0\.\d+",
}
"""What each prints; the scripts that a shell script calls are run by it."""
WRITTEN = {
    "capacity.py": ["decision.yaml", "mine.csv"],
    "deploy.sh": ["deployed.yaml", "deployed_vllm.yaml", "today.yaml"],
    "noisy.py": ["gateway.png"],
    "results.py": ["out/requests.csv", "out_parquet/requests.parquet", "table.csv"],
    "routers.py": ["routers.png"],
}


def commands_in(folder: Path) -> Path:
    """A folder with `python` and `spillway`, for the search path of a shell."""
    folder.mkdir()
    for name, run in (
        ("python", f'exec "{sys.executable}" -W error "$@"'),
        ("spillway", f'exec "{sys.executable}" -c "{COMMAND}" "$@"'),
    ):
        command = folder / name
        command.write_text(f"#!/bin/sh\n{run}\n")
        command.chmod(0o755)
    return folder


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, from which the scripts find the package and each other."""
    for extra in ("matplotlib", "optuna", "pandas", "pyarrow"):
        pytest.importorskip(extra)
    search = f"{commands_in(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", search)
    monkeypatch.setenv("PYTHONPATH", str(Path(spillway.__file__).parents[1]))
    monkeypatch.setenv("MPLBACKEND", "agg")
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_task_is_answered(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = str(TASKS / name)
    if name.endswith(".sh"):
        subprocess.run(["sh", script, "--quick"], check=True)
    else:  # in this process, where the libraries are imported once for all
        monkeypatch.setattr(sys, "argv", [script, "--quick"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runpy.run_path(script, run_name="__main__")
    out, err = capfd.readouterr()
    assert err == ""
    assert re.search(SHOWN[name], out), out
    assert [file for file in WRITTEN.get(name, ()) if not (work / file).stat().st_size] == []


def test_every_task_is_run_and_listed() -> None:
    called = {
        called for script in SHELL for called in re.findall(r"\w+\.(?:py|yaml)", script.read_text())
    }
    scripts = {path.name for path in TASKS.glob("*.py")} | {path.name for path in SHELL}
    assert scripts == set(SHOWN) | (called & scripts) | {"shed_policy.py"}
    readme = (TASKS / "README.md").read_text(encoding="utf-8")
    held = {path.name for path in TASKS.iterdir()} - {"README.md", "__pycache__"}
    assert {name for name in held if f"]({name})" not in readme} == set()
