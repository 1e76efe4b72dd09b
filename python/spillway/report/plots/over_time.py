"""One quantity over time, with a line per system, tenant or class."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spillway.data.figures import FIGURES, SHED
from spillway.report.plots import faults
from spillway.report.plots.counted_runs import (
    bin_edges,
    distinct_runs,
    group_names,
    within_targets,
)
from spillway.report.plots.gateway_panels import sensor_in_words
from spillway.report.style import (
    STYLES,
    axes_or_new,
    ink,
    legend_label,
    mark_unvalidated,
    number_logarithmic,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spillway.data.arrays import Booleans, Floats
    from spillway.data.result_data import ResultData
    from spillway.report.plots.counted_runs import Grouping

BY_ARRIVAL: Mapping[str, str] = {
    "offered": "offered (requests/s)",
    "admitted": "admitted (requests/s)",
    "goodput": "goodput (share of offered requests)",
    "shed": "shed (share of offered requests)",
}

STATES: Mapping[str, str] = {
    "permits": "permits",
    "in_flight": "requests in flight",
    "queued": "requests queued in the gateway",
    "running": "requests running in the engines",
    "waiting": "requests waiting in the engines",
    "kv_utilization": "KV blocks in use (mean share)",
    **{
        f"{pool}_{name}": f"{text} the {pool} pool"
        for pool in ("prefill", "decode")
        for name, text in (
            ("in_flight", "legs in flight in"),
            ("running", "requests running in"),
            ("waiting", "requests waiting in"),
            ("kv_utilization", "KV blocks in use (mean share) in"),
        )
    },
    "transfers": "prompts on the way between the pools",
}

_COLUMNS = {"e2el": "e2e_s", "itl": "itl_mean_s"}
"""The column of a request's latency where it is not that of the figure with `_s`."""


