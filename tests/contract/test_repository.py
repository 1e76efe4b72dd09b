"""Workflows, hooks and indexes refer to files and targets that exist."""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MOST_LINES = 700
"""A longer source holds parts that are better read apart."""
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(workflow: Path) -> Iterator[str]:
    """Every command of a workflow, once for each combination of its job's matrix."""
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        matrix: dict[str, list[Any]] = job.get("strategy", {}).get("matrix", {})
        for values in itertools.product(*matrix.values()):
            for step in job["steps"]:
                text = step.get("run", "")
                for name, value in zip(matrix, values, strict=True):
                    text = text.replace(f"${{{{ matrix.{name} }}}}", str(value))
                yield from text.splitlines()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_make_what_exists(workflow: Path) -> None:
    made = [line.split()[1:] for line in commands(workflow) if line.startswith("make ")]
    assert {word for word in itertools.chain(*made) if "=" not in word} <= TARGETS


def test_the_weekly_workflow_makes_the_weekly_targets() -> None:
    script = [sys.executable, ROOT / "tools" / "weekly.py", "--list"]
    targets = json.loads(subprocess.check_output(script))
    assert set(targets) <= TARGETS
    (workflow,) = (path for path in WORKFLOWS if path.name == "scheduled.yml")
    made = {line.rpartition("TARGETS=")[2] for line in commands(workflow) if "TARGETS=" in line}
    assert made == set(targets)


def test_workflows_cover_the_supported_pythons() -> None:
    (tests,) = (path for path in WORKFLOWS if path.name == "tests.yml")
    tested = yaml.safe_load(tests.read_text())["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    built = re.findall(r"cp3(\d+)-\*", project)
    assert tested == [f"3.{minor}" for minor in built]
    assert f'requires-python = ">={tested[0]}"' in project


def test_only_the_tag_of_a_checked_release_uploads() -> None:
    (wheels,) = (path for path in WORKFLOWS if path.name == "wheels.yml")
    jobs = yaml.safe_load(wheels.read_text())["jobs"]
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert {*jobs["publish"]["needs"]} == jobs.keys() - {"publish"}
    assert "github.ref_type == 'tag'" in jobs["publish"]["if"]


def test_pre_commit_uses_the_tools_of_the_checks() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    entries = [hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"]]
    assert len(entries) == 3
    for entry in entries:
        command = entry.removesuffix(" --force-exclude").replace(".venv/bin", "$(BIN)")
        assert f"\t{command}" in makefile.replace("\t@", "\t"), entry


def test_sources_are_short_enough_to_read() -> None:
    lines = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("cpp", "python")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".cpp", ".h", ".py"}
    }
    assert len(lines) > 400
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_variable_of_the_package_is_called_one() -> None:
    """`tools/check_language.py` denies the name in loops and lambdas alone."""
    found = []
    for path in sorted((ROOT / "python").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_set = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if is_set else node.arg if isinstance(node, ast.arg) else ""
            if name == "one":
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_index_lists_every_experiment() -> None:
    index = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    names = {path.parent.name for path in (ROOT / "experiments").glob("*/run.py")}
    assert set(re.findall(r"\]\((\w+)/README\.md\)", index)) == names
