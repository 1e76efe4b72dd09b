"""Ctrl-C ends every command at any instant: within two seconds, with 130, and without a file.

Searches and sweeps keep a journal, with which the same command then does the rest.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import random
import shutil
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.blis_scenario import SCENARIO
from support.effort import trials
from support.interrupting import COMMAND, MOST_CPU_S, Ended, child
from support.paths import DATA, ROOT
from support.production_runs import served_by
from support.vllm_cases import write_recordings

import spillway
from spillway import cli, workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

CONFIG = """\
schema: 1
workload: {kind: synthetic, num_requests: 20000, requests_per_s: 20}
slo_classes: [{name: standard, target_ttft_s: 1}]
gateway: {limit: {kind: fixed, max_in_flight: 16}}
"""
STUDY = """\
simulation: config.yaml
space: {"gateway.limit[0].max_in_flight": [4, 64], "gateway.bands[0].queue.timeout_s": [0.1, 9]}
maximize: goodput
seeds: 2
trials: 6
confirm: {top: 1, seeds: 2, within: 0}
"""
SWEEP = """\
simulation: config.yaml
grid: {"gateway.limit[0].max_in_flight": [4, 8, 16, 32]}
seeds: 4
metrics: [goodput]
"""
SOLVER = """\
simulation: config.yaml
max_rate_under_slo: {slo: {p99_ttft_ms: "<=800"}, max_requests: 40000}
seeds: 2
"""

COMMANDS: dict[str, str] = {
    "run": "run config.yaml --out out --html out.html --plot out.png",
    "run --seeds": "run config.yaml --seeds 8 --out out --out-format csv",
    "compare": "compare config.yaml other.yaml --seeds 6 --html out.html --plot out.png",
    "diagnose": "diagnose config.yaml --try --seeds 2",
    "why": "why config.yaml 3",
    "advise": "advise trace.csv --slo p50_ttft_ms<=9000 --server model=llama-3.1-8b,gpu=h100 "
    "--replicate replay --out out",
    "check": "check config.yaml",
    "describe": "describe --schema",
    "init": "init --full new.yaml",
    "examples": "examples out",
    "optimize": "optimize study.yaml --out out --html out.html",
    "sweep": "sweep sweep.yaml --out out",
    "sweep of a solver": "sweep solver.yaml --out out",
    "curve": "curve config.yaml --rates 5,10 --seeds 2 --out out.json --plot out.png",
    "read": "read trace.csv",
    "traffic describe": "traffic describe trace.csv",
    "traffic fit": "traffic fit trace.csv -o out.yaml --plot out.png",
    "diff": "diff config.yaml other.yaml",
    "export": "export config.yaml --to llm-d --allow-lossy --out out --price 4",
    "import": f"import {DATA / 'deployments' / 'vllm_0.29'} --from vllm -o out.yaml",
    "serve": "serve config.yaml --port 0 --speed 0 --for 0.1",
    "servers": "servers llama-3.1-8b --gpu h100",
    "calibrate": "calibrate runs -o out.yaml",
    "validate blis": "validate blis recorded",
    "validate vllm-scheduler": "validate vllm-scheduler steps",
    "validate real": "validate real --fit runs",
    "validate recording": "validate recording fleet.yaml production/requests.csv --seeds 2 "
    "--unjudged beta_prefill_us --unjudged beta_decode_us",
    "completion": "completion bash",
}
"""A call of every command, and of every action of one; further ones by names that begin so."""

JOURNALS = {
    "optimize": "out/journal.log",
    "sweep": "out/sweep_journal.jsonl",
    "sweep of a solver": "out/sweep_journal.jsonl",
}
"""What an interrupted command leaves for the next call."""


def write_inputs(folder: Path) -> None:
    """The files that the commands read."""
    folder.mkdir()
    for name, text in (
        ("config", CONFIG), ("other", CONFIG.replace("16}", "32}")), ("study", STUDY),
        ("sweep", SWEEP), ("solver", SOLVER),
    ):  # fmt: skip
        (folder / f"{name}.yaml").write_text(text)
    rng = np.random.default_rng(1)
    rows = zip(np.cumsum(rng.exponential(0.1, 4000)), rng.integers(1, 999, 4000), strict=True)
    lines = [f"{at_s:.6f},{tokens},40" for at_s, tokens in rows]
    (folder / "trace.csv").write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]))
    shutil.copytree(ROOT / "examples" / "measured_runs", folder / "runs")
    for i in range(60):
        (folder / "recorded" / str(i)).mkdir(parents=True)
        for name, text in SCENARIO.items():
            (folder / "recorded" / str(i) / name).write_text(text)
    load = workload.Synthetic(requests_per_s=10, num_requests=1500)
    fleet = served_by(cv=0, workload=load)
    spillway.dump(fleet, folder / "fleet.yaml")
    spillway.simulate(fleet).write(folder / "production")
    (folder / "steps").mkdir()
    write_recordings(folder / "steps", 60)


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class Runs:
    """Runs of commands, each in a folder of its own with the same inputs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._numbers = iter(range(1_000_000))
        self.inputs = root / "inputs"
        write_inputs(self.inputs)

    def folder(self) -> Path:
        """A new folder with the inputs."""
        folder = self._root / f"{next(self._numbers)}"
        shutil.copytree(self.inputs, folder)
        return folder

    def run(self, name: str, folder: Path, cpu_s: float | None = None) -> tuple[Ended, set[str]]:
        """How a command ends, interrupted at an instant or not at all, and what it has written."""
        with child(COMMAND, COMMANDS[name].split(), folder) as process:
            ended = process.ended() if cpu_s is None else process.interrupt_at(cpu_s)
        return ended, files_in(folder) - files_in(self.inputs)

    @functools.cache  # noqa: B019
    def whole(self, name: str) -> tuple[Ended, set[str], Path]:
        """The same of a command that is not interrupted, and its folder."""
        folder = self.folder()
        ended, written = self.run(name, folder)
        assert ended.status == 0, ended.err
        return ended, written, folder

    def check(self, name: str, cpu_s: float) -> bool:
        """Interrupts a command at an instant; returns whether it still had something to do."""
        folder = self.folder()
        ended, written = self.run(name, folder, cpu_s)
        what = f"{name}, interrupted after {cpu_s:.3f} s: {ended}, {written}"
        whole, files, expected = self.whole(name)
        assert ended.cpu_s < MOST_CPU_S, what
        if ended.was_settled:
            assert (ended.status, ended.out, written) == (whole.status, whole.out, files), what
            return False
        assert ended.status == 130, what
        assert ended.err.splitlines()[-1] == "spillway: interrupted", what
        assert ended.err.count("interrupted") == 1, what
        assert "Traceback" not in ended.err, what
        assert "ignored" not in ended.err, what
        assert whole.out.startswith(ended.out), what
        if name not in JOURNALS:
            assert written == set(), what
            return True
        assert written <= {"out", JOURNALS[name]}, what
        again, written = self.run(name, folder)
        assert (again.status, again.out, written) == (0, whole.out, files), what
        for file in sorted(name for name in files if name.endswith(("csv", "json", "yaml"))):
            assert (folder / file).read_bytes() == (expected / file).read_bytes(), (what, file)
        return True


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("interruption"))


def actions_of(command: str) -> Iterator[str]:
    """The command, or each of its actions if it has some."""
    parser = argparse.ArgumentParser()
    importlib.import_module(f"spillway.cli.{command}").add_arguments(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from (f"{command} {name}" for name in action.choices)
            return
    yield command


def test_every_command_has_a_case() -> None:
    known = {action for command in cli.COMMANDS for action in actions_of(command)}
    cases = {name for name in COMMANDS if name in known}
    assert known == cases
    assert all(line.startswith(name.split(maxsplit=1)[0]) for name, line in COMMANDS.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_interrupted_at_random_instants(runs: Runs, name: str) -> None:
    whole, *_ = runs.whole(name)
    assert runs.check(name, 0.3 * whole.cpu_s)
    draws = random.Random(name)
    for _ in trials(6):
        runs.check(name, draws.random() * whole.cpu_s)
