"""READMEs, guides, a transcript: every block of code runs, every link leads somewhere.

The blocks of a page run in order, in a folder that holds examples/. Python blocks share their
names, and are skipped if they begin with the import of a package that is absent. A YAML block that
begins with the comment `# NAME.yaml` is saved under that name; any other is loaded as a
configuration. A text block is what the page has printed before, with `…` for what is left out of a
line. A shell block of nothing but `spillway` commands runs in this process, which saves the start
of each. A console block needs another machine or package; its `spillway` commands have flags that
exist. Targets of make must exist.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import importing_from

import spillway
from spillway import cli
from spillway.data.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
with importing_from(ROOT / "tools"):
    from documentation import interfaces

TOUR = ROOT / "docs" / "guides" / "tour.md"
GUIDES = sorted((ROOT / "docs").rglob("*.md"), key=lambda page: (page == TOUR, page))
ROOMS = sorted((ROOT / "python" / "spillway").rglob("README.md"))
PAGES = [ROOT / "README.md", *GUIDES, *ROOMS, ROOT / "examples" / "own_admission_policy.md"]
ALL = [
    page
    for page in sorted(ROOT.rglob("*.md"))
    if not {"build", ".venv", ".pytest_cache"} & set(page.relative_to(ROOT).parts)
]
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "bash", "yaml", "text", "console", "none"}
"""Of blocks: `none` is a diagram; the head of this file explains the others."""
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


# Every command in a guide, and the first guide that has it.
IN_GUIDES: dict[str, Path] = {}
for _page in GUIDES:
    for _language, _script, _ in blocks(_page):
        for _line in commands(_script) if _language == "bash" else ():
            IN_GUIDES.setdefault(_line, _page)


def skipped(line: str, page: Path) -> bool:
    """Whether another page runs it: another guide that of the tour, the first guide a fit."""
    if page == TOUR:
        return IN_GUIDES[line] != page
    return line.startswith("spillway calibrate") and IN_GUIDES.get(line, page) != page


def followed(lines: list[str]) -> int:
    """The status of a shell block."""
    plain = re.compile(r"spillway [^|<>;&*$\\`(]*")
    if not all(plain.fullmatch(line) for line in lines):
        return subprocess.run(["bash", "-euc", "\n".join(lines)], check=False).returncode
    return max((cli.main(shlex.split(line)[1:]) for line in lines), default=0)


def is_possible(code: str) -> bool:
    """Whether the package that the first line imports is installed."""
    imported = re.match(r"import (\w+)\n", code)
    return imported is None or importlib.util.find_spec(imported[1]) is not None


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
    python = commands / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
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
            if is_possible(text):
                exec(compile("\n" * line + text, name(page), "exec"), names)
        elif language == "yaml":
            named = re.match(r"# (\S+\.yaml)\n", text)
            file = folder / (named[1] if named else "part.yaml")
            file.write_text(text)
            if not named:
                spillway.load(file)
        elif language == "text":
            shown = re.escape(text).replace("…", ".*")
            assert re.search(f"^{shown}", printed, re.MULTILINE), f"{name(page)}:{line}"
        elif language == "bash":
            lines = [
                command for command in commands(text) if command and not skipped(command, page)
            ]
            assert followed(lines) == 0, f"{name(page)}:{line}: {capfd.readouterr().err}"
        printed += "".join(capfd.readouterr())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_states_its_language(page: Path) -> None:
    fences = re.findall(r"^\s*```", page.read_text(encoding="utf-8"), re.MULTILINE)
    languages = [language for language, *_ in blocks(page)]
    assert len(fences) == 2 * len(languages)
    assert set(languages) <= LANGUAGES


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_commands_for_another_machine_have_flags_that_exist(page: Path) -> None:
    script = "".join(text for language, text, _ in blocks(page) if language == "console")
    for line in script.replace("\\\n", "").splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "))
        if program == "spillway":
            interfaces.parser_of(arguments[0]).parse_args(arguments[1:])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name)
def test_targets_of_make_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = [text for language, text, _ in blocks(page) if language == "bash"]
    code += re.findall(r"`(make [^`]+)`", text)
    commands = re.findall(r"^make ([a-z0-9 -]+)", "\n".join(code), re.MULTILINE)
    assert {target for command in commands for target in command.split()} <= set(TARGETS)


@pytest.mark.parametrize("page", ALL, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_guides_are_listed() -> None:
    folder = ROOT / "docs" / "guides"
    index = (folder / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in folder.glob("*.md") if f"]({page.name})" not in index]
    assert missing == ["README.md"]


def test_figures_of_the_guide_exist() -> None:
    page = ROOT / "docs" / "guides" / "read_a_result.md"
    explained = re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert explained
    assert set(explained) <= set(FIGURES)