def over_time(
    result: ResultData | Sequence[ResultData] | Mapping[str, ResultData | Sequence[ResultData]],
    quantity: str = "goodput",
    by: Grouping | None = None,
    *,
    bins: int | Sequence[float] = 60,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draws one quantity over time, a line per system, tenant or class.

    Of a single run, spans in which instances had failed or were slow are shaded.

    Parameters
    ----------
    result
        One run, or replications, or several of these by name.
    quantity
        By time of arrival, pooled over replications: offered, admitted (requests/s), goodput, shed
        (rejected, expired or evicted; shares), or a latency of `Result.summary()`, e.g.
        `p99_ttft_ms`, of the requests that have it. At each instant, of the first replication:
        permits, in_flight, queued, running, waiting, kv_utilization, and with prefill and decode
        pools prefill_waiting and the like and transfers (see `Timeline`), which need
        `metrics.timeline_step_s`, or sensor, the value that the controller saw at each tick, with
        its target.
    by
        Grouping of the lines of one run; default: one line for all requests. What is of the whole
        fleet has no groups.
    bins
        For quantities by time of arrival: number of equal intervals from 0 to the last arrival, or
        their edges in seconds.
    log
        Whether the axis of the quantity is logarithmic.
    ax
        Axes to draw into; default: those of a new figure.

    """
    is_latency = quantity in FIGURES and FIGURES[quantity].statistic not in (None, "", "num")
    if not (is_latency or quantity in BY_ARRIVAL or quantity in STATES or quantity == "sensor"):
        known = ", ".join((*BY_ARRIVAL, *STATES, "sensor"))
        raise ValueError(f"quantity = {quantity!r}: must be {known} or a latency of a summary")
    systems = result if isinstance(result, Mapping) else {"": result}
    runs_of = {name: distinct_runs(system) for name, system in systems.items()}
    if by is not None and (len(runs_of) > 1 or quantity in STATES or quantity == "sensor"):
        raise ValueError(f"by = {by!r}: only for a quantity by time of arrival, of one system")
    every = [run for runs in runs_of.values() for run in runs]
    axes = axes_or_new(ax)
    if quantity == "sensor":
        _draw_sensor(axes, runs_of)
    elif quantity in STATES:
        for style, (name, runs) in zip(itertools.cycle(STYLES), runs_of.items()):
            timeline = runs[0].timeline
            if quantity not in timeline:
                raise ValueError(f"quantity = {quantity!r}: needs prefill and decode pools")
            values = timeline[quantity].sum(axis=1) if quantity == "queued" else timeline[quantity]
            axes.plot(timeline["time_s"], values, label=legend_label(name), **style)
        axes.set(xlabel="time (s)", ylabel=STATES[quantity])
    else:
        last_s = max(float(run.requests["arrival_s"].max()) for run in every)
        edges = bin_edges(bins, last_s)
        groups = [None] if by is None else _present(every, by)
        lines = [
            (legend_label(name or group), runs, group)
            for name, runs in runs_of.items()
            for group in groups
        ]
        for style, (label, runs, group) in zip(itertools.cycle(STYLES), lines):
            values = _binned(runs, quantity, edges, by, group)
            axes.stairs(values, edges, baseline=None, label=label, linewidth=1.5, **style)
        label = FIGURES[quantity].label if is_latency else BY_ARRIVAL[quantity]
        axes.set(xlabel="time of arrival (s)", ylabel=label, xlim=(edges[0], edges[-1]))
    if log:
        axes.set_yscale("log")
        number_logarithmic(axes.yaxis)
    else:
        is_share = quantity in ("goodput", "shed") or quantity.endswith("kv_utilization")
        axes.set(ylim=(-0.02, 1.02) if is_share else (0, None))
    axes.grid(alpha=0.3)
    if len(every) == 1:
        faults.mark(axes, every[0])
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    mark_unvalidated(axes, (run.simulation for run in every))
    return axes


def _present(runs: Sequence[ResultData], by: Grouping) -> list[str]:
    """The tenants or classes that have requests."""
    present = {name for run in runs for name in np.unique(run.requests[by])}
    return [name for name in group_names(runs, by) if name in present]


def _binned(
    runs: Sequence[ResultData], quantity: str, edges: Floats, by: Grouping | None, group: str | None
) -> Floats:
    """A quantity in each interval of the time of arrival; NaN where it has none."""
    arrivals = np.concatenate([run.requests["arrival_s"] for run in runs])
    counted = np.concatenate([_of_group(run, by, group) for run in runs])
    width_s = np.diff(edges) * len(runs)
    if quantity == "offered":
        return np.asarray(np.histogram(arrivals[counted], edges)[0] / width_s)
    if quantity == "admitted":
        admitted = np.concatenate([run.requests["admitted"] for run in runs])
        return np.asarray(np.histogram(arrivals[counted & admitted], edges)[0] / width_s)
    if quantity in BY_ARRIVAL:
        values = np.concatenate(
            [
                within_targets(run)
                if quantity == "goodput"
                else np.isin(run.requests["outcome"], SHED).astype(float)
                for run in runs
            ]
        )
    else:
        latency = FIGURES[quantity].latency
        column = _COLUMNS.get(latency, f"{latency}_s")
        values = 1000 * np.concatenate([run.requests[column] for run in runs])
    known = counted & ~np.isnan(values)
    at = np.digitize(arrivals[known], edges) - 1
    found = (values[known][at == i] for i in range(len(edges) - 1))
    return np.array([_statistic(quantity, values) if len(values) else np.nan for values in found])


def _statistic(quantity: str, values: Floats) -> float:
    """The mean of a share, or the statistic of a latency."""
    statistic = FIGURES[quantity].statistic if quantity not in BY_ARRIVAL else "mean"
    if statistic.startswith("p"):
        return float(np.percentile(values, float(statistic[1:])))
    return float(values.std() if statistic == "std" else values.mean())


def _of_group(run: ResultData, by: Grouping | None, group: str | None) -> Booleans:
    columns = run.requests
    if by is None:
        return np.ones(len(columns["arrival_s"]), dtype=bool)
    return np.asarray(columns[by] == group)


def _draw_sensor(axes: Axes, runs_of: Mapping[str, Sequence[ResultData]]) -> None:
    targets = set()
    for style, (name, runs) in zip(itertools.cycle(STYLES), runs_of.items()):
        control = runs[0].control
        targets.add(getattr(runs[0].simulation.gateway.controller, "target_s", None))
        first = control["replica"] == 0
        axes.plot(
            control["time_s"][first], control["value"][first], marker=".", label=name or None,
            **style,
        )  # fmt: skip
    (target, *others) = targets
    if target is not None and not others:
        axes.axhline(target, color=ink(axes), linewidth=1, linestyle=":", label="target")
    sensor = next(iter(runs_of.values()))[0].simulation.gateway.sensor
    axes.set(xlabel="time (s)", ylabel="{} ({})".format(*sensor_in_words(sensor)))
