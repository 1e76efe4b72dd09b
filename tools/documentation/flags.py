"""How the flags of systems are read, found by reading each of them."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from documentation.markdown import code, prose
from spillway import ConfigError, Simulation
from spillway.files.deployments import TARGETS
from spillway.files.deployments.flag_table import number
from spillway.files.deployments.target import Piece
from spillway.systems.dynamo.deployment import ENGINE_FLAGS, ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from spillway.files.deployments.target import Target

_VALUES = ("2", "auto", "fp8", "m")
_ORDER = (
    "exact", "approximated", "not simulated", "not modeled", "of the engine", "irrelevant"
)  # fmt: skip
_WORSE = ("irrelevant", "exact", "not simulated", "not modeled")
_EFFECTS = {"irrelevant": "irrelevant", "not_simulated": "not simulated", "assumed": "exact"}
_MODELS = {"sglang": ("--model-path", "m"), "dynamo": ()}


def rows(folder: Path, target: Target) -> list[list[str]]:
    """Program, flags, versions, and how they are read; of each program a row per way."""
    if not (folder / "flags.csv").exists():
        return []
    with (folder / "flags.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    newest = target.versions[-1]
    ways: dict[tuple[str, str, str], list[str]] = {}
    for row in {(row["program"], row["flag"]): row for row in table}.values():
        last = row["last"] or newest
        version = max((v for v in target.versions if number(v) <= number(last)), key=number)
        first = min((other["first"] for other in table if _same(other, row)), key=number)
        span = f"from {first}" if not row["last"] else f"{first} to {last}"
        span = "all" if first == target.versions[0] and not row["last"] else span
        name = f"--{row['flag']}"
        way = _way(target, row, version)
        ways.setdefault((row["program"], way, span), []).append(name)
    order = sorted(ways, key=lambda key: (key[0], _ORDER.index(key[1]), number(key[2]) or (0,)))
    return [
        [code(program), way, span, ", ".join(map(code, ways[program, way, span]))]
        for program, way, span in order
    ]


def _same(one: dict[str, str], other: dict[str, str]) -> bool:
    return (one["program"], one["flag"]) == (other["program"], other["flag"])


def _way(target: Target, row: dict[str, str], version: str) -> str:
    """How a flag is read: the worst of its values."""
    if row["flag"] in dict(target.approximated):
        return "approximated"
    if row["program"] in ENGINES and row["flag"] in ENGINE_FLAGS:
        return "of the engine"
    found = {way for words in _words(row) if (way := _read(target, row, words, version))}
    return max(found or {"not simulated"}, key=_WORSE.index)


def _words(row: dict[str, str]) -> Iterator[tuple[str, ...]]:
    name = f"--{row['flag']}"
    if row["kind"] in ("switch", "pair"):
        yield (name,)
        if row["kind"] == "pair":
            yield (f"--no-{row['flag']}",)
    else:
        yield from ((name, value) for value in _VALUES)


def _read(target: Target, row: dict[str, str], words: tuple[str, ...], version: str) -> str | None:
    """How words are read; None if their value is invalid."""
    assert target.read_pieces is not None
    model = _MODELS.get(target.name, ("m",)) if row["flag"] not in ("model", "model-path") else ()
    piece = Piece(where="x", system=target.name, program=row["program"], words=(*words, *model))
    settings = Simulation().to_dict()
    try:
        unread = target.read_pieces([piece], settings, version, None)
    except ConfigError as error:
        return None if row["flag"] in str(error) else "not simulated"
    effects = [entry.effect for entry in unread if entry.field == f"x: {row['flag']}"]
    if "not_modeled" in effects:
        return "not modeled"
    reasons = [entry.reason for entry in unread if entry.field == f"x: {row['flag']}"]
    if any("give gpu" in reason for reason in reasons):
        return "exact"
    return _EFFECTS[effects[0]] if effects else "exact"


def near(target: Target) -> list[list[str]]:
    """The flags whose settings are not exact, and how they are read."""
    return [[code(f"--{flag}"), prose(text)] for flag, text in target.approximated]


def targets() -> list[Target]:
    """The systems that have a table of flags."""
    return [target for target in TARGETS.values() if target.read_pieces is not None]
