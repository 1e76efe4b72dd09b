"""Whether the system recovers after the trigger of an overload ends."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway import _core
from spillway.data.targets import compare_with_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spillway.data.result_data import ResultData


_LEAST_PER_STEP = 20
"""Requests of a step; the goodput of fewer is too noisy."""
_ERROR = 0.01
"""Probability that any step of an undisturbed run is outside the band by chance."""


@dataclass(frozen=True)
class Recovery:
    """Goodput before, during and after a trigger, and how long recovery took.

    Each goodput is a share of the requests that arrive in that interval and whose classes have
    targets: those that meet all of them; None if there are no such requests. `left`: whether
    goodput ever left the band of the time before the trigger; if not, there was nothing to recover
    from. `recovered_after_s` counts from the end of the trigger; 0: goodput never left the band, or
    was back by then; None: it did not return within the run. A system that does not recover
    although its load has returned to normal is metastable (Bronson et al., HotOS 2021).
    """

    before: float
    during: float | None
    after: float
    recovered_after_s: float | None
    left: bool

    @property
    def is_metastable(self) -> bool:
        """Whether goodput stayed down until the end of the run."""
        return self.recovered_after_s is None

    def __str__(self) -> str:
        if not self.left:
            verdict = "never left"
        elif self.recovered_after_s is None:
            verdict = "never recovered"
        else:
            verdict = f"recovered after {self.recovered_after_s:g} s"
        during = "-" if self.during is None else f"{self.during:.3f}"
        return (
            f"goodput {self.before:.3f} before, {during} during, {self.after:.3f} after the "
            f"trigger: {verdict}"
        )


def recovery(
    result: ResultData, start_s: float, end_s: float, *, step_s: float = 1.0, share: float = 0.9
) -> Recovery:
    """See `Result.recovery`."""
    warm_up_s = result.simulation.warm_up_s
    if not warm_up_s < start_s < end_s:
        raise _core.sim.UsageError(
            f"the trigger lasts from start_s = {start_s:g} to end_s = {end_s:g}: must have "
            f"warm_up_s ({warm_up_s:g}) < start_s < end_s"
        )
    if not 0 < step_s < math.inf:
        raise _core.sim.UsageError(f"step_s = {step_s:g}: must be finite and > 0")
    if not 0 < share <= 1:
        raise _core.sim.UsageError(f"share = {share:g}: must be > 0 and <= 1")
    arrival_s, met = _judged(result)

    ends = (warm_up_s, start_s, end_s, float(arrival_s[-1]) + step_s)
    before, during, after = (
        _steps(arrival_s, met, low_s, high_s, step_s) for low_s, high_s in itertools.pairwise(ends)
    )
    usual = _Step.of(before)
    if usual.requests < _LEAST_PER_STEP:
        raise _core.sim.UsageError(
            f"{usual.requests} requests arrive between warm_up_s ({warm_up_s:g}) and start_s "
            f"({start_s:g}): at least {_LEAST_PER_STEP} are needed to measure the goodput before"
        )
    if not after:
        raise _core.sim.UsageError(
            f"no request arrives after end_s ({end_s:g}), so recovery cannot be measured"
        )
    dispersion = _dispersion(before, usual)
    error = _ERROR / len(during + after)
    band = _Band(usual, dispersion, share, error)
    outside = _lasting([*during, *after], band, end_s)
    back_s = max(outside[-1].end_s, end_s) if outside else end_s
    rest = _Step.of([step for step in after if step.start_s >= back_s])
    # The rest of the run as one step shows a loss that is too small to show in any single step.
    is_back = rest.requests > 0 and not band.excludes(rest)
    if is_back and back_s > end_s:
        # If the rest is no better than the steps before, the last steps were within the band by
        # chance.
        down = _Step.of([step for step in outside if step.start_s >= end_s])
        is_back = _Band(rest, dispersion, 1, error).excludes(down)
    return Recovery(
        before=usual.goodput,
        during=_Step.of(during).goodput if during else None,
        after=_Step.of(after).goodput,
        recovered_after_s=back_s - end_s if is_back else None,
        left=bool(outside) or not is_back,
    )


def _lasting(steps: Sequence[_Step], band: _Band, end_s: float) -> list[_Step]:
    """The steps outside the band, except single ones long after the trigger.

    Requests are late in bursts, and there may have been none before the trigger.
    """
    is_out = [band.excludes(step) for step in steps]
    return [
        step
        for i, step in enumerate(steps)
        if is_out[i]
        and (step.start_s <= end_s or is_out[i - 1] or (i + 1 < len(steps) and is_out[i + 1]))
    ]


@dataclass(frozen=True)
class _Step:
    """The requests that arrive in an interval, and how many of them meet their targets."""

    start_s: float
    end_s: float
    requests: int
    good: int

    @property
    def goodput(self) -> float:
        return self.good / self.requests

    @classmethod
    def of(cls, parts: Sequence[_Step]) -> _Step:
        if not parts:
            return cls(0.0, 0.0, 0, 0)
        requests = sum(step.requests for step in parts)
        return cls(parts[0].start_s, parts[-1].end_s, requests, sum(step.good for step in parts))


def _judged(result: ResultData) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Arrivals of the requests with targets, in order, and whether each meets them.

    Requests that are unfinished at the end of the run and could still meet them are left out.
    """
    requests = result.requests
    latencies_ns = (np.rint(requests[name] * 1e9) for name in ("ttft_s", "tpot_s", "e2e_s"))
    classes = result.simulation.slo_classes
    promised, met = compare_with_targets(classes, requests["slo_class"], *latencies_ns)
    if not promised.any():
        raise _core.sim.UsageError(
            "recovery is measured by goodput, and no request is of a class with latency targets: "
            "set one, e.g. slo_classes[standard].target_ttft_s"
        )
    is_open = np.isin(requests["outcome"], ("at_admission", "queued", "in_transit", "running"))
    end_s = result.simulation.horizon_s or result.end_s
    age_s = end_s - requests["arrival_s"]
    first_s = np.where(np.isnan(requests["ttft_s"]), age_s, requests["ttft_s"])
    for known in classes:
        ttft_s, e2e_s = known.target_ttft_s or np.inf, known.target_e2e_s or np.inf
        is_late = (first_s > ttft_s) | (age_s > e2e_s)
        is_open &= ~(is_late & (requests["slo_class"] == known.name))
    counted = promised & ~is_open
    if not counted.any():
        raise _core.sim.UsageError(
            "recovery is measured by goodput, and all requests of classes with latency targets "
            "were unfinished at the end of the run and could still meet them: simulate for longer"
        )
    return requests["arrival_s"][counted], met[counted]


