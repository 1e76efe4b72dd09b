"""A figure of results as curves over the values of a setting (extra `plot`)."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from spillway.report.style import STYLES, number_logarithmic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from matplotlib.axes import Axes

    from spillway.data.intervals import Interval


def draw_curves(
    axes: Axes,
    curves: Mapping[str, Sequence[tuple[float, Interval | None]]],
    *,
    setting: str,
    figure: str,
    log: str = "",
) -> None:
    """Draws a curve with intervals per name, and labels the axes `setting` and `figure`.

    `curves`: values of the setting, in any order, each with the interval there; None leaves a gap.
    `log`: which axes are logarithmic, e.g. "xy"; an axis without a positive value is linear in any
    case. A linear y axis starts at 0 unless a mean is negative.
    """
    points = [point for curve in curves.values() for point in curve]
    means = [interval.mean for _, interval in points if interval is not None]
    log_x = "x" in log and any(value > 0 for value, _ in points)
    log_y = "y" in log and any(mean > 0 for mean in means)
    for name, curve in curves.items():
        _draw_curve(axes, name, sorted(curve, key=lambda point: point[0]), log_y=log_y)
    axes.set(xlabel=setting, ylabel=figure)
    axes.grid(alpha=0.3)
    if log_x:
        axes.set_xscale("log")
        values = sorted({value for value, _ in points})
        apart = all(right >= 1.5 * left for left, right in itertools.pairwise(values))
        number_logarithmic(axes.xaxis, values if apart else None)
    if log_y:
        axes.set_yscale("log")
        number_logarithmic(axes.yaxis)
    elif min(means, default=0) >= 0:
        axes.set(ylim=(0, max(axes.get_ylim()[1], 1.05 * max(means, default=0))))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")


def _draw_curve(
    axes: Axes, name: str, curve: Sequence[tuple[float, Interval | None]], *, log_y: bool
) -> None:
    means = [math.nan if interval is None else interval.mean for _, interval in curve]
    reaches = [(0.0, 0.0) if interval is None else interval.reaches for _, interval in curve]
    lower, upper = (list(side) for side in zip(*reaches, strict=True))
    if log_y:  # the lower end of an interval may be negative
        lower = [min(below, 0.9 * mean) for below, mean in zip(lower, means, strict=True)]
    values = [value for value, _ in curve]
    style = STYLES[len(axes.containers) % len(STYLES)] | {"marker": "o", "markersize": 4}
    axes.errorbar(values, means, yerr=[lower, upper], label=name or None, capsize=3, **style)


def name_seeds(axes: Axes, counts: Collection[int], confidence: float) -> None:
    """Writes above the axes over how many seeds the means and intervals are."""
    least, most = min(counts), max(counts)
    seeds = f"{least} to {most}" if least < most else str(most)
    population = f"mean of {seeds} seeds, {confidence:.0%} interval" if most > 1 else "1 seed"
    axes.set_title(population, loc="right", fontsize="small")
