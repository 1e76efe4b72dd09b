"""Names that have moved, and settings that are replaced.

The old ones work until the next release, with a DeprecationWarning.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

MODULES: Mapping[str, tuple[str, ...]] = {
    "spillway.decisions": (
        "spillway.data.decisions",
        "spillway.analysis.routing",
        "spillway.analysis.regret",
        "spillway.analysis.group_age",
    ),
    "spillway.describe": ("spillway.config.describe",),
    "spillway.files": (
        "spillway.config.files",
        "spillway.config.filesystem",
        "spillway.config.schema",
        "spillway.data.export",
        "spillway.loading",
    ),
    "spillway.overload": ("spillway.analysis.recovery", "spillway.data.targets"),
    "spillway.profiles": ("spillway.config.profiles",),
    "spillway.randomness": ("spillway.config.randomness",),
    "spillway.report.study_plots": ("spillway.study.plots",),
    "spillway.results": (
        "spillway.data.figures",
        "spillway.data.requests",
        "spillway.result",
    ),
    "spillway.stationarity": ("spillway.analysis.stationarity",),
    "spillway.timeline": ("spillway.data.timeline",),
    # Pickles of simulations and intervals name these.
    "spillway._config": ("spillway.config.classes",),
    "spillway._statistics": ("spillway.data.statistics",),
}
"""Old name of a module → the modules that have its content now."""

NAMES: Mapping[str, str] = {
    "spillway.interop.blis.Report": "spillway.validation.blis.Report",
    "spillway.interop.blis.ScenarioReport": "spillway.validation.blis.ScenarioReport",
    "spillway.interop.blis.validate": "spillway.validation.blis.validate",
    "spillway.report.tables.study": "spillway.study.tables.study",
    "spillway.study.confirmation.Cliff": "spillway.study.confirmation.Neighbor",
    "spillway.study.confirmation.neighbours": "spillway.study.confirmation.neighbors",
}
"""Old → new name of what has moved or was renamed in a module that still exists."""


def moved(module: str, name: str) -> Any:
    """The object that had a name of a module; AttributeError if none had."""
    old = f"{module}.{name}"
    if old not in NAMES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    new = NAMES[old]
    _warn_moved(old, new)
    home, _, name = new.rpartition(".")
    return getattr(importlib.import_module(home), name)


class Finder:
    """Finds modules by their old names; the last of `sys.meta_path`."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """How to import a module that has moved; None for any other."""
        return ModuleSpec(name, self) if name in MODULES else None  # type: ignore[arg-type]

    def create_module(self, _: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fills a module with what it once held."""
        homes = MODULES[module.__name__]
        _warn_moved(module.__name__, " and ".join(homes))
        for home in map(importlib.import_module, homes):
            vars(module).update({name: getattr(home, name) for name in home.__all__})
        module.__all__ = [name for name in vars(module) if not name.startswith("_")]  # type: ignore[attr-defined]


def setting(old: str, replacement: str) -> None:
    """Warns that a setting, as `Class.name`, has a value; the core calls this."""
    _warn(f"{old} is deprecated: state {replacement}; the next release removes it")


def _warn_moved(old: str, new: str) -> None:
    _warn(f"{old} has moved to {new}; the next release removes the old name")


def _warn(message: str) -> None:
    """Warns at the caller that uses the old name, outside the package and Python's import."""
    frame = sys._getframe()
    while frame.f_back and _package(frame.f_globals) in ("spillway", "importlib"):
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        DeprecationWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__", "<string>"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _package(namespace: Mapping[str, Any]) -> str:
    """The outermost package of the module that a namespace belongs to."""
    return str(namespace.get("__name__", "")).partition(".")[0]
