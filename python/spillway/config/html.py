"""Settings as a tree of HTML, for notebooks."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from spillway.config.kinds import alternative

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_MOST_ITEMS = 20
_LONGEST_TEXT = 80


def tree(name: str, description: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """A tree that folds. What differs from the defaults is bold, and open at the start.

    Parameters
    ----------
    name
        Of the settings as a whole.
    description, values
        Of a structure: as `_describe()` and `to_dict()` return them.

    """
    return _folded(name, list(_fields(description, values)), is_changed=True)


def _fields(
    struct: Mapping[str, Any], values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Iterator[tuple[bool, str]]:
    """Per field: whether it differs from the default, and its HTML.

    `defaults`: where those of the structure are not in force.
    """
    for field in struct["fields"]:
        name, value = field["name"], values.get(field["name"], field["default"])
        default = (defaults or {}).get(name, field["default"])
        is_changed = value != default
        inner = list(_items(field, value, default))
        if inner:
            yield is_changed, _folded(_titled(name, value), inner, is_changed)
            continue
        unit = f" {field['unit']}" if field["unit"] and value is not None else ""
        yield is_changed, _emphasized(f"{name}: {_short(value)}{unit}", is_changed)


def _items(field: Mapping[str, Any], value: Any, default: Any) -> Iterator[tuple[bool, str]]:
    """The settings within a value; nothing for a number, a text or a list of these."""
    if field["type"] not in ("struct", "variant"):
        return
    if isinstance(value, dict):
        is_like = isinstance(default, dict) and default.get("kind") == value.get("kind")
        yield from _fields(_struct_of(field, value), value, default if is_like else None)
        return
    for i, item in enumerate(value or ()):
        if i == _MOST_ITEMS:
            yield False, f"… {len(value) - i} more"
            return
        inner = list(_fields(_struct_of(field, item), item, item if value == default else None))
        is_changed = any(differs for differs, _ in inner)
        yield is_changed, _folded(_titled(f"[{i}]", item), inner, is_changed)


def _struct_of(field: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    if field["type"] == "struct":
        struct: Mapping[str, Any] = field["of"]
        return struct
    return alternative(field, value["kind"])


def _titled(name: str, value: Any) -> str:
    """A name with what names the value."""
    if isinstance(value, list):
        return f"{name} ({len(value)})"
    what = value.get("kind", value.get("name", ""))
    return f"{name}: {what}" if what else name


def _folded(title: str, inner: list[tuple[bool, str]], is_changed: bool) -> str:
    lines = "".join(f"<li>{item}</li>" for _, item in inner)
    opened = " open" if is_changed and inner else ""
    summary = _emphasized(title, is_changed)
    style = "list-style: none; margin: 0; padding-left: 1.2em"
    return (
        f'<details{opened}><summary>{summary}</summary><ul style="{style}">{lines}</ul></details>'
    )


def _emphasized(text: str, is_changed: bool) -> str:
    escaped = html.escape(text)
    return f"<b>{escaped}</b>" if is_changed else escaped


def _short(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"kind"}:
        return str(value["kind"])
    text = "unset" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
