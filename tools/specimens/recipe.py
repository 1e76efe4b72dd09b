"""What a tool's recipe consists of."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .server import Behavior

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

USUAL = Behavior()
FAILING = Behavior(statuses=(200, 200, 200, 429, 200, 200, 500))
"""Two of seven requests fail."""


@dataclass(frozen=True)
class Case:
    """A measurement: `{url}`, `{port}` and `{tokenizer}` stand for those of the stub server."""

    command: list[str]
    client: dict[str, Any]
    """The facts that a reader should find: `max_in_flight` (None: open), `warmup_requests`, …"""
    behavior: Behavior = USUAL
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that the tool reads, by name."""


@dataclass(frozen=True)
class Recipe:
    """How a tool is installed and run, and what is kept of its output."""

    versions: tuple[str, ...]
    packages: Callable[[str], list[str]]
    cases: Callable[[str], dict[str, Case]]
    keep: Mapping[str, Callable[[str], str]]
    """Pattern of files that are kept → what makes them small."""
    expected: Callable[[Path], list[dict[str, Any]]]
    """The tool's own figures, a dictionary per run, from the folder of its whole output."""
    changes: str = ""
    """What was removed from the output."""
    python: str = "3.11"
    environment: Mapping[str, str] = field(default_factory=dict)


def version_of(text: str) -> tuple[int, ...]:
    """A version that can be compared."""
    return tuple(int(part) for part in text.split(".")[:3])


def compact(found: Any) -> str:
    """JSON in one line."""
    return json.dumps(found, separators=(",", ":")) + "\n"


def without(found: Any, dropped: frozenset[str]) -> Any:
    """A copy without these keys, at any depth."""
    if isinstance(found, dict):
        return {key: without(value, dropped) for key, value in found.items() if key not in dropped}
    if isinstance(found, list):
        return [without(value, dropped) for value in found]
    return found


def scaled(value: float | None, scale: float) -> float | None:
    """A figure in another unit; None stays None."""
    return None if value is None else value * scale
