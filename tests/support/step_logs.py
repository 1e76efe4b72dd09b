"""Logs of the steps of a simulated server, whose step times are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from support.measured_runs import FACTS, LATENCY, server

from spillway import Simulation, simulate
from spillway import trace as recorded
from spillway._core import numerics
from spillway.data.recording import ServerFacts, StepLog

if TYPE_CHECKING:
    from spillway import instance

TOKENS = 20_000 * 16
"""What the KV memory of the server holds."""


def step_log(
    name: str = "steps",
    rate_per_s: float = 7,
    *,
    requests: int = 300,
    seed: int = 0,
    noise: float = 0.0,
    latency: instance.Roofline = LATENCY,
    facts: ServerFacts = FACTS,
) -> StepLog:
    """Steps with the batches that a simulated run passes through.

    Every 60 ms the batch decodes; at every arrival it also computes the prompt. The durations are
    those of the core for these batches, with relative `noise`.
    """
    rng = np.random.default_rng(seed)
    # A second half with longer prompts and fewer requests sets context and requests apart.
    slow = np.arange(requests) >= requests // 2
    gaps_s = rng.exponential(1 / rate_per_s, requests) * np.where(slow, 3, 1)
    prompts = np.where(slow, rng.integers(800, 2000, requests), rng.integers(20, 300, requests))
    trace = recorded(
        arrival_s=np.cumsum(gaps_s),
        input_tokens=prompts,
        output_tokens=rng.integers(20, 200, requests),
    )
    result = simulate(
        Simulation(workload=trace, instances=[server(latency)], metrics={"timeline_step_s": 0.06})
    )
    timeline = result.timeline
    at = np.searchsorted(timeline["time_s"], result.requests["arrival_s"])
    rows = np.concatenate([np.arange(len(timeline["time_s"])), at[at < len(timeline["time_s"])]])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    chunks = np.zeros(len(rows), dtype=np.int64)
    chunks[order >= len(timeline["time_s"])] = 1
    chunk_tokens = np.zeros(len(rows), dtype=np.int64)
    chunk_tokens[chunks > 0] = prompts[at < len(timeline["time_s"])]
    decodes = timeline["running"][rows]
    context = np.rint(timeline["kv_utilization"][rows] * TOKENS).astype(np.int64)
    context = np.where(decodes > 0, context, 0)
    batches = np.stack(
        [chunk_tokens, decodes, context, 0.5 * chunk_tokens**2.0, chunks], axis=1
    ).astype(float)
    works = chunk_tokens + decodes > 0
    coefficients = [
        latency.constant_us, latency.weights_us, latency.token_us, latency.decode_us,
        latency.decode_context_us, latency.prefill_context_us, latency.chunk_us,
    ]  # fmt: skip
    norm = np.inf if latency.norm is None else latency.norm
    step_s = numerics.step_times_us(batches, coefficients, norm) / 1e6
    step_s = step_s * (1 + noise * rng.standard_normal(len(step_s)))
    return StepLog(
        name=name,
        server=facts,
        prefill_requests=chunks[works],
        prefill_tokens=chunk_tokens[works],
        decode_requests=decodes[works],
        decode_tokens=decodes[works],
        step_s=step_s[works],
        context_tokens=(context + chunk_tokens)[works],
        source=f"{name}.log",
    )


def text_of(log: StepLog) -> str:
    """The log as vLLM writes it."""
    assert log.context_tokens is not None
    lines = (
        f"INFO [loggers.py:182] Engine 000: Iteration({i}): "
        f"{log.prefill_requests[i]} context requests, {log.prefill_tokens[i]} context tokens, "
        f"{log.decode_requests[i]} generation requests, "
        f"{log.decode_tokens[i]} generation tokens, "
        f"iteration elapsed time: {1e3 * log.step_s[i]:.6f} ms, "
        f"GPU KV cache usage: {100 * log.context_tokens[i] / TOKENS:.6f}%\n"
        for i in range(log.num_steps)
    )
    return f"INFO [kv_cache_utils.py:1319] GPU KV cache size: {TOKENS:,} tokens\n" + "".join(lines)
