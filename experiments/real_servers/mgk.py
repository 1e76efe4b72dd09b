"""A run of requests as an M/G/k queue whose service times come from a step time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spillway import instance
    from spillway.calibration.replay import Replay

_ROUNDS = 30
_BLOCK_TOKENS = 16


def step_s(
    latency: instance.Roofline, prefill: float, decodes: float, context: float, pairs: float
) -> float:
    """The step time at mean batch aggregates, in s; `context`: summed over the decodes."""
    tokens = prefill + decodes
    weights = latency.weights_us + latency.expert_weights_us * (
        1 - (1 - latency.expert_share) ** tokens
    )
    if latency.norm is None:
        matrices = max(weights, latency.token_us * tokens)
    else:
        matrices = float(np.linalg.norm([weights, latency.token_us * tokens], ord=latency.norm))
    us = latency.constant_us + matrices + latency.decode_us * decodes
    us += latency.decode_context_us * context + latency.prefill_context_us * pairs
    return us / 1e6


def latencies(replay: Replay, server: instance.InstanceGroup) -> tuple[np.ndarray, np.ndarray]:
    """TTFT and E2E latency of every request, in s.

    k servers (`max_num_seqs`), first come first served, with the recorded arrivals. The service of
    a request is one step with its prompt beside the mean number of decodes, and then a step per
    token with the mean batch; both means are those that follow from these service times.
    """
    run, latency = replay.recording, server.latency
    inputs = replay.input_tokens.astype(float)
    outputs = replay.output_tokens.astype(float)
    computed = inputs if replay.period is None else np.minimum(inputs, _BLOCK_TOKENS)
    span_s = float(run.send_s[-1] - run.send_s[0]) or 1.0
    context = float(np.mean(inputs + outputs / 2))
    running, per_token = 1.0, step_s(latency, 0, 1, context, 0)
    first = np.zeros(len(inputs))
    for _ in range(_ROUNDS):
        room = max(1.0, server.max_num_batched_tokens - running)
        prefill = min(float(computed.sum()) / span_s * per_token, room)
        per_token = step_s(latency, prefill, running, running * context, prefill * context / 2)
        first = np.array(
            [
                step_s(latency, own, running, running * context, own * whole / 2)
                for own, whole in zip(computed, inputs, strict=True)
            ]
        )
        busy = float(np.sum(first + (outputs - 1) * per_token)) / span_s
        running = 0.5 * (running + min(busy, server.max_num_seqs))
    service = first + (outputs - 1) * per_token
    free: list[float] = [float("-inf")] * server.max_num_seqs
    start = np.zeros(len(service))
    for i in np.argsort(run.send_s, kind="stable"):
        begin = max(float(run.send_s[i]), heapq.heappop(free))
        start[i] = begin
        heapq.heappush(free, begin + float(service[i]))
    entry_s = latency.alpha0_us / 1e6
    ttft_s = start - run.send_s + entry_s + first
    return ttft_s, ttft_s + service - first
