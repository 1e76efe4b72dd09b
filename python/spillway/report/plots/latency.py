"""The distribution of latencies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from spillway.config import formatting
from spillway.report.plots.counted_runs import Grouping, distinct_runs, group_names, is_counted
from spillway.report.style import (
    STYLES,
    axes_or_new,
    legend_label,
    make_x_logarithmic,
    mark_unvalidated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from spillway.data.result_data import ResultData


Population = Literal["measured", "offered"]
"""Requests with a measured latency, or all that were offered."""

METRICS: Mapping[str, str] = {
    "ttft_s": "time to first token",
    "e2e_s": "time from arrival to last token",
    "tpot_s": "time per output token after the first",
    "itl_mean_s": "mean gap between tokens",
    "queue_s": "time in the gateway's queue",
    "scheduling_delay_s": "time from arrival to first step",
}
"""Latencies of a request, in seconds, and their labels in figures."""


_TARGETS = {"ttft_s": "target_ttft_s", "tpot_s": "target_tpot_s", "e2e_s": "target_e2e_s"}


def latency_cdf(
    result: ResultData | Sequence[ResultData] | Mapping[str, ResultData | Sequence[ResultData]],
    metric: str = "ttft_s",
    by: Grouping = "slo_class",
    *,
    population: Population = "measured",
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draws the cumulative distribution of a latency, one line per class, tenant or system.

    Parameters
    ----------
    result
        One run, or replications, whose requests are pooled; or several of these by name, each with
        one line of all its requests. Requests that arrive before `warm_up_s` are left out.
    metric
        A key of `METRICS`.
    by
        Grouping of the lines, unless they have names of their own. For a class, a vertical line
        marks its target for this metric.
    population
        Population of the shares. measured: the requests that have this latency, so a line ends at
        1. offered: all requests, so a line ends at the served share, and its value at a target is
        the share that met the target.
    log
        Whether the latency axis is logarithmic; latencies of 0 are then left of the axis. If every
        latency is 0, the axis is linear in any case.
    ax
        Axes to draw into; default: those of a new figure.

    """
    if metric not in METRICS:
        raise ValueError(f"metric = {metric!r}: must be one of {', '.join(METRICS)}")
    if population not in ("measured", "offered"):
        raise ValueError(f"population = {population!r}: must be measured or offered")
    title, targets = "system", {}
    if isinstance(result, Mapping):
        named = {name: distinct_runs(system) for name, system in result.items()}
        groups, runs = list(named), tuple(run for system in named.values() for run in system)
        masks = [[(run, is_counted(run)) for run in system] for system in named.values()]
    else:
        runs = distinct_runs(result)
        groups = group_names(runs, by)
        masks = [[(run, is_counted(run, by, name)) for run in runs] for name in groups]
        title = by.removeprefix("slo_")
        targets = _targets(runs[0], metric, groups) if by == "slo_class" else {}
    samples = [
        np.concatenate([run.requests[metric][mask] for run, mask in pairs]) for pairs in masks
    ]
    last_s = max(
        (*(np.nanmax(sample, initial=0) for sample in samples), *targets.values()), default=0
    )
    axes = axes_or_new(ax)
    for style, name, latencies in zip(itertools.cycle(STYLES), groups, samples):
        values, counts = np.unique(latencies[~np.isnan(latencies)], return_counts=True)
        measured, offered = int(counts.sum()), len(latencies)
        shares = np.cumsum(counts) / (measured if population == "measured" else offered)
        if population == "offered":
            served = measured / offered if offered else 0.0
            values, shares = np.append(values, last_s), np.append(shares, served)
        label = f"{name}: {formatting.number(measured)} of {formatting.number(offered)}"
        if len(values):  # from 0 on
            values, shares = np.append(values[0], values), np.append(0, shares)
        axes.step(values, shares, where="post", label=legend_label(label), **style)
    for style, name in zip(itertools.cycle(STYLES), groups):
        if name in targets:
            label = f"target of {name}: {targets[name]:g} s"
            axes.axvline(targets[name], linewidth=0.9, label=label, **style)
    axes.set(
        xlabel=f"{METRICS[metric]} (s)", ylabel=f"share of {population} requests", ylim=(0, 1.02)
    )
    if log and last_s > 0:
        make_x_logarithmic(axes)
    axes.grid(alpha=0.3)
    axes.legend(
        title=f"{title}: measured of offered", loc="lower right", fontsize="small", framealpha=1
    )
    mark_unvalidated(axes, (run.simulation for run in runs))
    return axes


def _targets(run: ResultData, metric: str, groups: Sequence[str]) -> dict[str, float]:
    """The targets of the classes among `groups` for a metric, in seconds."""
    if metric not in _TARGETS:
        return {}
    classes = run.simulation.slo_classes
    promised = {slo_class.name: getattr(slo_class, _TARGETS[metric]) for slo_class in classes}
    return {name: promised[name] for name in groups if promised.get(name) is not None}
