"""Regret and speed of the Gaussian-process search: `make bench-search`.

Regret is what the *recommended* point loses against the optimum under the noiseless function, after
trials whose values carry normal noise of a tenth of the function's range. For `gp` that is the
trial with the best posterior mean, for TPE the best trial, as Optuna tells it. The second column
of TPE takes its recommendation from the Gaussian process instead: what is left is the difference in
where the trials lie.

The seeds from 0 on are for this script; tuning used others (from 5000 on).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import statistics
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna

from spillway._core import search
from spillway.study.gp import GpSampler

if TYPE_CHECKING:
    from collections.abc import Callable

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclasses.dataclass(frozen=True)
class Problem:
    """To be minimised over the unit cube.

    `measure(point, rng)` returns a value and its standard error; `truth(point)` what the value is
    without noise.
    """

    dimensions: int
    measure: Callable[[np.ndarray, np.random.Generator], tuple[float, float]]
    truth: Callable[[np.ndarray], float]
    optimum: float


def branin(point: np.ndarray) -> float:
    """Branin; from 0.397887 to 308.13."""
    x, y = 15 * point[0] - 5, 15 * point[1]
    bowl = (y - 5.1 * x * x / (4 * math.pi**2) + 5 * x / math.pi - 6) ** 2
    return float(bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


_HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(point: np.ndarray) -> float:
    """Hartmann's function of six variables; from -3.32237 to 0."""
    distances = (_HARTMANN_A * (point - _HARTMANN_P) ** 2).sum(axis=1)
    return -float(np.array([1, 1.2, 3, 3.2]) @ np.exp(-distances))


