"""Figures of the requests with each value of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.sim import UsageError
from spillway.data.figures import Figures, Groups
from spillway.data.targets import compare_with_targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from spillway.data.arrays import Booleans
    from spillway.data.result_data import ResultData

_ENDS = ("completed", "rejected", "expired", "evicted", "failed", "cancelled")
_FAMILIES = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "e2el": "e2e_s",
    "queue": "queue_s",
    "scheduling_delay": "scheduling_delay_s",
}
_PERCENTILES = (50, 90, 95, 99)
_MOST_GROUPS = 10_000


def figures_by(result: ResultData, column: str) -> Groups:
    """See `Result.by`."""
    requests = result.requests
    if column not in requests:
        raise UsageError(f"column = {column!r}: must be one of {', '.join(requests)}")
    values = requests[column]
    if values.dtype.kind == "f":
        raise UsageError(
            f"column = {column!r}: has fractions; must be a column of texts or whole numbers"
        )
    counted = requests["arrival_s"] >= result.simulation.warm_up_s
    names, group = np.unique(values[counted], return_inverse=True)
    if len(names) > _MOST_GROUPS:
        raise UsageError(
            f"column = {column!r}: has {len(names):,} values; must have <= {_MOST_GROUPS:,}"
        )
    kept = {
        name: requests[name][counted]
        for name in ("outcome", "slo_class", "input_tokens", "output_tokens", *_FAMILIES.values())
    }
    promised, met = compare_with_targets(
        result.simulation.slo_classes,
        kept["slo_class"],
        *(kept[name] * 1e9 for name in ("ttft_s", "tpot_s", "e2e_s")),
    )
    found = Groups()
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=len(names)))
    for name, rows in zip(names.tolist(), np.split(order, ends[:-1]), strict=True):
        of_group = {key: values[rows] for key, values in kept.items()}
        found[str(name)] = _figures(of_group, promised[rows], met[rows])
    return found


def _figures(kept: Mapping[str, NDArray[Any]], promised: Booleans, met: Booleans) -> Figures:
    outcome = kept["outcome"]
    counts = {end: int((outcome == end).sum()) for end in _ENDS}
    completed = outcome == "completed"
    figures = Figures(
        offered=len(outcome),
        **counts,
        unfinished=len(outcome) - sum(counts.values()),
        total_input_tokens=int(kept["input_tokens"][completed].sum()),
        total_output_tokens=int(kept["output_tokens"][completed].sum()),
        goodput=float(met.sum() / promised.sum()) if promised.any() else None,
    )
    for family, column in _FAMILIES.items():
        values = kept[column][~np.isnan(kept[column])] * 1e3
        figures[f"num_{family}"] = len(values)
        figures[f"mean_{family}_ms"] = float(values.mean()) if len(values) else None
        for rank in _PERCENTILES:
            known = float(np.percentile(values, rank)) if len(values) else None
            figures[f"p{rank}_{family}_ms"] = known
    return figures
