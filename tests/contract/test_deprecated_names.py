"""Moved names still work under their old names, with a warning that states the new one."""

from __future__ import annotations

import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spillway
from spillway import _deprecated, analysis, config, data, profiles

if TYPE_CHECKING:
    from collections.abc import Iterator

SIMULATION = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 2})


@pytest.fixture(autouse=True)
def _forget_old_modules() -> Iterator[None]:
    """Lets every test be the first that uses an old name."""

    def forget() -> None:
        for name in _deprecated.MODULES:
            if sys.modules.pop(name, None):
                package, _, leaf = name.rpartition(".")
                delattr(sys.modules[package], leaf)

    forget()
    yield
    forget()


@pytest.mark.parametrize("name", _deprecated.MODULES)
def test_an_old_module_has_what_it_had(name: str) -> None:
    homes = _deprecated.MODULES[name]
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(name)} has moved to ") as caught:
        old = importlib.import_module(name)
    (warning,) = caught
    assert warning.filename == __file__
    assert all(home in str(warning.message) for home in homes)
    modules = [importlib.import_module(home) for home in homes]
    assert set(old.__all__) == {one for module in modules for one in module.__all__}
    for module in modules:
        for one in module.__all__:
            assert getattr(old, one) is getattr(module, one)
    assert importlib.import_module(name) is old  # and does not warn again


@pytest.mark.parametrize("name", _deprecated.NAMES)
def test_an_old_name_is_what_it_was(name: str) -> None:
    module, _, leaf = name.rpartition(".")
    home, _, new = _deprecated.NAMES[name].rpartition(".")
    expected = f"^{re.escape(name)} has moved to {re.escape(home)}.{re.escape(new)};"
    with pytest.warns(DeprecationWarning, match=expected) as caught:
        old = getattr(importlib.import_module(module), leaf)
    assert old is getattr(importlib.import_module(home), new)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "name", ["spillway.interop.blis", "spillway.report.tables", "spillway.study.confirmation"]
)
def test_a_module_that_has_lost_names_has_no_others(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'nothing'$"):
        importlib.import_module(name).nothing  # noqa: B018


def test_statements_of_all_kinds() -> None:
    with pytest.warns(DeprecationWarning, match=r"^spillway\.results has moved"):
        from spillway.results import Figures, Result
    assert Result is spillway.Result
    assert Figures is data.figures.Figures
    with pytest.warns(DeprecationWarning, match=r"^spillway\.describe has moved"):
        from spillway import describe
    assert describe.starter is config.describe.starter
    with pytest.warns(DeprecationWarning, match=r"^spillway\.overload has moved"):
        assert spillway.overload.recovery is analysis.recovery.recovery
    with pytest.warns(DeprecationWarning, match=r"^spillway\.files has moved"):
        import spillway.files as old
    assert old.load is spillway.load
    scope: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match=r"^spillway\.decisions has moved"):
        exec("from spillway.decisions import *", scope)
    assert scope["Decisions"] is data.decisions.Decisions


def test_an_attribute_of_the_package_that_stays_does_not_warn() -> None:
    assert spillway.profiles is profiles is config.profiles
    with pytest.warns(DeprecationWarning, match=r"^spillway\.profiles has moved"):
        from spillway.profiles import vllm
    assert vllm is config.profiles.vllm


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("spillway._config", "spillway.config.classes", SIMULATION),
        ("spillway.results", "spillway.result", spillway.simulate(SIMULATION)),
        (
            "spillway._statistics",
            "spillway.data.statistics",
            spillway.Interval(mean=1, low=0, high=2, n=3),
        ),
    ],
)
def test_old_pickles_are_read(old: str, new: str, value: object) -> None:
    text = pickle.dumps(value, protocol=0)
    assert f"c{new}\n".encode() in text
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(old)} has moved"):
        found = pickle.loads(text.replace(f"c{new}\n".encode(), f"c{old}\n".encode()))
    assert type(found) is type(value)
    assert repr(found) == repr(value)


def test_new_names_are_not_old_ones() -> None:
    homes = {home for homes in _deprecated.MODULES.values() for home in homes}
    assert not (homes | set(_deprecated.NAMES.values())) & _deprecated.MODULES.keys()


@pytest.mark.slow
def test_nothing_of_the_package_uses_an_old_name() -> None:
    """Every module, imported separately with the warning as an error."""
    code = (
        "import importlib, pkgutil, spillway\n"
        "for one in pkgutil.walk_packages(spillway.__path__, 'spillway.'):\n"
        "    if not one.name.endswith('__main__'):\n"
        "        importlib.import_module(one.name)\n"
        "print(sum(name.startswith('spillway.') for name in __import__('sys').modules))\n"
    )
    path = str(Path(spillway.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 80
