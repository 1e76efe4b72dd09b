"""Arrival processes fitted by maximum likelihood.

Times are on the clock of a rate profile (see `workload.Client.rate_profile`): a fit to a trace
whose rate changes is a profile, and a stationary process on its clock. The likelihoods are
conditional on the first arrival.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.workload import Gamma, Hawkes, Mmpp, MmppState, Poisson, RatePoint
from spillway.config.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.data.arrays import Floats


_INTERVALS = (4, 8, 16, 32)
_REQUESTS_PER_INTERVAL = 50
_DAY_S = 86400.0
_SHORT = 1e-3  # of the mean gap


@dataclass(frozen=True)
class Profile:
    """A rate over time with mean 1: piecewise linear, constant before and after its points."""

    points: tuple[RatePoint, ...] = ()
    period_s: float | None = None
    parameters: int = 0

    def factor(self, times_s: Floats) -> Floats:
        """The factor at times from the start."""
        if not self.points:
            return np.ones_like(times_s)
        at, factors = self._knots()
        return np.interp(self._phase(times_s), at, factors)

    def clock(self, times_s: Floats) -> Floats:
        """The integral of the factor from the start to each time."""
        if not self.points:
            return times_s
        at, factors = self._knots()
        if self.period_s is None:
            end = max(float(times_s.max(initial=0.0)), at[-1]) + 1.0
            at, factors = np.append(at, end), np.append(factors, factors[-1])
        area = np.append(0.0, np.cumsum(np.diff(at) * (factors[1:] + factors[:-1]) / 2))
        phase = self._phase(times_s)
        piece = np.clip(np.searchsorted(at, phase, side="right") - 1, 0, len(at) - 2)
        into = phase - at[piece]
        slope = (factors[piece + 1] - factors[piece]) / np.diff(at)[piece]
        within: Floats = area[piece] + into * (factors[piece] + slope * into / 2)
        if self.period_s is not None:
            within = within + np.floor(times_s / self.period_s) * area[-1]
        return within

    def _phase(self, times_s: Floats) -> Floats:
        return times_s if self.period_s is None else np.mod(times_s, self.period_s)

    def _knots(self) -> tuple[Floats, Floats]:
        """Strictly increasing times from 0 (to the period), and the factors there."""
        at = np.array([point.at_s for point in self.points])
        factors = np.array([point.factor for point in self.points])
        if self.period_s is None:
            edges, values = [0.0], [factors[0]]
        else:
            wrap = self.period_s - at[-1] + at[0]
            middle = factors[0] + (factors[-1] - factors[0]) * at[0] / wrap
            edges, values = [0.0, self.period_s], [middle, middle]
        at, factors = np.append(edges, at), np.append(values, factors)
        order = np.argsort(at, kind="stable")
        return at[order], factors[order]


@dataclass(frozen=True)
class Candidate:
    """A process that was fitted, and how likely it makes the arrivals.

    `bic` is the Bayesian information criterion: smaller is better.
    """

    name: str
    profile: Profile
    arrivals: Any
    log_likelihood: float
    parameters: int
    bic: float


def candidates(arrival_s: Floats, length_s: float, processes: Sequence[str]) -> list[Candidate]:
    """Fits of all processes on the clocks of profiles of increasing detail, the best first.

    Parameters
    ----------
    arrival_s
        Times since the start, ascending and distinct, at least three.
    length_s
        The end of the observation, since the start.
    processes
        Names of `PROCESSES`.
    """
    found: list[Candidate] = []
    best, worse = math.inf, 0
    number = len(arrival_s) - 1
    for profile in _profiles(arrival_s, length_s):
        gaps = np.maximum(np.diff(profile.clock(arrival_s)), 1e-12)
        mean = float(gaps.mean())
        # The density in seconds of what is fitted to gaps with mean 1 on the profile's clock.
        scale = float(np.log(np.maximum(profile.factor(arrival_s[1:]), 1e-12)).sum())
        scale -= number * math.log(mean)
        here = []
        for name in processes:
            arrivals, likelihood, parameters = PROCESSES[name](gaps / mean, mean)
            parameters += 1 + profile.parameters
            bic = parameters * math.log(number) - 2 * (likelihood + scale)
            here.append(Candidate(name, profile, arrivals, likelihood + scale, parameters, bic))
        found += here
        lowest = min(candidate.bic for candidate in here)
        worse = 0 if lowest < best else worse + 1
        best = min(best, lowest)
        if worse == 2:
            break
    return sorted(found, key=lambda candidate: candidate.bic)


def _profiles(arrival_s: Floats, length_s: float) -> list[Profile]:
    """Constant, then with more and more points; the hours of a day for traces of two days."""
    found = [Profile()]
    if length_s >= 2 * _DAY_S and len(arrival_s) >= 24 * _REQUESTS_PER_INTERVAL:
        found.append(_profile(np.mod(arrival_s, _DAY_S), _DAY_S, 24, _DAY_S))
    found += [
        _profile(arrival_s, length_s, intervals, None)
        for intervals in _INTERVALS
        if len(arrival_s) >= intervals * _REQUESTS_PER_INTERVAL
    ]
    return found


def _profile(times_s: Floats, length_s: float, intervals: int, period_s: float | None) -> Profile:
    """Points in the middle of equal intervals, with the rates there."""
    counts = np.histogram(times_s, intervals, (0.0, length_s))[0].astype(float)
    factors = np.maximum(counts, 0.5) / counts.mean()
    middles = (np.arange(intervals) + 0.5) * length_s / intervals

    def points(scale: float) -> tuple[RatePoint, ...]:
        return tuple(
            RatePoint(at_s=float(at), factor=float(factor / scale))
            for at, factor in zip(middles, factors, strict=True)
        )

    rough = Profile(points(1.0), period_s)
    just_before = np.array([np.nextafter(length_s, 0.0)])
    mean = float(rough.clock(just_before)[0]) / length_s
    return Profile(points(mean), period_s, intervals - 1)


# Each takes gaps with mean 1 and their mean in seconds, and returns settings, log-likelihood of the
# gaps with mean 1, and number of parameters besides the rate.


def _poisson(gaps: Floats, _mean_s: float) -> tuple[Any, float, int]:
    return Poisson(), -float(gaps.sum()), 0


def _gamma(gaps: Floats, _mean_s: float) -> tuple[Any, float, int]:
    # The shortest gaps count only as short: there the density has no bound, and clocks have a
    # resolution.
    long = gaps[gaps >= _SHORT]
    number, logs, total = len(long), float(np.log(long).sum()), float(long.sum())
    short, gammainc = len(gaps) - number, require("scipy.special", "study").gammainc

    def cost(log_shape: float) -> float:
        shape = math.exp(log_shape)
        constant = shape * log_shape - math.lgamma(shape)
        likelihood = (shape - 1) * logs - shape * total + number * constant
        if short:
            probability = max(float(gammainc(shape, shape * _SHORT)), 1e-300)
            likelihood += short * math.log(probability / _SHORT)
        return -likelihood

    found = require("scipy.optimize", "study").minimize_scalar(
        cost, bounds=(math.log(0.01), math.log(1e6)), method="bounded"
    )
    return Gamma(cv=math.exp(-found.x / 2)), -float(found.fun), 1


def _hawkes(gaps: Floats, mean_s: float) -> tuple[Any, float, int]:
    total = float(gaps.sum())

    def values(point: Sequence[float]) -> tuple[float, float]:
        return 0.99 / (1 + math.exp(-point[0])), math.exp(point[1])

    def cost(point: Sequence[float]) -> float:
        if abs(point[0]) > 12 or not -7 <= point[1] <= math.log(total / 4):
            return math.inf
        return _hawkes_cost(gaps, *values(point))

    found = _minimum(cost, [(0.0, 0.0), (0.0, 3.0), (0.0, 5.5)])
    ratio, decay = values(found.x)
    return Hawkes(branching_ratio=ratio, decay_s=_within(decay * mean_s)), -float(found.fun), 2


def _hawkes_cost(gaps: Floats, ratio: float, decay: float) -> float:
    """Minus the log-likelihood of a self-exciting process with mean rate 1, `decay` in its unit."""
    jump = ratio / decay
    decays = np.exp(-gaps / decay)
    after = accumulate(decays[:-1].tolist(), lambda e, d: e * d + jump, initial=ratio + jump)
    excess = np.fromiter(after, float, len(gaps))
    before = excess * decays
    compensator = (1 - ratio) * float(gaps.sum()) + decay * float((excess - before).sum())
    return compensator - float(np.log(1 - ratio + before).sum())


def _mmpp(gaps: Floats, mean_s: float) -> tuple[Any, float, int]:
    longest = len(gaps) / 4  # a cycle is seen several times, or it is a profile

    def rates(point: Sequence[float]) -> tuple[float, float, float, float]:
        low_s, high_s, ratio = (math.exp(value) for value in point)
        low = (low_s + high_s) / (low_s + ratio * high_s)
        return low_s, high_s, low, ratio * low

    def cost(point: Sequence[float]) -> float:
        if not (0 <= point[2] <= 9 and min(point[:2]) >= -5):
            return math.inf
        low_s, high_s, low, high = rates(point)
        if low_s + high_s > longest:
            return math.inf
        return -_mmpp_likelihood(gaps, 1 / low_s, 1 / high_s, low, high)

    starts = [
        (math.log(low), math.log(low / 4), math.log(ratio))
        for low, ratio in ((10, 8), (60, 5), (400, 4))
        if low * 1.25 < longest
    ]
    if not starts:
        return Poisson(), -float(gaps.sum()), 3
    found = _minimum(cost, starts)
    low_s, high_s, low, high = rates(found.x)
    states = (
        MmppState(rate_factor=low, mean_s=_within(low_s * mean_s)),
        MmppState(rate_factor=high, mean_s=_within(high_s * mean_s)),
    )
    return Mmpp(states=states), -float(found.fun), 3


PROCESSES: dict[str, Callable[[Floats, float], tuple[Any, float, int]]] = {
    "poisson": _poisson,
    "gamma": _gamma,
    "hawkes": _hawkes,
    "mmpp": _mmpp,
}
"""The processes that can be fitted, by the `kind` of their settings."""


def _mmpp_likelihood(gaps: Floats, leave_1: float, leave_2: float, r_1: float, r_2: float) -> float:
    """Log-likelihood of a Markov-modulated Poisson process with two states.

    The probability of a gap without arrivals and with a change of states is exp((Q - R) gap), in
    closed form for two states. The product over the gaps is taken in pairs, with the scale apart.
    """
    a, b, c, d = -leave_1 - r_1, leave_1, leave_2, -leave_2 - r_2
    half = (a + d) / 2
    root = math.sqrt(((a - d) / 2) ** 2 + b * c)
    falling = np.exp(-2 * root * gaps)
    same, other = (1 + falling) / 2, (1 - falling) / (2 * root)
    logs = (half + root) * float(gaps.sum())
    # Columns are multiplied by the rates of the states in which the arrival ends the gap.
    m: tuple[Floats, ...] = (
        (same + (a - half) * other) * r_1,
        b * other * r_2,
        c * other * r_1,
        (same + (d - half) * other) * r_2,
    )
    while len(m[0]) > 1:
        if len(m[0]) % 2:
            identity = (1.0, 0.0, 0.0, 1.0)
            m = tuple(np.append(entry, rest) for entry, rest in zip(m, identity, strict=True))
        p, q, r, s = (entry[0::2] for entry in m)
        t, u, v, w = (entry[1::2] for entry in m)
        m = (p * t + q * v, p * u + q * w, r * t + s * v, r * u + s * w)
        largest = np.maximum(np.maximum(m[0], m[1]), np.maximum(m[2], m[3]))
        if not (largest > 0).all():
            return -math.inf
        logs += float(np.log(largest).sum())
        m = tuple(entry / largest for entry in m)
    in_1, in_2 = leave_2 * r_1, leave_1 * r_2  # of the state right after an arrival
    final = (in_1 * (m[0][0] + m[1][0]) + in_2 * (m[2][0] + m[3][0])) / (in_1 + in_2)
    return logs + math.log(final) if final > 0 else -math.inf


def _minimum(cost: Callable[[Sequence[float]], float], starts: Sequence[tuple[float, ...]]) -> Any:
    """The lowest minimum from the two best of several starts (Nelder and Mead)."""
    minimize = require("scipy.optimize", "study").minimize
    starts = sorted(starts, key=cost)[:2]
    options = {"xatol": 1e-3, "fatol": 1e-2, "maxfev": 200}
    return min(
        (minimize(cost, start, method="Nelder-Mead", options=options) for start in starts),
        key=lambda result: float(result.fun),
    )


def _within(seconds: float) -> float:
    """A time within the bounds of the settings."""
    return min(max(seconds, 1e-3), 1e9)
