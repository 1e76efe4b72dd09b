"""Small instances of prefill and decode pools."""

from __future__ import annotations

from typing import Any

from spillway import instance

# A step costs 100 us + 10 us per token of a prompt + 1 us per decoding request.
LATENCY = instance.Linear(
    alpha0_us=0, alpha_input_us=0, alpha_output_us=0, beta0_us=100, beta_prefill_us=10,
    beta_decode_us=1, beta_context_us=0,
)  # fmt: skip


def group(role: str, **settings: Any) -> instance.InstanceGroup:
    defaults: dict[str, Any] = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "max_model_len": 0,
        "block_size_tokens": 4,
        "num_kv_blocks": 100,
        "kv_bytes_per_token": 1000,
        "latency": LATENCY,
    }
    return instance.InstanceGroup(role=role, **(defaults | settings))
