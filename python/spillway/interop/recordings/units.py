"""Magnitudes that betray a wrong unit.

No server emits tokens faster than every 0.1 ms or slower than every 10 s in the median, and none
takes longer than an hour in the median for a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spillway.interop.traces import TraceError

if TYPE_CHECKING:
    from spillway.data.recording import Recording

__all__ = ["check"]


def __dir__() -> list[str]:
    return __all__


_ITL_S = (1e-4, 10.0)
_LONGEST_E2E_S = 3600.0
_SHARE_OF_ROWS = 0.02


def check(run: Recording) -> None:
    """Raises TraceError for latencies that are inconsistent or of an implausible magnitude."""
    done = ~run.failed & np.isfinite(run.e2e_s) & np.isfinite(run.ttft_s)
    if not done.any():
        raise TraceError(f"{run.source}: no request has both a TTFT and an E2E latency")
    ttft_s, e2e_s = run.ttft_s[done], run.e2e_s[done]
    for name, values in (("ttft", ttft_s), ("e2e", e2e_s)):
        if (values < 0).any():
            row = int(np.flatnonzero(done)[np.argmax(values < 0)])
            raise TraceError(
                f"{run.source}, {name}: {values.min():g} s of request {row} must be >= 0"
            )
    later = ttft_s > e2e_s * (1 + 1e-6) + 1e-6
    if later.mean() > _SHARE_OF_ROWS:
        ratio = float(np.median(ttft_s[later] / np.maximum(e2e_s[later], 1e-12)))
        raise TraceError(
            f"{run.source}, ttft: exceeds e2e in {later.sum()} of {len(later)} requests, by a "
            f"factor of {ratio:.3g} in the median{_suspicion('ttft', ratio)}"
        )
    median_e2e_s = float(np.median(e2e_s))
    if median_e2e_s > _LONGEST_E2E_S:
        raise TraceError(
            f"{run.source}, e2e: a median of {median_e2e_s:.3g} s is implausible; is it in "
            f"{'milliseconds' if median_e2e_s < _LONGEST_E2E_S * 1e3 else 'microseconds'}, with a "
            "column name that ends in _s?"
        )
    itl_s = run.itl_s[done]
    itl_s = itl_s[np.isfinite(itl_s)]
    if not len(itl_s):
        return
    median_itl_s = float(np.median(itl_s))
    if not _ITL_S[0] <= median_itl_s <= _ITL_S[1]:
        too = "short" if median_itl_s < _ITL_S[0] else "long"
        raise TraceError(
            f"{run.source}, ttft and e2e: a median gap of {median_itl_s:.3g} s between tokens is "
            f"too {too} (allowed: {_ITL_S[0]:g} to {_ITL_S[1]:g} s)"
            f"{_suspicion('the latencies', median_itl_s / 0.03)}"
        )


def _suspicion(what: str, ratio: float) -> str:
    """The unit that would explain values that are `ratio` times as large as expected."""
    verb = "are" if what.endswith("s") else "is"
    for factor, larger, smaller in ((1e3, "milliseconds", "seconds"), (1e6, "microseconds", "")):
        if factor / 30 < ratio < factor * 30:
            return f"; {verb} {what} in {larger}, with names that say seconds?"
        if 1 / (factor * 30) < ratio < 30 / factor and smaller:
            return f"; {verb} {what} in {smaller}, with names that say milliseconds?"
    return ""
