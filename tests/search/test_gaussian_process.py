"""The Gaussian process of the search against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from spillway._core import search
from spillway._core.sim import UsageError


def data(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, standardized values, noise variances."""
    rng = np.random.default_rng(seed)
    points = rng.random((n, d))
    noise = rng.uniform(0.01, 0.1, n)
    values = np.sin(3 * points @ rng.normal(size=d)) + points[:, 0] ** 2
    values += np.sqrt(noise) * rng.normal(size=n)
    return points, (values - values.mean()) / values.std(), noise


# The process


@pytest.mark.parametrize(("n", "d"), [(1, 1), (40, 3), (200, 6)])
def test_posterior_is_that_of_scikit_learn(n: int, d: int) -> None:
    points, values, noise = data(max(n, 2), d)
    points, values, noise = points[:n], values[:n], noise[:n]
    scales = np.linspace(0.3, 1.2, d)
    ours = search.GaussianProcess(
        points,
        values,
        noise,
        search.Hyperparameters(
            length_scales=scales, signal_variance=1.3, extra_noise_variance=0.02
        ),
    )
    kernel = ConstantKernel(1.3) * Matern(scales, nu=2.5) + WhiteKernel(0.02)
    theirs = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(points, values)
    where = np.random.default_rng(1).random((100, d))
    mean, variance = ours.predict(where)
    their_mean, their_sd = theirs.predict(where, return_std=True)
    np.testing.assert_allclose(mean, their_mean, rtol=0, atol=1e-9)
    # scikit-learn counts the white noise as part of the function.
    np.testing.assert_allclose(variance, their_sd**2 - 0.02, rtol=0, atol=1e-9)


@pytest.mark.parametrize("d", [1, 5])
def test_likelihood_and_its_slope_are_those_of_scikit_learn(d: int) -> None:
    points, values, noise = data(90, d)
    scales = np.linspace(0.3, 1.2, d)
    kernel = ConstantKernel(1.3) * Matern(scales, nu=2.5) + WhiteKernel(0.02)
    theirs = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(points, values)
    value, slope = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    our_value, our_slope = search.log_marginal_likelihood(
        points,
        values,
        noise,
        search.Hyperparameters(
            length_scales=scales, signal_variance=1.3, extra_noise_variance=0.02
        ),
    )
    assert our_value == pytest.approx(value, abs=1e-9)
    # Theirs: variance, length scales, noise.
    np.testing.assert_allclose(our_slope[[d, *range(d), d + 1]], slope, rtol=0, atol=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(  # at once, from a part, from a part of a part
    "n", [60, 150, pytest.param(450, marks=pytest.mark.slow)]
)
def test_fit_is_as_likely_as_that_of_scikit_learn(n: int) -> None:
    points, values, noise = data(n, 4)
    kernel = ConstantKernel(1.0) * Matern(np.ones(4), nu=2.5) + WhiteKernel(0.01, (1e-8, 10.0))
    theirs = GaussianProcessRegressor(kernel, alpha=noise, n_restarts_optimizer=2, random_state=0)
    theirs.fit(points, values)
    ours = search.fit(points, values, noise, priors=None, max_evaluations=200)
    likelihood, _ = search.log_marginal_likelihood(points, values, noise, ours)
    # Ours has a mean to choose as well, but shorter bounds of the length scales.
    assert likelihood > theirs.log_marginal_likelihood_value_ - 0.1


def test_fit_separates_signal_from_noise() -> None:
    rng = np.random.default_rng(3)
    points = rng.random((300, 2))
    values = np.sin(8 * points[:, 0]) * math.sqrt(2) + 0.5 * rng.normal(size=300)
    fitted = search.fit(points, values, np.zeros(300), priors=None)
    assert fitted.extra_noise_variance == pytest.approx(0.25, rel=0.25)
    assert fitted.length_scales[1] > 5 * fitted.length_scales[0]  # the second does not matter
    informed = search.fit(points, values, np.full(300, 0.25), priors=None)
    assert informed.extra_noise_variance < 0.06
    half_informed = search.fit(points, values, np.full(300, 0.15), priors=None)
    assert half_informed.extra_noise_variance == pytest.approx(
        fitted.extra_noise_variance - 0.15, abs=0.005
    )


def test_fit_bears_one_value_of_unbounded_noise() -> None:
    points, values, noise = data(120, 2)
    noise[7] = 1e12
    fitted = search.fit(points, values, noise, priors=None)
    without = search.fit(
        np.delete(points, 7, 0), np.delete(values, 7), np.delete(noise, 7), priors=None
    )
    assert fitted.extra_noise_variance >= 0
    np.testing.assert_allclose(fitted.length_scales, without.length_scales, rtol=0.05)


def test_noisier_values_count_less() -> None:
    hyperparameters = search.Hyperparameters(length_scales=[0.5])
    process = search.GaussianProcess([[0.5], [0.5]], [1.0, 0.0], [0.03, 0.01], hyperparameters)
    mean, variance = process.predict([[0.5]])
    # Two measurements of one value, the prior's variance being 1.
    weights = 1 / (np.array([0.03, 0.01]) + 1e-6)
    assert mean[0] == pytest.approx(weights[0] / (1 + weights.sum()), abs=1e-9)
    assert variance[0] == pytest.approx(1 / (1 + weights.sum()), abs=1e-9)


def test_misuse_is_refused() -> None:
    hyperparameters = search.Hyperparameters(length_scales=[0.5])
    for points, values, noise in (
        (np.zeros((0, 1)), [], []),
        ([[0.5]], [1.0, 2.0], [0.1]),
        ([[0.5]], [math.nan], [0.1]),
        ([[0.5]], [1.0], [-0.1]),
        ([[0.5, 0.5]], [1.0], [0.1]),
    ):
        with pytest.raises(UsageError):
            search.GaussianProcess(points, values, noise, hyperparameters)


# The acquisition


@pytest.mark.parametrize("z", [6.0, 1.0, 0.0, -1.0, -1.99, -2.01, -5.0, -30.0, -200.0])
def test_expected_improvement_is_its_integral(z: float) -> None:
    # ∫ t φ(t - z) dt over t > 0, with the largest factor taken out of the integral.
    top = max(z, 0.0)
    integral, _ = integrate.quad(
        lambda t: t * math.exp(-((t - z) ** 2 - (top - z) ** 2) / 2),
        0,
        top + 12 / max(1.0, -z / 4),
        epsabs=0,
        epsrel=1e-11,
        limit=500,
    )
    expected = math.log(integral) - (top - z) ** 2 / 2 - math.log(2 * math.pi) / 2
    for sd in (1.0, 1e-3):
        value = search.log_expected_improvement(-z * sd, sd, 0.0)
        assert value == pytest.approx(expected + math.log(sd), rel=1e-9, abs=1e-9)


def test_expected_improvement_far_away_follows_its_asymptote() -> None:
    for z in (-1e4, -1e8):
        asymptote = -z * z / 2 - math.log(2 * math.pi) / 2 - 2 * math.log(-z)
        assert search.log_expected_improvement(-z, 1.0, 0.0) == pytest.approx(asymptote, rel=1e-9)


@pytest.mark.parametrize("mean", [-8.0, -0.3, 0.0, 1.9, 2.1, 40.0, 1e5])
def test_probability_of_feasibility_is_the_normal_distribution(mean: float) -> None:
    ours = search.log_probability_of_feasibility(mean, 1.0)
    assert ours == pytest.approx(float(special.log_ndtr(-mean)), rel=1e-12)
