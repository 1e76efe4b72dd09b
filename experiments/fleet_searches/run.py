"""Results of searches over fleets, by sampler, budget and noise.

Writes README.md. The problems of `search_regret` are functions; these are simulations. Seeds from
1,000,000 on are fresh: no search uses them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import os
import platform
import statistics
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from scipy.stats import qmc

import spillway
from experiments.common import markdown, publish
from spillway import presets
from spillway.study import Space, Study, isolation, samplers
from spillway.study.files import read_study
from spillway.study.gp import GpSampler
from spillway.study.records import standard_error
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway import InstanceGroup, Simulation
    from spillway.study.space import BoundSpace, Point

optuna.logging.set_verbosity(optuna.logging.ERROR)

_PLANNED = Path(__file__).resolve().parents[2] / "examples" / "mixed_targets_study.yaml"
_FRESH = 1_000_000
_TRUTH_SEEDS = 32
_SMOKE_SHARE = 0.1
_REPLICATES = 3

AIMD_SPACE = {
    "gateway.controller.band": (0, 0.5),
    "gateway.controller.increase_step": (1, 16),
    "gateway.guard.cooldown_ticks": (0, 10),
    "gateway.guard.floor": (1, 64),
    "gateway.bands[0].queue.timeout_s": {"low": 0.1, "high": 10, "log": True},
    "tenants[A].queue_max": {"low": 1, "high": 64, "log": True},
}
QUEUES = {f"tenants[{name}].queue_max": {"low": 1, "high": 64, "log": True} for name in "BC"}


def noisy_neighbor(fleet: InstanceGroup) -> Simulation:
    """The blog's final gateway with its noisy neighbor; requests of A, which pays, count twice."""
    simulation = spillway.Simulation(router="round_robin", instances=[fleet])
    simulation = presets.get("noisy-neighbor").apply(simulation)
    simulation = vllm_on_eks.post5().apply(simulation)
    return simulation.with_({"slo_classes[critical].weight": 2})


def _part(number: int, share: float) -> int:
    """A share of the repetitions, trials or seeds, but at least 2."""
    return max(2, round(share * number))


# --- regret ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet:
    """A problem: a simulation, its search space, and the figure to maximize."""

    name: str
    bound: BoundSpace
    figure: str

    def values(self, points: Sequence[Point], seeds: Sequence[int]) -> np.ndarray:
        """A row per point, a column per seed."""
        runs = spillway.run_many([self.bound.apply(point) for point in points], seeds, threads=1)
        return np.array([[result.summary()[self.figure] for result in results] for results in runs])

    def truth(self, points: Sequence[Point], share: float) -> np.ndarray:
        """The values of the points on many fresh seeds."""
        seeds = range(_FRESH, _FRESH + _part(_TRUTH_SEEDS, share))
        found: np.ndarray = self.values(points, seeds).mean(axis=1)
        return found

    def spread(self, n: int) -> list[Point]:
        """Points that fill the space."""
        shares = qmc.Sobol(len(self.bound), rng=np.random.default_rng(0)).random(n)
        return [self.bound.at(share.tolist()) for share in shares]


@functools.cache
def fleets() -> dict[str, Fleet]:
    """The problems by name."""
    planned = read_study(_PLANNED)
    admitting = planned.simulation.with_({"workload.num_requests": 1000})
    controlled = noisy_neighbor(vllm_on_eks.toy_plant().instances)
    return {
        "noisy neighbor x AIMD": Fleet(
            "noisy neighbor x AIMD", Space(AIMD_SPACE).bind(controlled), "weighted_goodput"
        ),
        "orthogonal x predictive": Fleet(
            "orthogonal x predictive", Space(planned.settings["space"]).bind(admitting), "goodput"
        ),
    }


def searched(
    fleet: Fleet, sampler: optuna.samplers.BaseSampler, trials: int, seed: int, extra_sd: float
) -> optuna.Study:
    """A study whose trials have separate seeds, and additional normal noise."""
    rng = np.random.default_rng([seed, 99])
    study = optuna.create_study(sampler=sampler, direction="maximize")
    for _ in range(trials):
        trial = study.ask()
        point = fleet.bound.ask(trial)
        seeds = rng.choice(_FRESH, _REPLICATES, replace=False)
        row = fleet.values([point], seeds.tolist())[0] + extra_sd * rng.normal(size=len(seeds))
        trial.set_user_attr("num_runs", len(row))
        trial.set_user_attr("objective_se", [standard_error(row.tolist())])
        study.tell(trial, float(row.mean()))
    return study


