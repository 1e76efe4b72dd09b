"""Admission policies after a short search each, on one workload.

Writes README.md, which describes the workload, the tuning and the figures.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import common
from experiments.common import log_range, markdown, mean_interval, predictive, shown, weighted
from spillway import run_many, workload
from spillway.study import Choice, max_rate_under_slo
from spillway.study.objective import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway import Simulation
    from spillway.result import Result, Results

_RESULT = Path(__file__).with_name("README.md")
LOADS = (0.8, 1.2, 2.0)
_TENANTS = {"large": 1 / 2, "small 1": 1 / 6, "small 2": 1 / 6, "small 3": 1 / 6}
_PATIENCE_S = 2.0
_SLO = {"goodput": ">=0.99"}
_TARGETS = np.array(list(common.TARGETS_S.values()))


@dataclasses.dataclass(frozen=True)
class Contender:
    """A policy (its kind, or its settings), and what to tune: its own settings, others it reads."""

    admission: Any
    space: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def paths(self) -> dict[str, Any]:
        """The space by path of a simulation; other names are settings of the policy."""
        return {
            name if name.startswith("busy_monitor.") else f"gateway.admission.{name}": values
            for name, values in self.space.items()
        }


def contenders() -> dict[str, Contender]:
    """The policies that are compared: all but `reject_all`, which serves no request."""
    capacity, refill = log_range(1e4, 3e6), log_range(1e5, 3e6)
    buckets = {"capacity_tokens": capacity, "refill_tokens_per_s": refill}
    detector = {"detector": "auto", "queue_depth_threshold": "auto", "max_concurrency": "auto"}
    classes = [{"slo_class": "standard"}, {"slo_class": "sheddable"}]
    threshold = "busy_monitor.active_prefill_tokens_threshold"
    found = {
        "always_admit": Contender("always_admit"),
        "token_bucket": Contender(
            {"kind": "token_bucket", "capacity_tokens": 1e5, "refill_tokens_per_s": 7e5}, buckets
        ),
        "tenant_token_bucket": Contender(
            {
                "kind": "tenant_token_bucket",
                "capacity_tokens": 4e5,
                "refill_tokens_per_s": 7e5,
                "reserves": classes,
            },
            buckets | {"reserves[0].share": "auto", "reserves[1].share": "auto"},
        ),
        "tenant_budget": Contender(
            {"kind": "tenant_budget", "default_share": 0.25}, {"default_share": log_range(0.01, 1)}
        ),
        "slo_gated": Contender(
            "slo_gated",
            {"standard_threshold": log_range(1, 64), "sheddable_threshold": log_range(1, 64)},
        ),
        "tier_shed": Contender(
            {"kind": "tier_shed", "max_load": 100},
            {"max_load": log_range(1, 1024), "min_priority": Choice([3, 4])},
        ),
        "gaie_legacy": Contender("gaie_legacy", detector),
        "probabilistic": Contender("probabilistic", detector | {"k": "auto", "power": "auto"}),
        "latency_slo": Contender(
            "latency_slo", {"headroom_factor": log_range(0.1, 4), "half_life_samples": "auto"}
        ),
        "early_rejection": Contender(
            "early_rejection",
            {"decode_load": "auto", "max_load": log_range(0.1, 4), "half_life_samples": "auto"},
        ),
        "envoy_admission": Contender(
            {"kind": "envoy_admission", "success": "first_token_in_time", "window_s": 2},
            {
                "window_s": log_range(0.2, 30),
                "success_threshold": "auto",
                "aggression": "auto",
                "max_rejection_probability": "auto",
            },
        ),
        "dagor": Contender(
            {"kind": "dagor", "signal": "ttft", "threshold_s": 0.1, "window_s": 0.5},
            {
                "threshold_s": log_range(0.02, 1),
                "window_s": log_range(0.05, 2),
                "decrease": "auto",
                "increase": "auto",
                "user": "auto",
            },
        ),
        "bouncer": Contender(
            "bouncer", {"percentile": "auto", "samples": "auto", "min_share": "auto"}
        ),
        "busy_threshold": Contender(
            "busy_threshold",
            {threshold: log_range(1000, 64_000), "proportional": "auto"},
            {threshold: 10_000},
        ),
    }
    for name, estimator in (
        ("E0", "queue_depth"),
        ("E1", "priority_aware"),
        ("E2", "token_backlog"),
        ("E3", "seats_and_memory"),
    ):
        space: dict[str, Any] = {
            "budgets[1].budget_s": log_range(0.02, 1),
            "budgets[2].budget_s": log_range(0.02, 1),
        }
        if estimator in ("queue_depth", "priority_aware"):
            space["avg_step_s"] = log_range(0.002, 0.05)
        found[f"predictive_ttft {name}"] = Contender(predictive(estimator, ahead="all"), space)
    return found


def base(requests_per_s: float, num_requests: int) -> Simulation:
    """The workload on a fleet whose gateway admits everything."""
    return common.simulation(
        common.orthogonal(requests_per_s, num_requests, _TENANTS), routing=weighted(3, 2, 2)
    ).replace(
        tenants=[workload.Tenant(name=name) for name in _TENANTS],
        reaction=workload.Reaction(first_token_timeout_s=_PATIENCE_S),
    )


def capacity_per_s(num_requests: int, seeds: Sequence[int], threads: int | None) -> float:
    """The highest rate at which 99 % of the requests meet their targets if all are admitted."""
    found = max_rate_under_slo(
        base(900, num_requests),
        _SLO,
        tolerance=0.02,
        max_requests=10 * num_requests,
        seeds=seeds,
        threads=threads,
    )
    if found.feasible is None:
        raise RuntimeError("no rate meets the targets")
    return found.feasible


def wasted_share(result: Result) -> float:
    """Share of requests that missed a target in the tokens of those that had a first token.

    Prompts count in full, including cached tokens.
    """
    requests = result.requests
    ttft_s = requests["ttft_s"]
    served = ~np.isnan(ttft_s)
    names = list(common.TARGETS_S)
    target_s = _TARGETS[[names.index(name) for name in requests["slo_class"]]]
    missed = served & ((ttft_s > target_s) | (requests["outcome"] != "completed"))
    tokens = requests["input_tokens"] + requests["output_tokens"]
    total = int(tokens[served].sum())
    return int(tokens[missed].sum()) / total if total else 0.0


def withdrawn_share(result: Result) -> float:
    """Share of the offered requests that their clients withdrew."""
    summary = result.summary()
    return float(summary["cancelled"] or 0) / float(summary["offered"] or 1)


def _row(name: str, results: Results) -> list[str]:
    shed, worst = Figure("shed"), Figure("goodput[worst tenant]")
    critical = common.of_class("critical", "goodput")
    return [
        name,
        shown(mean_interval(results, "goodput")),
        shown(mean_interval(results, "weighted_goodput")),
        shown(mean_interval(results, critical)),
        shown(mean_interval(results, shed.of)),
        shown(mean_interval(results, withdrawn_share)),
        shown(mean_interval(results, "jain_tenant")),
        shown(mean_interval(results, worst.of)),
        shown(mean_interval(results, wasted_share)),
    ]


_HEADER = (
    "admission",
    "goodput",
    "weighted goodput",
    "goodput, critical",
    "shed",
    "withdrawn",
    "Jain",
    "goodput, worst tenant",
    "wasted tokens",
)

_TEXT = """# Admission policies after a short search each

