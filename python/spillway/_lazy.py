"""Packages that import their modules, and the names in them, when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


def lazy_modules(
    package: str, names: list[str]
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that offers these modules."""

    def __getattr__(name: str) -> ModuleType:  # noqa: N807
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        return importlib.import_module(f"{package}.{name}")

    return __getattr__, lambda: names


def lazy_names(
    namespace: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that offers names of modules.

    `namespace`: the globals of the package, which keep a name after its first use; `homes`: the
    module of each name, within the package unless it begins with `spillway.`.
    """
    package = namespace["__name__"]

    def __getattr__(name: str) -> object:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        home = homes[name]
        full_name = home if home.startswith("spillway.") else f"{package}.{home}"
        found = namespace[name] = getattr(importlib.import_module(full_name), name)
        return found

    return __getattr__, lambda: namespace["__all__"]
