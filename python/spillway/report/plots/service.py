"""Requests and instances over time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.report.plots import faults
from spillway.report.plots.counted_runs import bin_edges, distinct_runs, group_names
from spillway.report.style import (
    STYLES,
    axes_or_new,
    figure_or_new,
    ink,
    legend_above,
    legend_outside,
    mark_unvalidated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from spillway.data.result_data import ResultData
    from spillway.report.plots.counted_runs import Grouping


_FEW_BARS = 60


_MOST_BARS = 400


_PHASES = (
    ("gateway queue", "#E69F00"),
    ("engine queue", "#F0E442"),
    ("prefill", "#D55E00"),
    ("decode", "#0072B2"),
)


_HANDOFF = ("handoff and transfer", "#999933")


_LOST_COLORS = ("#7F7F7F", "#CC79A7", "#009E73", "#56B4E9")


def requests(
    result: ResultData, start_s: float = 0, end_s: float | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draws a bar per request of a span of time: where it waited, and when it was served.

    Rows are in order of arrival. Phases: in the gateway's queue, in the engine's queue, until the
    first token (prefill), until the last one (decode). Of a request that passes through a prefill
    and a decode pool, until its prompt is computed (prefill), until its seat in the decode instance
    (handoff and transfer), until its last token (decode). Requests without a last token end in a
    cross at their arrival, in the color of their outcome.

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
    phases = list(_PHASES)
    ends = [columns[name][shown] for name in ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s")]
    if "transfer_s" in columns:
        computed_s = columns["prefill_end_s"][shown] - from_s
        seated_s = computed_s + columns["transfer_s"][shown] + columns["decode_queue_s"][shown]
        has_legs = ~np.isnan(seated_s)
        if has_legs.any():
            phases.insert(3, _HANDOFF)
            ends.insert(3, np.where(has_legs, seated_s, ends[2]))
            ends[2] = np.where(has_legs, computed_s, ends[2])
    until = [np.zeros(len(shown))]
    for end in ends:
        until.append(np.fmax(until[-1], end))
    for (label, color), low, high in zip(phases, until[:-1], until[1:], strict=True):
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
        axes.plot(
            (from_s + until[-1])[preempted],
            rows[preempted],
            "<",
            color=ink(axes),
            markersize=4,
            label="preempted",
        )
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
    output tokens per second of the run. Only completed requests count. With prefill and decode
    pools, the prefill instance holds a request until its prompt is computed, the decode instance
    from then on. Spans in which an instance had failed or was slow are shaded. Requests that went
    on at other instances are left out on the left, and count for the last one on the right.

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
    edges = bin_edges(bins, float(ends_s.max()))
    count = len(result.instances)
    tokens = np.bincount(where, columns["output_tokens"][done], minlength=count)
    last_s = float(ends_s.max())
    if "migrations" in columns:
        stayed = columns["migrations"][done] == 0
        where, begins_s, ends_s = where[stayed], begins_s[stayed], ends_s[stayed]
        done[done] = stayed
    if "prefill_instance" in columns:
        has_legs = columns["prefill_instance"][done] >= 0
        computed_s = columns["prefill_end_s"][done]
        where = np.append(where, columns["prefill_instance"][done][has_legs])
        ends_s = np.append(ends_s, computed_s[has_legs])
        begins_s = np.append(np.where(has_legs, computed_s, begins_s), begins_s[has_legs])
    # Time that requests have spent inside up to each edge, by instance.
    spent = [
        np.bincount(where, np.clip(edge - begins_s, 0, ends_s - begins_s), minlength=count)
        for edge in edges
    ]
    held = (np.diff(spent, axis=0) / np.diff(edges)[:, None]).T
    figure = figure_or_new(figure, 7.5, 1.6 + 0.28 * min(count, 24))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
    rows = np.arange(count + 1) - 0.5
    mesh = left.pcolormesh(edges, rows, held, cmap="cividis", vmin=0, rasterized=True)
    figure.colorbar(mesh, ax=left, label="requests in the instance", location="top", aspect=40)
    # One shape: a bar for each of many instances takes seconds.
    bars = {"orientation": "horizontal", "fill": True, "color": STYLES[0]["color"]}
    right.stairs(tokens / last_s, rows, **bars)
    left.set(xlabel="time (s)", ylabel="instance", ylim=(count - 0.5, -0.5))
    faults.mark(left, result, by_instance=True)
    if result.faults:
        legend_outside(figure, left)
    left.yaxis.get_major_locator().set_params(integer=True)
    right.set(xlabel="output tokens/s")
    right.grid(axis="x", alpha=0.3)
    mark_unvalidated(left, [result.simulation])
    return figure


def placement(
    result: ResultData | Sequence[ResultData], by: Grouping = "tenant", *, ax: Axes | None = None
) -> Axes:
    """Draws which share of the requests of each tenant or class each instance got.

    Parameters
    ----------
    result
        One run, or replications, whose requests are pooled. All requests that an instance got
        count, also those before `warm_up_s`; with prefill and decode pools, all its legs.
    by
        Grouping of the rows.
    ax
        Axes to draw into; default: those of a new figure.

    Raises ValueError if no instance got a request.

    """
    from matplotlib.ticker import MaxNLocator

    runs = distinct_runs(result)
    names = group_names(runs, by)
    counts = np.zeros((len(names), len(runs[0].instances)))
    for run in runs:
        columns = run.requests
        legs = [columns["instance"]]
        if "prefill_instance" in columns:
            # Until the prompt has arrived, `instance` is the prefill instance.
            prefill = columns["prefill_instance"]
            legs.append(np.where(prefill == columns["instance"], -1, prefill))
        for row, name in enumerate(names):
            for instance in legs:
                here = instance[(columns[by] == name) & (instance >= 0)]
                counts[row] += np.bincount(here, minlength=counts.shape[1])
    if not counts.any():
        raise ValueError("there is nothing to draw: no instance got a request")
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    axes = axes_or_new(ax)
    image = axes.imshow(shares, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="instance")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawn: Any = axes.figure
    title = by.removeprefix("slo_")
    drawn.colorbar(image, ax=axes, label=f"share of the requests of each {title}")
    mark_unvalidated(axes, (run.simulation for run in runs))
    return axes
