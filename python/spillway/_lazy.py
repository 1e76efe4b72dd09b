"""Packages that import their modules when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
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
