"""The figure of a fitted generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spillway.report.style import STYLES, number_logarithmic, pyplot
from spillway.traffic.trace_statistics import TITLES, Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS = {
    "gaps_s": ("gap (s)", "share of gaps up to it"),
    "requests_per_s": ("time (s)", "requests/s"),
    "autocorrelation": ("lag (s)", "autocorrelation of counts"),
    "dispersion": ("window (s)", "variance / mean of counts"),
    "input_tokens": ("input tokens", "share of requests up to it"),
    "output_tokens": ("output tokens", "share of requests up to it"),
}
_QUANTILES = ("gaps_s", "input_tokens", "output_tokens")


_TRACE = {**STYLES[1], "linestyle": "-", "marker": "o", "label": "trace"}


def figure(checks: Sequence[Check]) -> Figure:
    """Six panels of a trace and the band of 95% of generated traces; see `Fit.plot`."""
    by_name = {check.name: check for check in checks}
    drawn: Figure = pyplot().figure(figsize=(12, 6.4), layout="constrained")
    for ax, name in zip(drawn.subplots(2, 3).flat, _PANELS, strict=True):
        _panel(ax, by_name[name])
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(
        handles, labels, loc="outside upper right", ncols=3, frameon=False, fontsize="small"
    )
    return drawn


def _panel(ax: Axes, check: Check) -> None:
    band = {"color": STYLES[0]["color"], "alpha": 0.25, "linewidth": 0, "label": "generator, 95%"}
    middle = {**STYLES[0], "linestyle": "--", "label": "generator, median"}
    if check.name in _QUANTILES:
        # A logarithmic axis cannot show 0.
        positive = [values[values > 0] for values in (check.trace, check.low)]
        least = min((float(values.min()) for values in positive if len(values)), default=1.0)
        low, high, center, own = (
            np.maximum(values, least)
            for values in (check.low, check.high, check.middle, check.trace)
        )
        ax.fill_betweenx(check.grid, low, high, **band)
        ax.plot(center, check.grid, **middle)
        ax.plot(own, check.grid, **_TRACE, markersize=3)
        ax.set(xscale="log", ylim=(0, 1))
    else:
        ax.fill_between(check.grid, check.low, check.high, **band)
        ax.plot(check.grid, check.middle, **middle)
        ax.plot(check.grid, check.trace, **_TRACE, markersize=3)
    if check.name == "dispersion":
        ax.set(xscale="log", yscale="log")
        number_logarithmic(ax.yaxis)
        ax.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    elif check.name == "autocorrelation":
        ax.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    elif check.name == "requests_per_s":
        ax.set_ylim(bottom=0)
    _name(ax, check, TITLES, _PANELS, f": {{}} (p = {check.p_value:.2g})")


_SESSION_PANELS = {
    "turns": ("turn (the last: all further ones)", "share of the requests"),
    "input_by_turn": ("turn", "mean prompt (tokens)"),
    "reused": ("", "share of prompt tokens"),
    "think_s": ("think time (s)", "share of think times up to it"),
}


def session_figure(checks: Sequence[Check], titles: Mapping[str, str]) -> Figure:
    """A panel per check of sessions, and the band of 95 % of generated traces."""
    drawn: Figure = pyplot().figure(figsize=(4 * len(checks), 3.6), layout="constrained")
    band = {"fmt": "s--", "color": STYLES[0]["color"], "capsize": 3, "label": "generator, 95 %"}
    for ax, check in zip(drawn.subplots(1, len(checks)).flat, checks, strict=True):
        reaches = [check.middle - check.low, check.high - check.middle]
        if check.name == "think_s":
            ax.errorbar(check.middle, check.grid, xerr=reaches, **band)
            ax.plot(check.trace, check.grid, **_TRACE, markersize=4)
            ax.set_xlim(left=0)
        else:
            ax.errorbar(check.grid, check.middle, yerr=reaches, **band)
            ax.plot(check.grid, check.trace, **_TRACE, markersize=4)
            ax.set_ylim(bottom=0)
        if check.name == "reused":
            ax.set_xticks([])
        _name(ax, check, titles, _SESSION_PANELS, ":\n{}")
    drawn.axes[0].legend(frameon=False, fontsize="small")
    return drawn


def _name(
    ax: Axes,
    check: Check,
    titles: Mapping[str, str],
    panels: Mapping[str, tuple[str, str]],
    verdict: str,
) -> None:
    x_label, y_label = panels[check.name]
    ax.set(xlabel=x_label, ylabel=y_label)
    title = titles[check.name]
    verdict = verdict.format("differs" if check.is_bad else "reproduced")
    ax.set_title(f"{title[0].upper()}{title[1:]}{verdict}", fontsize="medium", loc="left")
