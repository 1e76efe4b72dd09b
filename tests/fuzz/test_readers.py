"""A few damaged files through every reader; `make fuzz-readers` tries more."""

from __future__ import annotations

import ast
import random
import warnings
from typing import TYPE_CHECKING

import pytest
from support.effort import scaled
from support.paths import ROOT
from support.readers import READERS, damaged, outcome
from support.watchdog import watched

if TYPE_CHECKING:
    from pathlib import Path


def _written(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", READERS)
def test_valid_files_are_read(name: str, tmp_path: Path) -> None:
    """Or the damaged ones would all fail for a reason of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [
            outcome(READERS[name], _written(files, tmp_path / str(i)))
            for i, files in enumerate(READERS[name].seeds())
        ]
    assert "value" in outcomes


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_give_a_value_or_a_documented_error(name: str, tmp_path: Path) -> None:
    seeds = READERS[name].seeds()
    for i in range(scaled(60)):
        rng = random.Random(f"{name} {i}")
        folder = _written(damaged(rng.choice(seeds), rng), tmp_path / str(i))
        with warnings.catch_warnings(), watched(10):
            warnings.simplefilter("ignore")
            outcome(READERS[name], folder)


def test_every_public_reader_takes_part() -> None:
    """Functions `read_…` of the package, by name, in the table of readers."""
    table = (ROOT / "tests" / "support" / "readers.py").read_text(encoding="utf-8")
    missing = set()
    for path in (ROOT / "python" / "spillway").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        readers = {name for name in defined if name.startswith("read_")}
        missing |= {name for name in readers if str(name) not in table}
    assert not missing
