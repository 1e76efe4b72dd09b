"""Predictive admission against the SLO gate, both tuned.

Writes README.md, which describes the tuning and the verdicts.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments import common
from experiments.common import log_range, markdown, mean_interval, paired, shown, values, weighted
from spillway import gateway, run_many
from spillway.study import Choice
from spillway.systems.blis import presets as blis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway import Simulation, workload
    from spillway.data.intervals import Interval
    from spillway.result import Results

_RESULT = Path(__file__).with_name("README.md")
_GATES = {
    "longest queue": "max_waiting",
    "mean load": "mean_effective_load",
    "all queues": "total_waiting",
}
_TUNING_VARIATION = 0.01
"""Gains in weighted goodput up to this depend on the seed of the sampler."""
_ESTIMATORS = {"E1": "priority_aware", "E2": "token_backlog", "E3": "seats_and_memory"}


@dataclasses.dataclass(frozen=True)
class Contender:
    """An admission policy with its settings to tune."""

    admission: Any
    space: Mapping[str, Any]


def cases(sustained: int) -> dict[str, workload.Synthetic]:
    """The three workloads."""
    return {
        f"orthogonal, 1,100/s, n = {sustained:,}": common.orthogonal(1100, sustained),
        f"orthogonal, 2,000/s, n = {sustained:,}": common.orthogonal(2000, sustained),
        f"24 groups, 1,600/s, n = {sustained:,}": common.prefix_groups(1600, sustained),
    }


def contenders() -> dict[str, Contender]:
    """The gates and the predictors."""
    found = {
        f"gate, {name}": Contender(
            gateway.SloGated(signal=signal),
            {
                "gateway.admission.standard_threshold": log_range(1, 1024),
                "gateway.admission.sheddable_threshold": log_range(1, 1024),
            },
        )
        for name, signal in _GATES.items()
    }
    for name, estimator in _ESTIMATORS.items():
        space: dict[str, Any] = {
            "gateway.admission.budgets[1].budget_s": log_range(0.02, 1),
            "gateway.admission.budgets[2].budget_s": log_range(0.02, 1),
            "gateway.admission.ahead": "auto",
        }
        if estimator == "priority_aware":
            space["gateway.admission.avg_step_s"] = log_range(0.002, 0.05)
        found[f"predictive {name}"] = Contender(common.predictive(estimator), space)
    return found


def common_space() -> dict[str, Any]:
    """The settings tuned for every contender: router, and order of the instances' queues."""
    return {
        "router": Choice({"pa4,qd3": weighted(4, 3), "pa3,qd2,kv2": weighted(3, 2, 2)}),
        "instances[0].scheduler": Choice(
            {"fcfs": "fcfs", "by class and age": blis.iteration_14().scheduler}
        ),
    }


def base(load: workload.Synthetic, contender: Contender) -> Simulation:
    """The start of the search for a contender."""
    return common.simulation(
        load,
        admission=contender.admission,
        routing=weighted(4, 3),
        scheduler=blis.iteration_14().scheduler,
    )


def without_admission(load: workload.Synthetic) -> dict[str, Simulation]:
    """Routers without admission control."""
    routings = {
        "prefix 4, queue 3": weighted(4, 3),
        "prefix 3, queue 2, KV 2": weighted(3, 2, 2),
        "prefix 2, queue 3": weighted(2, 3),
    }
    return {
        f"no admission control, {name}": common.simulation(load, routing=routing)
        for name, routing in routings.items()
    }


def verdict(gain: Interval) -> str:
    """The better one, if the interval excludes zero by more than the variation of the tuning."""
    if gain.low is not None and gain.low > _TUNING_VARIATION:
        return "**predictor better**"
    if gain.high is not None and gain.high < -_TUNING_VARIATION:
        return "**gate better**"
    return "undecided"


