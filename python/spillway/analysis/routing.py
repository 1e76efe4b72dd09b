"""Where a request was routed, and how it would fare on an idle fleet, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.sim import UsageError
from spillway.config import formatting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.analysis.regret import AdmissionRegret
    from spillway.data.result_data import ResultData


_CANDIDATE = "candidate_"


def route(result: ResultData, row: int) -> list[str]:
    """Where the router sent a request, with its alternatives; nothing if that was not logged."""
    if not result.simulation.metrics.traced_candidates:
        return []
    log = result.decisions
    found = np.flatnonzero(log["row"] == row)
    if not found.size:
        return ["it was never routed"]
    if "is_prefill" not in log:
        found = found[:1]
    return [line for i in found for line in _decision({name: log[name][i] for name in log})]


def _decision(decision: Mapping[str, Any]) -> list[str]:
    pool = ""
    if "is_prefill" in decision:
        pool = f" of the {'prefill' if decision['is_prefill'] else 'decode'} pool"
    by_rank = decision.get("candidate_rank", np.array(-1)).max() >= 0
    rank = f", rank {decision['rank']}" if by_rank else ""
    line = (
        f"routed at {decision['time_s']:.6f} s to instance {decision['instance']}{rank}{pool}, "
        f"score {decision['score']:.6g}, regret {decision['regret']:.6g}"
    )
    names = [name for name in decision if name.startswith(_CANDIDATE)]
    if not by_rank:
        names = [name for name in names if name != "candidate_rank"]
    header = [name.removeprefix(_CANDIDATE).replace("_", " ") for name in names]
    body = [
        [formatting.number(value.item()) for value in values]
        for values in zip(*(decision[name] for name in names), strict=True)
    ]
    return [line, "", *formatting.table([header, *body]).splitlines()]


def on_an_idle_fleet(result: ResultData, row: int, regret: Callable[[], AdmissionRegret]) -> str:
    """The latencies a rejected request would have seen, beside the targets of its class."""
    try:
        unloaded = regret().of(row)
    except UsageError as unknown:
        return f"its latencies on an idle fleet are unknown: {unknown}"
    assert unloaded is not None  # it was rejected
    if np.isnan(unloaded["unloaded_ttft_s"]):
        return "no instance could have served it, not even on an idle fleet"
    by_name = {slo_class.name: slo_class for slo_class in result.simulation.slo_classes}
    promises = by_name.get(str(unloaded["slo_class"]))
    latencies = []
    for name in ("ttft", "tpot", "e2e"):
        latency_s = unloaded[f"unloaded_{name}_s"]
        if np.isnan(latency_s):
            continue
        target_s = getattr(promises, f"target_{name}_s", None)
        target = "" if target_s is None else f" (target {target_s * 1e3:.10g} ms)"
        latencies.append(f"{name} {latency_s * 1e3:.3f} ms{target}")
    line = "on an idle fleet: " + ", ".join(latencies)
    if not unloaded["has_targets"]:
        return line + "; its class has no latency targets"
    verdict = "met" if unloaded["meets_on_idle_fleet"] else "missed"
    return f"{line}; it would have {verdict} its targets"
