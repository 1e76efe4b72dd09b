"""The gateway and the engines over time, in panels with one time axis."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config import formatting
from spillway.report.plots import faults
from spillway.report.plots.counted_runs import within_targets
from spillway.report.style import (
    STYLES,
    figure_or_new,
    ink,
    legend_above,
    legend_label,
    legend_outside,
    mark_unvalidated,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from spillway._core.gateway import Gateway
    from spillway._core.signals import Sensor
    from spillway.data.arrays import Floats, Ints
    from spillway.data.result_data import ResultData
    from spillway.data.timeline import Control, Timeline


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


# Column, title and unit of the panels of rates.
_RATES = {
    "submitted": ("submitted", "submitted ({} requests)", "requests/s"),
    "dispatched": ("dispatched", "dispatched", "requests/s"),
    "shed": ("shed", "shed by the gateway", "requests/s"),
    "tokens": ("emitted_tokens", "output tokens", "tokens/s"),
}


# (action, color, marker) of a controller's moves; there are too many holds to mark.
_ACTIONS = (
    ("increase", "#009E73", "^"),
    ("decrease", "#D55E00", "v"),
    ("cooldown", "#777777", "x"),
)


def gateway(
    result: ResultData, *, step_s: float | None = None, figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    """Draws the demand of the tenants, the actions of the gateway and the state of the engines.

    The panels share one time axis. On the left is one line per tenant (with more than seven
    tenants, styles repeat): rates of requests submitted, dispatched and shed (refused, expired or
    evicted), queued requests, rate of output tokens. On the right: the limit (permits of all
    replicas) and the requests in flight, with the controllers' moves; the sensor's value with
    target and deadband where the controller has them; requests running and waiting in the engines;
    KV blocks in use; with prefill and decode pools, those of each pool, and the prompts on the way
    between them. The axes' labels (`get_label`) are submitted, dispatched, shed, queued, tokens,
    goodput, limit, sensor, batch, waiting (with pools) and kv. There is no panel `sensor` without a
    controller, and no panel `kv` if no block was ever in use, as in a plant. The panel `goodput`,
    the share within the targets by time of arrival, needs requests that were kept and a class with
    targets. Spans in which instances had failed or were slow are shaded.

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
    figure = figure_or_new(figure, 11, 8.5)
    sensor = "sensor" if len(control["time_s"]) else "limit"
    kv = "kv" if timeline["kv_utilization"].any() else "batch"
    rows: list[Any] = [
        ["submitted", "limit"],
        ["dispatched", sensor if timeline.pools else "limit"],
        ["shed", "waiting" if timeline.pools else sensor],
        ["queued", "batch"],
        ["tokens", kv],
    ]
    met = within_targets(result)
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
        faults.mark(panel, result, labels=panel is axes["submitted"])
    for last in (axes[rows[-1][0]], axes[kv]):
        last.set(xlabel="time (s)")
    legend_outside(figure, axes["submitted"])
    figure.align_ylabels()
    mark_unvalidated(figure.axes[0], [result.simulation])
    return figure


def _draw_tenants(axes: Mapping[str, Axes], timeline: Timeline, step_s: float | None) -> None:
    """The panels with a line per tenant; tenants without requests have no line."""
    time_s = timeline["time_s"]
    rows = _steps(timeline, step_s)
    for style, tenant in zip(itertools.cycle(STYLES), timeline.tenants):
        columns = timeline.of(tenant)
        if not columns["submitted"][-1]:
            continue
        for panel, (name, *_) in _RATES.items():
            rate = np.diff(columns[name][rows]) / np.diff(time_s[rows])
            label = legend_label(tenant) if panel == "submitted" else None
            axes[panel].stairs(rate, time_s[rows], baseline=None, label=label, **style)
        axes["queued"].plot(time_s, columns["queued"], linewidth=1, **style)
    # One scale, so that dispatched and shed requests visibly add up.
    for panel in ("dispatched", "shed"):
        axes[panel].sharey(axes["submitted"])
    total = formatting.number(int(timeline["submitted"][-1].sum()))
    for panel, (_, title, unit) in _RATES.items():
        _name_panel(axes[panel], title.format(total), unit)
    _name_panel(axes["queued"], "queued in the gateway", "requests")
    if not timeline["queued"].any():
        axes["queued"].set(ylim=(0, 1))


