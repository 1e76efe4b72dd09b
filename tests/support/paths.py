"""Paths in the repository."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
SHARED = ROOT.parent / "shared"
"""Recorded runs and traces that do not belong to the repository; tests that need them skip."""
REFERENCE = Path(os.environ.get("SPILLWAY_REFERENCE") or SHARED / "reference")
"""What other systems decided, recorded; the environment variable names another folder."""


def vectors(name: str) -> list[dict[str, Any]]:
    """The recorded cases of a file of `REFERENCE`, e.g. "llm_d/picker"; none if it is not there."""
    path = REFERENCE / f"{name}.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


@contextlib.contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Lets scripts of a folder be imported as modules."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def written(root: Path, files: dict[str, str]) -> Path:
    """The folder, with files of these contents by their names in it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root
