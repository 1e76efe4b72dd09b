"""Results as matplotlib figures (extra `plot`).

Every function draws into the given axes or else into a new figure, and returns those axes or that
figure; the caller shows or saves it. Every figure states its population. Replications under several
seeds (`Results`) are pooled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spillway.config import text
from spillway.data.figures import FIGURES
from spillway.data.replications import Replications
from spillway.data.targets import compare_with_targets
from spillway.report.style import (
    STYLES,
    axes_or_new,
    ink,
    legend_above,
    make_x_logarithmic,
    mark_unvalidated,
    number_logarithmic,
    pyplot,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from numpy.typing import NDArray

    from spillway._core.gateway import Gateway, TokenBucket
    from spillway._core.signals import Sensor
    from spillway.data.result import ResultData
    from spillway.data.statistics import Interval
    from spillway.data.timeline import Control, Timeline

__all__ = [
    "METRICS",
    "STYLES",
    "Grouping",
    "Plots",
    "Population",
    "admission_by_length",
    "admitted_tokens",
    "gateway",
    "heat_map",
    "instances",
    "latency_cdf",
    "outcomes_over_time",
    "requests",
    "sweep",
]


Grouping = Literal["slo_class", "tenant"]
Population = Literal["measured", "offered"]

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

# (label, outcomes, color, hatch) from the bottom of the stack to its top.
_LAYERS = (
    ("completed", ("completed",), "#56B4E9", ""),
    ("unfinished", ("queued", "running", "in_transit"), "#F0E442", "..."),
    ("lost", ("expired", "evicted", "failed", "cancelled"), "#CC79A7", "xxx"),
    ("rejected", ("rejected",), "#D55E00", "////"),
)  # fmt: skip


# Label and unit of each source of a sensor.
_SOURCES = {
    "ttft": ("TTFT", "s"),
    "engine_ttft": ("engine TTFT", "s"),
    "e2e": ("E2E latency", "s"),
    "e2e_per_token": ("E2E latency", "s/token"),
    "queue_delay": ("time in the queue", "s"),
    "kv_utilization": ("KV blocks in use", "share"),
    "hit_rate": ("prefix hit rate", "share"),
}

# (action, color, marker) of a controller's moves; there are too many holds to mark.
_ACTIONS = (
    ("increase", "#009E73", "^"),
    ("decrease", "#D55E00", "v"),
    ("cooldown", "#777777", "x"),
)


_FEW_BARS = 60
_MOST_BARS = 400
_PHASES = (
    ("gateway queue", "#E69F00"),
    ("engine queue", "#F0E442"),
    ("prefill", "#D55E00"),
    ("decode", "#0072B2"),
)
_LOST_COLORS = ("#7F7F7F", "#CC79A7", "#009E73", "#56B4E9")


class Plots:
    """The figures of one result, or of replications, as `result.plot`.

    Of replications, distributions pool the requests and rates are averaged; figures of single
    requests, of instances and of the gateway over time show the first run.
    """

    def __init__(self, result: ResultData | Replications[Any]) -> None:
        self._result = result

    @property
    def _run(self) -> ResultData:
        if isinstance(self._result, Replications):
            first: ResultData = self._result[0]
            return first
        return self._result

    def latency_cdf(
        self,
        metric: str = "ttft_s",
        by: Grouping = "slo_class",
        *,
        population: Population = "measured",
        log: bool = False,
        ax: Axes | None = None,
    ) -> Axes:
        """Distribution of a latency per class or tenant; see `plots.latency_cdf`."""
        return latency_cdf(self._result, metric, by, population=population, log=log, ax=ax)

    def outcomes_over_time(
        self,
        by: Grouping = "tenant",
        *,
        bins: int | Sequence[float] = 60,
        figure: Figure | SubFigure | None = None,
    ) -> Figure | SubFigure:
        """Outcomes by time of arrival; see `plots.outcomes_over_time`."""
        return outcomes_over_time(self._result, by, bins=bins, figure=figure)

    def admitted_tokens(self, bucket: TokenBucket | None = None, *, ax: Axes | None = None) -> Axes:
        """Cumulative prompt tokens offered and admitted; see `plots.admitted_tokens`."""
        return admitted_tokens(self._run, bucket, ax=ax)

    def admission_by_length(
        self, *, bins: int = 20, label: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Share of admitted requests by prompt length; see `plots.admission_by_length`."""
        return admission_by_length(self._result, bins=bins, label=label, ax=ax)

    def requests(
        self, start_s: float = 0, end_s: float | None = None, *, ax: Axes | None = None
    ) -> Axes:
        """A bar per request of a span of time, by phase; see `plots.requests`."""
        return requests(self._run, start_s, end_s, ax=ax)

    def instances(
        self, *, bins: int | Sequence[float] = 120, figure: Figure | SubFigure | None = None
    ) -> Figure | SubFigure:
        """The requests in each instance over time; see `plots.instances`."""
        return instances(self._run, bins=bins, figure=figure)

    def gateway(
        self, *, step_s: float | None = None, figure: Figure | SubFigure | None = None
    ) -> Figure | SubFigure:
        """Demand, limit, signals and engines over time; see `plots.gateway`."""
        return gateway(self._run, step_s=step_s, figure=figure)


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
        named = {name: _runs(one) for name, one in result.items()}
        groups, runs = list(named), tuple(run for some in named.values() for run in some)
        masks = [[(run, _counted(run)) for run in some] for some in named.values()]
    else:
        runs = _runs(result)
        groups = _groups(runs, by)
        masks = [[(run, _counted(run, by, name)) for run in runs] for name in groups]
        title = by.removeprefix("slo_")
        targets = _targets(runs[0], metric, groups) if by == "slo_class" else {}
    samples = [np.concatenate([run.requests[metric][mask] for run, mask in one]) for one in masks]
    last_s = max((*(np.nanmax(one, initial=0) for one in samples), *targets.values()), default=0)
    axes = axes_or_new(ax)
    for style, name, latencies in zip(itertools.cycle(STYLES), groups, samples):
        values, counts = np.unique(latencies[~np.isnan(latencies)], return_counts=True)
        measured, offered = int(counts.sum()), len(latencies)
        shares = np.cumsum(counts) / (measured if population == "measured" else offered)
        if population == "offered":
            served = measured / offered if offered else 0.0
            values, shares = np.append(values, last_s), np.append(shares, served)
        axes.step(
            np.append(values[:1], values),
            np.append(np.zeros(len(values[:1])), shares),
            where="post",
            label=f"{name}: {text.number(measured)} of {text.number(offered)}",
            **style,
        )
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
        title=f"{title}: measured of offered",
        loc="lower right",
        fontsize="small",
        framealpha=1,
    )
    mark_unvalidated(axes, (run.simulation for run in runs))
    return axes


