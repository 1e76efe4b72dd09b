"""Shared parts of the experiments on admission: workloads, the fleet, intervals and Markdown.

The workloads and the fleet are those of the strategy experiments of BLIS
(https://github.com/inference-sim/inference-sim, iterations 11 to 14): eight instances, vLLM 0.8.4
with Llama 3.1 8B on two H100 each, and classes with targets of 200, 500 and 300 ms for the first
token. Semantics are causal, but as there, the delivery of tokens does not advance the clock
(`output_overhead` is `reported`); otherwise the fleet would have a tenth less capacity and could
not sustain 900 requests/s.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spillway
from spillway import gateway, profiles, router, workload
from spillway.data.intervals import interval
from spillway.study import Range, Study

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.data.intervals import Interval
    from spillway.result import Result, Results

TARGETS_S = {"critical": 0.2, "standard": 0.5, "sheddable": 0.3}
SLO_CLASSES = (
    workload.SloClass(name="critical", priority=4, weight=3, target_ttft_s=TARGETS_S["critical"]),
    workload.SloClass(name="standard", priority=3, weight=2, target_ttft_s=TARGETS_S["standard"]),
    workload.SloClass(
        name="sheddable", priority=-2, weight=1, target_ttft_s=TARGETS_S["sheddable"]
    ),
)

_ORTHOGONAL_SHARES = {"critical": 0.33, "standard": 0.34, "sheddable": 0.33}
_GROUP_SHARES = {"critical": 0.2, "standard": 0.4, "sheddable": 0.4}
_NUM_GROUPS = 24


def orthogonal(
    requests_per_s: float,
    num_requests: int,
    tenants: Mapping[str, float] | None = None,
    *,
    bounded: bool = True,
) -> workload.Synthetic:
    """Mixed classes of equal shape: shared prefix of 512 tokens, 256 unique, 128 output.

    `tenants`: share of the requests by tenant. `bounded`: whether outputs have 16 to 1,024 tokens,
    as specified.
    """
    least, most = (16, 1024) if bounded else (1, 1_000_000)
    return workload.Synthetic(
        requests_per_s=requests_per_s,
        num_requests=num_requests,
        clients=[
            workload.Client(
                name=f"{tenant} {slo_class}",
                tenant=tenant,
                slo_class=slo_class,
                rate_fraction=tenant_share * share,
                prefix_group="shared",
                prefix_tokens=512,
                input_tokens=workload.Gaussian(
                    mean_tokens=256, std_dev_tokens=100, min_tokens=64, max_tokens=512
                ),
                output_tokens=workload.Exponential(
                    mean_tokens=128, min_tokens=least, max_tokens=most
                ),
            )
            for tenant, tenant_share in (tenants or {"default": 1.0}).items()
            for slo_class, share in _ORTHOGONAL_SHARES.items()
        ],
    )


def prefix_groups(requests_per_s: float, num_requests: int) -> workload.Synthetic:
    """24 groups by Zipf's law, each with a prefix of 2,048 tokens; 128 unique, 64 output."""
    ranks = range(1, _NUM_GROUPS + 1)
    total = math.fsum(1 / rank for rank in ranks)
    return workload.Synthetic(
        requests_per_s=requests_per_s,
        num_requests=num_requests,
        clients=[
            workload.Client(
                name=f"group {rank} {slo_class}",
                slo_class=slo_class,
                rate_fraction=share / rank / total,
                prefix_group=f"group {rank}",
                prefix_tokens=2048,
                input_tokens=workload.Fixed(tokens=128),
                output_tokens=workload.Fixed(tokens=64),
            )
            for rank in ranks
            for slo_class, share in _GROUP_SHARES.items()
        ],
    )


def weighted(prefix: float, queue: float, kv: float = 0) -> router.Weighted:
    """The router of the experiments, which picks the first of equal instances.

    Its queue comprises all requests in flight to an instance, each counted once. The original
    scored it between the least and the most loaded instance, here the score starts at zero. The
    choice is the same if all instances cache the prefix, or if one that does not is idle.
    """
    scorers: list[Any] = [router.PrefixAffinity(weight=prefix), router.ActiveRequests(weight=queue)]
    if kv:
        scorers.append(router.KvUtilization(weight=kv))
    return router.Weighted(scorers=scorers, picker=router.Best(ties="first"))


def simulation(
    load: workload.Synthetic,
    *,
    admission: Any = "always_admit",
    routing: Any = "round_robin",
    scheduler: Any = "fcfs",
) -> spillway.Simulation:
    """The experiments' fleet under a load."""
    return spillway.Simulation(
        workload=load,
        slo_classes=SLO_CLASSES,
        gateway=gateway.Gateway(admission=admission),
        router=routing,
        prefix_index={"capacity_blocks": 10_000},
        instances=profiles.BLIS_SERVER.replace(
            count=8,
            scheduler=scheduler,
            output_overhead="reported",
        ),
    )


