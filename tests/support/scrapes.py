"""Pages /metrics of a simulated server, whose step times are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from support.measured_runs import FACTS, server

from spillway import Simulation, simulate, workload
from spillway.calibration.histograms import sample_of
from spillway.data.recording import Histogram, LatencyHistograms

if TYPE_CHECKING:
    from spillway.data.result_data import ResultData

BUCKETS = {
    "ttft_s": (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
        40, 80, 160, 640, 2560,
    ),
    "itl_s": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
              20, 40, 80),
    "e2e_s": (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960,
              1920, 7680),
}  # fmt: skip
"""Bounds of vLLM."""

_METRICS = {
    "ttft_s": "vllm:time_to_first_token_seconds",
    "itl_s": "vllm:inter_token_latency_seconds",
    "e2e_s": "vllm:e2e_request_latency_seconds",
}


def load(rate_per_s: float, prompt: int, output: int, *, requests: int = 400) -> workload.Synthetic:
    """Poisson arrivals with normal lengths."""
    lengths = {"kind": "gaussian", "min_tokens": 10}
    client = workload.Client(
        input_tokens=lengths | {"mean_tokens": prompt, "std_dev_tokens": prompt / 3,
                                "max_tokens": 3 * prompt},
        output_tokens=lengths | {"mean_tokens": output, "std_dev_tokens": output / 3,
                                 "max_tokens": 3 * output},
    )  # fmt: skip
    return workload.Synthetic(requests_per_s=rate_per_s, num_requests=requests, clients=[client])


def served(
    requests: workload.Synthetic | workload.Trace, seed: int = 0, **settings: Any
) -> ResultData:
    """The run that is measured."""
    return simulate(Simulation(workload=requests, instances=[server(**settings)]), seed=seed)


def histograms_of(result: ResultData, name: str = "engine") -> LatencyHistograms:
    """What vLLM counts."""
    found = {}
    for metric, bounds in BUCKETS.items():
        values, counts = sample_of(result, metric)
        upper = np.array([*bounds, np.inf])
        cumulative = [int(counts[values <= bound].sum()) for bound in upper]
        found[metric] = Histogram(upper, np.array(cumulative), float(values @ counts))
    tokens = float(result.requests["output_tokens"].sum())
    return LatencyHistograms(name, FACTS, found, counters={"generation_tokens": tokens})


def page(histograms: LatencyHistograms | None) -> str:
    """The page /metrics; None: before the first request."""
    labels = 'engine="0",model_name="test"'
    lines = []
    for name, metric in _METRICS.items():
        histogram = None if histograms is None else histograms.histograms[name]
        for i, bound in enumerate((*BUCKETS[name], np.inf)):
            count = 0 if histogram is None else histogram.cumulative[i]
            le = "+Inf" if bound == np.inf else f"{bound:g}"
            lines.append(f'{metric}_bucket{{{labels},le="{le}"}} {float(count)}')
        lines.append(f"{metric}_sum{{{labels}}} {0.0 if histogram is None else histogram.sum!r}")
    tokens = 0.0 if histograms is None else histograms.counters["generation_tokens"]
    lines.append(f"vllm:generation_tokens_total{{{labels}}} {tokens}")
    return "\n".join(lines) + "\n"
