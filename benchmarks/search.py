"""Speed of searches: fits, proposals, and the cost of a trial besides its runs.

`python benchmarks/search.py` measures all of it, `--only NAME` one part; `--smoke` takes a tenth.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import time
import unittest.mock
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna

from spillway._core import search
from spillway.simulate import finished_runs
from spillway.study import Study, evaluation
from spillway.study.files import read_study
from spillway.study.gp import GpSampler

if TYPE_CHECKING:
    from collections.abc import Callable

optuna.logging.set_verbosity(optuna.logging.WARNING)

_PLANNED = Path(__file__).resolve().parents[1] / "examples" / "mixed_targets_study.yaml"
_SAMPLERS = ("random", "qmc", "tpe", "cmaes", "gp")
BATCH = 4
_DIMENSIONS = 6
_NOISE_SD = 0.1
SMOKE_SHARE = 0.1
"""Share of the trials and repeats in a smoke test."""

Part = dict[str, Any]


def bumps(points: np.ndarray) -> np.ndarray:
    """A smooth function on the unit cube: four bumps of different widths."""
    rng = np.random.default_rng(0)
    centers, widths = rng.random((4, _DIMENSIONS)), rng.uniform(0.3, 2, (4, _DIMENSIONS))
    distances = (((points[:, None] - centers) / widths) ** 2).sum(axis=2)
    heights: np.ndarray = -np.exp(-distances) @ np.array([1, 1.2, 3, 3.2])
    return heights


def times_of(action: Callable[[], Any]) -> np.ndarray:
    """Wall time and processor time (all threads), in ms."""
    start = time.perf_counter(), time.process_time()
    action()
    return 1e3 * np.array([time.perf_counter() - start[0], time.process_time() - start[1]])


def fits(share: float = 1) -> Part:
    """Fits of noisy values without priors: ours and scikit-learn's, alternating.

    Load on the machine then affects both.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    size = round(400 * share)
    times = []
    gains = []
    for seed in range(math.ceil(12 * share)):
        rng = np.random.default_rng(seed)
        points = rng.random((size, _DIMENSIONS))
        values = bumps(points) + _NOISE_SD * rng.normal(size=size)
        scale = values.std()
        values = (values - values.mean()) / scale
        noise = np.full(size, (_NOISE_SD / scale) ** 2)
        kernel = ConstantKernel() * Matern(np.ones(_DIMENSIONS), nu=2.5) + WhiteKernel(0.01)
        theirs = GaussianProcessRegressor(kernel, alpha=noise)
        fit = functools.partial(search.fit, points, values, noise, priors=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times.append((times_of(fit), times_of(functools.partial(theirs.fit, points, values))))
        likelihood = search.log_marginal_likelihood(points, values, noise, fit())[0]
        gains.append(likelihood - theirs.log_marginal_likelihood_value_)
    rounds = np.array(times)
    ours, others = np.median(rounds, axis=0).tolist()
    ratios = np.median(rounds[:, 1] / rounds[:, 0], axis=0).tolist()
    return {
        "n": size,
        "spillway (ms)": ours,
        "scikit-learn (ms)": others,
        "ratios": ratios,
        "smallest gain in log likelihood": min(gains),
    }


def batches(share: float = 1) -> Part:
    """Batches of proposals by `gp`, refit included, by their size."""
    return {f"{size}": _batch(size, share) for size in (1, 4, 8)}


def _batch(size: int, share: float) -> list[float]:
    """Wall time and processor time of one batch after 200 finished trials, in ms."""
    sampler = GpSampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    rng = np.random.default_rng(1)
    ranges: dict[str, optuna.distributions.BaseDistribution] = {
        f"x{i}": optuna.distributions.FloatDistribution(0, 1) for i in range(_DIMENSIONS)
    }

    def value_of(point: list[float]) -> float:
        return float(bumps(np.array([point]))[0] + _NOISE_SD * rng.normal())

    errors = {"objective_se": [_NOISE_SD]}
    for point in rng.random((round(200 * share), _DIMENSIONS)).tolist():
        study.add_trial(
            optuna.create_trial(
                params=dict(zip(ranges, point, strict=True)),
                distributions=ranges,
                value=value_of(point),
                user_attrs=errors,
            )
        )
    times = []
    for _ in range(1 + math.ceil(5 * share)):
        batch: list[optuna.Trial] = []

        def ask(batch: list[optuna.Trial] = batch) -> None:
            batch.extend(study.ask(dict(ranges)) for _ in range(size))

        times.append(times_of(ask))
        for trial in batch:
            trial.set_user_attr("objective_se", errors["objective_se"])
            study.tell(trial, value_of(list(trial.params.values())))
    # The very first fit is not a warm start.
    median: list[float] = np.median(times[1:], axis=0).tolist()
    return median


def overhead(share: float = 1) -> Part:
    """Wall time of a batch of four trials excluding the runs, in ms, by sampler.

    The search of examples/mixed_targets_study.yaml with 1,000 requests a run, after 200 trials.
    """
    read = read_study(_PLANNED)
    simulation = read.simulation.with_({"workload.num_requests": 1000})
    simulating_s = [0.0]

    def timed(*args: Any, **settings: Any) -> Any:
        start = time.perf_counter()
        results = finished_runs(*args, **settings)
        simulating_s[0] += time.perf_counter() - start
        return results

    found = {}
    with unittest.mock.patch.object(evaluation, "finished_runs", timed):
        for name in _SAMPLERS:
            study = Study(simulation, read.settings["space"], "goodput", seeds=3, sampler=name)
            study.optimize(round(200 * share), check=False)
            times = []
            for _ in range(math.ceil(10 * share)):
                start, simulating_s[0] = time.perf_counter(), 0.0
                study.optimize(BATCH)
                times.append(1e3 * (time.perf_counter() - start - simulating_s[0]))
            found[name] = statistics.median(times)
    return found


FUNCTIONS: dict[str, Callable[[float], Part]] = {
    "fits": fits,
    "batches": batches,
    "overhead": overhead,
}


def run_all(share: float = 1) -> dict[str, Part]:
    """All parts by name."""
    return {name: function(share) for name, function in FUNCTIONS.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=FUNCTIONS)
    parser.add_argument("--smoke", action="store_true", help="with a tenth of each")
    options = parser.parse_args()
    share = SMOKE_SHARE if options.smoke else 1
    found = {options.only: FUNCTIONS[options.only](share)} if options.only else run_all(share)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
