from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.specimens import Specimen

from spillway import router

Floats = NDArray[np.float64]


def softmax(picker: Any, scores: Floats) -> Floats:
    weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / picker.temperature)
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares


def in_proportion(_: Any, scores: Floats) -> Floats:
    sums = scores.sum(axis=1, keepdims=True)
    even = np.full_like(scores, 1 / scores.shape[1])
    return np.where(sums > 0, scores / np.where(sums > 0, sums, 1), even)


def better_of_two(_: Any, scores: Floats) -> Floats:
    """Every instance meets every other one equally often; either may win a tie."""
    n = scores.shape[1]
    wins = (scores[:, :, None] > scores[:, None, :]).sum(axis=2)
    ties = (scores[:, :, None] == scores[:, None, :]).sum(axis=2) - 1
    shares: Floats = (wins + ties / 2) / (n * (n - 1) / 2)
    return shares


BEST = Specimen(router.Best)
RANDOM = Specimen(router.Random, rule=lambda _, scores: np.full_like(scores, 1 / scores.shape[1]))
WEIGHTED_RANDOM = Specimen(router.WeightedRandom, rule=in_proportion)
SOFTMAX = Specimen(
    router.Softmax,
    examples=[router.Softmax(temperature=0.1), router.Softmax(temperature=0.5)],
    rule=softmax,
)
POWER_OF_TWO = Specimen(router.PowerOfTwo, rule=better_of_two)
