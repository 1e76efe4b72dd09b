"""How admission by foreseen first tokens goes wrong, each time beside what cures it.

The workload is that of the published idea: one prefix of 512 tokens, three classes in equal parts,
1,500 requests at 2,000 per second before 8 instances. It was reported to admit everything and to
fail; what its authors ran could do nothing else (their prefix index was empty).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spillway import Result, Simulation, gateway, instance, router, signals, simulate, workload

BUDGETS_S = {"critical": 0.2, "standard": 0.5, "sheddable": 0.3}
TUNED_S = {"standard": 0.1, "sheddable": 0.06}
SEEDS = range(5)


def budgets(budgets_s: dict[str, float]) -> list[gateway.TtftBudget]:
    return [gateway.TtftBudget(slo_class=name, budget_s=s) for name, s in budgets_s.items()]


def p99_s(result: Result, which: Any = slice(None)) -> float:
    return float(np.nanpercentile(result.requests["ttft_s"][which], 99))


# --- P26: foreseen from a report that is older than the overload ----------------------------------


def burst(admission: Any, period_s: float | None = 1) -> list[Result]:
    """Signals are scraped once in `period_s`: at the start, when nothing waits anywhere."""
    clients = [
        workload.Client(
            name=name,
            slo_class=name,
            input_tokens=workload.Gaussian(
                mean_tokens=256, std_dev_tokens=100, min_tokens=64, max_tokens=512
            ),
            output_tokens=workload.Exponential(mean_tokens=128, min_tokens=16, max_tokens=1024),
            prefix_group="all",
            prefix_tokens=512,
        )
        for name in BUDGETS_S
    ]
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=2000, num_requests=1500, clients=clients),
        slo_classes=[
            one.replace(target_ttft_s=BUDGETS_S[one.name]) if one.name in BUDGETS_S else one
            for one in Simulation().slo_classes
        ],
        gateway=gateway.Gateway(admission=admission),
        router=router.Weighted(
            scorers=[router.PrefixAffinity(weight=4), router.QueueDepth(weight=3)]
        ),
        signals=signals.Live() if period_s is None else signals.Scraped(period_s=period_s),
        instances=[instance.InstanceGroup(count=8)],
    )
    return list(simulate(simulation, seeds=SEEDS))


def predictive(budgets_s: dict[str, float], **settings: Any) -> gateway.PredictiveTtft:
    return gateway.PredictiveTtft(budgets=budgets(budgets_s), **settings)


# --- P27: a prefix group that comes when the fleet is busy with others ----------------------------


def late_group(**settings: Any) -> Result:
    """Eight groups warm up, then overload two instances; a ninth begins after 6 s."""

    def client(name: str, requests_per_s: float, start_s: float) -> workload.Client:
        return workload.Client(
            name=f"{name} from {start_s}",
            requests_per_s=requests_per_s,
            start_s=start_s,
            duration_s=20 - start_s,
            slo_class="standard",
            input_tokens=workload.Fixed(tokens=128),
            output_tokens=workload.Fixed(tokens=32),
            prefix_group=name,
            prefix_tokens=4096,
        )

    established = [client(f"group {i}", 2, 0) for i in range(8)]
    overload = [client(f"group {i}", 60, 3) for i in range(8)]
    simulation = Simulation(
        workload=workload.Synthetic(clients=[*established, *overload, client("late", 20, 6)]),
        gateway=gateway.Gateway(
            admission=predictive({"standard": 0.1}, estimator="token_backlog", **settings)
        ),
        router=router.LeastLoaded(),
        instances=[instance.InstanceGroup(count=2)],
    )
    return simulate(simulation)
