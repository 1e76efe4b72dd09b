"""Which requests meet the latency targets of their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from spillway._core.workload import SloClass
    from spillway.data.arrays import Booleans, Floats


def has_targets(slo_class: SloClass) -> bool:
    """Whether a class has any latency target."""
    targets = (slo_class.target_ttft_s, slo_class.target_tpot_s, slo_class.target_e2e_s)
    return any(target_s is not None for target_s in targets)


def compare_with_targets(
    classes: Iterable[SloClass],
    slo_class: NDArray[np.str_],
    ttft_ns: Floats,
    tpot_ns: Floats,
    e2e_ns: Floats,
) -> tuple[Booleans, Booleans]:
    """Which requests are of a class with latency targets, and which of those meet all of them.

    A request without an end (`e2e_ns` NaN) meets none. As in goodput, any other latency that a
    request does not have misses no target.
    """
    promised = np.zeros(len(slo_class), dtype=bool)
    meets = ~np.isnan(e2e_ns)
    for known in classes:
        of_class = slo_class == known.name
        for target_s, latency_ns in (
            (known.target_ttft_s, ttft_ns),
            (known.target_tpot_s, tpot_ns),
            (known.target_e2e_s, e2e_ns),
        ):
            if target_s is not None:
                promised |= of_class
                meets &= ~(of_class & (latency_ns > target_s * 1e9))
    return promised, promised & meets
