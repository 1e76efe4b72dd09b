"""BLIS: the servers and the scheduling of its strategy experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._core.instance import ClassPriority, PriorityFcfs
from spillway.config import profiles
from spillway.presets.preset import Preset

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ITERATION_14_PRIORITIES", "PRESETS", "iteration_14", "llama_8b"]


ITERATION_14_PRIORITIES = {
    "critical": 10,
    "standard": 5,
    "sheddable": 3,
    "batch": 1,
    "background": 0,
}
"""Priorities of the classes in the queues of BLIS's strategy experiments, up to iteration 14."""


def iteration_14(*, age_weight_per_s: float = 10, preemption_margin: int | None = None) -> Preset:
    """The instances' queues of BLIS's strategy experiments: by class and age.

    A sheddable request passes a fresh critical one after 0.7 s. The classes keep their own
    priorities in the gateway.

    Parameters
    ----------
    age_weight_per_s
        Priority that a request gains per s of age: 0, or 1e-6 to 1e6. The notes of the experiments
        say 1e-5 per us, which is the default of 10 per s; their code says a tenth of that.
    preemption_margin
        Priority, 1 to 2000, by which a waiting request must exceed a running one to preempt it, at
        most 3 in one step; None: never. Iteration 3 has 5.
    """
    return Preset(
        name="blis-iteration-14",
        kind="scheduler",
        doc="Priority by class and age.",
        source="BLIS, strategy experiments up to iteration 14",
        settings={
            "instances[].scheduler": PriorityFcfs(
                priority="slo_class",
                class_priorities=[
                    ClassPriority(name=name, priority=value)
                    for name, value in ITERATION_14_PRIORITIES.items()
                ],
                age_weight_per_s=age_weight_per_s,
                preemption_margin=preemption_margin,
                max_preemptions_per_step=3,
            )
        },
    )


def llama_8b() -> Preset:
    """The servers of BLIS's strategy experiments.

    Context costs nothing, and the KV memory is more than two H100 have: `instance.Server` describes
    the same hardware as vLLM would start it.
    """
    server = profiles.BLIS_SERVER
    return Preset(
        name="blis-llama-3.1-8b-h100-tp2",
        kind="server",
        doc="Llama 3.1 8B on two H100 as BLIS describes it.",
        source="BLIS, strategy experiments; coefficients trained in 2025",
        settings={
            f"instances[].{name}": getattr(server, name)
            for name in (
                "latency",
                "num_kv_blocks",
                "max_num_seqs",
                "max_num_batched_tokens",
                "max_model_len",
                "async_scheduling",
            )
        }
        | {"instances[].kv_cache.reserve_full_prompt": server.kv_cache.reserve_full_prompt},
    )


PRESETS: tuple[Callable[..., Preset], ...] = (iteration_14, llama_8b)
"""The functions of the presets."""
