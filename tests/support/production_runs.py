"""Runs of a production system whose servers are known: simulated, with a service noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import spillway
from spillway import Simulation, instance, simulate
from spillway.data.recording import Recording, ServerFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

STEP: Mapping[str, float] = {"beta0_us": 6000, "beta_prefill_us": 30, "beta_decode_us": 150}


class Lengths(NamedTuple):
    """Logarithms of medians, and their spread, of prompts and outputs."""

    prompt: tuple[float, float] = (6.2, 0.8)
    output: tuple[float, float] = (4.5, 0.5)


USUAL = Lengths()


def served_by(
    step: Mapping[str, float] = STEP, *, cv: float = 0.1, count: int = 2, **settings: Any
) -> Simulation:
    """Servers with these step times and this coefficient of variation of each step."""
    mean = instance.Linear.from_dict({"kind": "linear", "alpha0_us": 2000, **step})
    group = instance.InstanceGroup(
        count=count, latency=instance.Jittered(mean=mean, cv=cv) if cv else mean,
        max_num_seqs=128, max_num_batched_tokens=2048, max_model_len=0,
    )  # fmt: skip
    return Simulation(**({"instances": [group], "router": "least_loaded"} | settings))


def capacity_per_s(step: Mapping[str, float], lengths: Lengths, count: int = 2) -> float:
    """About the requests per second that the servers serve, with 32 requests in each batch."""
    prompt, output = (float(np.exp(mu + sigma**2 / 2)) for mu, sigma in lengths)
    decode_us = step["beta_decode_us"] + step["beta0_us"] / 32
    return count * 1e6 / (prompt * step["beta_prefill_us"] + output * decode_us)


def offered(rate_per_s: float, requests: int, seed: int, lengths: Lengths = USUAL) -> Any:
    """Poisson arrivals with lognormal lengths, as a trace."""
    rng = np.random.default_rng(seed)
    return spillway.trace(
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, requests)),
        input_tokens=np.clip(rng.lognormal(*lengths.prompt, requests), 16, 6000).astype(int),
        output_tokens=np.clip(rng.lognormal(*lengths.output, requests), 2, 800).astype(int),
    )


def recorded(simulation: Simulation, trace: Any, seed: int) -> Recording:
    """What the simulated system records of these requests, under a service seed of its own."""
    result = simulate(simulation.replace(workload=trace), 100_000 + seed)
    columns = result.requests
    send_s = np.asarray(columns["arrival_s"])
    failed = np.asarray(columns["outcome"]) != "completed"
    return Recording(
        name="production",
        server=ServerFacts(),
        send_s=send_s - send_s[0],
        input_tokens=np.asarray(columns["input_tokens"], np.int64),
        output_tokens=np.asarray(columns["output_tokens"], np.int64),
        ttft_s=np.asarray(columns["ttft_s"]),
        e2e_s=np.asarray(columns["e2e_s"]),
        failed=failed,
        failure_s=np.where(failed, columns["e2e_s"], np.nan),
        tenant=tuple(map(str, columns["tenant"])),
        source="production.csv",
        sha256=f"{seed:064x}",
    )
