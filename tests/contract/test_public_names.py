"""What users may rely on: the names of public modules, which the reference documents.

A module is public if it has `__all__` and no part of its name begins with an underscore. All others
may change without notice. `public_names.txt` lists the names; those of settings, which the core
describes, are left out.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spillway

if TYPE_CHECKING:
    from types import ModuleType

LIST = Path(__file__).with_name("public_names.txt")
MOST_MODULES = 45
MOST_NAMES = 300


def public_modules() -> dict[str, ModuleType]:
    names = [found.name for found in pkgutil.walk_packages(spillway.__path__, "spillway.")]
    visible = [name for name in names if not any(part[0] == "_" for part in name.split("."))]
    modules = map(importlib.import_module, ["spillway", *visible])
    return {module.__name__: module for module in modules if hasattr(module, "__all__")}


MODULES = public_modules()


def is_setting(value: Any) -> bool:
    return inspect.isclass(value) and hasattr(value, "_describe")


def names_of(module: ModuleType) -> list[str]:
    return [name for name in sorted(module.__all__) if not is_setting(getattr(module, name))]


def test_public_names_are_those_of_the_list() -> None:
    """After a change of what is public: write the printed lines into the list."""
    found = {name: names for name, module in MODULES.items() if (names := names_of(module))}
    lines = [f"{name}: {', '.join(names)}\n" for name, names in sorted(found.items())]
    assert LIST.read_text(encoding="utf-8") == "".join(lines)


def test_the_front_stays_small() -> None:
    assert len(MODULES) <= MOST_MODULES
    assert sum(len(names_of(module)) for module in MODULES.values()) <= MOST_NAMES


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_names_exist_once_and_are_offered(module: ModuleType) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
    assert set(module.__all__) <= set(dir(module)), "completion would not offer some"
