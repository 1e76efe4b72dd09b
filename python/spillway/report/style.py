"""Lines, axes and legends of all figures (extra `plot`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.config import filesystem
from spillway.config.classes import config_error
from spillway.config.extras import require
from spillway.config.provenance import is_unvalidated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

    from spillway._core.cluster import Simulation


UNVALIDATED = "step times: unvalidated"

STYLES: tuple[dict[str, Any], ...] = tuple(
    {"color": color, "linestyle": linestyle}
    for color, linestyle in (
        ("#0072B2", "-"),
        ("#D55E00", "--"),
        ("#009E73", "-."),
        ("#CC79A7", ":"),
        ("#7F7F7F", (0, (6, 1, 1, 1, 1, 1))),
        ("#E69F00", (0, (8, 2))),
        ("#56B4E9", (0, (3, 1, 1, 1))),
    )
)
"""Keyword arguments of `Axes.plot` for the lines of a figure, safe for color blindness.

The colors are Okabe and Ito's, with gray for black, so that all show on white and on black. The
lines also differ without color.
"""

MARKERS = "os^Dv<>"
"""Markers of points without lines, in the order of `STYLES`."""


def pyplot() -> Any:
    """`matplotlib.pyplot`; ImportError names the missing extra."""
    return require("matplotlib.pyplot", "plot")


def save(figure: Figure | SubFigure, path: Path, **options: Any) -> None:
    """Writes a figure in the format that the ending of the file names.

    Raises ConfigError for an unknown ending, or if the file cannot be written.
    """
    known = figure.canvas.get_supported_filetypes()
    form = path.suffix.lower().removeprefix(".")
    if form not in known:
        allowed = f"must end with .{', .'.join(sorted(known))}"
        raise config_error([(filesystem.shown(path), "", allowed)])
    with filesystem.replacing(path) as temporary:
        figure.savefig(temporary, format=form, **options)  # type: ignore[union-attr]


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes of the caller, or else those of a new figure."""
    if ax is not None:
        return ax
    axes: Axes = pyplot().subplots(figsize=(7, 4), layout="constrained")[1]
    return axes


def figure_or_new(
    figure: Figure | SubFigure | None, width: float, height: float
) -> Figure | SubFigure:
    """The figure of the caller, or else a new one of this size in inches."""
    return figure or pyplot().figure(figsize=(width, height), layout="constrained")


def ink(axes: Axes) -> Any:
    """The color of the axes' texts: black on white, white in a dark style."""
    return axes.xaxis.label.get_color()


def mark_unvalidated(axes: Axes, simulations: Iterable[Simulation]) -> None:
    """Marks a figure of servers whose step times are computed, and were never measured."""
    if any(map(is_unvalidated, simulations)):
        mark(axes, UNVALIDATED)


def mark(axes: Axes, text: str) -> None:
    """Writes into a corner; once, if several figures share the axes."""
    if all(label.get_text() != text for label in axes.texts):
        axes.annotate(
            text, (0, 0), (3, 3), "axes fraction", "offset points", fontsize="x-small",
            color="#7F7F7F",
        )  # fmt: skip


def legend_label(name: str | None) -> str | None:
    """A name as a label; None if empty. Matplotlib leaves out those that begin with `_`."""
    return f" {name}" if name and name.startswith("_") else name or None


def make_x_logarithmic(axes: Axes) -> None:
    """A logarithmic x axis with plain numbers, around a single value too."""
    low, high = axes.dataLim.minposx, axes.dataLim.x1
    if low == high and axes.get_autoscalex_on():
        axes.set_xlim(low / 2, high * 2)
    axes.set_xscale("log")
    number_logarithmic(axes.xaxis)


def number_logarithmic(axis: Axis, at: Sequence[float] | None = None) -> None:
    """Plain numbers on a logarithmic axis, at given places or at 1, 2 and 5 times powers of 10.

    Over more than three of these, at the powers alone.
    """
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    digits = (1, 2, 5) if high <= 1000 * low else (1,)
    axis.set_major_locator(LogLocator(subs=digits) if at is None else FixedLocator(at))
    axis.set_major_formatter("{x:,.7g}")
    axis.set_minor_formatter(NullFormatter())


def legend_above(axes: Axes, *, handlelength: float = 1.6, columnspacing: float = 1) -> None:
    """A legend in one line above the axes, at their right end."""
    axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=5, fontsize="small", frameon=False,
        borderaxespad=0.1, handlelength=handlelength, columnspacing=columnspacing,
    )  # fmt: skip


def legend_outside(figure: Figure | SubFigure, axes: Axes) -> None:
    """A legend of the lines of `axes` above all panels, in as many columns as fit."""
    lines, names = axes.get_legend_handles_labels()
    if not lines:
        return
    columns = max(1, int(12 * figure.bbox.width / figure.dpi) // (7 + max(map(len, names))))
    figure.legend(
        lines, names, loc="outside upper left", ncols=columns, fontsize="small", frameon=False
    )
