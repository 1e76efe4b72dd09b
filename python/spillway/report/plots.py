"""Results as matplotlib figures (extra `plot`).

Every function draws into the axes it is given or else into a new figure, and returns what it drew
into; showing and saving is the caller's business. Every figure states its population. Replications
under several seeds (`Results`) are pooled.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spillway._extras import require
from spillway.report import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from numpy.typing import NDArray

    from spillway._core.gateway import TokenBucket
    from spillway.results import Result, Results

Grouping = Literal["slo_class", "tenant"]
Population = Literal["measured", "offered"]

STYLES: tuple[dict[str, Any], ...] = tuple(
    {"color": color, "linestyle": linestyle}
    for color, linestyle in (
        ("#0072B2", "-"),
        ("#D55E00", "--"),
        ("#009E73", "-."),
        ("#CC79A7", ":"),
        ("#000000", (0, (6, 1, 1, 1, 1, 1))),
        ("#E69F00", (0, (8, 2))),
        ("#56B4E9", (0, (3, 1, 1, 1))),
    )
)
"""Keyword arguments of `Axes.plot` for the lines of a figure, told apart by the colour-blind (the
colours are Okabe and Ito's) and without any colour."""

METRICS: Mapping[str, str] = {
    "ttft_s": "time to first token",
    "e2e_s": "time from arrival to last token",
    "tpot_s": "time per output token after the first",
    "itl_mean_s": "mean gap between tokens",
    "queue_s": "time in the gateway's queue",
    "scheduling_delay_s": "time from arrival to first step",
}
"""Latencies of a request, in seconds, and what they are called in figures."""

_TARGETS = {"ttft_s": "target_ttft_s", "tpot_s": "target_tpot_s", "e2e_s": "target_e2e_s"}

# (label, outcomes, colour, hatch) from the bottom of the stack to its top.
_LAYERS = (
    ("completed", ("completed",), "#56B4E9", ""),
    ("unfinished", ("queued", "running", "in_transit"), "#F0E442", "..."),
    ("lost", ("expired", "evicted", "failed", "cancelled"), "#CC79A7", "xxx"),
    ("rejected", ("rejected",), "#D55E00", "////"),
)  # fmt: skip


class Plots:
    """The figures of one result, as `result.plot`."""

    def __init__(self, result: Result) -> None:
        self._result = result

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
        """Prompt tokens offered and admitted, accumulated; see `plots.admitted_tokens`."""
        return admitted_tokens(self._result, bucket, ax=ax)

    def admission_by_length(
        self, *, bins: int = 20, label: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Share of the requests admitted by length of prompt; see `plots.admission_by_length`."""
        return admission_by_length(self._result, bins=bins, label=label, ax=ax)


def latency_cdf(
    result: Result | Results,
    metric: str = "ttft_s",
    by: Grouping = "slo_class",
    *,
    population: Population = "measured",
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draws the cumulative distribution of a latency, one line per class or tenant.

    Parameters
    ----------
    result
        One run, or replications, whose requests are pooled. Requests that arrive before
        `warm_up_s` are left out.
    metric
        A key of `METRICS`.
    by
        What to tell apart. Per class, its target for this metric is a vertical line.
    population
        What a share refers to. measured: the requests that got as far as having this latency, so a
        line ends at 1. offered: all requests, so a line ends at the share that was served and
        reads, at a target, as the share that met it.
    log
        Whether the axis of the latency is logarithmic; a latency of 0 is then left of it. If every
        latency is 0, it is linear all the same.
    ax
        Axes to draw into; default: those of a new figure.

    """
    if metric not in METRICS:
        raise ValueError(f"metric = {metric!r}: must be one of {', '.join(METRICS)}")
    if population not in ("measured", "offered"):
        raise ValueError(f"population = {population!r}: must be measured or offered")
    runs = _runs(result)
    groups = _groups(runs, by)
    samples = [
        np.concatenate([run.requests[metric][_counted(run, by, name)] for run in runs])
        for name in groups
    ]
    targets = _targets(runs[0], metric, groups) if by == "slo_class" else {}
    last_s = max((*(np.nanmax(one, initial=0) for one in samples), *targets.values()), default=0)
    axes = _axes(ax)
    for style, name, latencies in zip(itertools.cycle(STYLES), groups, samples):
        values, counts = np.unique(latencies[~np.isnan(latencies)], return_counts=True)
        measured, offered = int(counts.sum()), len(latencies)
        shares = np.cumsum(counts) / (measured if population == "measured" else offered)
        if population == "offered":
            values, shares = np.append(values, last_s), np.append(shares, measured / offered)
        axes.step(
            np.append(values[:1], values),
            np.append(np.zeros(len(values[:1])), shares),
            where="post",
            label=f"{name}: {tables.number(measured)} of {tables.number(offered)}",
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
        _make_x_logarithmic(axes)
    axes.grid(alpha=0.3)
    axes.legend(
        title=f"{by.removeprefix('slo_')}: measured of offered",
        loc="lower right",
        fontsize="small",
        framealpha=1,
    )
    return axes


def outcomes_over_time(
    result: Result | Results,
    by: Grouping = "tenant",
    *,
    bins: int | Sequence[float] = 60,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draws what became of the requests that arrived at a time, one panel per tenant or class.

    The outline is the offered rate; the areas below it, one on top of the other, are its parts:
    completed, unfinished, lost (expired, evicted, failed or cancelled), rejected.

    Parameters
    ----------
    result
        One run, or replications, over which the rates are averaged.
    by
        What to give a panel each.
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
        figure = _pyplot().figure(figsize=(7.5, height), layout="constrained")
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
            _rate(arrivals[offered], edges, len(runs)), edges, color="black", label="offered"
        )
        if warm_up_s > 0:
            axes.axvline(warm_up_s, color="black", linestyle=":", label="end of warm-up")
        population = f"{tables.number(int(offered.sum()))} requests"
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
    return figure


def admitted_tokens(
    result: Result, bucket: TokenBucket | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draws the prompt tokens offered and admitted up to each arrival, and a token bucket's bound.

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
    axes = _axes(ax)
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
            label=f"{name}: {tables.number(int(which.sum()))} requests",
            **style,
        )
    if bucket is not None:
        ends = np.array([0.0, last_s])
        axes.plot(
            ends,
            bucket.capacity_tokens
            + bucket.refill_tokens_per_s * (ends + gateway.admission_latency_s),
            color="black",
            linestyle=":",
            label=f"at most: {tables.number(bucket.capacity_tokens)} "
            f"+ {tables.number(bucket.refill_tokens_per_s)}/s · time",
        )
    axes.set(xlabel="time of arrival (s)", ylabel="prompt tokens, accumulated", ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return axes


def admission_by_length(
    result: Result | Results, *, bins: int = 20, label: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draws the share of the requests that the gateway admitted by the length of their prompts.

    Parameters
    ----------
    result
        One run, or replications, whose requests are pooled. Requests that arrive before
        `warm_up_s` are left out.
    bins
        Number of groups of about equally many requests, from the shortest prompts to the longest;
        each is a point at its median length. Prompts of equal length stay together.
    label
        Name of the line in the legend, in front of the number of requests.
    ax
        Axes to draw into, e.g. those of an earlier call to compare; default: those of a new figure.

    """
    runs = _runs(result)
    lengths = np.concatenate([run.requests["input_tokens"][_counted(run)] for run in runs])
    admitted = np.concatenate([_admitted(run)[_counted(run)] for run in runs])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, lengths)
    present = np.unique(group)
    axes = _axes(ax)
    style = STYLES[len(axes.get_lines()) % len(STYLES)]
    axes.plot(
        [np.median(lengths[group == one]) for one in present],
        [admitted[group == one].mean() for one in present],
        marker="o",
        markersize=4,
        label=f"{label + ': ' if label else ''}{tables.number(len(lengths))} requests",
        **style,
    )
    axes.set(xlabel="length of the prompt (tokens)", ylabel="share admitted", ylim=(0, 1.02))
    _make_x_logarithmic(axes)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")
    return axes


def _pyplot() -> Any:
    return require("matplotlib.pyplot", "plot")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    axes: Axes = _pyplot().subplots(figsize=(7, 4), layout="constrained")[1]
    return axes


def _make_x_logarithmic(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,.7g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _runs(result: Result | Results) -> tuple[Result, ...]:
    runs = tuple(result) if isinstance(result, Sequence) else (result,)
    if not any(run.summary()["offered"] for run in runs):
        raise ValueError("there is nothing to draw: no request arrives after the warm-up")
    return runs


def _groups(runs: Sequence[Result], by: Grouping) -> list[str]:
    """Names of the classes or tenants, in the order of the tables."""
    if by not in ("slo_class", "tenant"):
        raise ValueError(f"by = {by!r}: must be slo_class or tenant")
    tables_of = [run.by_class() if by == "slo_class" else run.by_tenant() for run in runs]
    return list(dict.fromkeys(name for one in tables_of for name in one))


def _counted(run: Result, by: Grouping | None = None, name: str = "") -> NDArray[np.bool_]:
    """Which requests count in the summary, of all or of one class or tenant."""
    requests = run.requests
    counted: NDArray[np.bool_] = requests["arrival_s"] >= run.simulation.warm_up_s
    return counted if by is None else counted & (requests[by] == name)


def _admitted(run: Result) -> NDArray[np.bool_]:
    """Which requests the gateway has let in; workers may have refused them afterwards."""
    requests = run.requests
    undecided = (requests["outcome"] == "in_transit") & np.isnan(requests["queue_s"])
    admitted: NDArray[np.bool_] = ~undecided & ~np.isin(
        requests["reason"], list(run.ledger["rejected"])
    )
    return admitted


def _targets(run: Result, metric: str, groups: Sequence[str]) -> dict[str, float]:
    """What the classes among `groups` are promised for a metric, in seconds."""
    if metric not in _TARGETS:
        return {}
    promised = {one.name: getattr(one, _TARGETS[metric]) for one in run.simulation.slo_classes}
    return {name: promised[name] for name in groups if promised.get(name) is not None}


def _edges(bins: int | Sequence[float], last_s: float) -> NDArray[np.float64]:
    # One instant is no interval to have a rate in.
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
