"""A figure of several systems, or over the values of a setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spillway.config import formatting
from spillway.data.figures import FIGURES
from spillway.data.result_data import ResultData
from spillway.report.curves import draw_curves, name_seeds
from spillway.report.plots.counted_runs import distinct_runs, group_names, replications
from spillway.report.style import (
    MARKERS,
    STYLES,
    axes_or_new,
    figure_or_new,
    ink,
    legend_outside,
    mark_unvalidated,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from spillway.data.intervals import Interval
    from spillway.data.replications import Replications
    from spillway.report.plots.counted_runs import Grouping

Runs = ResultData | Sequence[ResultData]
"""A run, or replications."""

Quantity = str | Callable[[ResultData], float]
"""A figure by its key, or a function of a result; NaN where a result has no such value."""

Logarithmic = Literal["", "x", "y", "xy"]


def heat_map(
    systems: Mapping[str, Runs],
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
    runs = {name: distinct_runs(result) for name, result in systems.items()}
    groups = group_names([run for members in runs.values() for run in members], by)
    cells = np.full((len(groups), len(runs)), np.nan)
    for column, members in enumerate(runs.values()):
        for name, (interval,) in _intervals_of([replications(members)], figure, by, 0.95).items():
            if interval is not None:
                cells[groups.index(name), column] = interval.mean
    axes = axes_or_new(ax)
    image = axes.imshow(cells, cmap="cividis", aspect="auto")
    middle = np.nanmean([np.nanmin(cells), np.nanmax(cells)]) if np.isfinite(cells).any() else 0
    for (row, column), value in np.ndenumerate(cells):
        shown = "-" if np.isnan(value) else formatting.number(float(value))
        color = ink(axes) if np.isnan(value) else "white" if value <= middle else "black"
        axes.text(column, row, shown, ha="center", va="center", color=color)
    axes.set_xticks(range(len(runs)), list(runs))
    axes.set_yticks(range(len(groups)), groups)
    drawn: Any = axes.figure
    drawn.colorbar(image, ax=axes, label=FIGURES[figure].label)
    mark_unvalidated(axes, (run.simulation for members in runs.values() for run in members))
    return axes


def intervals(
    systems: Mapping[str, Runs],
    figure: Quantity = "goodput",
    by: Grouping | None = None,
    *,
    confidence: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draws a figure of each system with its interval over the seeds, one row per system.

    Parameters
    ----------
    systems
        By name: a run, or replications.
    figure
        A key of `Result.summary()`, or of `Result.by_tenant()` and `Result.by_class()` with `by`;
        or a function of a result, whose name labels the axis.
    by
        Grouping of the points in a row; default: one point for all requests.
    confidence
        Confidence level of the intervals.
    ax
        Axes to draw into; default: those of a new figure.

    """
    if not systems:
        raise ValueError("there is nothing to draw: there are no systems")
    runs = {name: replications(result) for name, result in systems.items()}
    lines = _intervals_of([*runs.values()], figure, by, confidence)
    axes = axes_or_new(ax)
    for number, (name, row) in enumerate(lines.items()):
        places = np.arange(len(row)) + 0.5 * (number + 0.5) / len(lines) - 0.25
        pairs = zip(places, row, strict=True)
        known = [(at, interval) for at, interval in pairs if interval is not None]
        axes.errorbar(
            [interval.mean for _, interval in known], [at for at, _ in known],
            xerr=np.array([interval.reaches for _, interval in known]).T, capsize=3, markersize=5,
            linestyle="none", marker=MARKERS[number % len(MARKERS)], label=name or None,
            color=STYLES[number % len(STYLES)]["color"],
        )  # fmt: skip
    axes.set_yticks(range(len(runs)), list(runs))
    axes.set(xlabel=_label(figure), ylim=(len(runs) - 0.5, -0.5))
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(fontsize="small")
    distinct = [results.distinct for results in runs.values()]
    name_seeds(axes, [len(each) for each in distinct], confidence)
    mark_unvalidated(axes, (run.simulation for each in distinct for run in each))
    return axes


