"""What the router decided and what it saw; whom admission turned away, and what that cost them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway._columns import Table
from spillway._core.cluster import Simulation
from spillway.interop import traces
from spillway.overload import compare_with_targets
from spillway.report import tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway._core.workload import Trace
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

    row (position of the request in order of arrival), time_s, instance (the chosen one), rank (of
    that instance), score (its score), regret (how much better the best score was). The best
    candidates of each decision stand in columns of shape (decisions, candidates), the best first:
    candidate_instance, candidate_rank (-1 where the policy rates instances as a whole rather than
    their data-parallel ranks), candidate_score; and, of the candidate's instance,
    candidate_waiting, candidate_running, candidate_in_flight, candidate_kv_utilization,
    candidate_age_s (of what the instance reported). A score is the policy's own, or minus the
    effective load for a policy that does not rate; minus infinity for an instance that a filter
    left out. Where fewer came into question than are logged, candidate_instance is -1.
    """


class AdmissionRegret(Rows):
    """One row per rejected request in order of arrival: what it would have met on an idle fleet.

    row (position of the request in order of arrival, which tells requests of one id apart),
    request_id, tenant, slo_class, reason (text);
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
    arrival_s = requests["arrival_s"]
    group = result._offered()["prefix_group"]
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
    """What each rejected request would have met on an idle fleet.

    See `Result.admission_regret`.
    """
    requests = result.requests
    rows = np.flatnonzero(requests["outcome"] == "rejected")
    ttft_ns = np.full(len(rows), np.nan)
    tpot_ns, e2e_ns = ttft_ns.copy(), ttft_ns.copy()
    if rows.size:
        # So far apart that no two of them meet.
        apart_s = traces.LONGEST_SPAN_S // (len(rows) + 1)
        asked = traces.trace(
            arrival_s=np.arange(len(rows)) * apart_s,
            input_tokens=requests["input_tokens"][rows],
            output_tokens=result._offered()["output_tokens"][rows],
        )
        for idle in _idle_fleets(result.simulation, asked):
            unloaded = _unloaded_ns(idle, result.seed, apart_s)
            better = ~(unloaded[0] >= ttft_ns) & ~np.isnan(unloaded[0])
            for best, other in zip((ttft_ns, tpot_ns, e2e_ns), unloaded, strict=True):
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


def _idle_fleets(simulation: Simulation, asked: Trace) -> list[Simulation]:
    """For each group, one of its instances before which `asked` meets nothing but latencies.

    Made from scratch, so that no setting of the gateway, the clients or the fleet leaks in. Of a
    group all settings describe the engine, except how many there are and whom they let in.
    """
    gateway = simulation.gateway
    groups = dict.fromkeys(group.replace(count=1, ingress="open") for group in simulation.instances)
    return [
        Simulation(
            workload=asked,
            gateway={
                "admission_latency_s": gateway.admission_latency_s,
                "drain_latency_s": gateway.drain_latency_s,
                "routing_latency_s": gateway.routing_latency_s,
            },
            instances=group,
            metrics={"accounting": simulation.metrics.accounting},
            quantum_ns=simulation.quantum_ns,
        )
        for group in groups
    ]


def _unloaded_ns(
    idle: Simulation, seed: int, apart_s: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """TTFT, TPOT and E2E of requests that arrive so far apart; NaN: the instance refuses."""
    record = _core.cluster.run(idle, seed)["record"]
    is_refused = record.column("outcome") == _core.cluster.outcomes.index("rejected")
    if not (is_refused | (record.column("e2e_s") < apart_s)).all():
        raise _core.sim.UsageError(
            f"one of the {len(is_refused)} rejected requests takes longer than {apart_s} s on an "
            "idle fleet, too long for so many to be simulated one after another"
        )
    # Latencies are whole numbers of ns, but for tpot.
    ttft_ns, e2e_ns = (np.rint(record.column(name) * 1e9) for name in ("ttft_s", "e2e_s"))
    gaps = record.column("output_tokens") - 1
    tpot_ns = np.where(gaps > 0, (e2e_ns - ttft_ns) / np.maximum(gaps, 1), np.nan)
    return ttft_ns, tpot_ns, e2e_ns


def explain(result: Result, request_id: str | int) -> str:
    """What became of a request and why, as text. See `Result.why`."""
    requests = result.requests
    if isinstance(request_id, str):
        rows = np.flatnonzero(requests["request_id"] == request_id)
    else:
        rows = np.flatnonzero(np.arange(requests.num_rows) == request_id)
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
    if str(requests["outcome"][row]) == "rejected":
        lines.append(_on_an_idle_fleet(result, row))
    if decision is None:
        lines.append("it was never routed")
        return "\n".join(lines)
    by_rank = decision.get("candidate_rank", np.array(-1)).max() >= 0
    rank = f", rank {decision['rank']}" if by_rank else ""
    lines.append(
        f"routed at {decision['time_s']:.6f} s to instance {decision['instance']}{rank}, "
        f"score {decision['score']:.6g}, regret {decision['regret']:.6g}"
    )
    names = [
        name
        for name in decision
        if name.startswith(_CANDIDATE) and (by_rank or name != "candidate_rank")
    ]
    header = [name.removeprefix(_CANDIDATE).replace("_", " ") for name in names]
    body = [
        [tables.number(value.item()) for value in values]
        for values in zip(*(decision[name] for name in names), strict=True)
    ]
    return "\n".join([*lines, "", tables.table([header, *body])])


def _on_an_idle_fleet(result: Result, row: int) -> str:
    """What a rejected request would have met, beside what its class promises."""
    try:
        regret = result.admission_regret().of(row)
    except _core.sim.UsageError as unknown:
        return f"what it would have met on an idle fleet is unknown: {unknown}"
    assert regret is not None  # it was rejected
    if np.isnan(regret["unloaded_ttft_s"]):
        return "no instance could have served it, not even on an idle fleet"
    promises = next(
        (one for one in result.simulation.slo_classes if one.name == regret["slo_class"]), None
    )
    latencies = []
    for name in ("ttft", "tpot", "e2e"):
        latency_s = regret[f"unloaded_{name}_s"]
        if np.isnan(latency_s):
            continue
        target_s = getattr(promises, f"target_{name}_s", None)
        target = "" if target_s is None else f" (target {target_s * 1e3:.10g} ms)"
        latencies.append(f"{name} {latency_s * 1e3:.3f} ms{target}")
    line = "on an idle fleet: " + ", ".join(latencies)
    if not regret["has_targets"]:
        return line + "; its class has no latency targets"
    return f"{line}; it would have {'met' if regret['meets_targets'] else 'missed'} its targets"