def noisy(
    truth: Callable[[np.ndarray], float], sd: float, point: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    """A value with normal noise of known size."""
    return truth(point) + sd * rng.normal(), sd


PROBLEMS = {
    "branin": Problem(2, functools.partial(noisy, branin, 30.77), branin, 0.397887),
    "hartmann6": Problem(6, functools.partial(noisy, hartmann6, 0.332237), hartmann6, -3.32237),
}


def make_tpe(seed: int) -> optuna.samplers.BaseSampler:
    """TPE as Spillway sets it."""
    return optuna.samplers.TPESampler(
        seed=seed, multivariate=True, constant_liar=True, n_startup_trials=10
    )


def searched(
    problem: Problem, sampler: optuna.samplers.BaseSampler, trials: int, seed: int
) -> optuna.Study:
    """A study of so many trials, one after the other."""
    rng = np.random.default_rng([seed, 99])
    study = optuna.create_study(sampler=sampler)
    for _ in range(trials):
        trial = study.ask()
        point = [trial.suggest_float(f"x{i}", 0, 1) for i in range(problem.dimensions)]
        value, error = problem.measure(np.array(point), rng)
        trial.set_user_attr("objective_se", [error])
        study.tell(trial, value)
    return study


def regret(problem: Problem, trial: optuna.trial.FrozenTrial) -> float:
    """What the trial's point loses."""
    point = [trial.params[f"x{i}"] for i in range(problem.dimensions)]
    return problem.truth(np.array(point)) - problem.optimum


def regrets(name: str, seed: int, share: float = 1) -> dict[str, float]:
    """Of one repetition, with a share of the trials."""
    problem = PROBLEMS[name]
    gp = GpSampler(seed=seed)
    by_gp = searched(problem, gp, math.ceil(30 * share), seed)
    by_tpe = searched(problem, make_tpe(seed), math.ceil(60 * share), seed)
    return {
        "gp, 30 trials": regret(problem, gp.recommend(by_gp)),
        "tpe, 60 trials": regret(problem, by_tpe.best_trial),
        "tpe, 60 trials, posterior mean": regret(problem, GpSampler(seed=seed).recommend(by_tpe)),
    }


def times_of(action: Callable[[], Any]) -> np.ndarray:
    """Wall time and time of the processor (all threads), in ms."""
    start = time.perf_counter(), time.process_time()
    action()
    return 1e3 * np.array([time.perf_counter() - start[0], time.process_time() - start[1]])


def fit_times(data_sets: int, size: int = 400) -> dict[str, Any]:
    """Fits of noisy values of Hartmann's function without priors: ours and scikit-learn's.

    In turns, so that a busy machine is busy for both.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    times = []
    gains = []
    for seed in range(data_sets):
        rng = np.random.default_rng(seed)
        points = rng.random((size, 6))
        values = np.array([hartmann6(point) for point in points]) + 0.1 * rng.normal(size=size)
        scale = values.std()
        values = (values - values.mean()) / scale
        noise = np.full(size, (0.1 / scale) ** 2)
        kernel = ConstantKernel() * Matern(np.ones(6), nu=2.5) + WhiteKernel(0.01)
        theirs = GaussianProcessRegressor(kernel, alpha=noise)
        fit = functools.partial(search.fit, points, values, noise, priors=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times.append((times_of(fit), times_of(functools.partial(theirs.fit, points, values))))
        likelihood = search.log_marginal_likelihood(points, values, noise, fit())[0]
        gains.append(likelihood - theirs.log_marginal_likelihood_value_)
    rounds = np.array(times)
    ratios = rounds[:, 1] / rounds[:, 0]
    ours, others = np.median(rounds, axis=0).round(1).tolist()
    return {
        "ms (wall, processor)": {"ours": ours, "scikit-learn": others},
        "ratio (wall, processor)": {
            "median": np.median(ratios, axis=0).round(1).tolist(),
            "min": ratios.min(axis=0).round(1).tolist(),
        },
        "smallest gain in log likelihood": round(min(gains), 3),
    }


def batch_times(repeats: int, size: int, finished: int = 200) -> dict[str, Any]:
    """Batches of proposals from finished trials of six parameters on, refit included."""
    sampler = GpSampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    rng = np.random.default_rng(1)
    problem = PROBLEMS["hartmann6"]
    ranges = {f"x{i}": optuna.distributions.FloatDistribution(0, 1) for i in range(6)}
    for point in rng.random((finished, 6)):
        value, error = problem.measure(point, rng)
        study.add_trial(
            optuna.create_trial(
                params=dict(zip(ranges, point.tolist(), strict=True)),
                distributions=ranges,
                value=value,
                user_attrs={"objective_se": [error]},
            )
        )
    times = []
    for _ in range(1 + repeats):
        batch: list[optuna.Trial] = []

        def ask(batch: list[optuna.Trial] = batch) -> None:
            batch.extend(study.ask(dict(ranges)) for _ in range(size))

        times.append(times_of(ask))
        for trial in batch:
            value, error = problem.measure(np.array(list(trial.params.values())), rng)
            trial.set_user_attr("objective_se", [error])
            study.tell(trial, value)
    # The first fit of all is not a warm start.
    return {
        "trials": size,
        "ms (wall, processor)": np.median(times[1:], axis=0).round(1).tolist(),
        "first": times[0].round(1).tolist(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", choices=("regret", "speed", "all"), default="all")
    parser.add_argument("--smoke", action="store_true", help="with a tenth of each, once")
    arguments = parser.parse_args()
    share = 0.1 if arguments.smoke else 1
    if arguments.smoke:
        arguments.repetitions = 1
    report: dict[str, Any] = {}
    if arguments.part != "speed":
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.repetitions)
        with ProcessPoolExecutor(arguments.processes) as executor:
            for name in PROBLEMS:
                rows = list(executor.map(functools.partial(regrets, name, share=share), seeds))
                report[f"median regret, {name}"] = {
                    what: round(statistics.median(row[what] for row in rows), 3) for what in rows[0]
                }
    if arguments.part != "regret":
        size, finished = round(400 * share), round(200 * share)
        report[f"fit, n = {size}"] = fit_times(math.ceil(12 * share), size)
        report[f"batch after {finished} trials"] = [
            batch_times(math.ceil(5 * share), size, finished) for size in (1, 4, 8)
        ]
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
