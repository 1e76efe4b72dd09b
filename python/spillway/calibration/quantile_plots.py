"""Simulated and measured latencies as matplotlib figures (extra `plot`)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from spillway.calibration.latencies import METRICS, measured, simulated
from spillway.calibration.replay import Replay
from spillway.report.style import STYLES, figure_or_new, legend_above, number_logarithmic
from spillway.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure, SubFigure

    from spillway.calibration.profile import Profile
    from spillway.data.recording import Recording


_NAMES = {"ttft": "TTFT", "itl": "inter-token latency", "e2e": "E2E latency"}
_SHARES = np.concatenate([np.linspace(1, 99, 50), [99.5, 99.9]])
_LOAD_CLASSES = 6


def quantiles(
    recordings: Sequence[Recording], profile: Profile, *, figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    """Draws replays of measured runs on a fitted server beside the measurements.

    The upper row shows quantile against quantile, from the 1st to the 99.9th percentile: on the
    diagonal the distributions agree. The lower row shows the median error of single requests by the
    number of requests in flight when they were sent; runs in a closed loop have no such errors.

    Parameters
    ----------
    recordings : sequence of Recording
        Runs of the server, whether fitted or not.
    profile : Profile
        The fitted server.
    figure : matplotlib Figure or SubFigure, optional
        Where to draw; by default a new figure.

    Raises
    ------
    ImportError
        The extra `plot` is not installed.

    """
    drawn = figure_or_new(figure, 10, 6)
    axes = drawn.subplots(2, len(METRICS))
    for recording, style in zip(recordings, itertools.cycle(STYLES)):
        replay = Replay(recording, profile.turnaround_s, warms=profile.warms)
        result = simulate(replay.simulation(profile.group))
        real, sim = measured(replay, replay.compared), simulated(result, replay.compared)
        in_flight = _in_flight(recording)[replay.compared]
        for (above, below), metric in zip(axes.T, METRICS, strict=True):
            pair = [1e3 * np.percentile(latencies.of(metric), _SHARES) for latencies in (real, sim)]
            above.plot(*pair, **style, label=recording.name)
            if replay.is_closed_loop:
                continue
            errors = 100 * (getattr(sim, f"{metric}_s") / getattr(real, f"{metric}_s") - 1)
            below.plot(*_by_load(in_flight, errors), **style, marker="o", markersize=3)
    for (above, below), metric in zip(axes.T, METRICS, strict=True):
        ends = [*above.get_xlim(), *above.get_ylim()]
        low, high = max(min(ends), 0.1), max(ends)
        above.plot([low, high], [low, high], color="#999999", linewidth=0.8, zorder=0)
        above.set(xscale="log", yscale="log", xlabel=f"measured {_NAMES[metric]} (ms)")
        for axis in (above.xaxis, above.yaxis):
            number_logarithmic(axis)
        below.axhline(0, color="#999999", linewidth=0.8, zorder=0)
        below.set(xlabel="requests in flight")
    axes[0, 0].set_ylabel("simulated (ms)")
    axes[1, 0].set_ylabel("median error of a request (%)")
    legend_above(axes[0, -1])
    return drawn


def _in_flight(run: Recording) -> np.ndarray:
    """Requests in flight when each one was sent, itself included."""
    ends_s = np.sort((run.send_s + run.e2e_s)[~np.isnan(run.e2e_s)])
    return np.arange(1, run.num_requests + 1) - np.searchsorted(ends_s, run.send_s, side="right")


def _by_load(in_flight: np.ndarray, errors: np.ndarray) -> tuple[list[float], list[float]]:
    """Medians in classes of load with about as many requests each."""
    finite = np.isfinite(errors)
    order = np.argsort(in_flight[finite], kind="stable")
    classes = [members for members in np.array_split(order, _LOAD_CLASSES) if len(members)]
    loads = [float(np.median(in_flight[finite][members])) for members in classes]
    return loads, [float(np.median(errors[finite][members])) for members in classes]
