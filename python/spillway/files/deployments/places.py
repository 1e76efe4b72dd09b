"""Where a policy stands in the settings of a simulation, by its path in the descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.config.describe import descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Step(NamedTuple):
    """A field on the way: its name, whether it holds a list, and the kind chosen in it, if any."""

    name: str
    is_list: bool
    kind: str | None


class Policy:
    """A kind of policy at a place, e.g. `token_bucket` in every `gateway.admission`.

    `field`: the path of the setting that holds it, with `[]` for every entry of a list of
    structures; `smallest`: the least allowed values of its numbers; `choices`: a value for each of
    its texts that is not the default.
    """

    def __init__(self, steps: Sequence[_Step], fields: Sequence[Mapping[str, Any]]) -> None:
        self._steps = steps
        bounds = {field["name"]: field.get("at_least") for field in fields}
        self.smallest = {name: least for name, least in bounds.items() if least is not None}
        self.choices = [
            {field["name"]: choice}
            for field in fields
            for choice in field.get("choices", ())
            if choice != field["default"]
        ]
        self.field = ".".join(
            f"{step.name}[]" if step.is_list and step.kind is None else step.name for step in steps
        )

    def put_into(
        self, settings: dict[str, Any], numbers: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Complete settings, changed in place to have the policy; `numbers` or its defaults."""
        _put(settings, self._steps, numbers or {})
        return settings

    def found_in(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The settings of the policy, once for each time that it occurs."""
        found: list[Any] = [settings]
        for step in self._steps:
            values = (holder[step.name] for holder in found)
            entries = (entry for value in values for entry in (value if step.is_list else [value]))
            found = [entry for entry in entries if step.kind is None or entry["kind"] == step.kind]
        return found


def policy_at(path: str) -> Policy | None:
    """The policy at a dotted path; None if another setting is there.

    Raises ConfigError for an unknown path.
    """
    names = [
        name for name in path.replace("[", ".").replace("]", "").split(".") if not name.isdigit()
    ]
    steps: list[_Step] = []
    place: Mapping[str, Any] = {}
    for i, name in enumerate(names):
        is_kind = place.get("type") == "variant"
        place = descriptor(".".join(names[: i + 1]))
        if is_kind:
            steps[-1] = steps[-1]._replace(kind=name)
        else:
            steps.append(_Step(name, bool(place.get("sequence")), None))
    if not steps or steps[-1].kind is None:
        return None
    return Policy(steps, place["of"]["fields"])


def _put(settings: dict[str, Any], steps: Sequence[_Step], numbers: Mapping[str, Any]) -> None:
    step, *below = steps
    held = settings.get(step.name, [] if step.is_list else {})
    entries = held if step.is_list else [held]
    if step.kind is not None:
        entries = [entry for entry in entries if below and entry.get("kind") == step.kind]
        entries = entries or [{"kind": step.kind, **({} if below else numbers)}]
        settings[step.name] = entries if step.is_list else entries[0]
    for entry in entries if below else ():
        _put(entry, below, numbers)
