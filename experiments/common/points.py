"""Mean latencies of real servers at fixed numbers of users, and their simulation.

The protocol is that of the scripts which InferenceMAX publishes for these measurements: all users
start at once and send 10 requests each, lengths are uniform between 0.8 and 1 times the nominal
ones, no prefix is cached; `_flags` states what the scripts set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import Simulation, instance, workload
from spillway.servers import Server, physics
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.data.recording import LatencyPoints

REQUESTS_PER_USER = 10
LENGTH_RATIO = 0.8
MOST_USERS = 512

_DTYPES = {"int4_wo": "int4", "": None}
_BATCHED_TOKENS = 8192
_MANY_SEQS = 512
_DEFAULT_ENGINE = "vllm-0.19"


@dataclass(frozen=True, eq=False)
class Measured:
    """Points of one server and pair of lengths: means by number of users."""

    group: LatencyPoints
    users: np.ndarray
    ttft_s: np.ndarray
    itl_s: np.ndarray

    @classmethod
    def of(cls, group: LatencyPoints) -> Measured:
        """The points with up to `MOST_USERS` users."""
        users = np.unique(group.concurrency[group.concurrency <= MOST_USERS])
        ttft_s, itl_s = (
            np.array([float(values[group.concurrency == user].mean()) for user in users])
            for values in (group.ttft_s, group.itl_s)
        )
        return cls(group, users, ttft_s, itl_s)

    @property
    def name(self) -> str:
        """Model, accelerator and engine."""
        server = self.group.server
        dtype = self.group.group.get("gemm_quant_mode") or "bf16"
        where = f"{server.gpu} TP{server.tensor_parallel_size}"
        return f"{server.model} {dtype} {where} {server.engine_version or 'version not stated'}"

    def simulation(self, users: int, server: instance.InstanceGroup) -> Simulation:
        """The protocol of the measurements: all users start at once, with random lengths."""
        client = workload.Client(
            arrivals=workload.ClosedLoop(users=users),
            num_requests=REQUESTS_PER_USER * users,
            input_tokens=_lengths(self.group.input_tokens),
            output_tokens=_lengths(self.group.output_tokens),
        )
        return Simulation(workload=workload.Synthetic(clients=[client]), instances=[server])


def server_of(group: LatencyPoints, users: int) -> Server:
    """The server of the catalog; ConfigError if the catalog lacks its model or accelerator."""
    facts, columns = group.server, group.group
    model, gpu = facts.model or "", facts.gpu or ""
    dtype = columns.get("moe_quant_mode") or columns.get("gemm_quant_mode") or ""
    dtype = _DTYPES.get(dtype, dtype)
    if "gpt-oss" in model:
        dtype = "mxfp4"  # the only type of its published weights
    version = (facts.engine_version or "").split(".")
    is_known = len(version) >= 2 and all(part.isdigit() for part in version[:2])
    return Server(
        model=model,
        gpu=gpu,
        tp=facts.tensor_parallel_size or 1,
        dp=facts.data_parallel_size or 1,
        enable_expert_parallel=int(columns.get("moe_ep_size") or 1) > 1,
        dtype=dtype,
        engine=f"vllm-{version[0]}.{version[1]}" if is_known else _DEFAULT_ENGINE,
        max_num_batched_tokens=_BATCHED_TOKENS,
        max_model_len=group.input_tokens + group.output_tokens + 200,
        **_flags(model, gpu, users),
    )


def _flags(model: str, gpu: str, users: int) -> dict[str, Any]:
    is_hopper = gpu.startswith(("h100", "h200"))
    if "Llama" in model or "gpt-oss" in model:
        has_fp8_kv = not is_hopper or ("Llama" in model and gpu.startswith("h200"))
        return {
            "gpu_memory_utilization": 0.9,
            "kv_cache_dtype": "fp8" if has_fp8_kv else "bf16",
            "max_num_seqs": users if is_hopper else _MANY_SEQS,
        }
    if "MiniMax" in model or "Kimi" in model:
        return {"gpu_memory_utilization": 0.95, "max_num_seqs": _MANY_SEQS}
    return {"gpu_memory_utilization": 0.9, "max_num_seqs": _MANY_SEQS}


class Points:
    """Residuals of TPOT (weight 2) and TTFT (weight 1) at some points of several servers.

    `chosen`: the groups with the positions of their points. `efficiencies`: those of a vector.
    """

    def __init__(
        self,
        chosen: Sequence[tuple[Measured, Sequence[int]]],
        efficiencies: Callable[[np.ndarray], physics.Efficiencies] = physics.Efficiencies.from_logs,
    ) -> None:
        self._chosen = [(measured, list(where)) for measured, where in chosen]
        self._servers = [
            [server_of(measured.group, int(measured.users[i])) for i in where]
            for measured, where in self._chosen
        ]
        self._efficiencies = efficiencies

    def residuals(self, thetas: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One row of residuals per point."""
        ttft_s = np.concatenate([point.ttft_s[where] for point, where in self._chosen])
        itl_s = np.concatenate([point.itl_s[where] for point, where in self._chosen])
        return [
            np.stack([2 * np.log(itl / itl_s), np.log(ttft / ttft_s)], axis=1)
            for ttft, itl in self.predicted(thetas)
        ]

    def predicted(self, thetas: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean TTFT and TPOT at the points in s, for each of some vectors."""
        simulations = [
            measured.simulation(int(measured.users[i]), server.group_with(efficiencies))
            for efficiencies in map(self._efficiencies, thetas)
            for (measured, where), servers in zip(self._chosen, self._servers, strict=True)
            for i, server in zip(where, servers, strict=True)
        ]
        summaries = [results[0].summary() for results in run_many(simulations)]
        values = np.array(
            [[summary["mean_ttft_ms"], summary["mean_tpot_ms"]] for summary in summaries],
            dtype=float,
        )
        shaped = values.reshape(len(thetas), -1, 2) / 1e3
        return [(figures[:, 0], figures[:, 1]) for figures in shaped]

    def errors_percent(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Signed errors of TPOT and TTFT at the points."""
        ((tpot, ttft),) = self.many_errors_percent([theta])
        return tpot, ttft

    def many_errors_percent(self, thetas: Sequence[np.ndarray]) -> np.ndarray:
        """Signed errors for each of some vectors: vectors x (TPOT, TTFT) x points."""
        ttft_s = np.concatenate([point.ttft_s[where] for point, where in self._chosen])
        itl_s = np.concatenate([point.itl_s[where] for point, where in self._chosen])
        return np.array(
            [
                [100 * (itl / itl_s - 1), 100 * (ttft / ttft_s - 1)]
                for ttft, itl in self.predicted(thetas)
            ]
        )


def _lengths(nominal: int) -> workload.Uniform:
    return workload.Uniform(min_tokens=round(LENGTH_RATIO * nominal), max_tokens=nominal)
