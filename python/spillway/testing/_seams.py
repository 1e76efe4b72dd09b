"""The settings of a simulation that take policies, from the field descriptors."""

from __future__ import annotations

import functools
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway import policies as python_policies
from spillway._core.cluster import Simulation
from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Seam:
    """A setting of a simulation that holds policies.

    Attributes
    ----------
    name
        Class and setting, e.g. "Gateway.admission".
    path
        Its path, e.g. "gateway.bands[0].fairness".
    is_list
        Whether it holds several policies.
    above
        Choices above it in the path: paths with the values they must have.
    """

    name: str
    path: str
    is_list: bool
    above: tuple[tuple[str, Any], ...]


@functools.cache
def seams() -> Mapping[str, Seam]:
    """The seam of every policy, by the name of its class; the one nearest to the root."""
    found: dict[str, Seam] = {}
    places: deque[tuple[Mapping[str, Any], str, tuple[tuple[str, Any], ...]]] = deque()
    places.append((Simulation._describe(), "", ()))
    while places:  # breadth first
        noun, prefix, above = places.popleft()
        for field in noun["fields"]:
            path = f"{prefix}{field['name']}"
            is_list = bool(field.get("sequence"))
            entry = f"{path}[0]" if is_list else path
            if field["type"] == "struct":
                is_there = not field.get("optional") and field["default"] != []
                default: Any = [{}] if is_list else {}
                more = above if is_there else (*above, (path, default))
                places.append((field["of"], f"{entry}.", more))
            elif field["type"] == "variant":
                seam = Seam(f"{noun['name']}.{field['name']}", path, is_list, above)
                for alternative in field["alternatives"]:
                    found.setdefault(alternative["name"], seam)
                    kind = {"kind": alternative["kind"]}
                    chosen = (path, [kind] if is_list else kind)
                    places.append((alternative, f"{entry}.", (*above, chosen)))
    return found


def as_settings(policy: Any) -> Any:
    """The settings of a policy that is written in Python; anything else as it is."""
    if hasattr(policy, "kind") or not callable(policy):
        return policy
    return python_policies.settings(policy)


def seam_of(policy: object) -> Seam:
    """The seam of a policy.

    Raises ConfigError if it is not a policy.
    """
    seam = seams().get(type(policy).__name__)
    if seam is None or not hasattr(type(policy), "kind"):
        allowed = "must be a policy, e.g. gateway.TokenBucket()"
        raise config_error([("policy", repr(policy), allowed)])
    return seam


def placed(
    policies: Sequence[object], simulation: Simulation, changes: Mapping[str, Any]
) -> Simulation:
    """The simulation with `changes` and with policies of one seam.

    Raises ConfigError if they do not fit.
    """
    seam = seam_of(policies[0])
    for i, policy in enumerate(policies):
        if seam_of(policy) != seam:
            allowed = f"must be of the same setting as the first, {seam.name}"
            raise config_error([(f"policy[{i}]", repr(policy), allowed)])
    if len(policies) > 1 and not seam.is_list:
        raise config_error([("policy", f"{len(policies)} policies", f"{seam.path} takes one")])
    value = list(policies) if seam.is_list else policies[0]
    for path, chosen in seam.above:
        if not _is_chosen(simulation, path, chosen):
            simulation = simulation.with_({path: chosen})
    return simulation.with_({**changes, seam.path: value})


def _is_chosen(simulation: Simulation, path: str, chosen: Any) -> bool:
    """Whether the value at the path already has the chosen kind."""
    held: Any = simulation
    for step in re.findall(r"\w+", path):
        held = held[int(step)] if step.isdigit() else getattr(held, step)
    if isinstance(chosen, list):
        (chosen,) = chosen
        held = held[0] if held else None
    return held is not None and chosen.get("kind") == getattr(held, "kind", None)
