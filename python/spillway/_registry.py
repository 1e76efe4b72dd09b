"""What the folders of systems hold. A folder `systems/<tool>/` is known by its presence.

The rooms below `systems/` find its modules by their names, when these are first needed.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import ModuleType

_ROOT = Path(__file__).parent
_T = TypeVar("_T")


@functools.cache
def modules(part: str) -> dict[str, ModuleType]:
    """The modules `systems/<tool>/<part>.py` by tool, in alphabetical order."""
    tools = sorted(path.parent.name for path in (_ROOT / "systems").glob(f"*/{part}.py"))
    parts = (".".join((_ROOT.name, "systems", tool, part)) for tool in tools)
    return dict(zip(tools, map(importlib.import_module, parts), strict=True))


def found(kind: type[_T], *parts: str) -> list[_T]:
    """The constants of a type in these modules of all systems."""
    return [
        value
        for part in parts
        for module in modules(part).values()
        for value in vars(module).values()
        if isinstance(value, kind)
    ]
