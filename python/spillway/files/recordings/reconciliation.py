"""The figures that a tool reports of its own run, compared with those of the requests it lists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spillway.data.recording import ReportedFigure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.data.arrays import Floats
    from spillway.data.recording import Recording


class Figure(NamedTuple):
    """A figure that tools report: its name and unit, how far rounding and clocks may move it."""

    name: str
    unit: str
    of: Callable[[Recording], float]
    tolerance: float = 0.002


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def _mean_tokens(run: Recording, name: str) -> float:
    tokens = getattr(run, name)[~run.failed]
    return float(tokens.mean()) if len(tokens) else math.nan


def _mean_gap_s(run: Recording) -> float:
    gaps = run.token_gaps
    if gaps is None:
        return math.nan
    return _mean(gaps.values_s[np.repeat(~run.failed, np.diff(gaps.offsets))])


def _duration_s(run: Recording) -> float:
    lasted_s = np.where(run.failed, run.failure_s, run.e2e_s)
    return float(np.nanmax(run.send_s + np.nan_to_num(lasted_s)))


def _rate(run: Recording) -> float:
    duration_s = _duration_s(run)
    return float((~run.failed).sum() / duration_s) if duration_s > 0 else math.nan


# A tool's clock starts before the first request and stops after the last one.
_CLOCK = 0.1

FIGURES: Mapping[str, Figure] = {
    "completed": Figure("completed", "requests", lambda run: float((~run.failed).sum()), 0),
    "failed": Figure("failed", "requests", lambda run: float(run.failed.sum()), 0),
    "mean_ttft_s": Figure("mean TTFT", "s", lambda run: _mean(run.ttft_s)),
    "median_ttft_s": Figure("median TTFT", "s", lambda run: _median(run.ttft_s)),
    "mean_tpot_s": Figure("mean TPOT", "s", lambda run: _mean(run.itl_s)),
    "mean_gap_s": Figure("mean ITL", "s", _mean_gap_s),
    "mean_e2e_s": Figure("mean E2E", "s", lambda run: _mean(run.e2e_s)),
    "median_e2e_s": Figure("median E2E", "s", lambda run: _median(run.e2e_s)),
    "mean_input_tokens": Figure(
        "mean prompt", "tokens", lambda run: _mean_tokens(run, "input_tokens")
    ),
    "mean_output_tokens": Figure(
        "mean output", "tokens", lambda run: _mean_tokens(run, "output_tokens")
    ),
    "requests_per_s": Figure("rate", "requests/s", _rate, _CLOCK),
    "duration_s": Figure("duration", "s", _duration_s, _CLOCK),
    # Where the duration of failed requests is not known.
    "rough_duration_s": Figure("rough duration", "s", _duration_s, 0.5),
}
"""The figures by key, as `Rows.reported` names them."""

_FEW = 20  # requests, of which the clock's own time before and after is a larger part


def reconcile(run: Recording, reported: Mapping[str, float]) -> tuple[ReportedFigure, ...]:
    """Compare the tool's figures with those of the recording, if both are finite."""
    compared = []
    for key, value in reported.items():
        figure = FIGURES[key]
        recomputed = figure.of(run)
        if not (math.isfinite(value) and math.isfinite(recomputed)):
            continue
        tolerance = figure.tolerance
        if tolerance == _CLOCK and run.num_requests < _FEW:
            tolerance = 1.0
        cause = "" if _agree(value, recomputed, tolerance) else _cause(figure, value, recomputed)
        compared.append(ReportedFigure(figure.name, figure.unit, value, recomputed, cause))
    return tuple(compared)


def _agree(reported: float, recomputed: float, tolerance: float) -> bool:
    # Tools print milliseconds with two digits.
    rounding = 1e-5 if tolerance else 0.0
    return abs(reported - recomputed) <= tolerance * abs(reported) + rounding


def _cause(figure: Figure, reported: float, recomputed: float) -> str:
    if figure.unit == "requests":
        if reported > recomputed:
            return "the file does not list all requests"
        return "warm-up or failed requests are among the listed ones"
    if reported > 0 and recomputed > 0:
        factor = recomputed / reported
        for unit in (1e3, 1e6, 1e9):
            if 0.5 < factor / unit < 2 or 0.5 < factor * unit < 2:
                return f"another unit, by the factor {factor:.4g}"
    return "warm-up is counted, requests are missing, or values were changed"
