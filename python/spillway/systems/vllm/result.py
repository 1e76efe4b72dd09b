"""A run as the JSON of `vllm bench serve --save-result --save-detailed`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.files.requests_file import RequestsFile

if TYPE_CHECKING:
    from spillway.data.result_data import ResultData


_PERCENTILES = (50, 90, 95, 99)


def vllm_bench(result: ResultData, model: str) -> dict[str, Any]:
    """The requests of a run in the schema of vLLM's `benchmarks/serve.py`, since 0.11.

    The client of the benchmark sends a request when it arrives at the gateway; `request_rate` is
    the mean rate of arrivals, "inf" if all arrive at once. A request that did
    not complete by the end of the run failed; its error is its reason, or else its outcome. Times
    of arrays are in seconds, statistics in milliseconds and over completed requests. A run records
    the mean gap between the tokens of a request, so `itls` repeats it, and statistics of the single
    gaps (`*_itl_ms`) are left out. So are `request_goodput`, whose targets the tool takes as
    options, and the peaks per second.
    """
    requests = result.requests
    done = requests["outcome"] == "completed"
    input_tokens, output_tokens = requests["input_tokens"], requests["output_tokens"]
    arrival_s, ttft_s, e2e_s = (requests[f"{name}_s"] for name in ("arrival", "ttft", "e2e"))
    duration_s = float(np.max((arrival_s + e2e_s)[done]) - arrival_s[0]) if done.any() else 0.0
    span_s = float(arrival_s[-1] - arrival_s[0]) if done.size else 0.0
    totals = (int(input_tokens[done].sum()), int(output_tokens[done].sum()))

    def per_second(count: int) -> float:
        return count / duration_s if duration_s else 0.0

    gaps = np.maximum(output_tokens - 1, 0)
    gap_s = np.divide(e2e_s - ttft_s, gaps, out=np.zeros(len(done)), where=done & (gaps > 0))
    reasons = np.where(requests["reason"] == "", requests["outcome"], requests["reason"])
    found: dict[str, Any] = {
        "endpoint_type": "openai",
        "backend": "openai",
        "label": "spillway",
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": len(done),
        "request_rate": (len(done) - 1) / span_s if span_s else "inf",
        "max_concurrency": None,
        "duration": duration_s,
        "completed": int(done.sum()),
        "failed": int((~done).sum()),
        "total_input_tokens": totals[0],
        "total_output_tokens": totals[1],
        "request_throughput": per_second(int(done.sum())),
        "request_goodput": None,
        "output_throughput": per_second(totals[1]),
        "total_token_throughput": per_second(sum(totals)),
        "input_lens": input_tokens.tolist(),
        "output_lens": np.where(done, output_tokens, 0).tolist(),
        "ttfts": np.where(done, ttft_s, 0.0).tolist(),
        "itls": [
            [gap] * num if ok else []
            for gap, num, ok in zip(gap_s.tolist(), gaps.tolist(), done.tolist(), strict=True)
        ],
        "start_times": arrival_s.tolist(),
        "generated_texts": [""] * len(done),
        "errors": ["" if ok else str(why) for ok, why in zip(done, reasons, strict=True)],
    }
    for name, values_s in (
        ("ttft", ttft_s[done]),
        ("tpot", gap_s[done & (gaps > 0)]),
        ("e2el", e2e_s[done]),
    ):
        if not values_s.size:
            continue
        values_ms = values_s * 1e3
        found[f"mean_{name}_ms"] = float(values_ms.mean())
        found[f"median_{name}_ms"] = float(np.median(values_ms))
        found[f"std_{name}_ms"] = float(values_ms.std())
        for percent in _PERCENTILES:
            found[f"p{percent}_{name}_ms"] = float(np.percentile(values_ms, percent))
    return found


REQUESTS_FILE = RequestsFile(
    "vllm_bench",
    "vllm_bench.json",
    lambda result: json.dumps(vllm_bench(result, "simulated"), allow_nan=False),
)
