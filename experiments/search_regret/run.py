"""Regret of the Gaussian-process search on functions with a known optimum.

Writes README.md, which defines regret and the comparison. This script uses seeds from 0 on; the
sampler was tuned with others (from 5000 on).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import optuna

from experiments import common
from spillway.study.gp import GpSampler

if TYPE_CHECKING:
    from collections.abc import Callable

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A function to be minimized over the unit cube.

    `measure(point, rng)` returns a value and its standard error; `truth(point)` returns the value
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
    """TPE with Spillway's settings."""
    return optuna.samplers.TPESampler(
        seed=seed, multivariate=True, constant_liar=True, n_startup_trials=10
    )


def searched(
    problem: Problem, sampler: optuna.samplers.BaseSampler, trials: int, seed: int
) -> optuna.Study:
    """A study with sequential trials."""
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
    """The loss of the trial's point against the optimum."""
    point = [trial.params[f"x{i}"] for i in range(problem.dimensions)]
    return problem.truth(np.array(point)) - problem.optimum


def regrets(name: str, seed: int, share: float = 1) -> dict[str, float]:
    """The regrets of one repetition, with a share of the trials."""
    problem = PROBLEMS[name]
    gp = GpSampler(seed=seed)
    by_gp = searched(problem, gp, math.ceil(30 * share), seed)
    by_tpe = searched(problem, make_tpe(seed), math.ceil(60 * share), seed)
    return {
        "gp, 30 trials": regret(problem, gp.recommend(by_gp)),
        "tpe, 60 trials": regret(problem, by_tpe.best_trial),
        "tpe, 60 trials, posterior mean": regret(problem, GpSampler(seed=seed).recommend(by_tpe)),
    }


_TEXT = """# Regret of the Gaussian-process search

Written by `make experiments NAME=search_regret`.

Regret is the loss of the *recommended* point against the optimum of the noiseless function, after
trials whose values have normal noise of a tenth of the function's range. `gp` recommends the trial
with the best posterior mean; TPE recommends its best trial, as Optuna does. The last column
combines TPE's trials with the recommendation of `gp`, so that only the location of the trials
differs.

Median over {repetitions} repetitions (seeds {first} to {last}):

{table}

- **branin**: two parameters, range 0.397887 to 308.13.
- **hartmann6**: six parameters, range -3.32237 to 0.
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("README.md"))
    parser.add_argument(
        "--smoke", action="store_true", help="one repetition with a tenth of the trials"
    )
    options = parser.parse_args()
    share, repetitions = (0.1, 1) if options.smoke else (1, options.repetitions)
    seeds = range(options.first_seed, options.first_seed + repetitions)
    medians: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(options.processes) as executor:
        for name in PROBLEMS:
            rows = list(executor.map(functools.partial(regrets, name, share=share), seeds))
            medians[name] = {what: statistics.median(row[what] for row in rows) for what in rows[0]}
    table = common.markdown(
        ("function", *medians["branin"]),
        [[name, *(f"{value:.3f}" for value in found.values())] for name, found in medians.items()],
    )
    text = _TEXT.format(repetitions=repetitions, first=seeds[0], last=seeds[-1], table=table)
    common.publish(text, options.output)


if __name__ == "__main__":
    main()