def sweeps(
    curves: Mapping[str, Mapping[float, Runs]],
    figures: Sequence[Quantity] = ("p99_ttft_ms", "goodput"),
    *,
    setting: str = "",
    confidence: float = 0.95,
    log: Logarithmic = "",
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draws figures over the values of one setting, a panel per figure and a line per system.

    Parameters
    ----------
    curves
        By the name of a line: a run, or replications, at each value of the setting, as for `sweep`.
    figures
        The panels, from the left: keys of `Result.summary()`, or functions of a result, whose names
        label the axes.
    setting
        Label of the x axes: name of the setting, with its unit.
    confidence
        Confidence level of the intervals.
    log
        Which axes are logarithmic; "y": those of latencies alone.
    figure
        Figure or subfigure to draw into; default: a new figure.

    """
    _check_axes(log)
    if not curves or not figures:
        raise ValueError("there is nothing to draw: there are no curves or no figures")
    runs_of = {
        name: {value: replications(result) for value, result in curve.items()}
        for name, curve in curves.items()
    }
    points = {
        quantity: {
            name: list(zip(curve, _of_all([*curve.values()], quantity, confidence), strict=True))
            for name, curve in runs_of.items()
        }
        for quantity in figures
    }
    size = (7, 4) if len(figures) == 1 else (0.5 + 3.4 * len(figures), 3.5)
    figure = figure_or_new(figure, *size)
    panels = figure.subplots(1, len(figures), squeeze=False)[0]
    for axes, quantity in zip(panels, figures, strict=True):
        is_latency = isinstance(quantity, str) and bool(FIGURES[quantity].latency)
        axes_of_panel = log if is_latency else log.replace("y", "")
        draw_curves(
            axes, points[quantity], setting=setting, figure=_label(quantity), log=axes_of_panel
        )
        axes.yaxis.label.set_size("small")  # long names of figures fit
        if legend := axes.get_legend():
            legend.remove()
    legend_outside(figure, panels[0])
    distinct = [runs.distinct for curve in runs_of.values() for runs in curve.values()]
    name_seeds(panels[-1], [len(each) for each in distinct], confidence)
    mark_unvalidated(panels[0], (run.simulation for each in distinct for run in each))
    return figure


def sweep(
    results_by_value: Mapping[float, Runs],
    figure: Quantity = "p99_ttft_ms",
    by: Grouping | None = None,
    *,
    setting: str = "",
    label: str = "",
    confidence: float = 0.95,
    log: Logarithmic = "",
    ax: Axes | None = None,
) -> Axes:
    """Draws a figure over the values of one setting, with intervals over the seeds.

    Parameters
    ----------
    results_by_value
        A run, or replications, at each value of the setting. The line starts at the smallest value;
        a value at which no seed has the figure leaves a gap.
    figure
        A key of `Result.summary()`, or of `Result.by_tenant()` and `Result.by_class()` with `by`;
        or a function of a result, whose name labels the axis.
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

    Examples
    --------
    >>> import spillway
    >>> from spillway.report import plots
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> path = "workload.requests_per_s"
    >>> rates = [5, 10, 20]
    >>> runs = spillway.run_many([simulation.with_({path: rate}) for rate in rates], seeds=2)
    >>> axes = plots.sweep(dict(zip(rates, runs)), "p99_ttft_ms", setting="requests/s")
    >>> axes.get_ylabel()
    'p99 of TTFT (ms)'
    """
    if not results_by_value:
        raise ValueError("there is nothing to draw: results_by_value is empty")
    _check_axes(log)
    runs_at = {value: replications(result) for value, result in results_by_value.items()}
    lines = _intervals_of([*runs_at.values()], figure, by, confidence)
    curves = {
        " ".join(filter(None, (label, name))): list(zip(runs_at, intervals, strict=True))
        for name, intervals in lines.items()
    }
    axes = axes_or_new(ax)
    draw_curves(axes, curves, setting=setting, figure=_label(figure), log=log)
    distinct = [runs.distinct for runs in runs_at.values()]
    name_seeds(axes, [len(runs) for runs in distinct], confidence)
    mark_unvalidated(axes, (run.simulation for runs in distinct for run in runs))
    return axes


def _check_axes(log: str) -> None:
    if log not in ("", "x", "y", "xy"):
        raise ValueError(f"log = {log!r}: must be x, y, xy or empty")


def _label(figure: Quantity) -> str:
    """The label of an axis."""
    if isinstance(figure, str):
        return FIGURES[figure].label
    return getattr(figure, "__name__", type(figure).__name__).replace("_", " ")


def _of_all(
    runs: Sequence[Replications[ResultData]], figure: Quantity, confidence: float
) -> list[Interval | None]:
    """The interval of all requests at each value; None where no seed has the figure."""
    if isinstance(figure, str):
        return _groups_of(runs, figure, None, confidence).get("", [None] * len(runs))
    found = [results.interval(figure, confidence) for results in runs]
    return [None if math.isnan(interval.mean) else interval for interval in found]


def _intervals_of(
    runs: Sequence[Replications[ResultData]],
    figure: Quantity,
    by: Grouping | None,
    confidence: float,
) -> dict[str, list[Interval | None]]:
    """The interval at each value for every line; None where no seed has the figure."""
    if isinstance(figure, str):
        return _groups_of(runs, figure, by, confidence)
    if by is not None:
        raise ValueError(f"by = {by!r}: a function is of a whole result")
    return {"": _of_all(runs, figure, confidence)}


def _groups_of(
    runs: Sequence[Replications[ResultData]], figure: str, by: Grouping | None, confidence: float
) -> dict[str, list[Interval | None]]:
    if by is None:
        groups = [{"": results.summary(confidence)} for results in runs]
    elif by == "tenant":
        groups = [results.by_tenant(confidence) for results in runs]
    elif by == "slo_class":
        groups = [results.by_class(confidence) for results in runs]
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
    return {name: line for name, line in lines.items() if any(line)}
