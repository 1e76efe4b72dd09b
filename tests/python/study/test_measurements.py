"""Sweeps and solvers that continue after an interruption, from the measurements in a file."""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.effort import trials
from support.paths import TESTS
from support.study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import ConfigError, Simulation, cli, dump, workload
from spillway.study import evaluation, grid, max_rate_under_slo
from spillway.study.measurements import Measurements

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.study.sweeps import Sweep

LIMIT, TIMEOUT = SMALL_SPACE
VALUES: dict[str, list[Any]] = {LIMIT: [2, 4, 8, 16, 32, 64], TIMEOUT: [0.5, 1, 2, 4]}
METRICS = ["goodput", {"p99_ttft_ms": -1.0, "shed": -0.1}]
RUNS = 24 * 2

SCRIPT = """
import sys
from support.study_problems import SMALL_SPACE, overloaded
from spillway.study import grid
limit, timeout = SMALL_SPACE
values = {limit: [2, 4, 8, 16, 32, 64], timeout: [0.5, 1, 2, 4]}
grid(overloaded(), values, seeds=2, threads=1, metrics=["goodput"], journal=sys.argv[1])
"""


def sweep(journal: Path | None = None, **more: Any) -> Sweep:
    settings: dict[str, Any] = {"seeds": 2, "metrics": METRICS, "threads": 1, **more}
    return grid(overloaded(), VALUES, journal=journal, **settings)


@functools.cache
def uninterrupted() -> Sweep:
    return sweep()


