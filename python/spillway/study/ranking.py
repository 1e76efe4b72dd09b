"""The order of a study's trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.study.objective import Objective
    from spillway.study.records import Trial


def ranked(trials: Sequence[Trial], objectives: Sequence[Objective]) -> tuple[Trial, ...]:
    """The trials, best first, ties by number.

    With several objectives, trials that the fewest others beat in all of them come first.
    """
    losses = _losses(trials, objectives)
    if len(objectives) > 1:
        losses = [(float(sum(_dominates(other, row) for other in losses)),) for row in losses]
    pairs = zip(losses, trials, strict=True)
    return tuple(trial for _, trial in sorted(pairs, key=lambda pair: (pair[0], pair[1].number)))


def front(trials: Sequence[Trial], objectives: Sequence[Objective]) -> tuple[Trial, ...]:
    """The trials that no other trial beats in every objective, in order."""
    losses = _losses(trials, objectives)
    return tuple(
        trial
        for trial, row in zip(trials, losses, strict=True)
        if not any(_dominates(other, row) for other in losses)
    )


def _losses(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[tuple[float, ...]]:
    signs = [objective.sign for objective in objectives]
    return [
        tuple(-sign * value for sign, value in zip(signs, trial.values, strict=True))
        for trial in trials
    ]


def _dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and tuple(a) != tuple(b)
