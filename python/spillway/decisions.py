"""What the router decided and what it saw; whom admission turned away, and what that cost them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway._columns import Table
from spillway.overload import compare_with_targets
from spillway.report import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from spillway._core.cluster import Simulation
    from spillway.results import Figure, Result

_CANDIDATE = "candidate_"


class Rows(Table):
    """Read-only columns about some of the requests; `row` is a request's position among all."""

    _key = "row"

    def of(self, row: int) -> dict[str, Any] | None:
        """What the columns say of the request of a row; None if nothing."""
        found = np.flatnonzero(self["row"] == row)
        if not found.size:
            return None
        return {name: column[found[0]] for name, column in self._columns.items()}


class Decisions(Rows):
    """One row per routing decision in order of time, as read-only columns.

    row (position of the request in order of arrival), time_s, instance (the chosen one), score (its
    score), regret (how much better the best score was). The best candidates of each decision stand
    in columns of shape (decisions, candidates), the best first: candidate_instance,
    candidate_score, candidate_waiting, candidate_running, candidate_in_flight,
    candidate_kv_utilization, candidate_age_s (of what the instance reported). A score is the
    policy's own, or minus the effective load for a policy that does not rate; minus infinity for
    an instance that a filter left out. Where fewer instances came into question than are logged,
    candidate_instance is -1.
    """


class AdmissionRegret(Rows):
    """One row per rejected request in order of arrival: what it would have met all alone.

    row (position of the request in order of arrival), request_id, tenant, slo_class, reason (text);
    unloaded_ttft_s, unloaded_tpot_s, unloaded_e2e_s (seconds; NaN: not applicable, or no instance
    could have served it); has_targets (bool, its class promises a latency); meets_targets (bool,
    those latencies keep every promise of its class; False where there is none).
    """

    def summary(self) -> dict[str, Figure]:
        """Figures over all rejected requests, whenever they arrived.

        rejected, with_targets (of classes with targets), would_meet_targets (of these); regrettable
        (their share, 0 to 1; None where no rejected request has targets).
        """
        promised = int(self["has_targets"].sum())
        met = int(self["meets_targets"].sum())
        return {
            "rejected": len(self["row"]),
            "with_targets": promised,
            "would_meet_targets": met,
            "regrettable": met / promised if promised else None,
        }


class AdmissionByGroupAge(Table):
    """Admission of new and of established prefix groups over time, one span of time per row.

    start_s (of the span); new_offered, new_admitted, established_offered, established_admitted
    (requests that arrived in it); new_ratio, established_ratio (admitted ÷ offered, NaN where none
    was offered); ratio (new_ratio ÷ established_ratio: 1 where new groups fare no worse, 0 where
    they are locked out, NaN where it is not defined).
    """

    _key = "start_s"


