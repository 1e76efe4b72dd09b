"""A figure of several systems, or over the values of a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spillway.config import formatting
from spillway.data.figures import FIGURES
from spillway.report.curves import draw_curves, name_seeds
from spillway.report.plots.counted_runs import distinct_runs, group_names, replications
from spillway.report.style import axes_or_new, ink, mark_unvalidated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from spillway.data.intervals import Interval
    from spillway.data.replications import Replications
    from spillway.data.result_data import ResultData
    from spillway.report.plots.counted_runs import Grouping


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
    runs_at = {value: replications(result) for value, result in results_by_value.items()}
    lines = _intervals_of([*runs_at.values()], figure, by, confidence)
    curves = {
        " ".join(filter(None, (label, name))): list(zip(runs_at, intervals, strict=True))
        for name, intervals in lines.items()
    }
    axes = axes_or_new(ax)
    draw_curves(axes, curves, setting=setting, figure=FIGURES[figure].label, log=log)
    distinct = [runs.distinct for runs in runs_at.values()]
    name_seeds(axes, [len(runs) for runs in distinct], confidence)
    mark_unvalidated(axes, (run.simulation for runs in distinct for run in runs))
    return axes


def _intervals_of(
    runs: Sequence[Replications[ResultData]], figure: str, by: Grouping | None, confidence: float
) -> dict[str, list[Interval | None]]:
    """The interval at each value for every line; None where no seed has the figure."""
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
