"""The timeline of a run as OpenMetrics text, under the names of metrics of real systems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.data.result_data import ResultData
    from spillway.data.timeline import Timeline


SYSTEMS = ("vllm", "llm_d_epp", "dynamo")
"""Systems under whose names the timeline can be written."""


class _Series(NamedTuple):
    labels: Mapping[str, str]
    values: NDArray[np.float64]


class _Family(NamedTuple):
    name: str  # without the suffix _total of counters
    kind: str
    help: str
    series: list[_Series]


def openmetrics(
    result: ResultData, systems: Sequence[str], *, model: str, start_unix_s: float
) -> str:
    """The timeline as text of OpenMetrics 1.0, with timestamps.

    Raises UsageError without a timeline, ConfigError for an unknown system or an invalid start.
    """
    for system in systems:
        if system not in SYSTEMS:
            allowed = f"must be one of {', '.join(SYSTEMS)}"
            raise config_error([("systems", repr(system), allowed)])
    if not (math.isfinite(start_unix_s) and start_unix_s >= 0):
        allowed = "must be a finite number >= 0"
        raise config_error([("start_unix_s", repr(start_unix_s), allowed)])
    timeline = result.timeline
    at_s = [f"{start_unix_s + time_s:.3f}" for time_s in timeline["time_s"].tolist()]
    families = {"vllm": _vllm, "llm_d_epp": _llm_d_epp, "dynamo": _dynamo}
    lines = []
    for system in dict.fromkeys(systems):
        for family in families[system](timeline, model):
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines.append(f"# HELP {family.name} {family.help}")
            sample = family.name + "_total" * (family.kind == "counter")
            for series in family.series:
                labels = ",".join(
                    f'{key}="{_escaped(label)}"' for key, label in series.labels.items()
                )
                values = series.values.astype(float).tolist()
                lines += [
                    f"{sample}{{{labels}}} {value!r} {at}"
                    for at, value in zip(at_s, values, strict=True)
                    if not math.isnan(value)
                ]
    return "\n".join([*lines, "# EOF", ""])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _vllm(timeline: Timeline, model: str) -> Iterator[_Family]:
    engine = {"model_name": model, "engine": "0"}

    def of(name: str, kind: str, text: str, values: NDArray[np.float64], **more: str) -> _Family:
        return _Family(f"vllm:{name}", kind, text, [_Series(engine | more, values)])

    text = "Requests in the batches of all engines."
    yield of("num_requests_running", "gauge", text, timeline["running"])
    text = "Requests in the queues of all engines."
    yield of("num_requests_waiting", "gauge", text, timeline["waiting"])
    text = "Share of the KV blocks in use (0-1), mean over the engines."
    yield of("kv_cache_usage_perc", "gauge", text, timeline["kv_utilization"])
    text = "Tokens delivered."
    yield of("generation_tokens", "counter", text, timeline["emitted_tokens"].sum(axis=1))
    text = "Requests completed."
    done = timeline["completed"].sum(axis=1)
    yield of("request_success", "counter", text, done, finished_reason="length")


def _llm_d_epp(timeline: Timeline, model: str) -> Iterator[_Family]:
    ready = timeline["ready_instances"].astype(float)
    per_endpoint = np.full(len(ready), math.nan)
    np.divide(timeline["waiting"], ready, out=per_endpoint, where=ready > 0)
    pool = {"name": "simulated"}

    def of(name: str, kind: str, text: str, series: list[_Series]) -> _Family:
        return _Family(f"llm_d_epp_{name}", kind, text, series)

    text = "Requests in the engines' queues per ready endpoint."
    yield of("average_queue_size", "gauge", text, [_Series(pool, per_endpoint)])
    text = "Share of the KV blocks in use (0-1), mean over the endpoints."
    kv = timeline["kv_utilization"]
    yield of("average_kv_cache_utilization", "gauge", text, [_Series(pool, kv)])
    named = {"model_name": model, "target_model_name": model}
    text = "Requests between dispatch and last token."
    yield of("request_running", "gauge", text, [_Series(named, timeline["in_flight"])])
    text = "Requests that arrived."
    arrived = timeline["submitted"].sum(axis=1)
    yield of("request", "counter", text, [_Series(named, arrived)])
    text = "Requests queued at the gateway, per tenant."
    queued = [
        _Series({"fairness_id": tenant}, timeline.of(tenant)["queued"])
        for tenant in timeline.tenants
    ]
    yield of("flow_control_queue_size", "gauge", text, queued)


def _dynamo(timeline: Timeline, model: str) -> Iterator[_Family]:
    text = "Requests at the frontend: queued, or between dispatch and last token."
    here = timeline["in_flight"] + timeline["queued"].sum(axis=1)
    series = [_Series({"model": model}, here)]
    yield _Family("dynamo_frontend_inflight_requests", "gauge", text, series)