def _steps(timeline: Timeline, step_s: float | None) -> Ints:
    """The rows of a timeline between which rates are averaged."""
    time_s = timeline["time_s"]
    step_rows = len(time_s) / 100 if step_s is None else step_s / (time_s[1] - time_s[0])
    last = len(time_s) - 1
    return np.append(np.arange(0, last, max(1, round(step_rows))), last)


def _draw_goodput(axes: Axes, result: ResultData, met: Floats, step_s: float | None) -> None:
    timeline = result.timeline
    edges = timeline["time_s"][_steps(timeline, step_s)]
    columns = result.requests
    for style, tenant in zip(itertools.cycle(STYLES), timeline.tenants):
        of_tenant = ~np.isnan(met) & (columns["tenant"] == tenant)
        if not of_tenant.any():
            continue
        counts = np.histogram(columns["arrival_s"][of_tenant], edges)[0]
        good = np.histogram(columns["arrival_s"][of_tenant], edges, weights=met[of_tenant])[0]
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
        # Markers lie on the line of all replicas, at the first sample after the tick.
        rows = np.minimum(np.searchsorted(time_s, at_s), len(time_s) - 1)
        heights = np.where(np.isnan(permits), in_flight, permits)[rows]
        label = f"{action} ({len(at_s)})"
        axes.plot(at_s, heights, marker, label=label, color=color, markersize=4)
    _name_panel(axes, "limit", "requests")
    axes.legend(fontsize="small")


def _draw_sensor(axes: Axes, control: Control, settings: Gateway) -> None:
    title, unit = sensor_in_words(settings.sensor)
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
        of_replica = control["replica"] == replica
        time_s, value = control["time_s"][of_replica], control["value"][of_replica]
        axes.plot(time_s, value, marker=".", label=label, **style)
        label = None  # one entry for all replicas
    _name_panel(axes, title, unit)
    legend_above(axes)


def _draw_engines(axes: Mapping[str, Axes], timeline: Timeline) -> None:
    time_s = timeline["time_s"]
    if timeline.pools:
        _draw_pools(axes, timeline)
    else:
        for style, name in zip(STYLES, ("running", "waiting"), strict=False):
            axes["batch"].plot(time_s, timeline[name], label=name, **style)
        _name_panel(axes["batch"], "in the engines", "requests")
    legend_above(axes["batch"])
    if "kv" in axes:
        if not timeline.pools:
            axes["kv"].plot(time_s, timeline["kv_utilization"], **STYLES[0])
        _name_panel(axes["kv"], "KV blocks in use, mean over instances", "share")
        axes["kv"].set(ylim=(0, 1.02))


def _draw_pools(axes: Mapping[str, Axes], timeline: Timeline) -> None:
    time_s = timeline["time_s"]
    panels = (("batch", "running"), ("waiting", "waiting"), ("kv", "kv_utilization"))
    for panel, name in panels:
        if panel not in axes:
            continue
        for style, pool in zip(STYLES, timeline.pools, strict=False):
            axes[panel].plot(time_s, timeline[f"{pool}_{name}"], label=pool, **style)
    axes["waiting"].plot(
        time_s, timeline["transfers"], label="transfers", **STYLES[len(timeline.pools)]
    )
    _name_panel(axes["batch"], "running in the engines", "requests")
    _name_panel(axes["waiting"], "waiting in the engines", "requests")
    legend_above(axes["waiting"])


def _name_panel(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(ylabel=unit, ylim=(0, None))


def sensor_in_words(sensor: Sensor) -> tuple[str, str]:
    """Label of a sensor's value, and its unit."""
    source, unit = _SOURCES[sensor.source]
    if sensor.source in ("kv_utilization", "hit_rate"):
        return source, unit
    is_quantile = sensor.aggregation.endswith("quantile")
    statistic = f"p{100 * sensor.quantile:g}" if is_quantile else sensor.aggregation
    whose = {
        "pooled": "",
        "tenant": f" of {sensor.tenant}",
        "max_over_tenants": ", worst tenant",
        "slo_class": f" of {sensor.slo_class}",
    }
    return f"{statistic} of {source}{whose[sensor.scope]}", unit
