"""Studies as matplotlib figures (extra `plot`).

As in `spillway.report.plots`, every function draws into the given axes or figure, or else into a
new one, and returns it. Duplicates and failed trials are left out.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core import search
from spillway._core.sim import UsageError
from spillway.config import formatting
from spillway.data.figures import FIGURES
from spillway.report.curves import draw_curves, name_seeds
from spillway.report.style import (
    STYLES,
    axes_or_new,
    legend_above,
    mark_unvalidated,
    number_logarithmic,
    pyplot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure
    from numpy.typing import NDArray

    from spillway._core.cluster import Simulation
    from spillway.data.intervals import Interval
    from spillway.study.records import Trial
    from spillway.study.space import Parameter
    from spillway.study.study_data import StudyData


_CELLS = 60
_MOST_TICKS = 12
_KNOWN = 0.8
"""Share of the prior standard deviation from which on a place is left blank."""

_STYLES: dict[str, dict[str, Any]] = {
    "feasible": {"color": "#0072B2", "marker": "o"},
    "infeasible": {"color": "#999999", "marker": "x"},
    "current configuration": {"color": "#D55E00", "marker": "D"},
}


class StudyPlots:
    """The figures of one study, as `study.plot`."""

    def __init__(self, study: StudyData) -> None:
        self._study = study

    def history(self, objective: int = 0, *, ax: Axes | None = None) -> Axes:
        """Draws the objective of every trial, in order, and the best feasible mean so far.

        Bars are standard errors over the seeds.
        """
        trials = _evaluated(self._study)
        axes = axes_or_new(ax)
        values = [trial.values[objective] for trial in trials]
        errors = [trial.ses[objective] for trial in trials]
        _scatter(axes, trials, [trial.number for trial in trials], values, errors)
        numbers, best = _running_best(trials, objective, self._study.objectives[objective].sign)
        axes.step(numbers, best, where="post", label="best so far", **STYLES[2])
        axes.set_xlabel("trial")
        axes.set_ylabel(_value_name(self._study, objective))
        return self._completed(axes)

    def _completed(self, axes: Axes) -> Axes:
        self._mark(axes)
        legend_above(axes)
        return axes

    def _mark(self, axes: Axes) -> None:
        mark_unvalidated(axes, [self._study.simulation])

    def importance(self, objective: int = 0, *, ax: Axes | None = None) -> Axes:
        """Draws how well each parameter separates the best quarter of the trials from all.

        See `Study.importance`.
        """
        from spillway.study.importance import importance

        shares = importance(self._study, objective)
        axes = axes_or_new(ax)
        names = list(shares)[::-1]
        axes.barh(names, [shares[name] for name in names], color="#0072B2")
        axes.set_xlabel(f"importance for {self._study.objectives[objective].name} (shares of 1)")
        axes.set_title(f"{len(_evaluated(self._study))} trials")
        self._mark(axes)
        return axes

    def slices(
        self,
        parameters: Sequence[str] | None = None,
        objective: int = 0,
        *,
        figure: Figure | SubFigure | None = None,
    ) -> Figure | SubFigure:
        """Draws the objective over each parameter, one panel each.

        `parameters`: which; None: all.
        """
        trials = _evaluated(self._study)
        names = parameters or self._study.bound.parameters
        chosen = [_parameter(self._study, name) for name in names]
        columns = min(3, len(chosen))
        rows = math.ceil(len(chosen) / columns)
        if figure is None:
            figure = pyplot().figure(figsize=(4 * columns, 3 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for panel, parameter in itertools.zip_longest(panels, chosen):
            if parameter is None:
                panel.set_axis_off()
                continue
            there = [trial for trial in trials if parameter.name in trial.point]
            values = [trial.values[objective] for trial in there]
            _scatter(panel, there, _places(parameter, there), values)
            _name_axis(panel.xaxis, parameter)
        panels[0].set_ylabel(_value_name(self._study, objective))
        self._mark(panels[0])
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
        return figure

    def contour(self, x: str, y: str, objective: int = 0, *, ax: Axes | None = None) -> Axes:
        """Draws the objective over two numeric parameters as a Gaussian process sees it.

        The process is fitted to these two alone: trials also differ in the others, which it takes
        for noise. Where it knows hardly more than its prior, the map is blank. Needs trials at
        three places or more.
        """
        across, up = _parameter(self._study, x), _parameter(self._study, y)
        if not (across.is_numeric and up.is_numeric):
            raise ValueError(f"{x} and {y} must both be numbers")
        trials = [trial for trial in _evaluated(self._study) if {x, y} <= trial.point.keys()]
        axes = axes_or_new(ax)
        xs, ys = _places(across, trials), _places(up, trials)
        if len(set(xs)) > 2 and len(set(ys)) > 2:
            shares = [(across.share_of(a), up.share_of(b)) for a, b in zip(xs, ys, strict=True)]
            values = [trial.values[objective] for trial in trials]
            surface = _surface(np.array(shares), values, [trial.ses[objective] for trial in trials])
            grid = np.linspace(0, 1, _CELLS)
            columns = [across.number_at(share) for share in grid]
            rows = [up.number_at(share) for share in grid]
            filled = axes.contourf(columns, rows, surface, levels=12, cmap="cividis")
            figure: Any = axes.figure
            figure.colorbar(filled, ax=axes, label=_value_name(self._study, objective))
        _scatter(axes, trials, xs, ys)
        _outline(axes)
        _name_axis(axes.xaxis, across)
        _name_axis(axes.yaxis, up)
        return self._completed(axes)

    def pareto(self, x: int = 0, y: int = 1, *, ax: Axes | None = None) -> Axes:
        """Draws two of several objectives against each other, with the Pareto front."""
        if len(self._study.objectives) < 2:
            why = "there is only one objective, so there is no Pareto front"
            raise UsageError(f"{why}; see history")
        trials = _evaluated(self._study)
        axes = axes_or_new(ax)
        _scatter(axes, trials, [t.values[x] for t in trials], [t.values[y] for t in trials])
        front = sorted((trial.values[x], trial.values[y]) for trial in self._study.pareto)
        axes.plot(*zip(*front, strict=True), label="front", drawstyle="default", **STYLES[2])
        axes.set_xlabel(_value_name(self._study, x))
        axes.set_ylabel(_value_name(self._study, y))
        return self._completed(axes)


_Point = tuple[str, "Mapping[str, Any]", "Interval | None"]
"""Name and settings of a row of a sweep, and the interval of its metric."""


def sweep(
    points: Sequence[_Point],
    metric: str,
    setting: str | None,
    *,
    seeds: int,
    simulations: Iterable[Simulation],
    ax: Axes | None = None,
) -> Axes:
    """See `Sweep.plot`. `points` are the rows that ran, `seeds` their number of seeds."""
    if setting is None:
        paths = dict.fromkeys(path for _, settings, _ in points for path in settings)
        everywhere = (path for path in paths if all(_is_number(row, path) for _, row, _ in points))
        setting = next(everywhere, None)
    else:
        points = [point for point in points if _is_number(point[1], setting)]
    if not points:
        raise ValueError(f"there is nothing to draw: no row ran with a number for {setting!r}")
    axes = axes_or_new(ax)
    label = FIGURES[metric].label if metric in FIGURES else metric
    if setting is None:
        _draw_rows(axes, points, label)
    else:
        draw_curves(axes, _curves(points, setting), setting=setting, figure=label)
    name_seeds(axes, [seeds], 0.95)
    mark_unvalidated(axes, simulations)
    return axes


def heat_map(
    coordinates: Mapping[str, Sequence[Any]],
    means: NDArray[np.float64],
    metric: str,
    *,
    seeds: int,
    simulations: Iterable[Simulation],
    ax: Axes | None = None,
) -> Axes:
    """See `Sweep.heat_map`; `means` has a row for each value of the first of two settings."""
    axes = axes_or_new(ax)
    image = axes.imshow(means.T, cmap="cividis", aspect="auto", origin="lower")
    (x, x_values), (y, y_values) = coordinates.items()
    axes.set_xticks(*_ticks(x_values), rotation=30 if len(str(x_values)) > 60 else 0)
    axes.set_yticks(*_ticks(y_values))
    axes.set(xlabel=x, ylabel=y)
    label = FIGURES[metric].label if metric in FIGURES else metric
    drawn: Any = axes.figure
    drawn.colorbar(image, ax=axes, label=label)
    axes.set_title(
        f"mean of {seeds} seeds" if seeds > 1 else "1 seed", loc="right", fontsize="small"
    )
    mark_unvalidated(axes, simulations)
    return axes


def _ticks(values: Sequence[Any]) -> tuple[list[int], list[str]]:
    """Places and names of at most `_MOST_TICKS` values of an axis."""
    every = math.ceil(len(values) / _MOST_TICKS)
    places = list(range(0, len(values), every))
    return places, [formatting.setting(values[place]) for place in places]


def _curves(
    points: Sequence[_Point], setting: str
) -> dict[str, list[tuple[float, Interval | None]]]:
    """The intervals over the values of a setting, by the other settings."""
    curves: dict[str, list[tuple[float, Interval | None]]] = {}
    for _, settings, interval in points:
        others = {path: value for path, value in settings.items() if path != setting}
        name = formatting.point(others) if others else ""
        curves.setdefault(name, []).append((float(settings[setting]), interval))
    return curves


def _draw_rows(axes: Axes, points: Sequence[_Point], label: str) -> None:
    """The intervals below each other, named at the left."""
    for row, (_, _, interval) in enumerate(points):
        if interval is not None:
            below, above = interval.reaches
            axes.errorbar(
                interval.mean, row, xerr=[[below], [above]], marker="o", capsize=3, color="#0072B2"
            )
    axes.set_yticks(range(len(points)), [name for name, _, _ in points])
    axes.set(ylim=(len(points) - 0.5, -0.5), xlabel=label)
    axes.grid(alpha=0.3)


def _is_number(settings: Mapping[str, Any], path: str) -> bool:
    value = settings.get(path)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _surface(shares: Any, values: Sequence[float], errors: Sequence[float]) -> Any:
    """The mean of a Gaussian process over the unit square; NaN where it knows too little.

    `shares`: positions of the trials in the square. Rows of the result follow the second one.
    """
    observed = np.array(values)
    center, scale = observed.mean(), observed.std() or 1.0
    noise = (np.nan_to_num(np.array(errors, dtype=float)) / scale) ** 2
    standardized = (observed - center) / scale
    fitted = search.fit(shares, standardized, noise)
    process = search.GaussianProcess(shares, standardized, noise, fitted)
    grid = np.linspace(0, 1, _CELLS)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    mean, sd = process.predict(points)
    known = sd < _KNOWN * math.sqrt(fitted.signal_variance)
    return np.where(known, center + scale * mean, np.nan).reshape(_CELLS, _CELLS)


def _evaluated(study: StudyData) -> list[Trial]:
    trials = [trial for trial in study.records if trial.has_values and trial.duplicate_of is None]
    if not trials:
        raise UsageError("there is nothing to draw: no trial has been evaluated")
    return trials


def _running_best(
    trials: Sequence[Trial], objective: int, sign: float
) -> tuple[list[int], list[float]]:
    feasible = [trial for trial in trials if trial.is_feasible]
    numbers = [trial.number for trial in feasible]
    scores = itertools.accumulate((sign * trial.values[objective] for trial in feasible), max)
    best = [sign * score for score in scores]
    if numbers and numbers[-1] != trials[-1].number:
        numbers.append(trials[-1].number)
        best.append(best[-1])
    return numbers, best


def _scatter(
    axes: Axes,
    trials: Sequence[Trial],
    xs: Sequence[float],
    ys: Sequence[float],
    errors: Sequence[float] | None = None,
) -> None:
    """The trials as points, with markers for feasible, infeasible and the baseline."""
    for label, style in _STYLES.items():
        places = [i for i, trial in enumerate(trials) if _label(trial) == label]
        if places:
            axes.errorbar(
                [xs[i] for i in places],
                [ys[i] for i in places],
                yerr=None if errors is None else np.nan_to_num([errors[i] for i in places]),
                linestyle="none",
                markersize=5,
                elinewidth=0.8,
                label=label,
                **style,
            )


def _label(trial: Trial) -> str:
    if trial.is_baseline:
        return "current configuration"
    return "feasible" if trial.is_feasible else "infeasible"


def _outline(axes: Axes) -> None:
    """Draws a white rim around markers, which else vanish on a map of their color."""
    from matplotlib.patheffects import withStroke

    for line in axes.get_lines():
        line.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _parameter(study: StudyData, name: str) -> Parameter:
    if name not in study.bound.parameters:
        known = ", ".join(study.bound.parameters)
        raise ValueError(f"unknown parameter {name!r}; one of {known}")
    return study.bound.parameters[name]


def _places(parameter: Parameter, trials: Sequence[Trial]) -> list[float]:
    values = [trial.point[parameter.name] for trial in trials]
    return values if parameter.is_numeric else [parameter.labels.index(value) for value in values]


def _name_axis(axis: Axis, parameter: Parameter) -> None:
    unit = f" ({parameter.unit})" if parameter.unit else ""
    axis.set_label_text(f"{parameter.name}{unit}")
    if not parameter.is_numeric:
        axis.set_ticks(range(len(parameter.labels)), [str(label) for label in parameter.labels])
    elif parameter.log:
        axes = axis.axes
        set_scale = axes.set_xscale if axis is axes.xaxis else axes.set_yscale
        set_scale("log")
        # Labels at 1, 2 and 5 of each decade would overlap if there are many decades.
        number_logarithmic(axis, _decades(parameter.low, parameter.high))


def _decades(low: float, high: float) -> list[float]:
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high < 200 * low else (1,)
    places = [step * 10.0**exponent for exponent in exponents for step in steps]
    return [place for place in places if low * 0.99 <= place <= high * 1.01]


def _value_name(study: StudyData, objective: int) -> str:
    runs = max((trial.num_runs for trial in _evaluated(study)), default=1)
    name = study.objectives[objective].name
    return name if runs == 1 else f"{name}, mean of {runs} seeds"
