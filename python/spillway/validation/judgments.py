"""Verdicts on differences between a recording and its simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spillway.config import acceptance
from spillway.validation.comparison_of_runs import DEVIATION, MISSED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.validation.comparison_of_runs import Deviation, Difference

MET, NOT_MET, UNDECIDED = acceptance.VERDICTS
NOT_IDENTIFIED, NOT_APPLICABLE = "not identified", "not applicable"
SHARES = ("cache_hit_rate", "shed")
"""Figures whose errors are differences of shares."""


@dataclass(frozen=True)
class Judgment:
    """One comparison.

    Attributes
    ----------
    name : str
        A figure of `TOLERANCES`, or the path of a coefficient of the step time.
    recorded, simulated : float, optional
        Values, in the unit of the name; of a coefficient, the one that explains the recording best
        if it alone were off, and the configured one.
    error : float, optional
        Simulated against recorded: relative, of shares their difference.
    margin : float, optional
        The error is known to this much, with the confidence that all comparisons need together.
    tolerance : float
        The accepted error.
    verdict : str
        met, not met, undecided, not identified or not applicable.
    reason : str
        Why.
    explains : float, optional
        Of a coefficient: the part of the differences of latencies, in weighted squares, that
        vanishes with its error.

    """

    name: str
    recorded: float | None
    simulated: float | None
    error: float | None
    margin: float | None
    tolerance: float
    verdict: str
    reason: str = ""
    explains: float | None = None

    @property
    def is_share(self) -> bool:
        """Whether errors are differences of shares."""
        return self.name in SHARES


def judged(name: str, tolerance: float, found: Difference | str, level: float) -> Judgment:
    """The verdict on a figure; `level`: of a false alarm on one side."""
    if isinstance(found, str):
        return Judgment(name, None, None, None, None, tolerance, NOT_APPLICABLE, found)
    is_share = name in SHARES
    size = abs(found.difference)
    most = tolerance if is_share else math.log1p(tolerance)
    shown = partial(_finite if is_share else _relative)
    values = (_finite(found.recorded), _finite(found.simulated), shown(found.difference))
    if not (math.isfinite(size) and math.isfinite(found.spread.error)):
        reason = "no request of one of both sides has it, or too few do"
        return Judgment(name, *values, None, tolerance, UNDECIDED, reason)
    margin = found.spread.reach(level)
    given = (name, *values, shown(margin), tolerance)
    if size - margin > most:
        return Judgment(*given, NOT_MET, f"off by more than {_percent(tolerance)}")
    if size + found.spread.reach(MISSED) > most:
        reason = "the recording is too short, or its load too uneven, to decide"
        if size > most:
            reason = "off by more than the tolerance, but not by more than noise explains"
        return Judgment(*given, UNDECIDED, reason)
    return Judgment(*given, MET)


def identified(
    name: str,
    value: float,
    tolerance: float,
    found: Deviation,
    level: float,
) -> Judgment:
    """The verdict on a coefficient."""
    deviation, spread = found.size, found.spread
    if not math.isfinite(deviation):
        reason = "no compared latency depends on it"
        return Judgment(name, None, value, None, None, tolerance, NOT_IDENTIFIED, reason)
    margin, most = spread.reach(level), math.log1p(tolerance)
    found_from = most + found.widest.reach(level) + found.widest.reach(MISSED)
    supported = value * math.exp(-max(-50.0, min(50.0, deviation)))
    given = (name, supported, value, _relative(deviation), _relative(margin), tolerance)
    if abs(deviation) - margin > most:
        reason = f"off by more than {_percent(tolerance)}"
        return Judgment(*given, NOT_MET, reason, found.explains)
    if found_from > math.log1p(DEVIATION):
        reason = (
            f"a change by {_percent(DEVIATION)} moves no latency by more than "
            f"{100 * found.effect:.2g}%, too little beside noise and tolerance"
        )
        return Judgment(*given, NOT_IDENTIFIED, reason, found.explains)
    return Judgment(*given, MET, "", found.explains)


def overall(
    figures: Sequence[Judgment], coefficients: Sequence[Judgment], skipped: Sequence[str]
) -> str:
    """The verdict of all; the coefficients of `skipped` need not be identified."""
    verdicts = [judgment.verdict for judgment in (*figures, *coefficients)]
    if NOT_MET in verdicts:
        return NOT_MET
    wanted = [judgment for judgment in coefficients if judgment.name not in skipped]
    is_known = not any(judgment.verdict == NOT_IDENTIFIED for judgment in wanted)
    return MET if is_known and UNDECIDED not in verdicts and MET in verdicts else UNDECIDED


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _relative(logarithm: float) -> float | None:
    """A logarithm as a relative change; None beyond what a float of it says."""
    return math.expm1(logarithm) if abs(logarithm) < 50 else None


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def error_of(judgment: Judgment) -> str:
    """The error with its unit."""
    if judgment.error is None:
        return "-"
    if judgment.error > 1:
        return "> +100%"
    return f"{100 * judgment.error:+.2f}{' points' if judgment.is_share else '%'}"


def row_of(judgment: Judgment, *, is_coefficient: bool = False) -> tuple[str, ...]:
    """The row of a table: name, values, error, margin, tolerance, verdict."""

    def value(of: float | None) -> str:
        if of is None:
            return "-"
        return f"{of:.2%}" if judgment.is_share else f"{of:.4g}"

    unit = " points" if judgment.is_share else "%"
    explains: tuple[str, ...] = ()
    if is_coefficient:
        explains = (f"{judgment.explains or 0:.0%}" if judgment.verdict == NOT_MET else "-",)
    margin = "-" if judgment.margin is None else f"{100 * judgment.margin:.2g}{unit}"
    return (
        judgment.name,
        value(judgment.recorded),
        value(judgment.simulated),
        error_of(judgment),
        margin,
        f"{100 * judgment.tolerance:.3g}{unit}",
        *explains,
        judgment.verdict,
    )
