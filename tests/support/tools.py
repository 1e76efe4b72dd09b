"""What the tests of the tools hold: valid files, and ways to damage them."""

from __future__ import annotations

import importlib
from typing import Any

from support.paths import TESTS


def modules_with(constant: str, part: str) -> list[Any]:
    """The modules `systems/<tool>/test_<part>.py` with a constant."""
    paths = sorted((TESTS / "systems").glob(f"*/test_{part}.py"))
    modules = (importlib.import_module(f"systems.{path.parent.name}.{path.stem}") for path in paths)
    return [module for module in modules if hasattr(module, constant)]
