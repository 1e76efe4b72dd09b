"""The regression of step times: its solver against SciPy's, its errors against their frequency."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize
from support.effort import scaled, trials

from spillway._core import numerics
from spillway._core.sim import UsageError

PRIOR = np.array([2800.0, 9800.0, 50.0, 30.0, 0.06, 0.0017, 200.0])


def batches_of(rng: np.random.Generator, count: int) -> np.ndarray:
    """Steps with and without prompts, with many and few tokens."""
    chunks = (rng.random(count) < 0.4) * rng.integers(1, 4, count)
    prompts = chunks * rng.integers(20, 900, count)
    decodes = rng.integers(1, 200, count)
    context = decodes * rng.uniform(200, 2000, count)
    attention = prompts * (rng.uniform(0, 2000, count) + prompts / 2)
    return np.stack([prompts, decodes, context, attention, chunks], axis=1).astype(float)


def test_solver_is_that_of_scipy() -> None:
    bounded = 0
    for seed in trials(600):
        rng = np.random.default_rng(seed)
        columns = int(rng.integers(1, 9))
        a = rng.normal(size=(columns + int(rng.integers(0, 10)), columns))
        b = rng.normal(size=len(a))
        expected, _ = optimize.nnls(a, b)
        solution = numerics.nonnegative_least_squares(a, b)
        np.testing.assert_allclose(solution, expected, rtol=0, atol=1e-9)
        bounded += int((solution == 0).any())
    assert bounded > scaled(300)


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 4.0, math.inf])
def test_optimum_is_that_of_a_general_minimizer(norm: float) -> None:
    for seed in trials(12):
        rng = np.random.default_rng(seed)
        batches = batches_of(rng, 400)
        truth = PRIOR * np.exp(rng.normal(0, 0.5, 7))
        exact_us = numerics.step_times_us(batches, truth, norm)
        step_us = exact_us * (1 + 0.05 * rng.standard_t(3, 400))
        step_us = np.maximum(step_us, 0.2 * exact_us)
        weights = 1 / exact_us**2
        fit = numerics.fit_steps(
            batches, step_us, weights, prior_mean=PRIOR, prior_width=PRIOR, norm=norm
        )

        def objective(
            scaled_: np.ndarray,
            batches: np.ndarray = batches,
            step_us: np.ndarray = step_us,
            weights: np.ndarray = weights,
            scale: float = fit.residual_scale,
        ) -> float:
            errors = (step_us - numerics.step_times_us(batches, PRIOR * scaled_, norm)) * np.sqrt(
                weights
            )
            off = np.abs(errors) / scale
            loss = np.where(off <= 1.345, 0.5 * off**2, 1.345 * (off - 0.5 * 1.345))
            return float(loss.sum() + 0.5 * ((scaled_ - 1) ** 2).sum())

        ours = objective(fit.coefficients / PRIOR)
        for start in (fit.coefficients / PRIOR, np.ones(7), truth / PRIOR):
            theirs = optimize.minimize(
                objective, start, method="L-BFGS-B", bounds=[(0, None)] * 7
            ).fun
            # The hard maximum has kinks, in which both stop early; the grid of ratios finds the
            # valley.
            assert ours <= theirs + (1e-3 if norm < math.inf else 0.5)


def coverage(norm: float, logs: int) -> np.ndarray:
    """How often the coefficients are within 1.96 standard errors, each by itself."""
    width = 100 * PRIOR  # says nothing
    inside = np.zeros(7)
    for seed in range(logs):
        rng = np.random.default_rng(seed)
        batches = batches_of(rng, 800)
        exact_us = numerics.step_times_us(batches, PRIOR, norm)
        step_us = exact_us * (1 + 0.01 * rng.normal(size=800))
        fit = numerics.fit_steps(
            batches,
            step_us,
            1 / exact_us**2,
            prior_mean=PRIOR,
            prior_width=width,
            norm=norm,
            start=PRIOR,
        )
        inside += np.abs(fit.coefficients - PRIOR) <= 1.96 * np.sqrt(np.diag(fit.covariance))
    return inside / logs


@pytest.mark.slow
@pytest.mark.parametrize("norm", [2.0, 4.0])
def test_intervals_hold_the_truth_as_often_as_they_say(norm: float) -> None:
    covered = coverage(norm, 1000)
    assert (covered >= 0.93).all()
    assert (covered <= 0.97).all()


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    # Of 100 independent logs, 95 ± 2.2; beyond 4 standard deviations by chance once in 10,000.
    covered = coverage(2.0, 100)
    assert (covered >= 0.86).all()
    assert covered.mean() < 0.995


def test_a_start_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    batches = batches_of(rng, 1000)
    exact_us = numerics.step_times_us(batches, PRIOR, 2)
    step_us = exact_us * (1 + 0.02 * rng.normal(size=1000))
    prior = {"prior_mean": PRIOR, "prior_width": PRIOR}
    weights = 1 / exact_us**2
    cold = numerics.fit_steps(batches, step_us, weights, **prior, norm=2)
    warm = numerics.fit_steps(batches, step_us, weights, **prior, norm=2, start=1.2 * PRIOR)
    np.testing.assert_allclose(cold.coefficients, warm.coefficients, rtol=1e-3)


def test_bad_calls_are_refused() -> None:
    batches = batches_of(np.random.default_rng(2), 10)
    ones = np.ones(10)
    prior = {"prior_mean": PRIOR, "prior_width": PRIOR}
    with pytest.raises(UsageError, match="7 coefficients"):
        numerics.fit_steps(batches, ones, ones, prior_mean=ones, prior_width=PRIOR, norm=2)
    with pytest.raises(UsageError, match="all finite"):
        numerics.fit_steps(batches * math.nan, ones, ones, **prior, norm=2)
    with pytest.raises(UsageError, match="differ in length"):
        numerics.fit_steps(batches, ones[:9], ones, **prior, norm=2)
    with pytest.raises(UsageError, match="finite"):
        numerics.nonnegative_least_squares([[math.inf]], [1.0])
    with pytest.raises(UsageError, match="as many rows"):
        numerics.nonnegative_least_squares([[1.0, 2.0]], [1.0])
