"""The latencies of the rejected requests on an idle fleet, and had all been admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spillway import _core
from spillway._core.cluster import Simulation
from spillway._core.workload import Synthetic, Trace
from spillway.config.limits import LONGEST_SPAN_S
from spillway.data.decisions import Rows
from spillway.data.result_data import ResultData
from spillway.data.targets import compare_with_targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from spillway.data.figures import Figure
    from spillway.data.requests import Requests


_LATENCIES = ("ttft", "tpot", "e2e")


class AdmissionRegret(Rows):
    """What became of the rejected requests in two other runs, one row each in order of arrival.

    row (position of the request in order of arrival, which identifies it where ids repeat),
    request_id, tenant, slo_class, reason (text); unloaded_ttft_s, unloaded_tpot_s, unloaded_e2e_s
    (seconds, on an idle fleet; NaN: not applicable, or no instance could have served it);
    all_admitted_ttft_s, all_admitted_tpot_s, all_admitted_e2e_s (seconds, in the same run with
    admission always_admit; NaN: not applicable, or not completed there either); has_targets (bool,
    its class has a latency target); meets_on_idle_fleet, meets_when_all_admitted (bool, those
    latencies meet every target of its class; False where there is none).

    Where the requests of the other run are not those of this one, as with users that wait for
    answers, and after loading a result whose trace is not at hand, `is_paired` is False: the
    columns of the run with all admitted are NaN and False.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], *, is_paired: bool) -> None:
        super().__init__(columns)
        self.is_paired = is_paired

    def summary(self) -> dict[str, Figure]:
        """Figures over all rejected requests of the run.

        rejected; with_targets (of classes with targets); would_meet_on_idle_fleet (of these: alone
        in the system, which nearly every request does); would_meet_when_all_admitted (of these: in
        the same run, same seed, with nothing rejected by the admission policy; None unless
        `is_paired`); regrettable (the share of would_meet_when_all_admitted in with_targets, 0 to
        1: these met their targets although nothing was rejected for their sake; None where there
        is no such count or no rejected request has targets).
        """
        promised = int(self["has_targets"].sum())
        admitted = int(self["meets_when_all_admitted"].sum()) if self.is_paired else None
        return {
            "rejected": len(self["row"]),
            "with_targets": promised,
            "would_meet_on_idle_fleet": int(self["meets_on_idle_fleet"].sum()),
            "would_meet_when_all_admitted": admitted,
            "regrettable": admitted / promised if admitted is not None and promised else None,
        }


def admission_regret(result: ResultData) -> AdmissionRegret:
    """See `Result.admission_regret`."""
    requests = result.requests
    rows = np.flatnonzero(requests["outcome"] == "rejected")
    ttft_ns = np.full(len(rows), np.nan)
    tpot_ns, e2e_ns = ttft_ns.copy(), ttft_ns.copy()
    if rows.size:
        # Far enough apart that no two of them overlap.
        apart_s = LONGEST_SPAN_S // (len(rows) + 1)
        tokens = requests["input_tokens"][rows], result._offered()["output_tokens"][rows]
        asked = _trace(np.arange(len(rows)) * apart_s, *tokens)
        asked = asked.replace(empty_outputs=_empty_outputs(result.simulation.workload))
        for idle in _idle_fleets(result.simulation, asked):
            unloaded = _unloaded_ns(idle, result.seed, apart_s)
            better = ~(unloaded[0] >= ttft_ns) & ~np.isnan(unloaded[0])
            for best, other in zip((ttft_ns, tpot_ns, e2e_ns), unloaded, strict=True):
                best[better] = other[better]
    slo_class = requests["slo_class"][rows]
    classes = result.simulation.slo_classes
    has_targets, on_idle = compare_with_targets(classes, slo_class, ttft_ns, tpot_ns, e2e_ns)
    others = _all_admitted(result) if rows.size else requests
    admitted_s = {
        name: np.full(len(rows), np.nan) if others is None else others[f"{name}_s"][rows]
        for name in _LATENCIES
    }
    all_ttft_ns, all_e2e_ns = (np.rint(admitted_s[name] * 1e9) for name in ("ttft", "e2e"))
    admitted_ns = (all_ttft_ns, admitted_s["tpot"] * 1e9, all_e2e_ns)
    _, all_admitted = compare_with_targets(classes, slo_class, *admitted_ns)
    columns: dict[str, NDArray[Any]] = {
        "row": rows,
        **{name: requests[name][rows] for name in ("request_id", "tenant", "slo_class", "reason")},
        "unloaded_ttft_s": ttft_ns / 1e9,
        "unloaded_tpot_s": tpot_ns / 1e9,
        "unloaded_e2e_s": e2e_ns / 1e9,
        **{f"all_admitted_{name}_s": admitted_s[name] for name in _LATENCIES},
        "has_targets": has_targets,
        "meets_on_idle_fleet": on_idle,
        "meets_when_all_admitted": all_admitted,
    }
    for column in columns.values():
        column.setflags(write=False)
    return AdmissionRegret(columns, is_paired=others is not None)


