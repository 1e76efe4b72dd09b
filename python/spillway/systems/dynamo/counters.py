"""The figures of a run as Dynamo's metrics endpoints would report them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, get_args

from spillway import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.data.result_data import ResultData


Version = Literal["dynamo_1_2", "dynamo_1_3", "dynamo_dev_b", "dynamo_dev_c"]
VERSIONS: tuple[str, ...] = get_args(Version)

# Field of an ingress → Dynamo's name for it, once per worker.
_REQUEST_LIMIT = {
    "dynamo_engine_request": "unfinished",
    "dynamo_request_queue": "queued",
    "dynamo_rejection_request_total": "refused",
}
_GATE = {
    "dynamo_backend_admission_engine_request_count": "unfinished",
    "dynamo_backend_admission_engine_wait_count": "awaiting_response",
    "dynamo_backend_admission_request_queue_count": "queued",
    'dynamo_backend_admission_request_admit_total{source="direct"}': "entered_at_once",
    'dynamo_backend_admission_request_admit_total{source="queue"}': "entered_from_queue",
    "dynamo_backend_admission_rejection_total": "refused",
}
_INGRESS = {"dynamo_1_2": _REQUEST_LIMIT, "dynamo_1_3": _REQUEST_LIMIT, "dynamo_dev_c": _GATE}


def counters(
    result: ResultData, version: Version, model: str = "simulated", endpoint: str = "completions"
) -> dict[str, int]:
    """See `Result.counters`."""
    if version not in VERSIONS:
        raise ValueError(f"version is {version!r} but must be one of {', '.join(VERSIONS)}")
    ledger = result.ledger
    overloads = ledger["rejected"].get("all_workers_busy", 0)
    overloads += sum(
        count for reason, count in ledger["worker_rejected"].items() if reason != "unservable"
    )
    frontend = {"model": model, "endpoint": endpoint}
    shown = {_series("dynamo_frontend_model_rejection_total", frontend): overloads}
    for rank in result.ranks:
        worker = {"worker_id": rank["instance"], "dp_rank": rank["rank"]}
        for name in ("active_decode_blocks", "active_prefill_tokens"):
            shown[_series(f"dynamo_frontend_worker_{name}", worker)] = rank[name]
    for ingress in result.ingresses:
        worker = {"worker_id": ingress["instance"]}
        for name, field in _INGRESS.get(version, {}).items():
            shown[_series(name, worker)] = ingress[field]
        if version == "dynamo_dev_c":
            seen = ("entered_at_once", "entered_from_queue", "refused", "queued")
            name = "dynamo_backend_admission_request_receive_total"
            shown[_series(name, worker)] = sum(ingress[field] for field in seen)
    for status, count in sorted(statuses(result, version).items()):
        shown[_series("spillway_responses_total", {"code": status})] = count
    return shown


def statuses(result: ResultData, version: Version) -> Counter[int]:
    """Number of responses by HTTP status."""
    overload = 503 if version == "dynamo_1_2" else 529
    for policy in result.simulation.gateway.admission:
        if isinstance(policy, _core.gateway.BusyThreshold):
            overload = policy.overload_status
    ledger = result.ledger
    shown = Counter({200: ledger["completed"], overload: ledger["expired"] + ledger["evicted"]})
    refusals: Iterable[tuple[str, int]] = (
        *ledger["rejected"].items(),
        *ledger["worker_rejected"].items(),
        *ledger.get("router_rejected", {}).items(),
        *ledger.get("handoff_rejected", {}).items(),
    )
    special = {"unservable": 400, "no_workers": 503, "no_candidate": 503, "no_decode_instance": 503}
    for reason, count in refusals:
        shown[special.get(reason, overload)] += count
    return +shown


def _series(name: str, labels: Mapping[str, int | str]) -> str:
    own = ",".join(f'{label}="{value}"' for label, value in labels.items())
    if name.endswith("}"):
        return f"{name[:-1]},{own}}}"
    return f"{name}{{{own}}}"
