"""The smallest scenario of BLIS: one request, and what BLIS reports of it."""

from __future__ import annotations

import json

# One request on an idle fleet: 1000 + 2 · 100 µs to enter, 5000 + 10 · 100 to prefill, 5003 to
# decode the second token; 300 to deliver each, reported, but not on the clock.
END_S = 0.012203
FIGURES_MS = {"ttft": 7.5, "e2e": 12.803, "itl": 5.303}
SCORE = 0.4 / (1 + 100 * END_S) + 0.3 / (1 + 7.5) + 0.3 / (1 + 12.803)
SCENARIO: dict[str, str] = {
    "trace.csv": (
        "request_id,client_id,tenant_id,slo_class,prefix_group,prefix_length,input_tokens,"
        "output_tokens,arrival_time_us\n0,c,t0,standard,,0,100,2,0\n"
    ),
    "requests.csv": (
        "request_id,ttft_us,e2e_us,scheduling_delay_us,itl_mean_us,instance\n"
        "0,7500,12803,1200,5303,instance_0\n"
    ),
    "summary.json": json.dumps(
        {
            "instances": 1,
            "total_kv_blocks": 100,
            "alpha": [1000, 2, 300],
            "beta": [5000, 10, 3],
            "options": {},
            "aggregate": {
                "completed_requests": 1,
                "injected_requests": 1,
                "total_input_tokens": 100,
                "total_output_tokens": 1,
                "vllm_estimated_duration_s": END_S,
                "responses_per_sec": 1 / END_S,
                "tokens_per_sec": 1 / END_S,
                "scheduling_delay_p99_ms": 1.2,
                **{
                    f"{name}_{statistic}_ms": value
                    for name, value in FIGURES_MS.items()
                    for statistic in ("mean", "p90", "p95", "p99")
                },
                **dict.fromkeys(
                    (
                        "preemption_count",
                        "still_queued",
                        "still_running",
                        "dropped_unservable",
                        "length_capped_requests",
                        "timed_out_requests",
                    ),
                    0,
                ),
            },
            "text": [
                f"Score: {SCORE:.6f}",
                "Total Decisions: 1",
                "Admitted: 1",
                "Rejected: 0",
                "Target Distribution:",
                "instance_0: 1",
                "Mean Regret: 0.000000",
                "Max Regret: 0.000000",
            ],
        }
    ),
}
