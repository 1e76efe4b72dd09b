"""Dotted paths of a simulation: the descriptor and the current value of a setting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spillway import policies
from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway._core.cluster import Simulation


_STEP = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<selector>[^\]]*)\]")


def lookup(simulation: Simulation, path: str) -> tuple[Mapping[str, Any], Any]:
    """The descriptor of the field at `path` and its value in the form of `to_dict`.

    A parameter of a policy written in Python is a field, too: `router.parameters.threshold`.

    Raises ConfigError if this simulation has no such setting.
    """
    steps = [match.group("name", "selector") for match in _STEP.finditer(path)]
    description: Mapping[str, Any] = simulation._describe()
    value: Any = simulation.to_dict()
    held: Any = simulation
    owner: Any = simulation
    field: Mapping[str, Any] = {}
    inside = True  # a structure, as opposed to a field that a selector may follow
    for name, selector in steps:
        if selector is not None:
            if inside or not isinstance(value, list):
                raise _nowhere(path, f"[{selector}]")
            index = _selected(path, value, selector)
            value, held = value[index], held[index]
            field = {key: item for key, item in field.items() if key != "sequence"}
            continue
        if not inside:
            if field.get("sequence") and isinstance(value, list):
                if len(value) != 1:
                    raise config_error([(path, "", f"must select one of the {len(value)} entries")])
                value, held = value[0], held[0]
            if field["name"] == "parameters" and getattr(owner, "kind", None) == "python":
                return policies.parameter_field(owner, name, path)
            description = _noun(path, field, value)
        if "presets" in description and steps[-1] == (name, selector) == ("preset", None):
            return _preset(simulation, path, description)
        field = field_of(description, name, path, field.get("alternatives", ()))
        owner, value, held = held, value.get(name, field["default"]), getattr(held, name)
        inside = False
    if inside:
        raise config_error([(path, "", "must be the path of a setting")])
    return field, value


def _preset(
    simulation: Simulation, path: str, description: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str | None]:
    """The presets of a structure as a choice, with the one that the simulation has, if any."""
    names = description["presets"]
    field = {"name": "preset", "type": "choice", "choices": names, "default": None, "unit": ""}
    own = (name for name in names if simulation.with_({path: name}) == simulation)
    return field, next(own, None)


def field_of(
    description: Mapping[str, Any],
    name: str,
    path: str,
    alternatives: Iterable[Mapping[str, Any]] = (),
) -> Mapping[str, Any]:
    """The descriptor of a structure's field.

    The ConfigError names the valid fields, and the alternatives to a policy that have the field.
    """
    fields: dict[str, Mapping[str, Any]] = {field["name"]: field for field in description["fields"]}
    if name in fields:
        return fields[name]
    kind = description.get("kind", "this")
    allowed = f"one of {', '.join(fields)}" if fields else f"{kind} has no settings"
    kinds = [
        other["kind"]
        for other in alternatives
        if any(field["name"] == name for field in other["fields"])
    ]
    if kinds:
        place = re.sub(r"\[[^\]]*\]$", "", path.rpartition(".")[0])
        allowed += f"; of {', '.join(kinds)}: vary the policy as a whole, {place}: {{kinds: "
        allowed += f"{{{kinds[0]}: {{{name}: …}}}}}}"
    raise config_error([(path, "", f"unknown setting {name!r}; {allowed}")])


def _selected(path: str, items: list[Any], selector: str) -> int:
    if selector in map(str, range(len(items))):
        return int(selector)
    labels = [_label(item) for item in items]
    if selector in labels:
        return labels.index(selector)
    known = [f"[{i if label is None else label}]" for i, label in enumerate(labels)]
    raise _nowhere(path, f"[{selector}]", f"; one of {', '.join(known) or 'none'}")


def _label(item: Any) -> str | None:
    """The label of a list entry: its name, its kind, or its first setting if that is text."""
    if not isinstance(item, dict):
        return None
    label = item.get("name", item.get("kind", next(iter(item.values()), None)))
    return label if isinstance(label, str) else None


def _noun(path: str, field: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    if value is None or field["type"] not in ("struct", "variant"):
        raise _nowhere(path, field["name"])
    if field["type"] == "struct":
        found: Mapping[str, Any] = field["of"]
        return found
    return alternative(field, value["kind"], path)


def alternative(field: Mapping[str, Any], kind: str, path: str) -> Mapping[str, Any]:
    """The descriptor of one kind of a variant; the ConfigError names the valid kinds."""
    known = {description["kind"]: description for description in field.get("alternatives", ())}
    if kind not in known:
        kinds = ", ".join(known) or "none"
        raise config_error([(path, repr(kind), f"unknown kind; one of {kinds}")])
    description: Mapping[str, Any] = known[kind]
    return description


def _nowhere(path: str, step: str, hint: str = "") -> Exception:
    return config_error([(path, "", f"no such setting in this simulation: {step!r}{hint}")])
