"""How much KV memory an engine finds beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.servers.model import WEIGHT_BYTES

if TYPE_CHECKING:
    from spillway.servers.accelerator import Accelerator
    from spillway.servers.engine import Engine
    from spillway.servers.model import Model, Parameters


ELEMENT_BYTES = {"bf16": 2.0, "fp8": 1.0}
"""Bytes per element of the KV cache."""

# Bytes. Non-torch memory of a process: 0.1 to 0.4 GiB in vLLM's start-up logs. NCCL: measured, in
# aiconfigurator-core 0.12 (Apache-2.0). CUDA graphs: the estimate in the start-up log of 0.27.
_PROCESS = 0.3e9
_NCCL = {1: 0.0, 2: 0.36e9}
_NCCL_MANY = 0.41e9
_GRAPHS = 0.39e9
# Bytes per logit while sampling: logits in two types, sorted values with their indices,
# probabilities and their sums.
_SAMPLING_BYTES = 28
_ACTIVATION_BYTES = 2
_HIDDEN_STATES = 4  # residual, input, projection, output


@dataclass(frozen=True)
class Layout:
    """How a model is spread over accelerators.

    Attributes
    ----------
    tp, dp, pp : int
        Tensor-, data- and pipeline-parallel sizes.
    has_expert_parallel : bool
        Whether each of the accelerators that share the routed experts holds whole experts instead
        of a part of each.

    """

    tp: int = 1
    dp: int = 1
    pp: int = 1
    has_expert_parallel: bool = False

    @property
    def expert_ranks(self) -> int:
        """Accelerators of a pipeline stage, which share its routed experts.

        Data-parallel ranks share them with and without expert parallelism (vLLM's documentation,
        "Data Parallel Deployment", 0.12 and later).
        """
        return self.tp * self.dp


@dataclass(frozen=True)
class Placement:
    """A model on accelerators, with the types of its weights and of its KV cache."""

    model: Model
    accelerator: Accelerator
    layout: Layout
    dtype: str
    kv_cache_dtype: str

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV that a token of context takes on one accelerator without a pipeline."""
        element_bytes = ELEMENT_BYTES[self.kv_cache_dtype]
        return self.model.kv_bytes_per_token(tp=self.layout.tp, element_bytes=element_bytes)

    @property
    def kv_bytes_of_a_token(self) -> int:
        """Bytes of KV of a token on all accelerators together, without copies."""
        element_bytes = ELEMENT_BYTES[self.kv_cache_dtype]
        return round(self.model.kv_bytes_per_token(element_bytes=element_bytes))


@dataclass(frozen=True)
class Memory:
    """Bytes of one accelerator.

    Attributes
    ----------
    budget, weights, reserve : float
        What the engine may take; of the weights; of activations, graphs and libraries.
    kv_bytes_per_token : float

    """

    budget: float
    weights: float
    reserve: float
    kv_bytes_per_token: float

    @property
    def kv(self) -> float:
        """What is left for KV; negative if the weights do not fit."""
        return self.budget - self.weights - self.reserve

    def blocks(self, block_size_tokens: int) -> int:
        """Number of KV blocks of one rank."""
        return max(0, int(self.kv / (self.kv_bytes_per_token * block_size_tokens)))


def stored_bytes(count: Parameters, dtype: str) -> tuple[float, float, float]:
    """Bytes of what every step reads, of the routed experts, and of the embedding.

    Embedding, output head and gates stay in bf16. Of mxfp4 weights so does attention.
    """
    each = WEIGHT_BYTES[dtype]
    attention = WEIGHT_BYTES["bf16"] if dtype == "mxfp4" else each
    unquantized = WEIGHT_BYTES["bf16"] * (count.head + count.router)
    shared = attention * count.attention + each * count.dense + unquantized
    embedding = 0.0 if count.is_tied else WEIGHT_BYTES["bf16"] * count.embedding
    return shared, each * count.experts, embedding


def memory_of(
    placement: Placement, engine: Engine, utilization: float, batch_limits: tuple[int, int]
) -> Memory:
    """The memory of one accelerator.

    The reserve is that of vLLM's memory profile: the larger of a step with the maximum number of
    tokens and of sampling for the maximum number of sequences, with the libraries of the process.
    Of a pipeline, it is the accelerator with the most weights: layers are spread evenly, the first
    stage has the embedding, the last one the output head.
    """
    model, layout = placement.model, placement.layout
    max_num_seqs, max_num_batched_tokens = batch_limits
    shared, experts, embedding = stored_bytes(model.parameters, placement.dtype)
    head = WEIGHT_BYTES["bf16"] * model.parameters.head
    ends = head + embedding if layout.pp == 1 else max(head, embedding)
    width = model.intermediate_size
    if model.is_mixture:
        width = model.num_experts_per_tok * model.moe_intermediate_size
    per_token = _HIDDEN_STATES * model.hidden_size + 3 * width / layout.tp
    step = _ACTIVATION_BYTES * per_token * max_num_batched_tokens
    sampling = _SAMPLING_BYTES * model.vocab_size * max_num_seqs
    return Memory(
        budget=utilization * placement.accelerator.memory_bytes,
        weights=((shared - head) / layout.pp + ends) / layout.tp
        + experts / layout.pp / layout.expert_ranks,
        reserve=max(step, sampling)
        + _PROCESS
        + _NCCL.get(layout.tp * layout.dp * layout.pp, _NCCL_MANY)
        + (_GRAPHS if engine.counts_graphs else 0.0),
        kv_bytes_per_token=placement.kv_bytes_per_token / layout.pp,
    )
