"""The coefficients of step times that a configuration states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway._core.cluster import Simulation


class Coefficient(NamedTuple):
    """A number in the settings of a latency model, and the groups of instances that share it."""

    name: str
    """Path within `latency`, such as `mean.beta0_us`."""
    value: float
    groups: tuple[int, ...]
    """Positions in `instances`."""

    def times(self, factor: float, simulation: Simulation) -> Simulation:
        """The simulation with this coefficient changed by a factor."""
        groups = list(simulation.instances)
        for i in self.groups:
            latency = groups[i].latency.to_dict()
            holder: Any = latency
            *path, last = self.name.split(".")
            for part in path:
                holder = holder[part]
            holder[last] *= factor
            groups[i] = groups[i].replace(latency=latency)
        return simulation.replace(instances=groups)


def coefficients(simulation: Simulation) -> dict[str, Coefficient]:
    """The coefficients of the step times that are not 0.

    Groups with equal step times share theirs. Where there are several step times, a name begins
    with its first group: `instances[1].weights_us`.
    """
    alike: dict[str, list[int]] = {}
    for i, group in enumerate(simulation.instances):
        alike.setdefault(repr(group.latency), []).append(i)
    found = {}
    for members in alike.values():
        prefix = "" if len(alike) == 1 else f"instances[{members[0]}]."
        for name, value in _numbers(simulation.instances[members[0]].latency.to_dict()):
            last = name.rpartition(".")[2]
            is_of_step = last.endswith(("_us", "_scale")) and not last.startswith("alpha")
            if is_of_step and value > 0:
                found[prefix + name] = Coefficient(name, value, tuple(members))
    return found


def _numbers(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, float(value)


def is_named(name: str, coefficient: str) -> bool:
    """Whether a coefficient is meant, by its whole name or its last part."""
    return name == coefficient or coefficient.endswith(f".{name}")
