"""Which measurements are fitted and which are predicted: fixed before the first fit of this ledger.

Loads of a server are fitted at the lower or middle ones and predicted at the others. What the files
do not state of a server comes from the descriptions published beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_LMBENCH = "lmbench"
_SHAREGPT = "LMBench_sharegpt_output_{}.csv"
_LONG = "LMBench_long_input_output_{}.csv"
_LLAMA_8B: dict[str, Any] = {"max_num_batched_tokens": 1024}


@dataclass(frozen=True)
class Split:
    """The runs of one server.

    Attributes
    ----------
    name : str
    folder : str
        Below the data; a folder with `runs.json`, or with files of LMBench.
    fitted : tuple of str
        Names of runs, or of files; none: the first half of each run's requests.
    predicted : tuple of str
    kind : str
        What is hard: dense, mixture, memory not stated, conversations.
    facts : mapping
        Of the server, beyond its files.
    noise : str
        What repeated measurements differ by, where known.

    """

    name: str
    folder: str
    fitted: tuple[str, ...]
    predicted: tuple[str, ...]
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    noise: str = "not known"


def _of_rates(name: str, files: str, rates: tuple[str, str], kind: str, **facts: Any) -> Split:
    """Files of LMBench, by their rates: those fitted, and those predicted."""
    folder, _, pattern = files.rpartition("/")
    fitted, predicted = (tuple(pattern.format(rate) for rate in chosen.split()) for chosen in rates)
    return Split(name, f"{_LMBENCH}/{folder}", fitted, predicted, kind, facts)


SPLITS = (
    Split(
        "Qwen3-14B, H100, vLLM 0.23",
        "vllm_h100_qwen3_14b",
        ("sweep_rate_agg_2rps", "w7_agg6"),
        ("sweep_rate_agg_6rps", "sweep_tenants_3T_agg_6rps", "w5_agg6", "w5_agg18", "w5_agg30",
         "w7_agg18"),
        "dense",
        noise="TTFT 1.3%, E2E 0.7%",
    ),
    Split("Llama-2-7B, H100", "vllm_h100", ("llama-2-7b-tp1-codegen",),
          ("llama-2-7b-tp1-roleplay",), "dense"),
    Split("Llama-2-70B, H100 TP4", "vllm_h100", ("llama-2-70b-tp4-general",),
          ("llama-2-70b-hf-tp4-codegen",), "dense"),
    Split("CodeLlama-34B, H100 TP2", "vllm_h100", ("codellama-34b-tp2-general",),
          ("codellama-34b-tp2-roleplay",), "dense"),
    Split("Mixtral-8x7B, H100 TP2", "vllm_h100", ("mixtral-8x7b-v0-1-tp2-codegen",),
          ("mixtral-8x7b-v0-1-tp2-roleplay",), "mixture"),
    Split("Llama-3.1-8B, RTX 4090", "llmservingsim", (), ("rtx4090_llama_3_1_8b",), "dense"),
    Split("Llama-3.1-8B, RTX PRO 6000", "llmservingsim", (), ("rtxpro6000_llama_3_1_8b",), "dense"),
    Split("Qwen3-32B, RTX PRO 6000", "llmservingsim", (), ("rtxpro6000_qwen3_32b",), "dense"),
    Split("Qwen3-30B-A3B, RTX PRO 6000 DP2", "llmservingsim", (),
          ("rtxpro6000_qwen3_30b_a3b_instruct_2507",), "mixture"),
    _of_rates("Llama-3.1-70B, A100 TP2, extrapolated", f"exp-0/vllm-70b/{_SHAREGPT}",
              ("0.5 0.67 0.84", "1 1.17 1.34"), "memory not stated"),
    _of_rates("Llama-3.1-70B, A100 TP2, interpolated", f"exp-0/vllm-70b/{_SHAREGPT}",
              ("0.5 0.84 1.17", "0.67 1 1.34"), "memory not stated"),
    _of_rates("Llama-3.1-70B, A100 TP2, two replicas", f"exp-0/baseline-llm-d-70b/{_SHAREGPT}",
              ("0.5 0.84 1.17", "0.67 1 1.34"), "memory not stated", data_parallel_size=2),
    _of_rates("Llama-3.1-8B, two replicas, low rates", f"llama8B-long-input-low-qps/vllm/{_LONG}",
              ("0.1 0.5 0.9", "0.3 0.7 1.1"), "conversations", data_parallel_size=2, **_LLAMA_8B),
    _of_rates("Llama-3.1-8B, two replicas, high rates",
              f"llama8B-long-input-high-qps/vllm/{_LONG}",
              ("0.25 0.5 1.0", "0.75 1.25 1.5 1.75 2.0"), "conversations", data_parallel_size=2,
              **_LLAMA_8B),
    _of_rates("Llama-3.1-8B, one server", f"k8s-llama-3.1-8B/vllm/{_LONG}",
              ("0.1 0.3 0.7", "0.5 0.9 1.1"), "conversations", **_LLAMA_8B),
)  # fmt: skip

MIXTURES = ("openai/gpt-oss-120b", "MiniMaxAI/MiniMax-M2.5")
"""Models whose points of vLLM are fitted at low concurrency and predicted at 3 to 4 times that."""

FITTED_UP_TO = 16
"""Points at up to this many requests in flight are fitted; 4 times that is predicted."""
