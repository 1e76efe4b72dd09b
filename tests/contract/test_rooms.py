"""The Python package keeps its dependency rule, read from its import statements."""

from __future__ import annotations

import ast
import graphlib
import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.paths import written

import spillway
from spillway import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(spillway.__file__).parent

# A module imports from its own room and from those of a lower rank; rooms of one rank are siblings
# and do not meet. Imports within functions and for type checkers count like all others.
RANK = {
    "_core": 0,
    "_lazy": 0,
    "_registry": 0,
    "config": 1,
    "data": 2,
    "servers": 2,
    "analysis": 3,
    "instance": 3,
    "report": 3,
    "presets": 3,
    "files": 4,
    "findings": 4,
    "systems": 5,
    "traffic": 6,
    "loading": 7,
    "result": 7,
    "checking": 8,
    "session_record": 8,
    "session_status": 8,
    "simulate": 8,
    "calibration": 9,
    "session": 9,
    "comparison": 9,
    "diagnosis": 9,
    "study": 10,
    "advice": 11,
    "envs": 11,
    "live": 11,
    "validation": 11,
    "__init__": 12,
    "testing": 13,
    "cli": 14,
}

# Modules that lie beside the rooms, and the room that each belongs to.
ROOM_OF = {
    **dict.fromkeys(
        ("fleet", "gateway", "metrics", "policies", "router", "signals", "workload"), "config"
    ),
    **dict.fromkeys(("_c_functions", "_source_code"), "config"),
}


def room_of(module: str) -> str:
    """The room of a module, which is named without the package: `study.space` → `study`."""
    first = module.partition(".")[0]
    return ROOM_OF.get(first, first)


def modules(root: Path) -> dict[str, Path]:
    """The modules of a package by their names within it; its own is `__init__`."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: set[str]) -> Iterator[str]:
    """What a file imports of the package `spillway`; texts that name a module count too."""

    def within(name: str) -> str | None:
        """The module that a full name belongs to; None outside of the package."""
        package, _, rest = name.partition(".")
        if package != "spillway":
            return None
        if not rest:
            return "__init__"
        while rest not in known and "." in rest:
            rest = rest.rpartition(".")[0]
        return rest if rest in known or rest.startswith("_core") else "__init__"

    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value.partition("spillway.")[2] in known else []
        yield from filter(None, map(within, names))


def violations(root: Path) -> list[str]:
    """Everything in a package that breaks a rule, as `module: what`."""
    known = modules(root)
    graph: dict[str, set[str]] = {}
    found = []
    for name, path in known.items():
        room = room_of(name)
        if room not in RANK:
            found.append(f"{name}: lies in no known room")
            continue
        used = set(imported(path.read_text(encoding="utf-8"), {*known}))
        graph[name] = used - {name}
        for other in sorted(used):
            theirs = room_of(other)
            if theirs != room and RANK.get(theirs, 0) >= RANK[room]:
                found.append(f"{name}: imports {other}")
    if not found:
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            found.append(f"circle: {' → '.join(error.args[1])}")
    return found


def test_package_keeps_the_rule() -> None:
    assert violations(PACKAGE) == []


def test_every_room_is_seen() -> None:
    seen = {room_of(name) for name in modules(PACKAGE)}
    assert seen | {"_core", "testing"} == RANK.keys()
    text = (PACKAGE / "simulate.py").read_text(encoding="utf-8")
    assert {"_core", "loading", "result"} <= set(imported(text, {*modules(PACKAGE)}))


CLEAN = {
    "__init__.py": 'from spillway.simulate import simulate\n_HOMES = {"load": "spillway.loading"}',
    "router.py": "from spillway.config import classes\nfrom spillway._core import sim\n",
    "config/__init__.py": '"""See `spillway.study`."""\n',
    "config/classes.py": "from spillway._core.sim import ConfigError\n",
    "presets/__init__.py": "from spillway.router import Weighted\n",
    "data/result_data.py": "import json\nfrom spillway.config.classes import rebuild\n",
    "report/tables.py": "from spillway.data import result_data\n",
    "result.py": "def f():\n    from spillway.report.tables import table\n",
    "loading.py": "from spillway import presets, router\n",
    "simulate.py": "from spillway.result import Result\nfrom spillway import loading\n",
    "study/__init__.py": "from spillway.study.space import Space\n",
    "study/space.py": "import spillway.simulate\n",
    "cli/__init__.py": "import spillway\nfrom spillway.cli.run import run\n",
    "cli/run.py": "from spillway import study\n",
}

BROKEN = {
    "upwards": ("data/x.py", "from spillway.result import Result", "imports result"),
    "within a function": ("config/x.py", "def f():\n    import spillway.loading", "loading"),
    "for types": (
        "data/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from spillway.study import Study",
        "imports study",
    ),
    "sibling": ("analysis/x.py", "from spillway.report import tables", "imports report.tables"),
    "sibling module": ("loading.py", "from spillway.result import Result", "imports result"),
    "a noun": (
        "workload.py",
        "from spillway.data.result_data import ResultData",
        "imports data.result_data",
    ),
    "the package": ("simulate.py", "from spillway import Study", "imports __init__"),
    "the package itself": ("study/x.py", "import spillway", "imports __init__"),
    "the command line": ("testing/x.py", "from spillway import cli", "imports cli"),
    "as text": ("study/x.py", 'import_module("spillway.cli.run")', "imports cli.run"),
    "a new room": ("utils.py", "", "lies in no known room"),
    "a circle": (
        "study/space.py",
        "from spillway.study.y import f\n",
        "circle: study.space → study.y → study.space",
    ),
}


def test_clean_package_has_no_violation(tmp_path: Path) -> None:
    assert violations(written(tmp_path, CLEAN)) == []


@pytest.mark.parametrize("name", BROKEN)
def test_violation_is_found(tmp_path: Path, name: str) -> None:
    file, content, expected = BROKEN[name]
    around = {"study/y.py": "from spillway.study.space import Space\n"} if "circle" in name else {}
    (found,) = violations(written(tmp_path, CLEAN | around | {file: content}))
    assert expected in found


def test_every_command_is_a_module() -> None:
    found = set()
    for info in pkgutil.iter_modules(cli.__path__):
        if info.name == "__main__":  # runs when imported
            continue
        module = importlib.import_module(f"spillway.cli.{info.name}")
        if {"add_arguments", "run"} <= vars(module).keys():
            found.add(info.name)
    assert found == set(cli.COMMANDS)
