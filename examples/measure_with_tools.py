"""Writes files as load generators, vLLM and a gateway write them, into the current folder.

The server is the simulated one of `measure_a_server.py`. Its gaps between the tokens of a request
are all alike. Figures of the tools that no reader needs are left out.
"""

import csv
import json
from pathlib import Path

import numpy as np
from measure_a_server import GROUP, LATENCY

import spillway
from spillway import Simulation, simulate, workload

BEGIN_S = 1_790_000_000.0  # when each run begins, since 1970
BUCKETS_S = {  # of vLLM
    "time_to_first_token": [
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
    ],
    "inter_token_latency": [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1],
    "e2e_request_latency": [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60],
}  # fmt: skip
HEADER = """\
trace_version: 2
time_unit: microseconds
mode: real
warm_up_requests: 0
server: {type: vllm, model: example-8b, max_num_seqs: 64, block_size: 16}
"""


class Run:
    """A run of a benchmark: what its client measured."""

    def __init__(self, requests_per_s=None, users=None):
        client = workload.Client(
            input_tokens=workload.Uniform(min_tokens=100, max_tokens=900),
            output_tokens=workload.Uniform(min_tokens=20, max_tokens=200),
        )
        requests = workload.Synthetic(
            requests_per_s=requests_per_s or 100, num_requests=300, clients=[client]
        )
        if users is not None:  # each sends when it has its answer
            sent = simulate(Simulation(workload=requests)).requests
            lengths = {name: sent[name] for name in ("input_tokens", "output_tokens")}
            requests = spillway.trace(arrival_s=np.zeros(300), **lengths)
            requests = requests.replace(max_in_flight=users)
        simulation = Simulation(
            workload=requests, instances=[GROUP], metrics={"timeline_step_s": 0.05}
        )
        self.rate, self.users = requests_per_s, users
        result = simulate(simulation, seed=0)
        self.timeline = result.timeline
        columns = result.requests
        self.send_s, self.prompt, self.output, self.ttft_s, self.e2e_s = (
            np.array(columns[name]).tolist()
            for name in ("arrival_s", "input_tokens", "output_tokens", "ttft_s", "e2e_s")
        )
        self.gaps_s = [
            [(e2e_s - ttft_s) / max(tokens - 1, 1)] * (tokens - 1)
            for ttft_s, e2e_s, tokens in zip(self.ttft_s, self.e2e_s, self.output, strict=True)
        ]
        self.end_s = [at + e2e_s for at, e2e_s in zip(self.send_s, self.e2e_s, strict=True)]
        self.duration_s = max(self.end_s) - self.send_s[0]

    def requests(self):
        """When each was sent, its lengths, its TTFT and its E2E latency."""
        return zip(self.send_s, self.prompt, self.output, self.ttft_s, self.e2e_s, strict=True)

    def token_times_s(self, row):
        """When the tokens of a request arrived."""
        return np.cumsum([self.send_s[row] + self.ttft_s[row], *self.gaps_s[row]]).tolist()


def mean(values):
    """The mean of numbers."""
    return float(np.mean(values))


def of_vllm_bench(run):
    """`vllm bench serve --save-result --save-detailed`."""
    lists = {
        "input_lens": run.prompt, "output_lens": run.output, "start_times": run.send_s,
        "ttfts": [round(ttft_s, 6) for ttft_s in run.ttft_s],
        "itls": [[round(gap_s, 6) for gap_s in gaps_s] for gaps_s in run.gaps_s],
        "errors": [""] * 300,
    }  # fmt: skip
    return {
        "date": "20261101-101500", "backend": "openai", "model_id": "example-8b",
        "tokenizer_id": "example-8b", "num_prompts": 300, "request_rate": run.rate,
        "burstiness": 1.0, "max_concurrency": None, "duration": run.duration_s, "completed": 300,
        "failed": 0, "total_input_tokens": sum(run.prompt), "total_output_tokens": sum(run.output),
        "request_throughput": 300 / run.duration_s, "mean_ttft_ms": 1e3 * mean(run.ttft_s), **lists,
    }  # fmt: skip


def of_sglang(run):
    """`sglang.bench_serving --output-details`, which does not state when requests were sent."""
    found = of_vllm_bench(run)
    names = ("duration", "completed", "total_input_tokens", "total_output_tokens", "mean_ttft_ms",
             "input_lens", "output_lens", "ttfts", "itls", "errors")  # fmt: skip
    return {
        "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
        "max_concurrency": run.users, **{name: found[name] for name in names},
    }  # fmt: skip


