"""Length distributions fitted by maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.workload import (
    Empirical,
    Exponential,
    Fixed,
    Gaussian,
    Lognormal,
    Pareto,
    Uniform,
)
from spillway.config.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.data.arrays import Floats, Ints

    Cdf = Callable[[Floats], Floats]


_VALUES = 512
_POOR = 0.05


@dataclass(frozen=True)
class LengthFit:
    """A length distribution that was fitted.

    Attributes
    ----------
    lengths : workload.Lognormal or another length distribution
        What the generator draws.
    kind : str
        The parametric distribution with the smallest Akaike information criterion (AIC).
    ks : float
        Its Kolmogorov distance from the trace: the largest difference of both distribution
        functions, 0 to 1. Above 0.05 the generator draws from the trace's own quantiles instead,
        as `workload.Empirical`.
    aic : dict
        AIC of every distribution that was tried.
    """

    lengths: Any
    kind: str
    ks: float
    aic: dict[str, float]


def fitted(tokens: Ints) -> LengthFit:
    """The best distribution of given lengths.

    The likelihood is that of whole numbers: draws are rounded, and cut to the range of the data.
    """
    values, counts = np.unique(tokens, return_counts=True)
    low, high = int(values[0]), int(values[-1])
    if low == high:
        return LengthFit(Fixed(tokens=low), "fixed", 0.0, {"fixed": 0.0})
    observed = np.cumsum(counts) / counts.sum()
    x = values.astype(float)
    aic, ks, laws = {}, {}, {}
    for name, (law, cdf, parameters) in _laws(x, counts, low, high).items():
        likelihood = _likelihood(cdf, x, counts, low, high)
        aic[name] = 2 * parameters - 2 * likelihood
        ks[name] = float(np.abs(np.where(x >= high, 1.0, cdf(x + 0.5)) - observed).max())
        laws[name] = law
    best = min(aic, key=lambda name: aic[name])
    lengths = laws[best] if ks[best] <= _POOR else _empirical(tokens, values, counts)
    return LengthFit(lengths, best, ks[best], aic)


def _empirical(tokens: Ints, values: Ints, counts: Ints) -> Empirical:
    """The values themselves if they are few, or else quantiles in the middle of equal shares."""
    if len(values) > _VALUES:
        middles = (np.arange(_VALUES) + 0.5) / _VALUES
        picked = np.quantile(tokens, middles, method="inverted_cdf")
        values, counts = np.unique(picked, return_counts=True)
    return Empirical(values=values.tolist(), weights=counts.astype(float).tolist())


def _likelihood(cdf: Cdf, x: Floats, counts: Ints, low: int, high: int) -> float:
    """The log-likelihood of rounded draws of a law that is cut to [low, high]."""
    above = np.where(x >= high, 1.0, cdf(x + 0.5))
    below = np.where(x <= low, 0.0, cdf(x - 0.5))
    return float((counts * np.log(np.maximum(above - below, 1e-300))).sum())


def _laws(x: Floats, counts: Ints, low: int, high: int) -> dict[str, tuple[Any, Cdf, int]]:
    """Settings, distribution function and number of parameters of each law, bounds included."""
    special = require("scipy.special", "study")
    bounds = {"min_tokens": low, "max_tokens": high}
    total = counts.sum()
    mean = float((counts * x).sum() / total)
    deviation = math.sqrt(float((counts * (x - mean) ** 2).sum() / total))
    logs = np.log(np.maximum(x, 0.5))
    log_mean = float((counts * logs).sum() / total)
    log_deviation = max(math.sqrt(float((counts * (logs - log_mean) ** 2).sum() / total)), 1e-3)

    def normal(mu: float, sigma: float) -> Cdf:
        return lambda t: np.asarray(special.ndtr((t - mu) / sigma))

    def lognormal(mu: float, sigma: float) -> Cdf:
        return lambda t: np.asarray(special.ndtr((np.log(np.maximum(t, 1e-9)) - mu) / sigma))

    def exponential(scale: float) -> Cdf:
        return lambda t: -np.expm1(-np.maximum(t, 0.0) / scale)

    def pareto(alpha: float) -> Cdf:
        within = -math.expm1(alpha * math.log(low / high))
        return lambda t: -np.expm1(alpha * np.log(low / np.clip(t, low, high))) / within

    def best(make: Callable[..., Cdf], start: tuple[float, ...], scales: str) -> list[float]:
        """The parameters of the largest likelihood; those marked + are positive."""

        def values(point: Any) -> list[float]:
            return [
                math.exp(min(value, 30.0)) if mark == "+" else float(value)
                for value, mark in zip(point, scales, strict=True)
            ]

        def cost(point: Any) -> float:
            return -_likelihood(make(*values(point)), x, counts, low, high)

        first = [
            math.log(value) if mark == "+" else value
            for value, mark in zip(start, scales, strict=True)
        ]
        options = {"xatol": 1e-4, "fatol": 1e-3, "maxfev": 400}
        minimize = require("scipy.optimize", "study").minimize
        return values(minimize(cost, first, method="Nelder-Mead", options=options).x)

    mu, sigma = best(lognormal, (log_mean, log_deviation), "=+")
    center, spread = best(normal, (mean, deviation), "=+")
    (scale,) = best(exponential, (max(mean, 1e-3),), "+")
    found: dict[str, tuple[Any, Cdf, int]] = {
        "uniform": (Uniform(**bounds), _uniform(low, high), 2)
    }
    if -20 <= mu <= 20 and sigma <= 10:
        law: Any = Lognormal(mu=mu, sigma=sigma, **bounds)
        found["lognormal"] = (law, lognormal(mu, sigma), 4)
    if 0 <= center <= 1e6 and spread <= 1e6:
        law = Gaussian(mean_tokens=center, std_dev_tokens=spread, **bounds)
        found["gaussian"] = (law, normal(center, spread), 4)
    if 1e-3 <= scale <= 1e6:
        law = Exponential(mean_tokens=scale, **bounds)
        found["exponential"] = (law, exponential(scale), 3)
    if low >= 1:
        (alpha,) = best(pareto, (1.0,), "+")
        if 0.01 <= alpha <= 100:
            found["pareto"] = (Pareto(alpha=alpha, **bounds), pareto(alpha), 3)
    return found


def _uniform(low: int, high: int) -> Cdf:
    return lambda t: np.clip((np.floor(t) - low + 1) / (high - low + 1), 0.0, 1.0)
