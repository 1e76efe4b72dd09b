"""The commands of docs/guides/measurement_sources.md, with the sample file of each tool.

The samples hold a few requests, so each command ends where the fit asks for more: it has then read
the file, under the options of the guide.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from support.paths import DATA

from spillway.cli import main

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "measurement_sources.md"
SAMPLES = DATA / "recordings"
FILES = {
    "rate4.json": "vllm_bench.json",
    "serve.log": "serve.log",
    "late.prom": "metrics.prom",
    "artifacts/profile_export.jsonl": "aiperf_0_13.jsonl",
    "benchmarks.json": "guidellm_0_8.json",
    "per_request_lifecycle_metrics.json": "inference_perf_0_7.json",
    "users16.jsonl": "sglang.jsonl",
    "trace.csv": "blis.csv",
    "trace.yaml": "blis.yaml",
    "gateway.csv": "gateway.csv",
}
TOO_FEW = re.compile(
    r"must hold at least 50 steps|must be >= 100 between the two scrapes"
    r"|no run is left to fit: .* of its requests (failed|can be compared)"
)
BLOCK = re.compile(r"^```console\n\$ (spillway .*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))


def test_every_tool_has_a_command() -> None:
    sections = re.findall(r"^## (.*)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(sections) == 9
    assert len(COMMANDS) == 10  # the log of steps has two
    used = {name for name in FILES if any(name in command for command in COMMANDS)}
    assert {*FILES} - used == {"trace.yaml"}  # which is read beside trace.csv


@pytest.mark.filterwarnings("ignore::UserWarning")  # notes on what was read
@pytest.mark.parametrize("command", COMMANDS, ids=lambda line: line.split()[2])
def test_the_command_reads_the_file_of_the_tool(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, sample in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(SAMPLES / sample, tmp_path / name)
    late = (tmp_path / "late.prom").read_text()
    counts = re.compile(r"(_bucket\{.*\}|_sum\{.*\}|_total\{.*\}) .*")
    (tmp_path / "early.prom").write_text(counts.sub(r"\1 0.0", late))
    (tmp_path / "load.yaml").write_text("workload: {kind: synthetic, num_requests: 30}\n")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    assert program == "spillway"
    assert main(arguments) != 0
    assert TOO_FEW.search(capsys.readouterr().err)