def of_aiperf(run):
    """`profile_export.jsonl` and the summary beside it."""
    lines = []
    for row, (at, prompt, output, ttft_s, e2e_s) in enumerate(run.requests()):
        begin_ns = round(1e9 * (BEGIN_S + at))
        values = {
            "input_sequence_length": (prompt, "tokens"),
            "output_sequence_length": (output, "tokens"),
            "time_to_first_token": (1e3 * ttft_s, "ms"),
            "request_latency": (1e3 * e2e_s, "ms"),
        }
        metadata = {
            "session_num": row, "conversation_id": f"session_{row:06}", "turn_index": 0,
            "request_start_ns": begin_ns, "request_end_ns": begin_ns + round(1e9 * e2e_s),
            "benchmark_phase": "profiling", "was_cancelled": False,
        }  # fmt: skip
        metrics = {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}
        lines.append(json.dumps({"metadata": metadata, "metrics": metrics}))
    summary = {
        "schema_version": "1.4", "aiperf_version": "0.13.0",
        "request_count": {"unit": "requests", "avg": 300.0},
        "time_to_first_token": {"unit": "ms", "avg": 1e3 * mean(run.ttft_s)},
        "request_latency": {"unit": "ms", "avg": 1e3 * mean(run.e2e_s)},
        "input_config": {
            "models": {"items": [{"name": "example-8b"}]},
            "phases": [{"name": "profiling", "type": "poisson", "requests": 300, "rate": run.rate}],
        },
    }  # fmt: skip
    return "\n".join(lines) + "\n", summary


def of_guidellm(runs):
    """`benchmarks.json`, a benchmark per rate."""
    benchmarks = []
    for run in runs:
        successful = [
            {
                "request_start_time": BEGIN_S + at, "request_end_time": BEGIN_S + at + e2e_s,
                "request_latency": e2e_s, "prompt_tokens": prompt, "output_tokens": output,
                "time_to_first_token_ms": 1e3 * ttft_s,
            }
            for at, prompt, output, ttft_s, e2e_s in run.requests()
        ]  # fmt: skip
        counts = {"successful": 300, "errored": 0, "incomplete": 0, "total": 300}
        benchmarks.append(
            {
                "type_": "generative_benchmark",
                "config": {"strategy": {"type_": "poisson", "rate": run.rate}},
                "metrics": {
                    "request_totals": counts,
                    "time_to_first_token_ms": {"successful": {"mean": 1e3 * mean(run.ttft_s)}},
                    "request_latency": {"successful": {"mean": mean(run.e2e_s)}},
                },
                "requests": {"successful": successful, "errored": [], "incomplete": []},
            }
        )
    spec = {"backend": {"kind": "openai_http", "model": "example-8b"}}
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "config": {"spec": spec},
        "benchmarks": benchmarks,
    }


def of_inference_perf(run):
    """The requests of the report, its summary, and that of its only stage."""
    requests = [
        {
            "start_time": at, "end_time": at + e2e_s, "error": None,
            "info": {
                "request_metrics": {"text": {"input_tokens": prompt}},
                "response_metrics": {
                    "output_tokens": output, "output_token_times": run.token_times_s(row),
                },
                "input_tokens": prompt,
            },
        }
        for row, (at, prompt, output, _, e2e_s) in enumerate(run.requests())
    ]  # fmt: skip
    latency = {
        "time_to_first_token": {"mean": mean(run.ttft_s)},
        "request_latency": {"mean": mean(run.e2e_s)},
    }
    summary = {"successes": {"count": 300, "latency": latency}, "failures": {"count": 0}}
    return (
        requests,
        summary,
        {"load_summary": {"count": 300, "requested_rate": run.rate}, **summary},
    )


def of_blis(run):
    """The rows of `trace.csv`."""
    for row, (at, prompt, output, ttft_s, e2e_s) in enumerate(run.requests()):
        begin_us = round(1e6 * (BEGIN_S + at))
        yield {
            "request_id": row, "client_id": "c", "tenant_id": "", "slo_class": "standard",
            "prefix_group": "", "prefix_length": 0, "streaming": "true", "input_tokens": prompt,
            "output_tokens": output, "server_input_tokens": prompt,
            "arrival_time_us": round(1e6 * at), "send_time_us": begin_us,
            "first_chunk_time_us": begin_us + round(1e6 * ttft_s),
            "last_chunk_time_us": begin_us + round(1e6 * e2e_s),
            "num_chunks": output, "status": "ok", "finish_reason": "length",
        }  # fmt: skip


