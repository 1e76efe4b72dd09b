"""Whether overload outlives its trigger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from spillway._core.workload import SloClass
    from spillway.results import Result


@dataclass(frozen=True)
class Recovery:
    """Goodput before, during and after a trigger, and how long it took to come back.

    Each goodput is the share of the requests that arrived in that span of time, of classes with
    targets, that met all of them; None where there were none. `recovered_after_s` counts from the
    end of the trigger; None: not within the run. A system that does not recover although its load
    is what it was before is metastable (Bronson et al., HotOS 2021).
    """

    before: float | None
    during: float | None
    after: float | None
    recovered_after_s: float | None

    @property
    def is_metastable(self) -> bool:
        """Whether goodput stayed down until the end of the run."""
        return self.recovered_after_s is None


def compare_with_targets(
    classes: Iterable[SloClass],
    slo_class: NDArray[np.str_],
    ttft_ns: NDArray[np.float64],
    tpot_ns: NDArray[np.float64],
    e2e_ns: NDArray[np.float64],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which requests are of a class with latency targets, and which of those meet all of them.

    A request without an end (`e2e_ns` NaN) meets none; any other latency that a request does not
    have misses no target, as in goodput.
    """
    promised = np.zeros(len(slo_class), dtype=bool)
    meets = ~np.isnan(e2e_ns)
    for known in classes:
        mine = slo_class == known.name
        for target_s, latency_ns in (
            (known.target_ttft_s, ttft_ns),
            (known.target_tpot_s, tpot_ns),
            (known.target_e2e_s, e2e_ns),
        ):
            if target_s is not None:
                promised |= mine
                meets &= ~(mine & (latency_ns > target_s * 1e9))
    return promised, promised & meets


def recovery(
    result: Result, start_s: float, end_s: float, *, step_s: float = 1.0, share: float = 0.9
) -> Recovery:
    """See `Result.recovery`."""
    if not result.simulation.warm_up_s < start_s < end_s:
        raise _core.sim.UsageError(
            f"the trigger lasts from start_s = {start_s:g} to end_s = {end_s:g}: must have "
            f"warm_up_s ({result.simulation.warm_up_s:g}) < start_s < end_s"
        )
    requests = result.requests
    latencies_ns = (np.rint(requests[name] * 1e9) for name in ("ttft_s", "tpot_s", "e2e_s"))
    promised, met = compare_with_targets(
        result.simulation.slo_classes, requests["slo_class"], *latencies_ns
    )
    if not promised.any():
        raise _core.sim.UsageError(
            "recovery is told by goodput, and no request is of a class with latency targets: give "
            "one, e.g. slo_classes[standard].target_ttft_s"
        )
    arrival_s = requests["arrival_s"][promised]
    good = met[promised]

    def goodput(low_s: float, high_s: float) -> float | None:
        within = (arrival_s >= low_s) & (arrival_s < high_s)
        return float(good[within].mean()) if within.any() else None

    last_s = float(arrival_s.max(initial=0.0))
    before = goodput(result.simulation.warm_up_s, start_s)
    recovered = None
    # From the end on: steps that stand at the level of before, without a break.
    for low_s in np.arange(end_s, last_s, step_s)[::-1]:
        level = goodput(low_s, low_s + step_s)
        if before is None or (level is not None and level < share * before):
            break
        recovered = float(low_s) - end_s
    return Recovery(before, goodput(start_s, end_s), goodput(end_s, np.inf), recovered)