def _steps(
    arrival_s: NDArray[np.float64],
    met: NDArray[np.bool_],
    low_s: float,
    high_s: float,
    step_s: float,
) -> list[_Step]:
    """Steps of at least `step_s`, each long enough to hold enough requests to be judged."""
    edges = _edges(arrival_s, low_s, high_s, step_s)
    rows = np.searchsorted(arrival_s, edges)
    good = np.concatenate([[0], np.cumsum(met)])

    def step(begin: int, end: int) -> _Step:
        low, high = rows[begin], rows[end]
        met = int(good[high] - good[low])
        return _Step(float(edges[begin]), float(edges[end]), int(high - low), met)

    steps: list[_Step] = []
    begin = 0
    for i in range(1, len(edges)):
        if rows[i] - rows[begin] >= _LEAST_PER_STEP:
            steps.append(step(begin, i))
            begin = i
    if rows[-1] > rows[begin]:  # too few are left: they join the last step
        steps[-1:] = [_Step.of([*steps[-1:], step(begin, len(edges) - 1)])]
    return steps


def _edges(
    arrival_s: NDArray[np.float64], low_s: float, high_s: float, step_s: float
) -> NDArray[np.float64]:
    """Multiples of `step_s` from `low_s` on, those next to an arrival, and `high_s`."""
    step_s = (low_s + step_s) - low_s or step_s
    inside = arrival_s[(arrival_s >= low_s) & (arrival_s < high_s)]
    steps = np.floor((inside - low_s) / step_s)
    # A quotient that is rounded may be one step off.
    near = np.unique(np.concatenate([[0.0], *(steps + by for by in (-1, 0, 1, 2))]))
    edges: NDArray[np.float64] = low_s + near[near >= 0] * step_s
    return np.append(edges[edges < high_s], high_s)


def _dispersion(steps: Sequence[_Step], whole: _Step) -> float:
    """Variance of the steps' goodput relative to that of independent requests, at least 1.

    Requests that arrive together are late together.
    """
    variance = whole.goodput * (1 - whole.goodput)
    if len(steps) < 2 or variance == 0:
        return 1.0
    squares = sum((s.good - s.requests * whole.goodput) ** 2 / s.requests for s in steps)
    return max(1.0, squares / variance / (len(steps) - 1))


@dataclass(frozen=True)
class _Band:
    """The goodput of the undisturbed system, from the time before the trigger."""

    usual: _Step
    dispersion: float
    share: float
    error: float

    def excludes(self, step: _Step) -> bool:
        """Whether goodput is below the band: below `share` of the usual, and significantly so.

        Significant: Fisher's exact test gives it a probability below `error` if the usual goodput
        still held. The counts are divided by the number of requests that are late together.
        """
        if step.goodput >= self.share * self.usual.goodput:
            return False
        drawn = math.ceil(step.requests / self.dispersion)
        bad = math.floor((step.requests - step.good) / self.dispersion)
        others = math.floor(self.usual.requests / self.dispersion)
        others_bad = math.ceil((self.usual.requests - self.usual.good) / self.dispersion)
        return _at_least(bad, drawn, min(others_bad, others), others) < self.error


def _at_least(bad: int, drawn: int, others_bad: int, others: int) -> float:
    """P(at least `bad` of `drawn` are bad), all ways to spread the bad ones being equally likely.

    The upper tail of the hypergeometric distribution; `bad` lies above its mean, so that each
    further term is smaller.
    """
    total_bad, total = bad + others_bad, drawn + others
    term = math.exp(
        _log_choices(total_bad, bad)
        + _log_choices(total - total_bad, drawn - bad)
        - _log_choices(total, drawn)
    )
    found = term
    for k in range(bad, min(drawn, total_bad)):
        term *= (total_bad - k) * (drawn - k)
        term /= (k + 1) * (total - total_bad - drawn + k + 1)
        found += term
        if term < 1e-16 * found:
            break
    return found


def _log_choices(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