def of_gateway(run):
    """A log with names of its own."""
    for row, (at, prompt, output, ttft_s, e2e_s) in enumerate(run.requests()):
        yield {
            "t0": f"{at:.3f}", "prompt": prompt, "completion": output,
            "ttft_ms": f"{1e3 * ttft_s:.1f}", "total_ms": f"{1e3 * e2e_s:.1f}", "error": "",
            "api_key": f"team-{'ab'[row % 2]}",
        }  # fmt: skip


def of_step_log(run):
    """The log of `vllm serve --enable-logging-iteration-details`: the batches of some moments."""
    yield "INFO 11-01 10:14:40 [utils.py:253] vLLM API server version 0.20.0"
    arguments = {"model": "example-8b", "max_num_seqs": 64, "max_num_batched_tokens": 2048}
    yield f"INFO 11-01 10:14:40 [utils.py:260] non-default args: {arguments}"
    yield "INFO 11-01 10:15:00 [kv_cache_utils.py:1319] GPU KV cache size: 320,000 tokens"
    rng = np.random.default_rng(0)
    at = LATENCY
    columns = (run.timeline["running"].tolist(), run.timeline["kv_utilization"].tolist())
    for number, (decodes, usage) in enumerate(zip(*columns, strict=True)):
        prompt = int(rng.integers(100, 900)) if number % 6 == 0 else 0
        tokens = decodes + prompt
        if not tokens:
            continue
        read_us, computed_us = at.weights_us, at.token_us * tokens
        step_us = at.constant_us + (read_us**at.norm + computed_us**at.norm) ** (1 / at.norm)
        step_us += at.decode_us * decodes + at.decode_context_us * usage * 320_000
        step_us += at.prefill_context_us * prompt**2 / 2
        yield (
            f"INFO 11-01 10:16:00 [loggers.py:182] Engine 000: Iteration({number}): "
            f"{int(prompt > 0)} context requests, {prompt} context tokens, {decodes} generation "
            f"requests, {decodes} generation tokens, iteration elapsed time: "
            f"{step_us / 1e3:.2f} ms, GPU KV cache usage: {100 * usage:.1f}%"
        )


def of_metrics(run, *, is_late):
    """The page /metrics, before the run or after it."""
    seconds = {
        "time_to_first_token": run.ttft_s,
        "inter_token_latency": np.concatenate(run.gaps_s),
        "e2e_request_latency": run.e2e_s,
    }
    labels = 'engine="0",model_name="example-8b"'
    for name, values in seconds.items():
        counted = np.array(values if is_late else [])
        for bound in [*BUCKETS_S[name], np.inf]:
            le = "+Inf" if bound == np.inf else float(bound)
            count = float((counted <= bound).sum())
            yield f'vllm:{name}_seconds_bucket{{{labels},le="{le}"}} {count}'
        yield f"vllm:{name}_seconds_sum{{{labels}}} {counted.sum()}"
        yield f"vllm:{name}_seconds_count{{{labels}}} {float(len(counted))}"
    yield f"vllm:generation_tokens_total{{{labels}}} {float(is_late * sum(run.output))}"


def write(name, content):
    """Writes a file: text, lines, or an object as JSON."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    if not isinstance(content, str):
        is_object = isinstance(content, dict | list)
        content = json.dumps(content) if is_object else "\n".join(content)
    path.write_text(content.rstrip("\n") + "\n")
    print(f"wrote {path}")


def write_table(name, rows):
    """Writes a CSV file."""
    rows = list(rows)
    with Path(name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {name}")


def main():
    """Writes the files of every tool."""
    runs = {rate: Run(requests_per_s=rate) for rate in (1, 4, 8)}
    run = runs[4]
    for rate, measured in runs.items():
        write(f"rate{rate}.json", of_vllm_bench(measured))
    write("serve.log", of_step_log(run))
    write("early.prom", of_metrics(run, is_late=False))
    write("late.prom", of_metrics(run, is_late=True))
    export, summary = of_aiperf(run)
    write("artifacts/profile_export.jsonl", export)
    write("artifacts/profile_export_aiperf.json", summary)
    write("benchmarks.json", of_guidellm(runs.values()))
    names = ("per_request", "summary", "stage_0")
    for name, content in zip(names, of_inference_perf(run), strict=True):
        write(f"{name}_lifecycle_metrics.json", content)
    write("users16.jsonl", json.dumps(of_sglang(Run(users=16))))
    write_table("trace.csv", of_blis(run))
    write("trace.yaml", HEADER)
    write_table("gateway.csv", of_gateway(run))


if __name__ == "__main__":
    main()
