"""Every script and every file of examples/ runs, and the trace is what its script writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import spillway
from spillway import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(set(EXAMPLES.glob("*.py")) - {EXAMPLES / "noisy_neighbor_demo.py"})
"""The demo has tests of its own (test_demo.py)."""
SMALLEST = {"learned_limit.py": ["--generations", "1"]}
FILES = sorted(EXAMPLES.glob("*.yaml"))
STUDIES = [path for path in FILES if path.stem.endswith("_study")]
SWEEPS = [path for path in FILES if path.stem.endswith("_sweep")]
SIMULATIONS = [path for path in FILES if path not in (*STUDIES, *SWEEPS)]


def names(path: Path) -> str:
    return path.name


def run(script: Path, folder: Path) -> str:
    """What a script prints, run in a folder; any warning or message on stderr is a failure."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(script), *SMALLEST.get(script.name, ())],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(spillway.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=names)
def test_script_prints_an_answer(script: Path, tmp_path: Path) -> None:
    assert any(character.isdigit() for character in run(script, tmp_path))


@pytest.mark.parametrize("path", SIMULATIONS, ids=names)
def test_simulation_serves_requests(path: Path) -> None:
    simulation = spillway.load(path).with_({"workload.num_requests": 500})
    assert spillway.simulate(simulation).ledger["completed"] > 0


def test_trace_is_that_of_its_script(tmp_path: Path) -> None:
    run(EXAMPLES / "record_trace.py", tmp_path)
    trace = EXAMPLES / "requests.csv"
    assert (tmp_path / trace.name).read_text() == trace.read_text()
    assert trace.stat().st_size < 100_000
    assert spillway.read_trace(trace).rows == 2000


def test_measured_runs_are_those_of_their_script(tmp_path: Path) -> None:
    run(EXAMPLES / "measure_a_server.py", tmp_path)
    committed = sorted((EXAMPLES / "measured_runs").iterdir())
    assert len(committed) == 4
    for path in committed:
        assert (tmp_path / "measured_runs" / path.name).read_text() == path.read_text()
    assert len(spillway.read_recordings(EXAMPLES / "measured_runs")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=names)
def test_study_finds_something_feasible(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    assert cli.main(["optimize", str(path), "--trials", "2", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "best.yaml").exists()


@pytest.mark.parametrize("path", SWEEPS, ids=names)
def test_sweep_writes_its_rows(path: Path, tmp_path: Path) -> None:
    assert cli.main(["sweep", str(path), "--out", str(tmp_path)]) == 0
    assert len((tmp_path / "sweep.csv").read_text().splitlines()) == 1 + 6


def test_readme_lists_every_example() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in EXAMPLES.iterdir() if f"]({path.name})" not in readme]
    assert [name for name in missing if name not in ("README.md", "__pycache__")] == []
