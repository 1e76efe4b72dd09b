"""The outcome and the routing of a request, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spillway._core.sim import UsageError
from spillway.config import formatting

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.analysis.regret import AdmissionRegret
    from spillway.data.result_data import ResultData


_CANDIDATE = "candidate_"


def explain(
    result: ResultData, request_id: str | int, regret: Callable[[], AdmissionRegret]
) -> str:
    """See `Result.why`; `regret` is called for a request that was rejected."""
    requests = result.requests
    is_text = isinstance(request_id, str)
    known = requests["request_id"] if is_text else np.arange(requests.num_rows)
    rows = np.flatnonzero(known == request_id)
    if not rows.size:
        raise KeyError(request_id)
    row = int(rows[0])
    decision = result.decisions.of(row)
    reason = str(requests["reason"][row])
    outcome = str(requests["outcome"][row]) + (f" ({reason})" if reason else "")
    who = f"tenant {requests['tenant'][row]}, class {requests['slo_class'][row]}"
    arrival = f"{requests['arrival_s'][row]:.6f} s with {requests['input_tokens'][row]}"
    lines = [
        f"request {requests['request_id'][row]} of {who}: {outcome}",
        f"arrived at {arrival} input tokens",
    ]
    times = [
        f"{name.removesuffix('_s')} {float(requests[name][row]) * 1e3:.3f} ms"
        for name in ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s")
        if not np.isnan(requests[name][row])
    ]
    if times:
        lines.append(", ".join(times))
    if detail := result.refusal_detail(row):
        lines.append(f"refused: {detail}")
    if str(requests["outcome"][row]) == "rejected":
        lines.append(_on_an_idle_fleet(result, row, regret))
    if decision is None:
        lines.append("it was never routed")
        return "\n".join(lines)
    by_rank = decision.get("candidate_rank", np.array(-1)).max() >= 0
    rank = f", rank {decision['rank']}" if by_rank else ""
    lines.append(
        f"routed at {decision['time_s']:.6f} s to instance {decision['instance']}{rank}, "
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
    return "\n".join([*lines, "", formatting.table([header, *body])])


def _on_an_idle_fleet(result: ResultData, row: int, regret: Callable[[], AdmissionRegret]) -> str:
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
