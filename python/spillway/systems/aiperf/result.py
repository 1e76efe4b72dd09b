"""A run as the profile_export_aiperf.json of NVIDIA AIPerf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway.data.client_view import ClientView
from spillway.files.requests_file import RequestsFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.data.result_data import ResultData


_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def aiperf(result: ResultData) -> dict[str, Any]:
    """The requests of a run in the schema 1.5 of AIPerf's profile_export_aiperf.json.

    Statistics are those of completed requests. AIPerf's `inter_token_latency` of a request is its
    mean gap, (latency - TTFT) / (tokens - 1), which a run records. `error_request_count` counts all
    requests that did not complete.
    """
    view = ClientView.of(result)
    completed = int(view.done.sum())
    decoding_s = view.tpot_s[view.tpot_s > 0]
    benchmark_id = f"{result.fingerprint}-{result.seed}"
    found: dict[str, Any] = {
        "schema_version": "1.5",
        "benchmark_id": benchmark_id,
        "request_throughput": _value(view.per_second(completed), "requests/sec"),
        "request_count": _value(completed, "requests"),
        "error_request_count": _value(len(view.done) - completed, "requests"),
        "benchmark_duration": _value(view.duration_s, "sec"),
        "total_isl": _value(view.total_input_tokens, "tokens"),
        "total_osl": _value(view.total_output_tokens, "tokens"),
        "output_token_throughput": _value(view.per_second(view.total_output_tokens), "tokens/sec"),
        "total_token_throughput": _value(
            view.per_second(view.total_input_tokens + view.total_output_tokens), "tokens/sec"
        ),
    }
    for name, values, unit in (
        ("request_latency", view.e2e_s * 1e3, "ms"),
        ("time_to_first_token", view.ttft_s * 1e3, "ms"),
        ("inter_token_latency", view.tpot_s * 1e3, "ms"),
        ("output_token_throughput_per_user", 1 / decoding_s, "tokens/sec/user"),
        ("input_sequence_length", view.input_tokens[view.done], "tokens"),
        ("output_sequence_length", view.output_tokens[view.done], "tokens"),
    ):
        if values.size:
            found[name] = _record(values, unit)
    found["was_cancelled"] = False
    found["run_info"] = {
        "benchmark_id": benchmark_id,
        "sweep_id": None,
        "random_seed": result.seed,
        "trial": 0,
        "run_label": "spillway",
        "variation_label": "base",
        "variation_index": 0,
        "variation_values": {},
        "cli_command": None,
    }
    found["spillway_version"] = _core.sim.build_info["version"]
    return found


def _value(value: float, unit: str) -> dict[str, Any]:
    return {"unit": unit, "avg": float(value)}


def _record(values: NDArray[Any], unit: str) -> dict[str, Any]:
    found = _value(float(values.mean()), unit)
    for percent, value in zip(
        _PERCENTILES, np.percentile(values, _PERCENTILES).tolist(), strict=True
    ):
        found[f"p{percent}"] = value
    return found | {
        "min": values.min().item(),
        "max": values.max().item(),
        "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "count": len(values),
        "sum": values.sum().item(),
    }


REQUESTS_FILE = RequestsFile(
    "aiperf",
    "profile_export_aiperf.json",
    lambda result: json.dumps(aiperf(result), indent=2, allow_nan=False),
)
