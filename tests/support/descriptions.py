"""The descriptions of classes of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def current(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a structure that are not deprecated."""
    return [field for field in description["fields"] if "deprecated" not in field]
