"""The space that a Gaussian-process search models: parameters as coordinates, some conditional."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.special import ndtri

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    Array: TypeAlias = NDArray[np.float64]

# Integer or stepped ranges with up to this many values are searched value by value, larger ones as
# if continuous.
_MOST_STEPS = 50
# Points near a given one: their spread, how often a choice changes.
_NEAR_SD = 0.1
_NEAR_CHANGE = 0.2


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One coordinate of the model: in [0, 1], or the number of a category."""

    name: str
    low: float
    high: float
    log: bool
    step: float | None
    choices: tuple[Any, ...] | None
    allowed: tuple[float, ...]  # coordinates, if they are few

    @classmethod
    def of(cls, name: str, distribution: BaseDistribution) -> Parameter:
        """The coordinate of one of Optuna's distributions."""
        if isinstance(distribution, CategoricalDistribution):
            choices = tuple(distribution.choices)
            allowed = tuple(float(i) for i in range(len(choices)))
            return cls(name, 0.0, 1.0, False, None, choices, allowed)
        assert isinstance(distribution, FloatDistribution | IntDistribution)
        low, high, step = distribution.low, distribution.high, distribution.step
        parameter = cls(name, low, high, distribution.log, step, None, ())
        if step is None or (count := round((high - low) / step) + 1) > _MOST_STEPS:
            return parameter
        allowed = tuple(parameter.encode(low + i * step) for i in range(count))
        return dataclasses.replace(parameter, allowed=allowed)

    def encode(self, value: Any) -> float:
        """The coordinate of a value."""
        if self.choices is not None:
            return float(self.choices.index(value))
        if self.high == self.low:
            return 0.0
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))

    def decode(self, coordinate: float) -> Any:
        """The value of a coordinate."""
        if self.choices is not None:
            return self.choices[round(coordinate)]
        if self.log:
            value = self.low * math.exp(coordinate * math.log(self.high / self.low))
        else:
            value = self.low + coordinate * (self.high - self.low)
        if self.step is not None:
            value = self.low + round((value - self.low) / self.step) * self.step
        value = min(max(value, self.low), self.high)
        return int(value) if isinstance(self.step, int) else float(value)

    def spread(self, uniform: Array) -> Array:
        """Coordinates from uniform numbers in [0, 1); all allowed ones are equally likely."""
        if not self.allowed:
            return uniform
        chosen: Array = np.array(self.allowed)[(uniform * len(self.allowed)).astype(int)]
        return chosen

    def near(self, coordinate: float, uniform: Array) -> Array:
        """Coordinates near a given one."""
        if self.choices is None:
            normal: Array = ndtri(np.clip(uniform, 1e-9, 1 - 1e-9))
            return np.clip(coordinate + _NEAR_SD * normal, 0.0, 1.0)
        changed = self.spread(np.minimum(uniform / _NEAR_CHANGE, np.nextafter(1.0, 0.0)))
        return np.where(uniform < _NEAR_CHANGE, changed, coordinate)

    @property
    def pin(self) -> float:
        """The coordinate of a point to which the parameter does not apply."""
        if self.choices is not None:
            return 0.0
        return self.allowed[len(self.allowed) // 2] if self.allowed else 0.5


@dataclasses.dataclass(frozen=True)
class Condition:
    """A parameter applies only to some choices of another one."""

    parent: str
    choices: frozenset[Any]


@dataclasses.dataclass(frozen=True)
class Space:
    """The parameters that have the same range wherever trials have them.

    Those that only some trials have are included if the choice of another parameter decides; where
    they do not apply, their coordinate is pinned, so that such points differ by the choice alone.
    """

    distributions: Mapping[str, BaseDistribution]
    conditions: Mapping[str, Condition]  # parents before their children
    parameters: Sequence[Parameter]  # in the order of the distributions

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial]) -> Space:
        """The space that the trials show; without parameters if they have none in common."""
        found: dict[str, BaseDistribution] = {}
        changed: set[str] = set()
        counts: Counter[str] = Counter()
        for trial in trials:
            for name, distribution in trial.distributions.items():
                counts[name] += 1
                if found.setdefault(name, distribution) != distribution:
                    changed.add(name)
        usable = [
            name for name in sorted(found) if name not in changed and not found[name].single()
        ]
        names = [name for name in usable if counts[name] == len(trials)]
        conditions = _conditions([name for name in usable if name not in names], names, trials)
        names = sorted([*names, *conditions])
        return cls(
            {name: found[name] for name in names},
            conditions,
            [Parameter.of(name, found[name]) for name in names],
        )

    @property
    def categorical(self) -> list[bool]:
        """Of each coordinate, whether it numbers categories."""
        return [parameter.choices is not None for parameter in self.parameters]

    @property
    def common(self) -> set[str]:
        """The parameters that apply to every point."""
        return self.distributions.keys() - self.conditions.keys()

    def encode(self, params: Mapping[str, Any]) -> Array:
        """The point of these parameters."""
        return np.array(
            [
                parameter.encode(params[parameter.name])
                if parameter.name in params
                else parameter.pin
                for parameter in self.parameters
            ]
        )

    def decode(self, point: Array) -> dict[str, Any]:
        """The parameters that apply to a point, by name."""
        (applies,) = self.applies(point[None, :])
        return {
            parameter.name: parameter.decode(float(coordinate))
            for parameter, coordinate, is_there in zip(self.parameters, point, applies, strict=True)
            if is_there
        }

    def applies(self, points: Array) -> NDArray[np.bool_]:
        """Which coordinates of each point (row) apply."""
        applies = np.ones(points.shape, dtype=bool)
        for name, condition in self.conditions.items():
            parent = self._index(condition.parent)
            allowed = list(self._categories(condition))
            column = self._index(name)
            applies[:, column] = applies[:, parent] & np.isin(points[:, parent], allowed)
        return applies

    def pinned(self, points: Array) -> Array:
        """The points with all coordinates that do not apply pinned."""
        pins = np.array([parameter.pin for parameter in self.parameters])
        return np.where(self.applies(points), points, pins)

    def branches(self, points: Array) -> Iterator[tuple[Array, list[tuple[float, ...]]]]:
        """The points by the coordinates that apply to them.

        With each set of points the allowed values of every coordinate (empty: [0, 1]), within which
        the same coordinates apply.
        """
        rows_of: dict[bytes, list[int]] = {}
        all_apply = self.applies(points)
        for row, pattern in enumerate(all_apply):
            rows_of.setdefault(pattern.tobytes(), []).append(row)
        for _, rows in sorted(rows_of.items()):
            applies = all_apply[rows[0]]
            allowed = []
            for i, parameter in enumerate(self.parameters):
                values = parameter.allowed if applies[i] else (parameter.pin,)
                if applies[i] and parameter.choices is not None:
                    values = tuple(v for v in values if self._keeps(parameter.name, v, applies))
                allowed.append(values)
            yield points[rows], allowed

    def near(self, point: Array, uniform: Array) -> Array:
        """Points (rows) near a given one, from uniform numbers in [0, 1)."""
        (applies,) = self.applies(point[None, :])
        columns = zip(self.parameters, point, applies, uniform.T, strict=True)
        return np.column_stack(
            [
                parameter.near(at, column) if is_there else parameter.spread(column)
                for parameter, at, is_there, column in columns
            ]
        )

    def spread(self, uniform: Array) -> Array:
        """Points (rows) all over the space, from uniform numbers in [0, 1)."""
        return np.column_stack(
            [
                parameter.spread(column)
                for parameter, column in zip(self.parameters, uniform.T, strict=True)
            ]
        )

    def _index(self, name: str) -> int:
        return [parameter.name for parameter in self.parameters].index(name)

    def _categories(self, condition: Condition) -> set[float]:
        encode = self.parameters[self._index(condition.parent)].encode
        return {encode(choice) for choice in condition.choices}

    def _keeps(self, parent: str, category: float, applies: NDArray[np.bool_]) -> bool:
        """Whether a category of the parent lets the same parameters apply."""
        return all(
            (category in self._categories(condition)) == applies[self._index(name)]
            for name, condition in self.conditions.items()
            if condition.parent == parent
        )


def _conditions(
    names: Sequence[str], common: Sequence[str], trials: Sequence[FrozenTrial]
) -> dict[str, Condition]:
    """Of the names those whose presence in all trials follows from a choice of another parameter.

    A parent has a condition of its own, or is common to all trials.
    """
    conditions: dict[str, Condition] = {}
    left = list(names)
    parents = list(common)
    while parents:
        parent = parents.pop(0)
        having = [trial for trial in trials if parent in trial.params]
        if not isinstance(having[0].distributions[parent], CategoricalDistribution):
            continue
        for name in list(left):
            choices = {trial.params[parent] for trial in having if name in trial.params}
            others = {trial.params[parent] for trial in having if name not in trial.params}
            is_orphan = any(name in trial.params and parent not in trial.params for trial in trials)
            if choices and not is_orphan and not choices & others:
                conditions[name] = Condition(parent, frozenset(choices))
                left.remove(name)
                parents.append(name)
    return conditions
