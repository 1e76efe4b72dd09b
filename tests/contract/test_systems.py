"""Folders of systems: each is documented, and a new one is found by its presence."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import ROOT, TESTS

import spillway
from spillway.files import deployments, export, recordings
from spillway.files.format import Format
from spillway.files.formats import formats
from spillway.files.loads import LoadFormat
from spillway.files.requests_file import RequestsFile
from spillway.traffic import loads

if TYPE_CHECKING:
    from collections.abc import Collection

SYSTEMS = ROOT / "python" / "spillway" / "systems"
PAGE = SYSTEMS / "README.md"
TOOLS = sorted(path for path in SYSTEMS.iterdir() if (path / "__init__.py").exists())
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.name)

MODULES = {
    "traces": {"trace"},
    "measurements": {"recording", "step_log", "metrics", "points"},
    "loads": {"load"},
    "deployments": {"deployment"},
    "presets": {"presets"},
    "results": {"result", "counters"},
}


def modules(tool: Path) -> set[str]:
    return {path.stem for path in tool.glob("*.py")} - {"__init__"}


@each_tool
def test_the_docstring_is_a_sentence(tool: Path) -> None:
    module = ast.parse((tool / "__init__.py").read_text(encoding="utf-8"))
    doc = ast.get_docstring(module) or ""
    assert re.fullmatch(r"\w[^.\n]*\.", doc), doc


@each_tool
def test_the_page_names_every_module_with_versions_and_checks(tool: Path) -> None:
    lines = (tool / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == {f"{name}.py" for name in modules(tool)}
    assert {row.count("|") for row in rows} == {5}
    assert all(row.strip("| ").rpartition("|")[2].strip() for row in rows)
    assert "```python" in lines


def test_the_table_of_tools() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"| tool | {' | '.join(MODULES)} |" in text.splitlines()
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)/README\.md\) \|(.*)\|$", text, re.MULTILINE)
    marks = {True: " ✓ ", False: " "}
    assert rows == [
        (
            tool.name,
            tool.name,
            "|".join(marks[bool(part & modules(tool))] for part in MODULES.values()),
        )
        for tool in TOOLS
    ]


TESTED_ELSEWHERE = {
    "aiperf/result.py": "files/test_benchmark_files.py",
    "blis/runs.py": "parity/test_blis.py",
    "dynamo/counters.py": "signals/test_busy_monitor.py",
    "guidellm/report.py": "systems/guidellm/test_recording.py",
    "llm_d/parameters.py": "systems/llm_d/test_deployment.py",
    "llm_d/result.py": "files/test_benchmark_files.py",
    "llm_d/writing.py": "systems/llm_d/test_deployment.py",
    "sglang/lines.py": "systems/sglang/test_recording.py",
    "vllm/speculation.py": "systems/vllm/test_deployment.py",
}


@each_tool
def test_every_module_has_tests(tool: Path) -> None:
    for name in modules(tool):
        file = TESTED_ELSEWHERE.get(f"{tool.name}/{name}.py", f"systems/{tool.name}/test_{name}.py")
        assert (TESTS / file).exists()


IMPORTED = """
import importlib, sys
for name in sys.argv[1:]:
    for known in list(sys.modules):
        if known.startswith(("spillway.files", "spillway.presets", "spillway.systems")):
            del sys.modules[known]
    importlib.import_module(name)
"""


def test_every_module_can_be_imported_first() -> None:
    names = [f"spillway.systems.{tool.name}.{module}" for tool in TOOLS for module in modules(tool)]
    subprocess.run([sys.executable, "-c", IMPORTED, *sorted(names)], check=True)


@pytest.mark.parametrize(
    ("kind", "listed", "own"),
    [
        (Format, formats("trace"), {"columns"}),
        (Format, recordings.FORMATS, {"folder", "csv", "columns", "points"}),
        (deployments.Target, deployments.TARGETS, set()),
        (LoadFormat, [load.name for load in loads.FORMATS], set()),
        (RequestsFile, export.FILES, {"csv", "parquet"}),
    ],
    ids=["traces", "recordings", "deployments", "loads", "results"],
)
def test_every_constant_is_listed(kind: Any, listed: Collection[str], own: set[str]) -> None:
    names = [f"spillway.systems.{tool.name}.{module}" for tool in TOOLS for module in modules(tool)]
    content = (vars(importlib.import_module(name)).values() for name in names)
    found = [
        value.name
        for values in content
        for value in values
        if isinstance(value, kind) and (kind is not Format or listed.get(value.name) is value)  # type: ignore[attr-defined]
    ]
    assert sorted([*found, *own]) == sorted(listed)  # so names are unique


def test_a_folder_is_all_that_a_new_tool_needs(tmp_path: Path) -> None:
    """The modules that the page shows, in the package, and then the command that it shows."""
    package = tmp_path / "package" / "spillway"
    tool = package / "systems" / "ticker"
    tool.mkdir(parents=True)
    installed = Path(spillway.__file__).parent
    for folder, copy in ((installed, package), (installed / "systems", package / "systems")):
        for path in folder.iterdir():
            if path.name != "systems":
                (copy / path.name).symlink_to(path)
    page = PAGE.read_text(encoding="utf-8")
    for found in re.finditer(r"```python\n# systems/ticker/(\w+\.py)\n(.*?)```", page, re.DOTALL):
        (tool / found[1]).write_text(found[2])
    (tool / "__init__.py").write_text('"""Ticker: its traces and its gateway."""\n')
    assert modules(tool) == {"presets", "trace"}
    lines = [f'{{"tick": {at}, "words": {{"in": 9, "out": 2}}, "team": "a"}}\n' for at in (5, 7)]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    (tmp_path / "experiment.yaml").write_text("schema: 1\n")
    command = re.search(r"^\$ spillway (check .*--trace-tick-unit s .*)$", page, re.MULTILINE)
    assert command
    script = f"python -m spillway.cli {command[1].replace('check', 'run')} --json"
    found = subprocess.run(
        ["bash", "-c", script.replace("python", sys.executable, 1)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"completed": 2' in found.stdout
