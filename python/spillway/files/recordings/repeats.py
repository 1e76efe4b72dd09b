"""Prompts that a load generator sent again, which a prefix cache then holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


_AGREEMENT = 0.95
_MARGIN = 0.5


def repeat_period(input_tokens: npt.NDArray[np.int64]) -> int | None:
    """The number of requests after which the prompts repeat; None: they do not.

    It is the smallest lag from 2 to a quarter of the requests at which at least 95% of them have
    the same input length as the request one lag before. Requests of equal length agree at every
    lag, so the share must also exceed what chance gives, the sum of the squared shares of the
    lengths, by 0.5.
    """
    n = len(input_tokens)
    _, counts = np.unique(input_tokens, return_counts=True)
    chance = float(((counts / n) ** 2).sum())
    least = max(_AGREEMENT, chance + _MARGIN)
    if least > 1:
        return None
    for lag in range(2, n // 4 + 1):
        # A cheap look at the beginning excludes nearly all lags.
        start = input_tokens[: 4 * lag]
        if np.mean(start[lag:] == start[:-lag]) < least - 0.2:
            continue
        if np.mean(input_tokens[lag:] == input_tokens[:-lag]) >= least:
            return lag
    return None
