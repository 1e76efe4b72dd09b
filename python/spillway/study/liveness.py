"""Whether each parameter of a search has any effect."""

from __future__ import annotations

import contextlib
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.sim import ConfigError
from spillway.study.evaluation import Digest, Evaluator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway._core.cluster import Simulation
    from spillway.study.space import BoundSpace, Parameter, Point


_ENDS = (0.0, 1.0)
_WITHIN = (0.0, 0.25, 0.5, 0.75, 1.0)


def dead_parameters(bound: BoundSpace, seeds: Sequence[int], **options: Any) -> tuple[str, ...]:
    """The parameters whose values changed no run.

    The check sets each to the ends of its range, or to each option, with all others at their
    current values; if no run differs, it repeats this at two random points of the others, with
    values within the range as well. `options`: those of the `Evaluator`.
    """
    evaluator = Evaluator([Digest()], **options)
    random = np.random.default_rng(0)
    suspects = [parameter for parameter in bound if len(parameter.values(_WITHIN)) > 1]
    compared: set[str] = set()
    for shares, base in (
        (_ENDS, bound.current()),
        (_ENDS, bound.at(random.random(len(bound)).tolist())),
        (_WITHIN, bound.at(random.random(len(bound)).tolist())),
    ):
        differing = _different_runs(
            [list(_around(bound, parameter, base, shares)) for parameter in suspects],
            evaluator,
            seeds,
        )
        compared |= {parameter.name for parameter, n in zip(suspects, differing, strict=True) if n}
        suspects = [parameter for parameter, n in zip(suspects, differing, strict=True) if n < 2]
    return tuple(parameter.name for parameter in suspects if parameter.name in compared)


def _different_runs(
    groups: Sequence[Sequence[Simulation]], evaluator: Evaluator, seeds: Sequence[int]
) -> list[int]:
    """The number of different runs of each group of simulations."""
    measured = iter(evaluator.measure_all(list(chain.from_iterable(groups)), seeds))
    return [
        len({found.values[0] for found in islice(measured, len(group)) if not found.failure})
        for group in groups
    ]


def _around(
    bound: BoundSpace, parameter: Parameter, base: Point, shares: Sequence[float]
) -> Iterator[Simulation]:
    """Simulations that differ only in this parameter."""
    opened = dict(base)
    parent = parameter.opens_with
    while parent is not None:
        opened[parent[0]] = parent[1]
        parent = bound.parameters[parent[0]].opens_with
    opened = bound.complete(opened)
    for value in dict.fromkeys([opened[parameter.name], *parameter.values(shares)]):
        point = bound.complete(opened | {parameter.name: value})
        if bound.ordered(point) == point:
            with contextlib.suppress(ConfigError):
                yield bound.apply(point)
