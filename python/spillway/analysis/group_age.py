"""Admission of new and of established prefix groups over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.sim import UsageError
from spillway.data.column_table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.data.result_data import ResultData


class AdmissionByGroupAge(Table):
    """Admission of new and of established prefix groups over time, one interval per row.

    Intervals in which no request of a group arrives have no row.

    start_s (of the interval); new_offered, new_admitted, established_offered, established_admitted
    (requests that arrive in it); new_ratio, established_ratio (admitted ÷ offered, NaN where none
    is offered); ratio (new_ratio ÷ established_ratio: 1 where new groups fare no worse, 0 where
    they are locked out, NaN where it is undefined).
    """

    _key = "start_s"


def admission_by_group_age(
    result: ResultData, step_s: float, new_for_s: float
) -> AdmissionByGroupAge:
    """See `Result.admission_by_group_age`."""
    for name, value in (("step_s", step_s), ("new_for_s", new_for_s)):
        if not 0 < value < math.inf:
            raise UsageError(f"{name} = {value}: must be finite and > 0")
    requests = result.requests
    arrival_s = requests["arrival_s"]
    group = result._offered()["prefix_group"]
    in_group = group >= 0
    first_s = np.full(int(group.max(initial=-1)) + 1, np.inf)
    np.minimum.at(first_s, group[in_group], arrival_s[in_group])
    is_new = np.zeros(len(arrival_s), dtype=bool)
    is_new[in_group] = arrival_s[in_group] - first_s[group[in_group]] < new_for_s
    with np.errstate(over="ignore"):
        spans, span_of_row = np.unique(np.floor(arrival_s[in_group] / step_s), return_inverse=True)
    if not np.isfinite(spans).all():
        raise UsageError(f"step_s = {step_s}: too short for a run of {arrival_s.max():g} s")
    admitted = requests["admitted"].astype(bool)

    def count(which: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(span_of_row[which[in_group]], minlength=len(spans))

    columns = {
        "start_s": spans * step_s,
        "new_offered": count(is_new),
        "new_admitted": count(is_new & admitted),
        "established_offered": count(~is_new),
        "established_admitted": count(~is_new & admitted),
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        for age in ("new", "established"):
            columns[f"{age}_ratio"] = columns[f"{age}_admitted"] / columns[f"{age}_offered"]
        columns["ratio"] = columns["new_ratio"] / columns["established_ratio"]
    columns["ratio"][~np.isfinite(columns["ratio"])] = np.nan
    for column in columns.values():
        column.setflags(write=False)
    return AdmissionByGroupAge(columns)