def _all_admitted(result: ResultData) -> Requests | None:
    """The requests of the same run with admission always_admit; None: they differ."""
    simulation = result.simulation
    workload = simulation.workload
    if workload.kind == "trace" and workload.rows and not workload._columns():
        return None  # loaded without its trace
    changes = []
    for change in simulation.changes:
        kept = {k: v for k, v in change.set.items() if not k.startswith("gateway.admission[")}
        changes.append(change.replace(set=kept))
    everything = simulation.replace(
        gateway=simulation.gateway.replace(admission="always_admit"),
        changes=[change for change in changes if change.set or change.submit],
        metrics=simulation.metrics.replace(traced_candidates=0, timeline_step_s=None),
    )
    others = ResultData(everything, result.seed, _core.cluster.run(everything, result.seed))
    same = all(
        np.array_equal(result.requests[name], others.requests[name])
        for name in ("arrival_s", "request_id", "tenant", "slo_class", "input_tokens")
    )
    return others.requests if same else None


def _empty_outputs(workload: Synthetic | Trace) -> Literal["failed", "served"]:
    return workload.empty_outputs if isinstance(workload, Trace) else "served"


def _trace(
    arrival_s: NDArray[np.int64], input_tokens: NDArray[Any], output_tokens: NDArray[Any]
) -> Trace:
    """Requests of one tenant and class that share no prefix."""
    of_one = np.zeros(len(arrival_s), dtype=np.uint16)
    return _core.workload.make_trace(
        arrival_ns=arrival_s * 1_000_000_000,
        input_tokens=input_tokens.astype(np.int32),
        output_tokens=output_tokens.astype(np.int32),
        tenant=of_one,
        tenants=["default"],
        slo_class=of_one,
        slo_classes=["standard"],
        segment_begin=np.zeros(0, dtype=np.uint32),
        segment_content=np.zeros(0, dtype=np.uint64),
        segment_tokens=np.zeros(0, dtype=np.uint32),
        request_id=[],
        file="",
    )


def _idle_fleets(simulation: Simulation, asked: Trace) -> list[Simulation]:
    """An instance of each group, behind a gateway that adds only latencies.

    It is built from scratch, so that no setting of the gateway, the clients or the fleet leaks in.
    All settings of a group describe the engine, except its count, its ingress and its role: one of
    a pool serves the whole request.
    """
    gateway = simulation.gateway
    latencies = ("admission_latency_s", "drain_latency_s", "routing_latency_s")
    groups = dict.fromkeys(
        group.replace(count=1, ingress="open", role="both") for group in simulation.instances
    )
    return [
        Simulation(
            workload=asked,
            gateway={name: getattr(gateway, name) for name in latencies},
            instances=group,
            metrics={"accounting": simulation.metrics.accounting},
            quantum_ns=simulation.quantum_ns,
        )
        for group in groups
    ]


def _unloaded_ns(
    idle: Simulation, seed: int, apart_s: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """TTFT, TPOT and E2E of requests that arrive `apart_s` apart; NaN: refused or failed."""
    record = _core.cluster.run(idle, seed)["record"]
    unserved = [_core.cluster.outcomes.index(outcome) for outcome in ("rejected", "failed")]
    is_refused = np.isin(record.column("outcome"), unserved)
    if not (is_refused | (record.column("e2e_s") < apart_s)).all():
        raise _core.sim.UsageError(
            f"one of the {len(is_refused)} rejected requests takes longer than {apart_s} s on an "
            "idle fleet, too long to simulate all of them one after another"
        )
    # Latencies other than tpot are whole numbers of ns.
    ttft_ns, e2e_ns = (np.rint(record.column(name) * 1e9) for name in ("ttft_s", "e2e_s"))
    gaps = record.column("output_tokens") - 1
    tpot_ns = np.where(gaps > 0, (e2e_ns - ttft_ns) / np.maximum(gaps, 1), np.nan)
    return ttft_ns, tpot_ns, e2e_ns