Written by `make experiments NAME=head_to_head`.

There is one workload: mixed classes of equal shape (a shared prefix of 512 tokens, 256 unique
tokens, 128 output tokens), a third each critical, standard and sheddable, with targets of 200, 500
and 300 ms for the first token. Four tenants have equal weights; one sends half of the requests, the
other three a sixth each. Clients withdraw a request that has no first token after {patience:g} s,
and do not retry. Eight instances serve in order of arrival; the router has the weights prefix 3,
queue 2, KV 2 (`experiments/common`).

**Capacity** is {capacity:,.0f} requests/s: within 2 %, the highest rate at which 99 % of all
requests meet their targets if all are admitted (`max_rate_under_slo`). Every run below has
{num_requests:,} requests and starts with an empty fleet. At the highest load it lasts {span:.0f} s,
which is far from a steady state, where all figures are lower.

**Search**: every policy has {trials} trials of the tree-structured Parzen estimator (seed 0) for
each load, on seeds {first_tuning} to {last_tuning}, by weighted goodput (critical 3, standard 2,
sheddable 1). The default configuration is the first trial, and the only one if its goodput is
perfect. The sampler draws its first ten trials at random, all policies use one seed of the sampler,
and policies have from one to five parameters. So these are the results of a short search, **not the
best of each policy**, and differences below 0.1 between policies do not establish which is better.
Policies with bounded tenant queues are not included. `slo_gated`, `tier_shed` and `predictive_ttft`
never reject critical requests; `tenant_budget`, `gaie_legacy`, `probabilistic` and `latency_slo`
reject only sheddable ones, a third of the load, which cannot suffice at twice the capacity.

