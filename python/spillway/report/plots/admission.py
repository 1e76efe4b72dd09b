"""What the gateway admits, and how requests end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spillway.config import formatting
from spillway.report.plots.counted_runs import bin_edges, distinct_runs, group_names, is_counted
from spillway.report.style import (
    STYLES,
    axes_or_new,
    figure_or_new,
    ink,
    legend_above,
    make_x_logarithmic,
    mark_unvalidated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from spillway._core.gateway import TokenBucket
    from spillway.data.arrays import Booleans, Floats
    from spillway.data.result_data import ResultData
    from spillway.report.plots.counted_runs import Grouping


# (label, outcomes, color, hatch) from the bottom of the stack to its top.
_LAYERS = (
    ("completed", ("completed",), "#56B4E9", ""),
    ("unfinished", ("queued", "running", "in_transit"), "#F0E442", "..."),
    ("lost", ("expired", "evicted", "failed", "cancelled"), "#CC79A7", "xxx"),
    ("rejected", ("rejected",), "#D55E00", "////"),
)  # fmt: skip


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
    runs = distinct_runs(result)
    names = group_names(runs, by)
    requests = [run.requests for run in runs]
    edges = bin_edges(bins, max(columns["arrival_s"].max() for columns in requests))
    groups = np.concatenate([columns[by] for columns in requests])
    arrivals = np.concatenate([columns["arrival_s"] for columns in requests])
    outcomes = np.concatenate([columns["outcome"] for columns in requests])
    layers = [layer for layer in _LAYERS if np.isin(outcomes, layer[1]).any()]
    figure = figure_or_new(figure, 7.5, 0.8 + 1.7 * len(names))
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
        population = f"{formatting.number(int(offered.sum()))} requests"
        if len(runs) > 1:
            population += f", {len(runs)} seeds"
        axes.set_title(f"{name} ({population})", loc="left", fontsize="medium")
        axes.set(ylabel="requests/s")
        axes.grid(alpha=0.3)
    panels[0].set(xlim=(edges[0], edges[-1]), ylim=(0, None))
    legend_above(panels[0], handlelength=2, columnspacing=2)
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
        buckets = (policy for policy in gateway.admission if policy.kind == "token_bucket")
        bucket = next(buckets, None)
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
        label = f"{name}: {formatting.number(int(which.sum()))} requests"
        axes.step(times, totals, where="post", label=label, **style)
    if bucket is not None:
        ends = np.array([0.0, last_s])
        capacity, refill = bucket.capacity_tokens, bucket.refill_tokens_per_s
        bound = capacity + refill * (ends + gateway.admission_latency_s)
        label = f"bound: {formatting.number(capacity)} + {formatting.number(refill)}/s · time"
        axes.plot(ends, bound, color=ink(axes), linestyle=":", label=label)
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
    runs = distinct_runs(result)
    lengths = np.concatenate([run.requests["input_tokens"][is_counted(run)] for run in runs])
    admitted = np.concatenate([_admitted(run)[is_counted(run)] for run in runs])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    groups = np.searchsorted(edges, lengths)
    present = np.unique(groups)
    axes = axes_or_new(ax)
    style = STYLES[len(axes.get_lines()) % len(STYLES)]
    middles = [np.median(lengths[groups == group]) for group in present]
    shares = [admitted[groups == group].mean() for group in present]
    name = f"{label + ': ' if label else ''}{formatting.number(len(lengths))} requests"
    axes.plot(middles, shares, marker="o", markersize=4, label=name, **style)
    mark_unvalidated(axes, (run.simulation for run in runs))
    axes.set(xlabel="prompt length (tokens)", ylabel="share admitted", ylim=(0, 1.02))
    make_x_logarithmic(axes)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")
    return axes


def _admitted(run: ResultData) -> Booleans:
    """Which requests the gateway admitted; workers may have refused them afterwards."""
    requests = run.requests
    undecided = (requests["outcome"] == "in_transit") & np.isnan(requests["queue_s"])
    return np.asarray(~undecided & ~np.isin(requests["reason"], list(run.ledger["rejected"])))


def _rate(arrivals: Floats, edges: Floats, runs: int) -> Floats:
    return np.histogram(arrivals, edges)[0] / (np.diff(edges) * runs)