def outcomes_over_time(
    result: ResultData | Sequence[ResultData],
    by: Grouping = "tenant",
    *,
    bins: int | Sequence[float] = 60,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draws the outcomes of requests by time of arrival, one panel per tenant or class.

    The outline is the offered rate; the stacked areas below it are its parts: completed,
    unfinished, lost (expired, evicted, failed or cancelled), rejected.

    Parameters
    ----------
    result
        One run, or replications, over which the rates are averaged.
    by
        Grouping of the panels.
    bins
        Number of equal intervals from 0 to the last arrival, or their edges in seconds.
    figure
        Figure or subfigure to draw into; default: a new figure.

    """
    runs = _runs(result)
    names = _groups(runs, by)
    requests = [run.requests for run in runs]
    edges = _edges(bins, max(columns["arrival_s"].max() for columns in requests))
    groups = np.concatenate([columns[by] for columns in requests])
    arrivals = np.concatenate([columns["arrival_s"] for columns in requests])
    outcomes = np.concatenate([columns["outcome"] for columns in requests])
    layers = [layer for layer in _LAYERS if np.isin(outcomes, layer[1]).any()]
    if figure is None:
        height = 0.8 + 1.7 * len(names)
        figure = pyplot().figure(figsize=(7.5, height), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    warm_up_s = runs[0].simulation.warm_up_s
    for axes, name in zip(panels, names, strict=True):
        offered = groups == name
        base = np.zeros(len(edges) - 1)
        for label, members, color, hatch in layers:
            rate = _rate(arrivals[offered & np.isin(outcomes, members)], edges, len(runs))
            axes.stairs(
                base + rate, edges, baseline=base, fill=True, facecolor=color, hatch=hatch,
                edgecolor="#00000060", linewidth=0, label=label,
            )  # fmt: skip
            base = base + rate
        axes.stairs(
            _rate(arrivals[offered], edges, len(runs)), edges, color=ink(axes), label="offered"
        )
        if warm_up_s > 0:
            axes.axvline(warm_up_s, color=ink(axes), linestyle=":", label="end of warm-up")
        population = f"{text.number(int(offered.sum()))} requests"
        if len(runs) > 1:
            population += f", {len(runs)} seeds"
        axes.set_title(f"{name} ({population})", loc="left", fontsize="medium")
        axes.set(ylabel="requests/s")
        axes.grid(alpha=0.3)
    panels[0].set(xlim=(edges[0], edges[-1]), ylim=(0, None))
    panels[0].legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=5,
        fontsize="small",
        frameon=False,
        borderaxespad=0.1,
    )
    panels[-1].set(xlabel="time of arrival (s)")
    mark_unvalidated(figure.axes[0], (run.simulation for run in runs))
    return figure


def admitted_tokens(
    result: ResultData, bucket: TokenBucket | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draws the cumulative prompt tokens offered and admitted, and a token bucket's bound.

    Parameters
    ----------
    result
        One run; all its requests count.
    bucket
        The bucket whose bound, capacity + refill · time, is drawn; default: the first one of the
        admission chain, if there is one.
    ax
        Axes to draw into; default: those of a new figure.

    """
    gateway = result.simulation.gateway
    if bucket is None:
        buckets = [policy for policy in gateway.admission if policy.kind == "token_bucket"]
        bucket = buckets[0] if buckets else None
    requests = result.requests
    arrivals, tokens = requests["arrival_s"], requests["input_tokens"]
    admitted = _admitted(result)
    last_s = arrivals.max(initial=0)
    axes = axes_or_new(ax)
    for style, name, which in (
        (STYLES[1], "offered", np.ones(len(arrivals), dtype=bool)),
        (STYLES[0], "admitted", admitted),
    ):
        times = np.concatenate([[0.0], arrivals[which], [last_s]])
        totals = np.concatenate([[0], np.cumsum(tokens[which]), [tokens[which].sum()]])
        axes.step(
            times,
            totals,
            where="post",
            label=f"{name}: {text.number(int(which.sum()))} requests",
            **style,
        )
    if bucket is not None:
        ends = np.array([0.0, last_s])
        axes.plot(
            ends,
            bucket.capacity_tokens
            + bucket.refill_tokens_per_s * (ends + gateway.admission_latency_s),
            color=ink(axes),
            linestyle=":",
            label=f"bound: {text.number(bucket.capacity_tokens)} "
            f"+ {text.number(bucket.refill_tokens_per_s)}/s · time",
        )
    mark_unvalidated(axes, [result.simulation])
    axes.set(xlabel="time of arrival (s)", ylabel="cumulative prompt tokens", ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return axes


def admission_by_length(
    result: ResultData | Sequence[ResultData],
    *,
    bins: int = 20,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the share of requests that the gateway admitted, by prompt length.

    Parameters
    ----------
    result
        One run, or replications, whose requests are pooled. Requests that arrive before
        `warm_up_s` are left out.
    bins
        Number of groups of about equal size, from the shortest prompts to the longest; each is a
        point at its median length. Prompts of equal length stay together.
    label
        Name of the line in the legend, before the number of requests.
    ax
        Axes to draw into, e.g. those of an earlier call to compare; default: those of a new figure.

    """
    runs = _runs(result)
    lengths = np.concatenate([run.requests["input_tokens"][_counted(run)] for run in runs])
    admitted = np.concatenate([_admitted(run)[_counted(run)] for run in runs])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, lengths)
    present = np.unique(group)
    axes = axes_or_new(ax)
    style = STYLES[len(axes.get_lines()) % len(STYLES)]
    axes.plot(
        [np.median(lengths[group == one]) for one in present],
        [admitted[group == one].mean() for one in present],
        marker="o",
        markersize=4,
        label=f"{label + ': ' if label else ''}{text.number(len(lengths))} requests",
        **style,
    )
    mark_unvalidated(axes, (run.simulation for run in runs))
    axes.set(xlabel="prompt length (tokens)", ylabel="share admitted", ylim=(0, 1.02))
    make_x_logarithmic(axes)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")
    return axes


def gateway(
    result: ResultData, *, step_s: float | None = None, figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    """Draws the demand of the tenants, the actions of the gateway and the state of the engines.

    The panels share one time axis. On the left is one line per tenant (with more than seven
    tenants, styles repeat): rates of requests submitted, dispatched and shed (refused, expired or
    evicted), queued requests, rate of output tokens. On the right: the limit (permits of all
    replicas) and the requests in flight, with the controllers' moves; the sensor's value with
    target and deadband where the controller has them; requests running and waiting in the engines;
    KV blocks in use. The axes' labels (`get_label`) are submitted, dispatched, shed, queued,
    tokens, goodput, limit, sensor, batch and kv. There is no panel `sensor` without a controller,
    and no panel `kv` if no block was ever in use, as in a plant. The panel `goodput`, the share
    within the targets by time of arrival, needs requests that were kept and a class with targets.

    Parameters
    ----------
    result
        One run with a timeline; all its requests count, kept or not.
    step_s
        Interval over which rates are averaged, rounded to whole steps of the timeline; default:
        about a hundredth of the run, at least one step.
    figure
        Figure or subfigure to draw into; default: a new figure.

    Raises
    ------
    UsageError
        Unless `metrics.timeline_step_s` is set.

    """
    timeline, control, settings = result.timeline, result.control, result.simulation.gateway
    if len(timeline["time_s"]) < 2:
        raise ValueError("there is nothing to draw: the run ended within one step of the timeline")
    if step_s is not None and not step_s > 0:
        raise ValueError(f"step_s = {step_s!r}: must be > 0")
    if figure is None:
        figure = pyplot().figure(figsize=(11, 8.5), layout="constrained")
    sensor = "sensor" if len(control["time_s"]) else "limit"
    kv = "kv" if timeline["kv_utilization"].any() else "batch"
    rows: list[Any] = [
        ["submitted", "limit"],
        ["dispatched", "limit"],
        ["shed", sensor],
        ["queued", "batch"],
        ["tokens", kv],
    ]
    met = _within_targets(result)
    if not np.isnan(met).all():
        rows.append(["goodput", kv])
    axes: dict[str, Axes] = figure.subplot_mosaic(rows, sharex=True)
    _draw_tenants(axes, timeline, step_s)
    if "goodput" in axes:
        _draw_goodput(axes["goodput"], result, met, step_s)
    _draw_limit(axes["limit"], timeline, control)
    if "sensor" in axes:
        _draw_sensor(axes["sensor"], control, settings)
    _draw_engines(axes, timeline)
    for panel in axes.values():
        panel.grid(alpha=0.3)
        panel.set(xlim=(0, timeline["time_s"][-1]))
    for last in (axes[rows[-1][0]], axes[kv]):
        last.set(xlabel="time (s)")
    lines, tenants = axes["submitted"].get_legend_handles_labels()
    if lines:
        columns = max(1, 120 // (7 + max(map(len, tenants))))  # as many as fit
        figure.legend(lines, tenants, loc="outside upper left", ncols=columns, frameon=False)
    figure.align_ylabels()
    mark_unvalidated(figure.axes[0], [result.simulation])
    return figure


def requests(
    result: ResultData,
    start_s: float = 0,
    end_s: float | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draws a bar per request of a span of time: where it waited, and when it was served.

    Rows are in order of arrival. Phases: in the gateway's queue, in the engine's queue, until the
    first token (prefill), until the last one (decode). Requests without a last token end in a cross
    at their arrival, in the color of their outcome.

    Parameters
    ----------
    result
        A run whose requests were kept.
    start_s, end_s
        The span; requests that are in the system in it are drawn. Default: from the start until 60
        requests have arrived, at most 400 of them.
    ax
        Axes to draw into; default: those of a new figure.

    Raises ValueError if there is no such request, or more than 400: name a shorter span then.

    """
    columns = result.requests
    arrival_s = columns["arrival_s"]
    most = len(arrival_s)
    if end_s is None:
        later = np.sort(arrival_s[arrival_s >= start_s])
        end_s = float(later[min(len(later), _FEW_BARS) - 1]) if len(later) else start_s
        most = _MOST_BARS
    ends_s = arrival_s + np.nan_to_num(columns["e2e_s"])
    shown = np.flatnonzero((arrival_s <= end_s) & (ends_s >= start_s))
    shown = shown[np.argsort(arrival_s[shown], kind="stable")][:most]
    span = f"in the system from {start_s:g} s to {end_s:g} s"
    if len(shown) == 0:
        raise ValueError(f"there is nothing to draw: no request is {span}")
    if len(shown) > _MOST_BARS:
        raise ValueError(f"{len(shown):,} requests are {span}: at most {_MOST_BARS} can be drawn")
    axes = axes_or_new(ax)
    rows = np.arange(len(shown))
    from_s = arrival_s[shown]
    done = ~np.isnan(columns["e2e_s"][shown])
    until = [np.zeros(len(shown))]
    for name in ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s"):
        until.append(np.fmax(until[-1], columns[name][shown]))
    for (label, color), low, high in zip(_PHASES, until[:-1], until[1:], strict=True):
        axes.barh(
            rows[done], (high - low)[done], left=(from_s + low)[done], height=1, label=label,
            color=color,
        )  # fmt: skip
    lost_outcomes = sorted(set(columns["outcome"][shown][~done]))
    for outcome, color in zip(lost_outcomes, itertools.cycle(_LOST_COLORS), strict=False):
        lost = ~done & (columns["outcome"][shown] == outcome)
        axes.plot(from_s[lost], rows[lost], "x", color=color, markersize=4, label=outcome)
    preempted = done & (columns["preemptions"][shown] > 0)
    if preempted.any():
        ends = (from_s + until[-1])[preempted]
        axes.plot(ends, rows[preempted], "<", color=ink(axes), markersize=4, label="preempted")
    axes.set(
        xlabel="time (s)", ylabel="requests in order of arrival", ylim=(len(shown) - 0.4, -0.6),
        yticks=[],
    )  # fmt: skip
    axes.grid(axis="x", alpha=0.3)
    legend_above(axes)
    mark_unvalidated(axes, [result.simulation])
    return axes


def instances(
    result: ResultData,
    *,
    bins: int | Sequence[float] = 120,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draws how many requests each instance holds over time, and what it served.

    On the left, requests between dispatch and last token, mean over each interval; on the right,
    output tokens per second of the run. Only completed requests count.

    Parameters
    ----------
    result
        A run whose requests were kept.
    bins
        Number of equal intervals from 0 to the last token, or their edges in seconds.
    figure
        Figure or subfigure to draw into; default: a new figure.

    Raises ValueError if no request was completed.

    """
    columns = result.requests
    done = ~np.isnan(columns["e2e_s"])
    if not done.any():
        raise ValueError("there is nothing to draw: no request was completed")
    begins_s = (columns["arrival_s"] + columns["queue_s"])[done]
    ends_s = (columns["arrival_s"] + columns["e2e_s"])[done]
    where = columns["instance"][done]
    edges = _edges(bins, float(ends_s.max()))
    count = len(result.instances)
    # Time that requests have spent inside up to each edge, by instance.
    spent = [
        np.bincount(where, np.clip(edge - begins_s, 0, ends_s - begins_s), minlength=count)
        for edge in edges
    ]
    held = (np.diff(spent, axis=0) / np.diff(edges)[:, None]).T
    if figure is None:
        height = 1.6 + 0.28 * min(count, 24)
        figure = pyplot().figure(figsize=(7.5, height), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
    rows = np.arange(count + 1) - 0.5
    mesh = left.pcolormesh(edges, rows, held, cmap="cividis", vmin=0, rasterized=True)
    figure.colorbar(mesh, ax=left, label="requests in the instance", location="top", aspect=40)
    tokens = np.bincount(where, columns["output_tokens"][done], minlength=count)
    # One shape: a bar for each of many instances takes seconds.
    right.stairs(
        tokens / float(edges[-1]),
        rows,
        orientation="horizontal",
        fill=True,
        color=STYLES[0]["color"],
    )
    left.set(xlabel="time (s)", ylabel="instance", ylim=(count - 0.5, -0.5))
    left.yaxis.get_major_locator().set_params(integer=True)
    right.set(xlabel="output tokens/s")
    right.grid(axis="x", alpha=0.3)
    mark_unvalidated(left, [result.simulation])
    return figure


def heat_map(
    systems: Mapping[str, ResultData | Sequence[ResultData]],
    figure: str = "goodput",
    by: Grouping = "tenant",
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draws a figure of each tenant or class under each system, as a table of colors.

    Parameters
    ----------
    systems
        By name: a run, or replications, whose mean is shown.
    figure
        A key of `Result.by_tenant()`.
    by
        Grouping of the rows.
    ax
        Axes to draw into; default: those of a new figure.

    Raises ValueError for an unknown figure, or without systems.

    """
    if not systems:
        raise ValueError("there is nothing to draw: there are no systems")
    if figure not in FIGURES:
        raise ValueError(f"figure = {figure!r}: must be a key of Result.by_tenant()")
    runs = {name: _runs(one) for name, one in systems.items()}
    groups = list(dict.fromkeys(name for some in runs.values() for name in _groups(some, by)))
    cells = np.full((len(groups), len(runs)), np.nan)
    for column, some in enumerate(runs.values()):
        lines = _swept([_replications(some)], figure, by, 0.95)
        for row, name in enumerate(groups):
            (interval,) = lines.get(name, (None,))
            if interval is not None:
                cells[row, column] = interval.mean
    axes = axes_or_new(ax)
    image = axes.imshow(cells, cmap="cividis", aspect="auto")
    middle = np.nanmean([np.nanmin(cells), np.nanmax(cells)]) if np.isfinite(cells).any() else 0
    for (row, column), value in np.ndenumerate(cells):
        shown = "-" if np.isnan(value) else text.number(float(value))
        color = ink(axes) if np.isnan(value) else "white" if value <= middle else "black"
        axes.text(column, row, shown, ha="center", va="center", color=color)
    axes.set_xticks(range(len(runs)), list(runs))
    axes.set_yticks(range(len(groups)), groups)
    drawn: Any = axes.figure
    drawn.colorbar(image, ax=axes, label=FIGURES[figure].label)
    mark_unvalidated(axes, (run.simulation for some in runs.values() for run in some))
    return axes


def sweep(
    results_by_value: Mapping[float, ResultData | Sequence[ResultData]],
    figure: str = "p99_ttft_ms",
    by: Grouping | None = None,
    *,
    setting: str = "",
    label: str = "",
    confidence: float = 0.95,
    log: Literal["", "x", "y", "xy"] = "",
    ax: Axes | None = None,
) -> Axes:
    """Draws a figure over the values of one setting, with intervals over the seeds.

    Parameters
    ----------
    results_by_value
        A run, or replications, at each value of the setting. The line starts at the smallest value;
        a value at which no seed has the figure leaves a gap.
    figure
        A key of `Result.summary()`, or of `Result.by_tenant()` and `Result.by_class()` with `by`.
    by
        Grouping of the lines; default: one line for all requests.
    setting
        Axis label: name of the setting, with its unit.
    label
        Name of the line in the legend, or prefix of the names of tenants or classes.
    confidence
        Confidence level of the intervals.
    log
        Which axes are logarithmic; an axis without a positive value is linear in any case.
    ax
        Axes to draw into, e.g. those of an earlier call to compare; default: those of a new figure.

    """
    if not results_by_value:
        raise ValueError("there is nothing to draw: results_by_value is empty")
    if log not in ("", "x", "y", "xy"):
        raise ValueError(f"log = {log!r}: must be x, y, xy or empty")
    values = sorted(results_by_value)
    runs = [_replications(results_by_value[value]) for value in values]
    lines = _swept(runs, figure, by, confidence)
    means_of = {
        name: [math.nan if one is None else one.mean for one in intervals]
        for name, intervals in lines.items()
    }
    logarithmic = {
        "x": "x" in log and any(value > 0 for value in values),
        "y": "y" in log and any(mean > 0 for means in means_of.values() for mean in means),
    }
    axes = axes_or_new(ax)
    for name, intervals in lines.items():
        means = means_of[name]
        reaches = [(0.0, 0.0) if one is None else one.reaches for one in intervals]
        lower, upper = (list(side) for side in zip(*reaches, strict=True))
        if logarithmic["y"]:  # the lower end of an interval may be negative
            lower = [min(below, 0.9 * mean) for below, mean in zip(lower, means, strict=True)]
        axes.errorbar(
            values,
            means,
            yerr=[lower, upper],
            label=" ".join(filter(None, (label, name))) or None,
            marker="o",
            markersize=4,
            capsize=3,
            **STYLES[len(axes.containers) % len(STYLES)],
        )
    mark_unvalidated(axes, (run.simulation for of_value in runs for run in of_value.distinct))
    axes.set(xlabel=setting, ylabel=FIGURES[figure].label)
    if logarithmic["x"]:
        axes.set_xscale("log")
        apart = all(right >= 1.5 * left for left, right in itertools.pairwise(values))
        number_logarithmic(axes.xaxis, values if apart else None)
    if logarithmic["y"]:
        axes.set_yscale("log")
        number_logarithmic(axes.yaxis)
    else:
        axes.set(ylim=(0, None))
    axes.grid(alpha=0.3)
    counts = sorted({len(one.distinct) for one in runs})
    seeds = f"{counts[0]} seed" + ("s" if counts[0] > 1 else "")
    if len(counts) > 1:
        seeds = f"{counts[0]} to {counts[-1]} seeds"
    population = seeds if counts[-1] == 1 else f"mean of {seeds}, {confidence:.0%} interval"
    axes.set_title(population, loc="right", fontsize="small")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    return axes


def _draw_tenants(axes: Mapping[str, Axes], timeline: Timeline, step_s: float | None) -> None:
    """The panels with a line per tenant; tenants without requests have no line."""
    time_s = timeline["time_s"]
    rows = _steps(timeline, step_s)
    for style, tenant in zip(itertools.cycle(STYLES), timeline.tenants):
        columns = timeline.of(tenant)
        if not columns["submitted"][-1]:
            continue
        for panel, name in (
            ("submitted", "submitted"),
            ("dispatched", "dispatched"),
            ("shed", "shed"),
            ("tokens", "emitted_tokens"),
        ):
            rate = np.diff(columns[name][rows]) / np.diff(time_s[rows])
            label = tenant if panel == "submitted" else None
            axes[panel].stairs(rate, time_s[rows], baseline=None, label=label, **style)
        axes["queued"].plot(time_s, columns["queued"], linewidth=1, **style)
    # One scale, so that dispatched and shed requests visibly add up.
    for panel in ("dispatched", "shed"):
        axes[panel].sharey(axes["submitted"])
    total = text.number(int(timeline["submitted"][-1].sum()))
    for panel, title, unit in (
        ("submitted", f"submitted ({total} requests)", "requests/s"),
        ("dispatched", "dispatched", "requests/s"),
        ("shed", "shed by the gateway", "requests/s"),
        ("queued", "queued in the gateway", "requests"),
        ("tokens", "output tokens", "tokens/s"),
    ):
        _name_panel(axes[panel], title, unit)
    if not timeline["queued"].any():
        axes["queued"].set(ylim=(0, 1))


def _steps(timeline: Timeline, step_s: float | None) -> NDArray[np.int64]:
    """The rows of a timeline between which rates are averaged."""
    time_s = timeline["time_s"]
    step_rows = len(time_s) / 100 if step_s is None else step_s / (time_s[1] - time_s[0])
    last = len(time_s) - 1
    return np.append(np.arange(0, last, max(1, round(step_rows))), last)


def _within_targets(result: ResultData) -> NDArray[np.float64]:
    """1 for requests within the targets of their class, 0 for others, NaN without targets."""
    if not result.has_requests:
        return np.array([])
    columns = result.requests
    latencies = (columns[name] * 1e9 for name in ("ttft_s", "tpot_s", "e2e_s"))
    classes = result.simulation.slo_classes
    promised, met = compare_with_targets(classes, columns["slo_class"], *latencies)
    return np.where(promised, met, np.nan)


def _draw_goodput(
    axes: Axes, result: ResultData, met: NDArray[np.float64], step_s: float | None
) -> None:
    timeline = result.timeline
    edges = timeline["time_s"][_steps(timeline, step_s)]
    columns = result.requests
    for style, tenant in zip(itertools.cycle(STYLES), timeline.tenants):
        own = ~np.isnan(met) & (columns["tenant"] == tenant)
        if not own.any():
            continue
        counts = np.histogram(columns["arrival_s"][own], edges)[0]
        good = np.histogram(columns["arrival_s"][own], edges, weights=met[own])[0]
        share = np.divide(good, counts, out=np.full(len(counts), np.nan), where=counts > 0)
        axes.stairs(share, edges, baseline=None, **style)
    _name_panel(axes, "goodput, by time of arrival", "share")
    axes.set(ylim=(0, 1.02))


def _draw_limit(axes: Axes, timeline: Timeline, control: Control) -> None:
    time_s, permits, in_flight = (timeline[name] for name in ("time_s", "permits", "in_flight"))
    axes.plot(time_s, in_flight, label="in flight", **STYLES[0])
    if not np.isnan(permits).all():
        axes.plot(
            time_s, permits, label="permits", color=ink(axes), linewidth=1, drawstyle="steps-post"
        )
    for action, color, marker in _ACTIONS:
        at_s = control["time_s"][control["action"] == control.actions.index(action)]
        if not len(at_s):
            continue
        # On the line of all replicas, at the first sample after the tick.
        rows = np.minimum(np.searchsorted(time_s, at_s), len(time_s) - 1)
        axes.plot(
            at_s,
            np.where(np.isnan(permits), in_flight, permits)[rows],
            label=f"{action} ({len(at_s)})",
            color=color,
            marker=marker,
            markersize=4,
            linestyle="",
        )
    _name_panel(axes, "limit", "requests")
    axes.legend(fontsize="small")


def _draw_sensor(axes: Axes, control: Control, settings: Gateway) -> None:
    title, unit = _sensor_in_words(settings.sensor)
    target = getattr(settings.controller, "target_s", None)
    band = getattr(settings.controller, "band", 0)
    if target is not None:
        if band:
            low, high = target * (1 - band), target * (1 + band)
            axes.axhspan(low, high, color="#E69F00", alpha=0.3, linewidth=0, label="deadband")
        axes.axhline(
            target, color=ink(axes), linewidth=1, linestyle=":", label=f"target: {target:g} {unit}"
        )
    replicas = np.unique(control["replica"])
    label: str | None = "sensor" if len(replicas) == 1 else f"{len(replicas)} replicas"
    for style, replica in zip(itertools.cycle(STYLES), replicas):
        mine = control["replica"] == replica
        axes.plot(
            control["time_s"][mine],
            control["value"][mine],
            marker=".",
            label=label,
            **style,
        )
        label = None  # one entry for all replicas
    _name_panel(axes, title, unit)
    legend_above(axes)


def _draw_engines(axes: Mapping[str, Axes], timeline: Timeline) -> None:
    for style, name in zip(STYLES, ("running", "waiting"), strict=False):
        axes["batch"].plot(timeline["time_s"], timeline[name], label=name, **style)
    _name_panel(axes["batch"], "in the engines", "requests")
    legend_above(axes["batch"])
    if "kv" in axes:
        axes["kv"].plot(timeline["time_s"], timeline["kv_utilization"], **STYLES[0])
        _name_panel(axes["kv"], "KV blocks in use, mean over instances", "share")
        axes["kv"].set(ylim=(0, 1.02))


def _name_panel(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(ylabel=unit, ylim=(0, None))


def _sensor_in_words(sensor: Sensor) -> tuple[str, str]:
    """Label of a sensor's value, and its unit."""
    source, unit = _SOURCES[sensor.source]
    if sensor.source in ("kv_utilization", "hit_rate"):
        return source, unit
    quantile = f"p{100 * sensor.quantile:g}"
    statistic = quantile if sensor.aggregation.endswith("quantile") else sensor.aggregation
    whose = {"pooled": "", "tenant": f" of {sensor.tenant}", "max_over_tenants": ", worst tenant"}
    return f"{statistic} of {source}{whose[sensor.scope]}", unit


def _replications(result: ResultData | Sequence[ResultData]) -> Replications[ResultData]:
    return Replications(result if isinstance(result, Sequence) else [result])


def _swept(
    runs: Sequence[Replications[ResultData]], figure: str, by: Grouping | None, confidence: float
) -> dict[str, list[Interval | None]]:
    """The interval at each value for every line; None where no seed has the figure."""
    if by is None:
        groups = [{"": one.summary(confidence)} for one in runs]
    elif by == "tenant":
        groups = [one.by_tenant(confidence) for one in runs]
    elif by == "slo_class":
        groups = [one.by_class(confidence) for one in runs]
    else:
        raise ValueError(f"by = {by!r}: must be slo_class or tenant")
    known = next(iter(groups[0].values()))
    if figure not in known:
        raise ValueError(f"figure = {figure!r}: must be one of {', '.join(known)}")
    names = dict.fromkeys(name for group in groups for name in group)
    lines = {
        name: [group[name].get(figure) if name in group else None for group in groups]
        for name in names
    }
    return {name: line for name, line in lines.items() if any(one is not None for one in line)}


def _runs(result: ResultData | Sequence[ResultData]) -> tuple[ResultData, ...]:
    runs = _replications(result).distinct
    if not any(run.summary()["offered"] for run in runs):
        raise ValueError("there is nothing to draw: no request arrives after the warm-up")
    return runs


def _groups(runs: Sequence[ResultData], by: Grouping) -> list[str]:
    """Names of the classes or tenants, in the order of the tables."""
    if by not in ("slo_class", "tenant"):
        raise ValueError(f"by = {by!r}: must be slo_class or tenant")
    tables_of = [run.by_class() if by == "slo_class" else run.by_tenant() for run in runs]
    return list(dict.fromkeys(name for one in tables_of for name in one))


def _counted(run: ResultData, by: Grouping | None = None, name: str = "") -> NDArray[np.bool_]:
    """Which requests count in the summary: all, or those of one class or tenant."""
    requests = run.requests
    counted: NDArray[np.bool_] = requests["arrival_s"] >= run.simulation.warm_up_s
    return counted if by is None else counted & (requests[by] == name)


def _admitted(run: ResultData) -> NDArray[np.bool_]:
    """Which requests the gateway admitted; workers may have refused them afterwards."""
    requests = run.requests
    undecided = (requests["outcome"] == "in_transit") & np.isnan(requests["queue_s"])
    admitted: NDArray[np.bool_] = ~undecided & ~np.isin(
        requests["reason"], list(run.ledger["rejected"])
    )
    return admitted


def _targets(run: ResultData, metric: str, groups: Sequence[str]) -> dict[str, float]:
    """The targets of the classes among `groups` for a metric, in seconds."""
    if metric not in _TARGETS:
        return {}
    promised = {one.name: getattr(one, _TARGETS[metric]) for one in run.simulation.slo_classes}
    return {name: promised[name] for name in groups if promised.get(name) is not None}


def _edges(bins: int | Sequence[float], last_s: float) -> NDArray[np.float64]:
    # A single instant has no rate.
    edges = (
        np.linspace(0, last_s or 1.0, bins + 1)
        if isinstance(bins, int)
        else np.asarray(bins, dtype=float)
    )
    if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
        raise ValueError(
            f"bins = {bins!r}: must be >= 1 or at least two ascending edges in seconds"
        )
    return edges


def _rate(
    arrivals: NDArray[np.float64], edges: NDArray[np.float64], runs: int
) -> NDArray[np.float64]:
    return np.histogram(arrivals, edges)[0] / (np.diff(edges) * runs)
