"""The README, the guides, a transcript: every block of code runs, every link leads somewhere.

The blocks of a page run in order, in a folder that holds examples/. Python blocks share their
names; a YAML block that begins with the comment `# NAME.yaml` is saved under that name; a text
block is what the page has printed before. Targets of make must exist.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spillway
from spillway.data.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *GUIDES, ROOT / "examples" / "own_admission_policy.md"]
ALL = [
    page
    for page in sorted(ROOT.rglob("*.md"))
    if not {"build", ".venv", ".pytest_cache"} & set(page.relative_to(ROOT).parts)
]
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
BLOCK = re.compile(r"^```(python|bash|yaml|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Not followed by an address of another server or by a part of the page itself.
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)[^)]*\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """Language, text and first line of each block."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start(2))


def commands(script: str) -> list[str]:
    """The lines of a shell block without comments, and without `make`."""
    lines = (line.split("  #")[0].rstrip() for line in script.splitlines())
    return [line for line in lines if not line.startswith("make ")]


IN_GUIDES = {
    line
    for page in GUIDES
    for language, script, _ in blocks(page)
    if language == "bash"
    for line in commands(script)
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page is followed: with examples/, and `spillway` on the path."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = tmp_path / ".bin"
    commands.mkdir()
    command = commands / "spillway"
    command.write_text(
        f"#!{sys.executable}\nimport sys, spillway_cli\nsys.exit(spillway_cli.main())\n"
    )
    command.chmod(0o755)
    package = Path(spillway.__file__).parents[1]
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(package))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_can_be_followed(page: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for extra in ("matplotlib", "optuna", "pandas"):
        pytest.importorskip(extra)
    names: dict[str, Any] = {}
    printed = ""
    for language, text, line in blocks(page):
        if language == "python":
            # As many empty lines before it as on the page, for the line numbers of errors.
            exec(compile("\n" * line + text, name(page), "exec"), names)
        elif language == "yaml" and (named := re.match(r"# (\S+\.yaml)\n", text)):
            (folder / named[1]).write_text(text)
        elif language == "text":
            assert text in printed, f"{name(page)}:{line}"
        elif language == "bash":
            lines = commands(text)
            if page.name == "README.md" and page.parent == ROOT:  # what a guide runs, runs there
                lines = [one for one in lines if one not in IN_GUIDES]
            done = subprocess.run(["bash", "-euc", "\n".join(lines)], check=False)
            assert done.returncode == 0, f"{name(page)}:{line}: {capfd.readouterr().err}"
        printed += capfd.readouterr().out


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name)
def test_targets_of_make_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = [text for language, text, _ in blocks(page) if language == "bash"]
    code += re.findall(r"`(make [^`]+)`", text)
    commands = re.findall(r"^make ([a-z0-9 -]+)", "\n".join(code), re.MULTILINE)
    assert {target for one in commands for target in one.split()} <= set(TARGETS)


@pytest.mark.parametrize("page", ALL, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [one for one in links if not (page.parent / one).exists()] == []


def test_guides_are_listed() -> None:
    index = (ROOT / "docs" / "guides" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in GUIDES if f"]({page.name})" not in index] == ["README.md"]


def test_figures_of_the_guide_exist() -> None:
    page = ROOT / "docs" / "guides" / "read_a_result.md"
    explained = re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert explained
    assert set(explained) <= set(FIGURES)