def admission_by_group_age(result: Result, step_s: float, new_for_s: float) -> AdmissionByGroupAge:
    """Admission of new and of established prefix groups over time.

    See `Result.admission_by_group_age`.
    """
    for name, value in (("step_s", step_s), ("new_for_s", new_for_s)):
        if not value > 0:
            raise _core.sim.UsageError(f"{name} = {value} must be > 0")
    requests = result.requests
    if not _has_workload(result.simulation):
        raise _core.sim.UsageError(
            "the requests of this run's trace are not at hand, only their digest: simulate the "
            "trace again"
        )
    offered = _core.cluster.offered_requests(result.simulation, result.seed)
    assert offered is not None  # only streaming has none, and that keeps no requests
    arrival_s = requests["arrival_s"]
    group = offered.prefix_group[: len(arrival_s)]
    in_group = group >= 0
    first_s = np.full(int(group.max(initial=-1)) + 1, np.inf)
    np.minimum.at(first_s, group[in_group], arrival_s[in_group])
    is_new = np.zeros(len(arrival_s), dtype=bool)
    is_new[in_group] = arrival_s[in_group] - first_s[group[in_group]] < new_for_s
    span = (arrival_s // step_s).astype(np.int64)
    num_spans = int(span.max(initial=-1)) + 1
    admitted = requests["admitted"].astype(bool)

    def count(which: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(span[which & in_group], minlength=num_spans)

    columns = {
        "start_s": np.arange(num_spans) * step_s,
        "new_offered": count(is_new),
        "new_admitted": count(is_new & admitted),
        "established_offered": count(~is_new),
        "established_admitted": count(~is_new & admitted),
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        for age in ("new", "established"):
            columns[f"{age}_ratio"] = columns[f"{age}_admitted"] / columns[f"{age}_offered"]
        columns["ratio"] = columns["new_ratio"] / columns["established_ratio"]
    columns["ratio"][~np.isfinite(columns["ratio"])] = np.nan
    for column in columns.values():
        column.setflags(write=False)
    return AdmissionByGroupAge(columns)


def admission_regret(result: Result) -> AdmissionRegret:
    """What each rejected request would have met on an otherwise empty fleet.

    See `Result.admission_regret`.
    """
    requests = result.requests
    rows = np.flatnonzero(requests["outcome"] == "rejected")
    ttft_ns = np.full(len(rows), np.nan)
    tpot_ns, e2e_ns = ttft_ns.copy(), ttft_ns.copy()
    if rows.size:
        if not _has_workload(result.simulation):
            raise _core.sim.UsageError(
                "the requests of this run's trace are not at hand, only their digest: simulate the "
                "trace again"
            )
        for one in _one_by_one(result.simulation):
            alone = _alone_ns(_core.cluster.run(one, result.seed), rows, one)
            better = ~(alone[0] >= ttft_ns) & ~np.isnan(alone[0])
            for best, other in zip((ttft_ns, tpot_ns, e2e_ns), alone, strict=True):
                best[better] = other[better]
    slo_class = requests["slo_class"][rows]
    has_targets, meets_targets = compare_with_targets(
        result.simulation.slo_classes, slo_class, ttft_ns, tpot_ns, e2e_ns
    )
    columns: dict[str, NDArray[Any]] = {
        "row": rows,
        **{name: requests[name][rows] for name in ("request_id", "tenant")},
        "slo_class": slo_class,
        "reason": requests["reason"][rows],
        "unloaded_ttft_s": ttft_ns / 1e9,
        "unloaded_tpot_s": tpot_ns / 1e9,
        "unloaded_e2e_s": e2e_ns / 1e9,
        "has_targets": has_targets,
        "meets_targets": meets_targets,
    }
    for column in columns.values():
        column.setflags(write=False)
    return AdmissionRegret(columns)


def _has_workload(simulation: Simulation) -> bool:
    workload = simulation.workload
    return not isinstance(workload, _core.workload.Trace) or workload.has_requests


def _one_by_one(simulation: Simulation) -> list[Simulation]:
    """The same workload with one request in flight at a time, on an instance of each group."""
    alone = [
        group.replace(count=1, kv_cache=group.kv_cache.replace(prefix_caching=False))
        for group in simulation.instances
    ]
    return [
        simulation.replace(
            gateway={
                "admission": "always_admit",
                "admission_latency_s": simulation.gateway.admission_latency_s,
                "limit": {"kind": "fixed", "max_in_flight": 1},
                "routing_latency_s": simulation.gateway.routing_latency_s,
            },
            router="round_robin",
            signals="live",
            instances=group,
            metrics={"accounting": simulation.metrics.accounting},
            horizon_s=None,
            warm_up_s=0,
        )
        for group in dict.fromkeys(alone)
    ]


def _alone_ns(
    output: Mapping[str, Any], rows: NDArray[Any], simulation: Simulation
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """TTFT, TPOT and E2E of some requests as if each had been dispatched as soon as admitted."""

    def column(name: str) -> NDArray[Any]:
        values: NDArray[Any] = output["record"].column(name)[rows]
        return values

    def ns(seconds: Any) -> NDArray[Any]:
        return np.rint(np.asarray(seconds) * 1e9)  # a latency is a whole number of them

    waited_ns = ns(column("queue_s")) - ns(simulation.gateway.admission_latency_s)
    ttft_ns = ns(column("ttft_s")) - waited_ns
    e2e_ns = ns(column("e2e_s")) - waited_ns
    gaps = column("output_tokens") - 1
    tpot_ns = np.where(gaps > 0, (e2e_ns - ttft_ns) / np.maximum(gaps, 1), np.nan)
    return ttft_ns, tpot_ns, e2e_ns


def explain(result: Result, request_id: str) -> str:
    """What became of a request and why, as text. Raises KeyError if there is no such request."""
    requests = result.requests
    rows = np.flatnonzero(requests["request_id"] == request_id)
    if not rows.size:
        raise KeyError(request_id)
    row = int(rows[0])
    reason = str(requests["reason"][row])
    outcome = str(requests["outcome"][row]) + (f" ({reason})" if reason else "")
    who = f"tenant {requests['tenant'][row]}, class {requests['slo_class'][row]}"
    arrival = f"{requests['arrival_s'][row]:.6f} s with {requests['input_tokens'][row]}"
    lines = [
        f"request {request_id} of {who}: {outcome}",
        f"arrived at {arrival} input tokens",
    ]
    times = [
        f"{name.removesuffix('_s')} {float(requests[name][row]) * 1e3:.3f} ms"
        for name in ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s")
        if not np.isnan(requests[name][row])
    ]
    if times:
        lines.append(", ".join(times))
    if str(requests["outcome"][row]) == "rejected" and _has_workload(result.simulation):
        lines.append(_what_it_missed(result.admission_regret().of(row)))
    decision = result.decisions.of(row)
    if decision is None:
        lines.append("it was never routed")
        return "\n".join(lines)
    lines.append(
        f"routed at {decision['time_s']:.6f} s to instance {decision['instance']}, "
        f"score {decision['score']:.6g}, regret {decision['regret']:.6g}"
    )
    names = [name for name in decision if name.startswith(_CANDIDATE)]
    header = [name.removeprefix(_CANDIDATE).replace("_", " ") for name in names]
    body = [
        [tables.number(value.item()) for value in values]
        for values in zip(*(decision[name] for name in names), strict=True)
    ]
    return "\n".join([*lines, "", tables.table([header, *body])])


def _what_it_missed(regret: Mapping[str, Any] | None) -> str:
    if regret is None or np.isnan(regret["unloaded_ttft_s"]):
        return "no instance could have served it, even alone"
    first = f"{regret['unloaded_ttft_s'] * 1e3:.3f} ms"
    line = f"alone it would have had its first token after {first}"
    if regret["has_targets"]:
        line += f" and {'met' if regret['meets_targets'] else 'missed'} the targets of its class"
    return line
