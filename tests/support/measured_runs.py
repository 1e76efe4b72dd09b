"""Measured runs that are simulated: the server behind them is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from spillway import Simulation, instance, simulate
from spillway import trace as recorded
from spillway.data.recording import Recording, ServerFacts

FACTS = ServerFacts(
    model="test", engine="vllm", engine_version="0.20.0", max_num_seqs=64,
    max_num_batched_tokens=2048, block_size_tokens=16, num_kv_blocks=20_000,
)  # fmt: skip

LATENCY = instance.Roofline(
    alpha0_us=4000, constant_us=2000, weights_us=12_000, token_us=60, norm=4, decode_us=40,
    decode_context_us=0.08, prefill_context_us=0.003,
)  # fmt: skip


def server(latency: instance.Roofline = LATENCY, **settings: Any) -> instance.InstanceGroup:
    return instance.InstanceGroup(
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        max_model_len=0,
        num_kv_blocks=20_000,
        kv_cache={"reserve_full_prompt": True},
        latency=latency,
        async_scheduling=True,
        **settings,
    )


def measured_run(
    name: str,
    rate_per_s: float,
    input_tokens: tuple[int, int],
    output_tokens: tuple[int, int],
    *,
    requests: int = 400,
    seed: int = 0,
    group: instance.InstanceGroup | None = None,
    facts: ServerFacts = FACTS,
    max_in_flight: int | None = None,
) -> Recording:
    """A run of Poisson arrivals with lengths drawn from two ranges, on a known server."""
    rng = np.random.default_rng(seed)
    trace = recorded(
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, requests)),
        input_tokens=rng.integers(*input_tokens, requests, endpoint=True),
        output_tokens=rng.integers(*output_tokens, requests, endpoint=True),
    )
    if max_in_flight is not None:
        trace = trace.replace(max_in_flight=max_in_flight, open_loop_requests=requests)
    result = simulate(Simulation(workload=trace, instances=[group or server()]))
    columns = result.requests
    send_s = np.array(columns["arrival_s"])
    return Recording(
        name=name,
        server=facts,
        send_s=send_s - send_s[0],
        input_tokens=np.array(columns["input_tokens"], dtype=np.int64),
        output_tokens=np.array(columns["output_tokens"], dtype=np.int64),
        ttft_s=np.array(columns["ttft_s"]),
        e2e_s=np.array(columns["e2e_s"]),
        failed=np.zeros(requests, dtype=bool),
        failure_s=np.full(requests, np.nan),
        client_max_in_flight=max_in_flight,
        source=f"{name}.csv",
    )


def three_runs(**settings: Any) -> list[Recording]:
    """Of different loads and lengths: enough to identify the coefficients."""
    return [
        measured_run("slow", 1.5, (100, 900), (20, 200), seed=1, **settings),
        measured_run("short", 8, (20, 200), (20, 120), seed=2, **settings),
        measured_run("long", 3, (800, 3000), (10, 120), seed=3, **settings),
    ]
