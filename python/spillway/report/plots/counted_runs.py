"""What the figures of results share: which runs and requests count, and their groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from spillway.data.replications import Replications
from spillway.data.targets import compare_with_targets

if TYPE_CHECKING:
    from spillway.data.arrays import Booleans, Floats
    from spillway.data.result_data import ResultData


Grouping = Literal["slo_class", "tenant"]
"""By what requests are grouped."""


def replications(result: ResultData | Sequence[ResultData]) -> Replications[ResultData]:
    """Replications as such; a run as the only replication."""
    return Replications(result if isinstance(result, Sequence) else [result])


def distinct_runs(result: ResultData | Sequence[ResultData]) -> tuple[ResultData, ...]:
    """The runs that differ. Raises ValueError if none of their requests counts."""
    runs = replications(result).distinct
    if not any(run.summary()["offered"] for run in runs):
        raise ValueError("there is nothing to draw: no request arrives after the warm-up")
    return runs


def group_names(runs: Sequence[ResultData], by: Grouping) -> list[str]:
    """Names of the classes or tenants, in the order of the tables."""
    if by not in ("slo_class", "tenant"):
        raise ValueError(f"by = {by!r}: must be slo_class or tenant")
    tables_of = [run.by_class() if by == "slo_class" else run.by_tenant() for run in runs]
    return list(dict.fromkeys(name for table in tables_of for name in table))


def is_counted(run: ResultData, by: Grouping | None = None, name: str = "") -> Booleans:
    """Which requests count in the summary: all, or those of one class or tenant."""
    requests = run.requests
    counted: Booleans = requests["arrival_s"] >= run.simulation.warm_up_s
    return counted if by is None else counted & (requests[by] == name)


def bin_edges(bins: int | Sequence[float], last_s: float) -> Floats:
    """The edges of intervals: as given, or of a number of equal intervals from 0 to `last_s`."""
    edges = np.asarray(bins, dtype=float)
    if isinstance(bins, int):  # a single instant has no rate
        edges = np.linspace(0, last_s or 1.0, bins + 1)
    if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
        raise ValueError(
            f"bins = {bins!r}: must be >= 1 or at least two ascending edges in seconds"
        )
    return edges


def within_targets(result: ResultData) -> Floats:
    """1 for requests within the targets of their class, 0 for others, NaN without targets."""
    if not result.has_requests:
        return np.array([])
    columns = result.requests
    latencies = (columns[name] * 1e9 for name in ("ttft_s", "tpot_s", "e2e_s"))
    classes = result.simulation.slo_classes
    promised, met = compare_with_targets(classes, columns["slo_class"], *latencies)
    return np.where(promised, met, np.nan)
