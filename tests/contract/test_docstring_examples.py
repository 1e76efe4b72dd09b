"""The examples in docstrings of public names run, and give what they show."""

from __future__ import annotations

import doctest
import importlib
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import ROOT

import spillway

if TYPE_CHECKING:
    from pathlib import Path

FIRST = (
    *("simulate", "run_many", "load", "compare", "check", "start", "trace", "read_trace"),
    *(("Study",) if importlib.util.find_spec("optuna") else ()),
)
"""What a user meets first; each has an example."""


def documented() -> dict[str, Any]:
    """Everything with an example, by its full name."""
    listed = (ROOT / "tests" / "contract" / "public_names.txt").read_text(encoding="utf-8")
    found = {}
    for line in listed.splitlines():
        module, _, names = line.partition(": ")
        for name in names.split(", "):
            value = getattr(importlib.import_module(module), name)
            if ">>>" in (inspect.getdoc(value) or ""):
                found[f"{module}.{name}"] = value
    return found


EXAMPLES = documented()


def test_what_is_met_first_has_an_example() -> None:
    assert {f"spillway.{name}" for name in FIRST} <= EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_gives_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (test,) = doctest.DocTestFinder(recurse=False).find(
        EXAMPLES[name], name, module=False, globs={"spillway": spillway}
    )
    outcome = doctest.DocTestRunner(verbose=False).run(test)
    assert outcome.attempted > 0
    assert outcome.failed == 0
