"""What of a search a system can carry: the values that its configuration files can hold.

Found by exports: a number is carried if the files change with it, an option if it is no loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.files.deployments import TARGETS, unchecked
from spillway.files.deployments.target import pattern_of
from spillway.study.space import BoundSpace, Choice, Kinds, Space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation
    from spillway.files.deployments import Export
    from spillway.study.space import Parameter, Point


class Carried(NamedTuple):
    """A search of what a system can carry.

    `space`: the rest of the space; `simulation`: without the policies that reject or hold requests
    and are lost; `left_out`: a line for each part of either that is missing.
    """

    space: Space
    simulation: Simulation
    left_out: tuple[str, ...]


def carried(space: Space, simulation: Simulation, to: str) -> Carried:
    """The part of a search that a system can carry.

    Raises ConfigError for an unknown system, and if nothing is left.
    """
    as_it_is = unchecked(simulation, to)
    found = _Found(space.bind(simulation), to)
    dimensions: dict[str, Any] = {}
    for path, dimension in space.dimensions.items():
        if isinstance(dimension, Choice):
            kept = {
                label: option
                for label, option in dimension.options
                if found.has_option(path, path, label)
            }
            if kept:
                dimensions[path] = Choice(kept)
        elif isinstance(dimension, Kinds):
            kinds = {
                kind: {
                    name: written
                    for name, written in fields.items()
                    if found.has_field(f"{path}[{kind}].{name}")
                }
                for kind, fields in dimension.kinds
                if found.has_option(path, path, kind)
            }
            if kinds:
                dimensions[path] = Kinds(kinds)
        elif found.has_field(path):
            dimensions[path] = dimension
    if not dimensions:
        reasons = "\n".join(found.left_out)
        raise config_error([("space", "", f"holds nothing that {to} can carry:\n{reasons}")])
    bare, absent = _without_lost(simulation, as_it_is, list(dimensions))
    return Carried(Space(dimensions, space.order_lines()), bare, (*absent, *found.left_out))


class _Found:
    """What exports of the points of a space show."""

    def __init__(self, space: BoundSpace, to: str) -> None:
        self._space = space
        self._to = to
        self._target = TARGETS[to.partition("@")[0]]
        self.left_out: list[str] = []

    def has_field(self, name: str) -> bool:
        """Whether the files change with a parameter; one that the space fixes is kept."""
        parameter = self._space.parameters.get(name)
        if parameter is None:
            return True
        if not parameter.is_numeric:
            labels = [label for label in parameter.labels if self.has_option(name, name, label)]
            return len(labels) == len(parameter.labels)
        if any(self._changes_files(parameter, beside) for beside in self._surroundings()):
            return True
        self.left_out.append(f"not searched: {name}: {self._reason(name)}")
        return False

    def _surroundings(self) -> Iterator[Point]:
        """Values of the other parameters: the simulation's, then both ends, with every option.

        Some parameters matter only beside others, such as the larger of two limits.
        """
        named = [known for known in self._space if not known.is_numeric]
        options: list[Point] = [{}, *({of.name: label} for of in named for label in of.labels)]
        for others in (None, 1.0, 0.0):
            numbers: Point = {}
            if others is not None:
                numbers = {
                    known.name: known.at(others) for known in self._space if known.is_numeric
                }
            yield from (numbers | chosen for chosen in options)

    def _changes_files(self, parameter: Parameter, beside: Point) -> bool:
        """Whether the files change with a number, beside values of others."""
        files = [
            written.files
            for value in parameter.values((0.0, 0.5, 1.0))
            if (written := self._export(self._point(parameter, value, beside)))
        ]
        return any(other != files[0] for other in files[1:])

    def has_option(self, name: str, path: str, label: object) -> bool:
        """Whether an option of a parameter is no loss."""
        parameter = self._space.parameters[name]
        point = self._point(parameter, label)
        written = self._export(point)
        wanted = pattern_of(path)
        lost = None
        if written is not None:
            lost = next((loss for loss in written.losses if pattern_of(loss.path) == wanted), None)
            if lost is None:
                if self._target.decides(path):
                    return True
            elif lost.path in written.moved:
                return True
        reason = self._reason(path) if lost is None else lost.reason
        self.left_out.append(f"not searched: {name} = {label}: {reason}")
        return False

    def _point(self, parameter: Parameter, value: object, beside: Point | None = None) -> Point:
        """A point at which a parameter is open and has a value."""
        chosen: Point = dict(beside or {})
        opening = parameter.opens_with
        while opening is not None:
            parent, kind = opening
            chosen[parent] = kind
            opening = self._space.parameters[parent].opens_with
        return self._space.complete(chosen | {parameter.name: value})

    def _export(self, point: Point) -> Export | None:
        try:
            simulation = self._space.apply(point)
            return unchecked(simulation, self._to)
        except ConfigError:  # no valid combination, or no valid name
            return None

    def _reason(self, path: str) -> str:
        target = self._target
        return target.reason(path) if target.decides(path) else f"not up to {target.name}"


def _without_lost(
    simulation: Simulation, export: Export, searched: list[str]
) -> tuple[Simulation, list[str]]:
    """The simulation without lost guards, but for those that are searched, and lines of them."""
    lost = [
        loss
        for loss in export.lost_guards
        if not any(pattern_of(path).startswith(pattern_of(loss.path)) for path in searched)
    ]
    lines = [
        f"searched without: {loss.path} = {', '.join(loss.kinds)}: {loss.reason}" for loss in lost
    ]
    return simulation.with_({loss.path: loss.deployed for loss in lost}), lines
