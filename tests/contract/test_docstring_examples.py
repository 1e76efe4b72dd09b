"""The examples in docstrings run, and give what they show.

Collected are the docstrings of public modules and names, of the public members of public classes,
and of all settings. Code in a docstring is an example with `>>>`, so that it runs here.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from support.descriptions import DESCRIPTION
from support.paths import ROOT

import spillway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OPTUNA = importlib.util.find_spec("optuna") is not None

FIRST = (
    *("simulate", "run_many", "load", "dump", "fingerprint", "compare", "check", "start"),
    *("trace", "read_trace", "read_recordings", "Result", "Results", "instance.Server"),
    *("presets.get", "traffic.describe", "files.deployments.export"),
    *("testing.build", "testing.check_policy"),
    *(
        ("Study", "Space", "study.grid", "study.one_at_a_time", "study.isolation")
        if _OPTUNA
        else ()
    ),
    *(("study.max_rate_under_slo", "study.min_instances_for_rate") if _OPTUNA else ()),
    *(("report.plots.sweep",) if importlib.util.find_spec("matplotlib") else ()),
)
"""What a user meets first; each has an example."""


def members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A public value, and of a class its own public methods and properties."""
    yield name, value
    for key, member in vars(value).items() if inspect.isclass(value) else ():
        function = member.fget if isinstance(member, property) else inspect.unwrap(member)
        function = getattr(function, "__func__", function)
        if not key.startswith("_") and callable(function):
            yield f"{name}.{key}", function


def documented() -> dict[str, str]:
    """The docstrings by full name, each once."""
    listed = (ROOT / "tests" / "contract" / "public_names.txt").read_text(encoding="utf-8")
    found = {}
    for line in listed.splitlines():
        name, _, names = line.partition(": ")
        module = importlib.import_module(name)
        found[name] = inspect.getdoc(module) or ""
        for public in names.split(", "):
            for full, value in members(getattr(module, public), f"{name}.{public}"):
                found[full] = inspect.getdoc(value) or ""
    described = [DESCRIPTION]
    for noun in described:
        found[noun["name"]] = noun.get("doc", "")
        for field in noun["fields"]:
            found[f"{noun['name']}.{field['name']}"] = field["doc"]
            described += field.get("alternatives", [field["of"]] if "of" in field else [])
    return found


DOCSTRINGS = documented()
EXAMPLES = {text: name for name, text in reversed(DOCSTRINGS.items()) if ">>> " in text}


def test_what_is_met_first_has_an_example() -> None:
    lacking = [name for name in FIRST if ">>> " not in DOCSTRINGS[f"spillway.{name}"]]
    assert lacking == []


def test_code_is_an_example() -> None:
    fenced = [name for name, text in DOCSTRINGS.items() if "```" in text]
    assert fenced == [], "write the code as an example with >>>, which runs here"


@pytest.mark.parametrize("text", EXAMPLES, ids=EXAMPLES.values())
def test_example_gives_what_it_shows(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    name = EXAMPLES[text]
    test = doctest.DocTestParser().get_doctest(text, {"spillway": spillway}, name, None, None)
    outcome = doctest.DocTestRunner(verbose=False).run(test)
    assert outcome.attempted > 0
    assert outcome.failed == 0
