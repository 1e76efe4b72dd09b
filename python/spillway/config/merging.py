"""Settings over other settings, as a configuration file's over those of presets.

A mapping changes the settings that it names; entries with names, such as tenants, change the entry
of that name or add one; entries without a name change the only entry, if there is one. Any other
list replaces the other one, and so does a policy of another kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings `own` over `base`."""
    return {**base} | {
        key: _over(base[key], value) if key in base else value for key, value in own.items()
    }


def _over(base: Any, own: Any) -> Any:
    if isinstance(base, list) or isinstance(own, list):
        if isinstance(own, dict | list):
            return _entries(_listed(base), _listed(own))
    elif (
        isinstance(base, dict)
        and isinstance(own, dict)
        and "preset" not in own  # which replaces all settings of its structure
        and own.get("kind", base.get("kind")) == base.get("kind")
    ):
        return merged(base, own)
    return own


def _listed(settings: Any) -> list[Any]:
    return settings if isinstance(settings, list) else [settings]


def _entries(base: list[Any], own: list[Any]) -> list[Any]:
    base_by_name, own_by_name = _by_name(base), _by_name(own)
    if base_by_name and own_by_name:
        return list(merged(base_by_name, own_by_name).values())
    if len(base) == 1:
        return [_over(base[0], entry) for entry in own]
    return own


def _by_name(entries: list[Any]) -> dict[str, Any]:
    """Entries by name, if all have different names; else empty."""
    found = {
        entry["name"]: entry
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }
    return found if len(found) == len(entries) else {}
