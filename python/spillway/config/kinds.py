"""Settings of another kind of policy than a configuration has."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def alternative(field: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The description of one kind of a policy, in that of its setting."""
    return next(each for each in field["alternatives"] if each["kind"] == kind)


def of_other_kinds(
    settings: Any, changes: Mapping[str, Any], error: str
) -> list[tuple[str, str, str]]:
    """The changes that are settings of another kind of policy than the one that is there."""
    found: list[tuple[str, str, str]] = []
    if "unknown setting" not in error:
        return found
    description, values = settings._describe(), settings._to_dict()
    for path in changes:
        if path not in error:
            continue
        above, _, name = path.rpartition(".")
        place, now = _policy_at(description, values, above)
        if place is None or "kind" not in now:
            continue
        known = {
            each["kind"]: [field["name"] for field in each["fields"]]
            + ["preset"] * ("presets" in each)
            for each in place["alternatives"]
        }
        if name in known[now["kind"]]:
            continue
        elsewhere = sorted({field for of_kind in known.values() for field in of_kind})
        near = difflib.get_close_matches(name, elsewhere, n=1)
        if near and near[0] not in known[now["kind"]]:
            kinds = [kind for kind, of_kind in known.items() if near[0] in of_kind]
            whole = f"{{{above!r}: {{'kind': {kinds[0]!r}, {near[0]!r}: …}}}}"
            allowed = (
                f"unknown setting {name!r} of {now['kind']}; {near[0]} is one of "
                f"{', '.join(kinds)}: change the kind too, {whole}"
            )
            found.append((path, "", allowed))
    return found


def _policy_at(description: Any, value: Any, path: str) -> tuple[Any, Any]:
    """The descriptor of the policy at a dotted path and its settings; None where there is none."""
    place: Any = {"type": "struct", "of": description}
    for step in filter(None, path.replace("[", ".[").split(".")):
        key = step.strip("[]")
        if isinstance(value, list):
            labels = [entry.get("name", entry.get("kind")) for entry in value]
            at = key if step.startswith("[") else "0" if len(value) == 1 else ""
            if not at.isdigit():
                at = str(labels.index(at)) if at in labels else "-1"
            if not 0 <= int(at) < len(value):
                return None, {}
            value = value[int(at)]
            if step.startswith("["):
                continue
        if not isinstance(value, dict) or key not in value:
            return None, {}
        inner = place.get("of")
        if place["type"] == "variant":
            inner = alternative(place, value["kind"])
        place = next((field for field in inner["fields"] if field["name"] == key), None)
        if place is None or place["type"] not in ("struct", "variant"):
            return None, {}
        value = value[key]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    is_policy = place["type"] == "variant" and isinstance(value, dict)
    return (place, value) if is_policy else (None, {})
