"""A run as a Benchmark Report v0.2 of llm-d-benchmark."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from spillway import _core
from spillway.data.client_view import ClientView
from spillway.files.requests_file import RequestsFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.data.result_data import ResultData


_PERCENTILES = {
    "p0p1": 0.1,
    "p1": 1,
    "p5": 5,
    "p10": 10,
    "p25": 25,
    "p50": 50,
    "p75": 75,
    "p90": 90,
    "p95": 95,
    "p99": 99,
    "p99p9": 99.9,
}


def benchmark_report(result: ResultData) -> dict[str, Any]:
    """The requests of a run in the schema v0.2 of llm-d-benchmark, also valid as v0.2.1.

    `failures` are the requests that the system refused or dropped, `incomplete` those that the end
    of the run cut off. Lengths, latencies and rates are those of completed requests. A run records
    no single gaps between tokens, so `inter_token_latency` is left out; so are the times of the
    clock, because simulated time has none.
    """
    view = ClientView.of(result)
    settings = result.simulation.to_dict()
    workload = settings.pop("workload")
    failed = int(view.failed.sum())
    aggregate = {
        "requests": {
            "total": len(view.done),
            "failures": failed,
            "incomplete": int((~view.done & ~view.failed).sum()),
            **_named("input_length", view.input_tokens[view.done], "count"),
            **_named("output_length", view.output_tokens[view.done], "count"),
        },
        "latency": {
            **_named("time_to_first_token", view.ttft_s, "s"),
            **_named("normalized_time_per_output_token", view.ntpot_s, "s/token"),
            **_named("time_per_output_token", view.tpot_s, "s/token"),
            **_named("request_latency", view.e2e_s, "s"),
        },
        "throughput": {
            "input_token_rate": _rate(view.per_second(view.total_input_tokens), "tokens/s"),
            "output_token_rate": _rate(view.per_second(view.total_output_tokens), "tokens/s"),
            "total_token_rate": _rate(
                view.per_second(view.total_input_tokens + view.total_output_tokens), "tokens/s"
            ),
            "request_rate": _rate(view.per_second(int(view.done.sum())), "queries/s"),
        },
    }
    share = failed / len(view.done) if view.done.size else 0.0
    return {
        "version": "0.2",
        "run": {
            "uid": f"{result.fingerprint}-{result.seed}",
            "description": "simulated by Spillway",
            "time": {"duration": f"PT{view.duration_s!r}S"},
        },
        "scenario": {
            "stack": [
                {
                    "metadata": {"label": "spillway", "cfg_id": _digest(settings)},
                    "standardized": _tool("kind", "generic"),
                    "native": {"config": settings},
                }
            ],
            "load": _load(view, workload),
        },
        "results": {
            "request_performance": {"aggregate": aggregate},
            "observability": {"drop_rate": {"units": "fraction", "mean": share}},
        },
    }


def _load(view: ClientView, workload: dict[str, Any]) -> dict[str, Any]:
    standardized = {
        **_tool("source", "unknown"),
        "input_seq_len": _lengths(view.input_tokens),
        "output_seq_len": _lengths(view.requested_output_tokens),
    }
    if view.arrivals_per_s is not None:
        standardized["rate_qps"] = view.arrivals_per_s
    return {
        "metadata": {"cfg_id": _digest(workload)},
        "standardized": standardized,
        "native": {"config": workload},
    }


def _tool(name: str, value: str) -> dict[str, Any]:
    return {name: value, "tool": "spillway", "tool_version": _core.sim.build_info["version"]}


def _digest(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]


def _lengths(tokens: NDArray[Any]) -> dict[str, Any]:
    if not tokens.size:
        return {"distribution": "other", "value": 0}
    low, high = int(tokens.min()), int(tokens.max())
    if low == high >= 1:
        return {"distribution": "fixed", "value": low}
    found = {"distribution": "other", "value": float(tokens.mean()), "min": low}
    return found | ({"max": high} if high else {})


def _rate(value: float, units: str) -> dict[str, Any]:
    return {"units": units, "mean": value}


def _named(name: str, values: NDArray[Any], units: str) -> dict[str, Any]:
    """Return statistics under a name; nothing without values, as each needs a mean."""
    if not values.size:
        return {}
    percents = np.percentile(values, list(_PERCENTILES.values())).tolist()
    return {
        name: {
            "units": units,
            "mean": float(values.mean()),
            "stddev": float(values.std()),
            "min": values.min().item(),
            **dict(zip(_PERCENTILES, percents, strict=True)),
            "max": values.max().item(),
        }
    }


REQUESTS_FILE = RequestsFile(
    "benchmark_report",
    "benchmark_report_v0.2.yaml",
    lambda result: yaml.safe_dump(benchmark_report(result)).rstrip(),
)