def interrupting(after: int) -> Callable[[int, int], None]:
    def progress(done: int, _total: int) -> None:
        if done >= after:
            raise KeyboardInterrupt

    return progress


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of configurations that are run together."""
    sizes: list[int] = []
    run = evaluation.finished_runs

    def counting(simulations: Any, *arguments: Any, **more: Any) -> Any:
        sizes.append(len(simulations))
        return run(simulations, *arguments, **more)

    monkeypatch.setattr(evaluation, "finished_runs", counting)
    return sizes


@pytest.mark.parametrize("after", [1, 17, 18, 40, RUNS])
def test_resumed_sweep_equals_an_uninterrupted_one(
    journal: Path, after: int, counted: list[int]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        sweep(journal, progress=interrupting(after))
    kept = len(Measurements(journal))
    assert 2 * kept <= after < 2 * kept + 10
    counted.clear()
    again = sweep(journal)
    assert sum(counted) == 24 - kept
    assert again == uninterrupted()


def test_finished_measurements_are_not_run_again(journal: Path, counted: list[int]) -> None:
    first = sweep(journal)
    counted.clear()
    assert sweep(journal) == first
    assert counted == []
    more = {**VALUES, LIMIT: [*VALUES[LIMIT], 128]}
    grid(overloaded(), more, seeds=2, metrics=METRICS, journal=journal)
    assert sum(counted) == 4


def test_other_seeds_and_metrics_are_other_measurements(journal: Path, counted: list[int]) -> None:
    sweep(journal)
    for change in ({"seeds": 3}, {"seeds": [1, 0]}, {"metrics": ["goodput"]}):
        counted.clear()
        assert sweep(journal, **change) == sweep(**change)
        assert sum(counted) == 48, change


def test_missing_values_are_kept(journal: Path, counted: list[int]) -> None:
    values = {"workload.num_requests": [1, 300]}
    settings: dict[str, Any] = {"seeds": 2, "metrics": ["p99_ttft_ms[tenant=b]"]}
    first = grid(overloaded(), values, journal=journal, **settings)
    counted.clear()
    again = grid(overloaded(), values, journal=journal, **settings)
    assert repr(again.rows) == repr(first.rows)
    assert "nan" in repr(first.rows)
    assert counted == []


def test_figure_without_targets_is_refused_where_it_is_named(journal: Path) -> None:
    """And kept as missing by a sweep that names no metrics."""
    untargeted = Simulation(workload=workload.Synthetic(num_requests=50))
    values = {"router": ["round_robin"]}
    first = grid(untargeted, values, seeds=2, journal=journal)
    again = grid(untargeted, values, seeds=2, journal=journal)
    assert repr(again.rows) == repr(first.rows)
    with pytest.raises(ConfigError, match="no class of these requests has a target"):
        grid(untargeted, values, seeds=2, metrics=list(first.metrics), journal=journal)


def test_functions_are_refused(journal: Path) -> None:
    with pytest.raises(ConfigError, match="must be a figure where a journal keeps the values"):
        sweep(journal, metrics=["goodput", lambda result: result.summary()["goodput"]])
    assert not journal.exists()


@pytest.mark.parametrize("after", [1, 5, 12])
def test_resumed_solver_equals_an_uninterrupted_one(journal: Path, after: int) -> None:
    calls = itertools.count()

    def progress(_done: int, _total: int) -> None:
        if next(calls) == after:
            raise KeyboardInterrupt

    solve = functools.partial(
        max_rate_under_slo,
        overloaded(),
        {"mean_queue_ms": "<=50", "shed": "<=0"},
        seeds=2,
        threads=1,
        max_requests=2000,
    )
    with pytest.raises(KeyboardInterrupt):
        solve(journal=journal, progress=progress)
    assert solve(journal=journal).to_dict() == solve().to_dict()


@pytest.mark.parametrize(
    "content",
    [
        b"garbage\n",
        b"garbage",
        b'{"op_code": 1}\n',
        b'{"key": "a"}\n',
        b'{"key": "a", "measured": 3}\n',
        b'{"key": "a", "measured": {"values": 1, "caveats": [], "trends": []}}\n',
        b'{"key": "a", "measured": {"values": [], "caveats": [], "trends": [{}]}}\n',
        b'{"key": "a", "measured": {"values": [], "caveats": [], "trends": [], "more": 1}}\n',
    ],
)
def test_file_that_is_no_journal_is_refused_and_left(journal: Path, content: bytes) -> None:
    journal.write_bytes(content)
    with pytest.raises(ConfigError, match="line 1: not a measurement of a sweep") as caught:
        sweep(journal)
    assert str(caught.value).startswith(str(journal))
    assert journal.read_bytes() == content


@pytest.mark.parametrize("cut", [2, 10, 200])
def test_torn_last_line_is_measured_again(journal: Path, cut: int, counted: list[int]) -> None:
    sweep(journal)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-cut])
    counted.clear()
    again = sweep(journal)
    assert counted == [1]
    assert again == uninterrupted()
    assert journal.read_bytes() == whole


@pytest.mark.slow
def test_killed_sweep_continues(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(spillway.__file__).parents[1]), str(TESTS)])
    expected = sweep(metrics=["goodput"])
    draws = random.Random(5)
    for i in trials(5):
        journal = tmp_path / f"{i}.jsonl"
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(journal)], env={**os.environ, "PYTHONPATH": path}
        ) as process:
            wanted = draws.randrange(1, 24)
            while process.poll() is None and _lines(journal) < wanted:
                pass
            process.send_signal(signal.SIGKILL)
        assert 0 < len(Measurements(journal)) <= 24
        assert sweep(journal, metrics=["goodput"]) == expected


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_command_removes_its_journal_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], counted: list[int]
) -> None:
    dump(overloaded(), tmp_path / "base.yaml")
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "simulation: base.yaml\nseeds: 2\nmetrics: [goodput]\n"
        f"grid: {{'{LIMIT}': {VALUES[LIMIT]}, '{TIMEOUT}': {VALUES[TIMEOUT]}}}\n"
    )
    out = tmp_path / "out"
    journal = out / "sweep_journal.jsonl"
    command = ["sweep", str(file), "--out", str(out)]
    assert cli.main(command) == 0
    assert [path.name for path in out.iterdir()] == ["sweep.csv"]
    expected = (out / "sweep.csv").read_bytes()
    first = capsys.readouterr()

    for options, num_run in (([], 0), (["--force"], 24)):
        sweep(journal, metrics=["goodput"])
        counted.clear()
        assert cli.main([*command, *options]) == 0
        assert sum(counted) == num_run
        again = capsys.readouterr()
        assert ("continues an interrupted sweep" in again.err) == (not options)
        assert again.out == first.out
        assert (out / "sweep.csv").read_bytes() == expected
        assert not journal.exists()