COEFFICIENTS = {
    "avg_step_s": 0.007,
    "beta0_us": 6910.42,
    "beta_prefill_us": 17.67,
    "beta_decode_us": 2.84,
}
"""Those of the published experiments, whatever the fleet."""


def predictive(
    estimator: str = "queue_depth",
    *,
    standard_s: float = TARGETS_S["standard"],
    sheddable_s: float = TARGETS_S["sheddable"],
    **settings: Any,
) -> gateway.PredictiveTtft:
    """Predictive admission with budgets for all classes."""
    budgets = [
        gateway.TtftBudget(slo_class="critical", budget_s=TARGETS_S["critical"]),
        gateway.TtftBudget(slo_class="standard", budget_s=standard_s),
        gateway.TtftBudget(slo_class="sheddable", budget_s=sheddable_s),
    ]
    return gateway.PredictiveTtft(estimator=estimator, budgets=budgets, **COEFFICIENTS | settings)


# --- figures and verdicts -------------------------------------------------------------------------


def values(results: Results, figure: str | Callable[[Result], float | None]) -> list[float]:
    """A figure of every run that has one."""
    found = [
        result.summary()[figure] if isinstance(figure, str) else figure(result)
        for result in results
    ]
    return [float(value) for value in found if value is not None]


def mean_interval(
    results: Results, figure: str | Callable[[Result], float | None]
) -> Interval | None:
    """Mean over the seeds with its 95 % interval; None where no run has the figure."""
    found = values(results, figure)
    return interval(found) if found else None


def of_class(slo_class: str, figure: str) -> Callable[[Result], float | None]:
    """A figure of one class; None if it has no population."""
    return lambda result: result.by_class().get(slo_class, {}).get(figure)


def paired(
    mine: Sequence[float],
    other: Sequence[float],
    factor: float = 1,
    *,
    confidence: float = 0.95,
) -> Interval:
    """Interval of mine - factor x other, seed by seed."""
    return interval([a - factor * b for a, b in zip(mine, other, strict=True)], confidence)


def exceeds(value: Interval, bound: float = 0) -> str:
    """Whether a mean is above a bound: undecided if its interval contains the bound.

    A mean without spread may equal the bound.
    """
    low, high = value.low, value.high
    if low is None or high is None:
        return "undecided"
    if low > bound or low == high == bound:
        return "confirmed"
    return "refuted" if high < bound else "undecided"


def all_of(*verdicts: str) -> str:
    """The verdict on a statement with several parts."""
    if "refuted" in verdicts:
        return "refuted"
    return "undecided" if "undecided" in verdicts else "confirmed"


# --- tuning ---------------------------------------------------------------------------------------

TUNING_SEEDS = range(1000, 1004)


def log_range(low: float, high: float) -> Range:
    """A range in which ratios matter rather than differences."""
    return Range(low, high, log=True)


def tuned(
    base: spillway.Simulation,
    space: Mapping[str, Any],
    *,
    trials: int,
    seed: int = 0,
    threads: int | None = None,
) -> tuple[spillway.Simulation, dict[str, Any]]:
    """The best trial by weighted goodput on the tuning seeds, and its point.

    Without a space it is `base` itself. The first trial is `base`, and the only one if its goodput
    is perfect.
    """
    if not space:
        return base, {}
    study = Study(base, space, "weighted_goodput", seeds=TUNING_SEEDS, sampler="tpe", seed=seed)
    untuned = study.optimize(1, check=False, threads=threads).best_trial
    if trials > 1 and untuned.values[0] < 1:
        study.optimize(trials - 1, check=False, threads=threads)
    best = study.best_trial
    return study.simulation_of(best), dict(best.point)


def point(values_by_path: Mapping[str, Any]) -> str:
    """A point as text, by the last parts of its paths."""
    parts = []
    for path, value in values_by_path.items():
        name = path.removeprefix("gateway.admission.").removeprefix("instances[0].")
        parts.append(f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}")
    return ", ".join(parts) or "-"


# --- text -----------------------------------------------------------------------------------------


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with the first column aligned left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: Interval | None, decimals: int = 3) -> str:
    """A mean with half the width of its interval."""
    if value is None:
        return "-"
    half = value.half_width
    spread = "" if half is None else f" ± {half:,.{decimals}f}"
    return f"{value.mean:,.{decimals}f}{spread}"


def publish(text: str, path: Path | None) -> None:
    """Prints a report and writes it to the path, if there is one."""
    print(text)
    if path is not None:
        path.write_text(text.rstrip() + "\n", encoding="utf-8")


def say(what: str) -> None:
    """Prints progress, separately from the report."""
    print(what, file=sys.stderr, flush=True)


def add_options(parser: argparse.ArgumentParser, path: Path, seeds: int) -> None:
    """The options of the experiments on admission."""
    parser.add_argument("--seeds", type=int, default=seeds, help=f"default: {seeds}")
    parser.add_argument("--threads", type=int, help="default: one per CPU")
    parser.add_argument(
        "--requests", type=int, default=10_000, help="of a sustained run; default: 10,000"
    )
    parser.add_argument("--output", type=Path, default=path, help=f"default: {path.name}")