def sampler_named(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """The sampler as a study creates it."""
    with samplers.quiet():
        return samplers.resolve(
            name, seed=seed, n_objectives=1, n_constraints=0, is_conditional=False
        )[0]


def repetition(seed: int, share: float = 1) -> dict[tuple[str, str], dict[str, float]]:
    """The values of each sampler's recommended points, by fleet and noise."""
    found = {}
    for name, fleet in fleets().items():
        for noise, extra_sd in noises(fleet, share).items():
            gp = GpSampler(seed=seed)
            with samplers.quiet():
                by_gp = searched(fleet, gp, _part(30, share), seed, extra_sd)
                tpe = sampler_named("tpe", seed)
                by_tpe = searched(fleet, tpe, _part(60, share), seed, extra_sd)
                points: dict[str, Point] = {
                    "gp, 30 trials": gp.recommend(by_gp).params,
                    "tpe, 60 trials": by_tpe.best_trial.params,
                    "tpe, 60 trials, posterior mean": GpSampler(seed=seed).recommend(by_tpe).params,
                }
            worth = fleet.truth(list(points.values()), share)
            found[name, noise] = dict(zip(points, worth.tolist(), strict=True))
    return found


@functools.cache
def around(fleet: Fleet, share: float) -> tuple[float, float, float]:
    """The range of the means, the standard deviation of a trial, and the best mean in the space."""
    spread = fleet.spread(_part(64, share))
    values = fleet.values(spread, range(_FRESH, _FRESH + 8))
    means = values.mean(axis=1)
    best = [spread[i] for i in np.argsort(-means)[:4]]
    trial_sd = float(np.median(values.std(axis=1, ddof=1))) / math.sqrt(_REPLICATES)
    return float(np.ptp(means)), trial_sd, float(fleet.truth(best, share).max())


def noises(fleet: Fleet, share: float) -> dict[str, float]:
    """The standard deviations of the noise added to each run."""
    span, trial_sd, _ = around(fleet, share)
    added = math.sqrt(max((0.1 * span) ** 2 - trial_sd**2, 0) * _REPLICATES)
    return {"of the runs": 0.0, "a tenth of the range": added}


def regret(
    executor: ProcessPoolExecutor, repetitions: int, limit_s: float, share: float = 1
) -> str:
    """The section on regret; no repetition begins after `limit_s`."""
    start = time.perf_counter()
    done: list[dict[tuple[str, str], dict[str, float]]] = []
    waiting = iter(range(repetitions))

    def begun(number: int) -> list[Any]:
        seeds = itertools.islice(waiting, number)
        return [executor.submit(repetition, seed, share) for seed in seeds]

    running = begun(2)
    while running:
        done.append(running.pop(0).result())
        if time.perf_counter() - start < limit_s:
            running += begun(1)
    rows, notes = [], []
    for name, fleet in fleets().items():
        span, trial_sd, best = around(fleet, share)
        mine = [worths for row in done for (of, _), worths in row.items() if of == name]
        best = max(best, *(worth for worths in mine for worth in worths.values()))
        for noise in noises(fleet, share):
            table = [row[name, noise] for row in done]
            medians = [
                f"{statistics.median(best - row[how] for row in table):.4f}" for how in table[0]
            ]
            wins = sum(row["gp, 30 trials"] >= row["tpe, 60 trials"] for row in table)
            rows.append([name, noise, *medians, f"{wins} of {len(done)}"])
        current = float(fleet.truth([fleet.bound.current()], share)[0])
        notes.append(
            f"- **{name}** ({len(fleet.bound)} parameters, {fleet.figure}): best known "
            f"{best:.4f}, current configuration {current:.4f}; range over 64 points that fill "
            f"the space {span:.3f}; the mean of {_REPLICATES} runs has a standard deviation of "
            f"{trial_sd:.4f} ({trial_sd / span:.1%} of the range)."
        )
    head = ["fleet", "noise", *table[0], "gp no worse than tpe"]
    return (
        f"Regret is the median over {len(done)} repetitions of the loss of the recommended point "
        f"against the best point known, by the mean of {_part(_TRUTH_SEEDS, share)} fresh seeds. "
        f"Every trial is the mean of {_REPLICATES} runs with separate seeds; for noise of a tenth "
        f"of the range, normal noise is added to each run. `gp` recommends the best posterior "
        f"mean, TPE its best trial; the third column combines TPE's trials with the recommendation "
        f"of `gp`. The second fleet serves 1,000 requests here.\n\n"
        f"{markdown(head, rows)}\n\n" + "\n".join(notes)
    )


# --- the planned search, and the AIMD gateway -----------------------------------------------------


def planned(share: float = 1) -> str:
    """The section on the search that was planned after iteration 14."""
    read = read_study(_PLANNED)
    study = read.study()
    start = time.perf_counter(), time.process_time()
    study.optimize(_part(read.trials, share), **read.optimize)
    wall_s, cpu_s = time.perf_counter() - start[0], time.process_time() - start[1]
    runs = sum(len(record.seeds) for record in study.records)
    confirmation = study.confirm(3, range(_FRESH, _FRESH + _part(32, share)))
    return (
        f"`{_PLANNED.name}`: {runs} runs of 10,000 requests in {wall_s:.1f} s ({cpu_s:.1f} s of "
        f"processor time), including the check that every parameter has an effect.\n\n"
        f"```\n{confirmation}\n```"
    )


def tuned(share: float = 1) -> str:
    """The section on the AIMD gateway."""
    base = noisy_neighbor(vllm_on_eks.toy_plant().instances)
    study = Study(base, AIMD_SPACE | QUEUES, "weighted_goodput", seeds=4, sampler="gp")
    start = time.perf_counter(), time.process_time()
    study.optimize(_part(60, share))
    wall_s, cpu_s = time.perf_counter() - start[0], time.process_time() - start[1]
    fresh = range(_FRESH, _FRESH + _part(32, share))
    confirmation = study.confirm(3, fresh)
    if confirmation.winner is None:
        return f"```\n{confirmation}\n```"
    point = study.simulation_of(confirmation.winner)
    changes = study.records[confirmation.winner].point
    alone = isolation(
        base,
        {name: {name: value} for name, value in changes.items()},
        seeds=fresh,
        metrics=["weighted_goodput"],
    )
    gains = {name: alone.difference(name, "weighted_goodput") for name in changes}
    importance = study.importance()
    rows = [
        [
            f"`{name}`",
            f"{importance.get(name, 0):.2f}",
            _shown(gains[name]),
            _shown(next((b.gain for b in confirmation.reverted if b.parameter == name), None)),
        ]
        for name in sorted(changes, key=lambda name: -(gains[name].mean if gains[name] else 0))
    ]
    engines = [vllm_on_eks.l4().instances]
    shares = []
    for where, (before, after) in {
        "the plant of the search": (base, point),
        "two simulated L4": (base.replace(instances=engines), point.replace(instances=engines)),
    }.items():
        both = isolation(
            before,
            {"tuned": after},
            seeds=fresh,
            metrics=["weighted_goodput", *(f"goodput[tenant={tenant}]" for tenant in "ABC")],
        )
        for row in ("base", "tuned"):
            cells = [str(both.interval(row, metric)) for metric in both.metrics]
            gain = _shown(both.difference(row, "weighted_goodput")) if row == "tuned" else ""
            shares.append([where, "blog's final" if row == "base" else row, *cells, gain])
    return (
        f"60 configurations with 4 seeds each by `gp`: {wall_s:.1f} s ({cpu_s:.1f} s of processor "
        f"time). Targets: a time to first token of 2 s for every class; A, the tenant that pays, "
        f"counts twice. Gains are paired differences on 32 fresh seeds.\n\n"
        f"```\n{confirmation}\n```\n\n"
        "The effect of each parameter: alone, changed in the blog's final gateway; and reverted, "
        "in the winner.\n\n"
        f"{markdown(['parameter', 'importance', 'alone', 'reverted'], rows)}\n\n"
        "The goodput of each tenant, also on step-level engines, which the search has not used:\n\n"
        + markdown(["fleet", "gateway", "weighted goodput", "A", "B (noisy)", "C", "gain"], shares)
    )


def _shown(gain: Any) -> str:
    return "" if gain is None else f"{gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"


_TEXT = """\
# Searches over fleets

Written by `make experiments NAME=fleet_searches`.

{machine}

## The planned search: five parameters, 30 configurations, 3 seeds

{planned}

## Regret: `gp` with 30 trials against TPE with 60

{regret}

## An adaptive limit, tuned on the noisy neighbor

{tuned}
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="no repetition begins after this"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("README.md"))
    parser.add_argument(
        "--only", choices=("planned", "regret", "tuned"), help="print only this part"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a tenth of all repetitions, trials and seeds"
    )
    options = parser.parse_args()
    share = _SMOKE_SHARE if options.smoke else 1
    repetitions = 2 if options.smoke else options.repetitions
    warnings.simplefilter("ignore", RuntimeWarning)
    cores, load = os.cpu_count(), os.getloadavg()[0]
    parts = {}
    if options.only in (None, "planned"):
        parts["planned"] = planned(share)
    if options.only in (None, "tuned"):
        parts["tuned"] = tuned(share)
    if options.only in (None, "regret"):
        with ProcessPoolExecutor(options.processes) as executor:
            parts["regret"] = regret(executor, repetitions, options.limit_s, share)
    if options.only:
        print(parts[options.only])
        return
    machine = (
        f"{cores} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}, Optuna {optuna.__version__}; load average at the start "
        f"{load:.1f}."
    )
    publish(_TEXT.format(machine=machine, **parts), options.output)


if __name__ == "__main__":
    main()