Figures are means over {num_seeds} fresh seeds (0 to {last_seed}) with 95 % intervals; the rows are
in order of weighted goodput.

- **goodput**: share of all arrivals that complete with their first token in time; **critical**: of
  critical requests; **worst tenant**: of the tenant with the lowest goodput.
- **shed**: share of all arrivals rejected; **withdrawn**: share withdrawn by their clients.
- **Jain**: Jain's index of the tokens served per tenant. One tenant offers three times the load of
  another, so service in proportion to the offered load has an index of 0.75; higher is more equal.
- **wasted tokens**: share of requests that missed their target in the tokens of all requests with a
  first token, prompts in full. Tokens computed for prompts whose clients left before the first
  token are not included.

{sections}
"""


def at_load(
    factor: float,
    rate_per_s: float,
    num_requests: int,
    *,
    trials: int,
    seeds: Sequence[int],
    threads: int | None,
) -> str:
    """The table of one load."""
    rows, settings = [], []
    for name, contender in contenders().items():
        common.say(f"  {name}")
        start = base(rate_per_s, num_requests).with_(
            {"gateway.admission": contender.admission, **contender.changes}
        )
        simulation, best = common.tuned(start, contender.paths(), trials=trials, threads=threads)
        results = run_many([simulation], seeds, threads=threads, keep_requests=True)[0]
        weight = mean_interval(results, "weighted_goodput")
        rows.append((weight.mean if weight else 0.0, _row(name, results)))
        settings.append(f"- {name}: {common.point(best)}")
    rows.sort(key=lambda pair: -pair[0])
    table = markdown(_HEADER, [row for _, row in rows])
    lines = "\n".join(settings)
    title = f"## {factor:g} x capacity, {rate_per_s:,.0f} requests/s"
    return (
        f"{title}\n\n{table}\n\n<details><summary>Tuned settings</summary>\n\n{lines}\n\n</details>"
    )


def report(
    num_requests: int,
    *,
    loads: Sequence[float] = LOADS,
    trials: int,
    num_seeds: int,
    threads: int | None,
) -> str:
    """Runs the experiment and returns its page."""
    capacity = capacity_per_s(num_requests, common.TUNING_SEEDS, threads)
    sections = []
    for factor in loads:
        common.say(f"{factor:g} x {capacity:,.0f} requests/s")
        sections.append(
            at_load(
                factor,
                factor * capacity,
                num_requests,
                trials=trials,
                seeds=range(num_seeds),
                threads=threads,
            )
        )
    return _TEXT.format(
        patience=_PATIENCE_S,
        capacity=capacity,
        num_requests=num_requests,
        span=num_requests / (max(loads) * capacity),
        trials=trials,
        num_seeds=num_seeds,
        last_seed=num_seeds - 1,
        first_tuning=common.TUNING_SEEDS[0],
        last_tuning=common.TUNING_SEEDS[-1],
        sections="\n\n".join(sections),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    common.add_options(parser, _RESULT, seeds=16)
    parser.add_argument("--trials", type=int, default=16, help="per policy and load; default: 16")
    options = parser.parse_args()
    text = report(
        options.requests,
        trials=options.trials,
        num_seeds=options.seeds,
        threads=options.threads,
    )
    common.publish(text, options.output)


if __name__ == "__main__":
    main()
