"""Presets as text: `spillway describe presets`, `presets.NAME` and `scenarios`."""

from __future__ import annotations

import inspect
import itertools
import re
from typing import TYPE_CHECKING, Any

from spillway._core.cluster import Simulation
from spillway.config.formatting import wrapped
from spillway.presets import by_name
from spillway.servers import listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.presets.preset import Preset


def table(kind: str | None = None) -> str:
    """All presets, or those of one kind: a line each, grouped by kind and source."""
    kinds = by_name.KINDS if kind is None else [kind]
    presets = [by_name.get(name) for each in kinds for name in by_name.names(each)]
    width = max(len(preset.name) for preset in presets)
    blocks = []
    for each_kind, of_kind in itertools.groupby(presets, lambda preset: preset.kind):
        lines = [f"{each_kind}: {by_name.KINDS[each_kind]}"]
        for source, of_source in itertools.groupby(of_kind, lambda preset: preset.source):
            lines.append(wrapped(source, "  "))
            lines += [
                f"    {preset.name:{width}}  {_first_sentence(preset.doc)}" for preset in of_source
            ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def describe(path: str) -> str | None:
    """The output of `spillway describe` for presets, scenarios and servers, or None."""
    if path == "scenarios":
        return scenarios()
    if path == "servers":
        return listing.table()
    if path == "presets":
        return f"{table()}\n\n{_presets_of_settings()}"
    if path.startswith("presets."):
        name = path.removeprefix("presets.")
        preset, doc = by_name.get(name), inspect.getdoc(by_name.function_of(name))
        return preset.in_words(doc) if doc else str(preset)
    return None


def document(path: str) -> Any:
    """What `describe` says as plain values: presets by name, or models and accelerators."""
    if path == "servers":
        return listing.catalog()
    if path.startswith("presets."):
        return _preset(path.removeprefix("presets."))
    kinds = ["scenario"] if path == "scenarios" else by_name.KINDS
    return {name: _preset(name) for kind in kinds for name in by_name.names(kind)}


def _preset(name: str) -> dict[str, Any]:
    preset = by_name.get(name)
    return {"kind": preset.kind, "doc": preset.doc, "source": preset.source}


def scenarios() -> str:
    """All scenarios as text: the purpose of each, and its clients."""
    return "\n\n".join(_scenario(by_name.get(name)) for name in by_name.names("scenario"))


def _scenario(preset: Preset) -> str:
    lines = [
        f"{preset.name} ({preset.duration_s:g} s)",
        wrapped(f"{preset.doc} Source: {preset.source}.", "  "),
    ]
    for client in preset.workload.clients:
        until = (
            f"for {client.duration_s:g} s"
            if client.num_requests is None
            else f"until {client.num_requests:,} requests"
        )
        rate = f"{client.requests_per_s:g} requests/s"
        lines.append(f"    {client.tenant}: {rate} from {client.start_s:g} s {until}")
    return "\n".join(lines)


def _first_sentence(doc: str) -> str:
    return re.split(r"(?<=\.)\s", doc, maxsplit=1)[0]


def _presets_of_settings() -> str:
    """The published values that belong to single classes of settings."""
    places: dict[tuple[str, ...], list[str]] = {}

    def walk(description: Mapping[str, Any], path: str) -> None:
        if "presets" in description:
            places.setdefault(tuple(description["presets"]), []).append(path)
        for field in description["fields"]:
            below = f"{path}.{field['name']}".lstrip(".")
            if field["type"] == "struct":
                walk(field["of"], below)
            for alternative in field.get("alternatives", []):
                walk(alternative, f"{below}.{alternative['kind']}")

    walk(Simulation._describe(), "")
    lines = ["values of one policy, as `preset: NAME` at its path"]
    for names, paths in places.items():
        lines += [f"  {', '.join(paths)}", wrapped(", ".join(names), "    ")]
    return "\n".join(lines)