def compare(
    load: workload.Synthetic, *, trials: int, seeds: Sequence[int], threads: int | None
) -> tuple[list[list[str]], list[str]]:
    """One row per contender, and the tuned settings as text."""
    simulations, settings = {}, []
    for name, contender in contenders().items():
        common.say(f"  {name}")
        simulations[name], best = common.tuned(
            base(load, contender),
            common_space() | dict(contender.space),
            trials=trials,
            threads=threads,
        )
        settings.append(f"- {name}: {common.point(best)}")
    controls = without_admission(load)
    every = controls | simulations
    runs = run_many(list(every.values()), seeds, threads=threads)
    found = dict(zip(every, runs, strict=True))

    def total(name: str) -> float:
        return sum(values(found[name], "weighted_goodput"))

    # The best gate is selected on the evaluation seeds, which favors the gates.
    best_gate = max((name for name in simulations if name.startswith("gate")), key=total)
    is_about_admission = max(map(total, controls)) < max(map(total, simulations))
    rows = []
    for name, results in found.items():
        row = [f"{name} (the best)" if name == best_gate else name, *_figures(results)]
        if name.startswith("predictive"):
            gain = paired(
                values(results, "weighted_goodput"),
                values(found[best_gate], "weighted_goodput"),
                confidence=1 - 0.05 / len(_ESTIMATORS),
            )
            decision = verdict(gain) if is_about_admission else "not applicable"
            rows.append([*row, shown(gain, 4), decision])
        else:
            rows.append([*row, "", ""])
    return rows, settings


def _figures(results: Results) -> list[str]:
    return [
        shown(mean_interval(results, "weighted_goodput"), 4),
        shown(mean_interval(results, "goodput"), 4),
        *(
            shown(mean_interval(results, common.of_class(slo_class, "goodput")))
            for slo_class in common.TARGETS_S
        ),
        shown(mean_interval(results, "completed"), 0),
    ]


_HEADER = (
    "admission",
    "weighted goodput",
    "goodput",
    *(f"goodput, {name}" for name in common.TARGETS_S),
    "completed",
    "gain over the best gate",
    "verdict",
)

_TEXT = """# Predictive admission against the SLO gate, both tuned

Written by `make experiments NAME=predictive_vs_gated`.

Every contender has {trials} trials of the tree-structured Parzen estimator (seed 0) for each
workload, on seeds {first_tuning} to {last_tuning}; the untuned configuration is the first trial.
The objective is weighted goodput, in which critical counts 3, standard 2 and sheddable 1. Every
search includes two routers (prefix 4, queue 3; prefix 3, queue 2, KV 2) and two orders of the
instances' queues (by arrival; by class and age). The gate has the three published variants, by the
longest queue of an instance, the mean load, and all queues together, each with two thresholds
from 1 to 1,024. The predictors have budgets for standard and sheddable requests, from 20 ms to 1 s,
and the choice of requests that count as ahead; E1 also has the time per request ahead. No contender
rejects critical requests. Targets are 200, 500 and 300 ms; fleet and workloads:
`experiments/common`.

Figures are means over {num_seeds} fresh seeds (0 to {last_seed}) with 95 % intervals. The gain is
the difference in weighted goodput, seed by seed, from the gate that is best on these seeds; the
intervals of the three gains hold simultaneously.

The intervals do not include the variation of the tuning, which has one seed of the sampler, so a
gain of up to {variation:g} is undecided whatever its interval. Runs begin with an empty fleet and
last seconds: absolute levels are above those of a steady state.

The first rows have no admission control. If one of them is better than every tuned policy, the
fleet can serve the load with a router that spreads requests better. The policies then differ only
in how they compensate for a router that concentrates requests, and the comparison of policies is
**not applicable**. That is the case with 24 groups: an instance that caches the most popular prefix
is overloaded, while the fleet is not.

{sections}
"""


def report(
    workloads: Mapping[str, workload.Synthetic],
    *,
    trials: int,
    num_seeds: int,
    threads: int | None,
) -> str:
    """Runs the experiment and returns its page."""
    sections = []
    for name, load in workloads.items():
        common.say(name)
        rows, settings = compare(load, trials=trials, seeds=range(num_seeds), threads=threads)
        lines = "\n".join(settings)
        sections.append(f"## {name}\n\n{markdown(_HEADER, rows)}\n\nTuned:\n\n{lines}")
    return _TEXT.format(
        trials=trials,
        variation=_TUNING_VARIATION,
        num_seeds=num_seeds,
        last_seed=num_seeds - 1,
        first_tuning=common.TUNING_SEEDS[0],
        last_tuning=common.TUNING_SEEDS[-1],
        sections="\n\n".join(sections),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    common.add_options(parser, _RESULT, seeds=30)
    parser.add_argument("--trials", type=int, default=40, help="per contender; default: 40")
    options = parser.parse_args()
    text = report(
        cases(options.requests),
        trials=options.trials,
        num_seeds=options.seeds,
        threads=options.threads,
    )
    common.publish(text, options.output)


if __name__ == "__main__":
    main()
