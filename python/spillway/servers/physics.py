"""Step times from datasheets: the roofline of matrix products, KV reads, attention, collectives."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway._core.instance import Roofline
from spillway.servers.data_files import entries
from spillway.servers.memory import ELEMENT_BYTES, stored_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.servers.memory import Placement
    from spillway.servers.model import Model


NORM = 4.0
"""Exponent of the roofline; measured accelerators are between 1.5 and 4."""

_LINK_EFFICIENCY = 0.75
_ATTENTION_DTYPE = "bf16"


@dataclass(frozen=True)
class Efficiencies:
    """What datasheets do not say; all positive.

    Attributes
    ----------
    memory, arithmetic, kv : float
        Reached share of the memory's bandwidth for weights, of the arithmetic, and of the bandwidth
        for KV.
    constant_us, layer_us, decode_us : float
        Of a step, of each layer in it, and of each decoding request: scheduling, kernels whose time
        does not shrink with the number of accelerators, sampling.
    collective_us : float
        Latency of an all-reduce.
    entry_us : float
        From the client to the engine's queue, and from the first token back.

    """

    memory: float
    arithmetic: float
    kv: float
    constant_us: float
    layer_us: float
    decode_us: float
    collective_us: float
    entry_us: float

    @property
    def logs(self) -> np.ndarray:
        """Natural logarithms, in the order of the fields."""
        return np.asarray(np.log(np.array(dataclasses.astuple(self))))

    @classmethod
    def from_logs(cls, logs: np.ndarray) -> Efficiencies:
        """The reverse of `logs`."""
        return cls(*np.exp(logs).tolist())


PRIOR = Efficiencies(
    memory=0.95,
    arithmetic=0.64,
    kv=0.85,
    constant_us=1400,
    layer_us=31,
    decode_us=37,
    collective_us=8,
    entry_us=6000,
)
"""The efficiencies of what was not measured.

The eight numbers describe runs of five models in bf16 on H100 (7B to 70B parameters, one mixture of
experts, TP 1 to 4, vLLM 0.15 and 0.23): see experiments/physics_points. Those runs share prompts,
so their efficiency of KV reads is too high; it is from the model without shared ones.
"""

WIDTHS = Efficiencies(
    memory=0.10,
    arithmetic=0.60,
    kv=0.35,
    constant_us=0.40,
    layer_us=0.40,
    decode_us=0.40,
    collective_us=0.50,
    entry_us=1.0,
)
"""Standard deviations of the logarithms of the prior."""

MIXTURE_PRIOR = Efficiencies(
    memory=0.95,
    arithmetic=0.154,
    kv=1.43,
    constant_us=1760,
    layer_us=53,
    decode_us=33,
    collective_us=10.3,
    entry_us=43_000,
)
"""The efficiencies of mixtures of many experts that were not measured.

Geometric means of the eleven fits to mixtures in experiments/physics_points. Their matrix products
are small, one per expert, so that the arithmetic is used a fourth as well as in dense models.
"""

MIXTURE_WIDTHS = Efficiencies(
    memory=0.32,
    arithmetic=0.26,
    kv=0.42,
    constant_us=0.40,
    layer_us=0.45,
    decode_us=0.87,
    collective_us=0.51,
    entry_us=0.46,
)
"""Standard deviations of the logarithms of these fits."""

_FEW_EXPERTS = 16
"""A mixture of so few experts, such as Mixtral, computes like a dense model: it was measured."""

_FILE = "efficiencies.yaml"
_REFERENCE = "h100"


@dataclass(frozen=True)
class Knowledge:
    """Efficiencies, the standard deviations of their logarithms, and where they come from."""

    efficiencies: Efficiencies
    widths: Efficiencies
    source: str


def knowledge(placement: Placement) -> Knowledge:
    """What is known about an accelerator of the catalog with models of this kind.

    One that was not measured takes the efficiencies of H100 with the widths of the prior; a kind of
    models that was not measured there, those of the prior of its kind.
    Measurements with another type of KV say nothing about the efficiency of KV reads.
    """
    accelerator, kind = placement.accelerator.name, (placement.dtype, placement.model.is_mixture)
    measured = {
        (entry["gpu"], entry["dtype"], entry["is_mixture"]): entry
        for entry in entries(_FILE).values()
    }
    entry = measured.get((accelerator, *kind))
    source = f"fitted to {entry['fitted']}" if entry else "unvalidated"
    entry = entry or measured.get((_REFERENCE, *kind))
    prior, prior_widths = prior_of(placement.model)
    if entry is None:
        return Knowledge(prior, prior_widths, source)
    found, widths = Efficiencies(**entry["efficiencies"]), Efficiencies(**entry["widths"])
    if entry["gpu"] != accelerator:
        widths, source = prior_widths, f"{source}, with the efficiencies of {_REFERENCE}"
    if entry["kv_cache_dtype"] != placement.kv_cache_dtype:
        found = dataclasses.replace(found, kv=prior.kv)
        widths = dataclasses.replace(widths, kv=prior_widths.kv)
    return Knowledge(found, widths, source)


def prior_of(model: Model) -> tuple[Efficiencies, Efficiencies]:
    """The efficiencies of models of a kind that were not measured, and their widths."""
    if model.num_experts > _FEW_EXPERTS:
        return MIXTURE_PRIOR, MIXTURE_WIDTHS
    return PRIOR, WIDTHS


def roofline(placement: Placement, efficiencies: Efficiencies) -> Roofline:
    """The step time of one rank.

    Every step reads all shared weights and the experts that its tokens use. A token costs two
    operations per parameter that it passes, and two all-reduces per layer if `tp` > 1, the latency
    of which is part of the constant. Only decoding requests, and the last token of a prompt, pass
    the output head; it counts for the decoding ones.

    Data-parallel ranks of a mixture of experts gather each other's tokens before the experts of a
    layer and scatter the results (vLLM's default, all-gather and reduce-scatter): with equal loads,
    a rank's step moves and reads what the tokens of all ranks need. A batch passes the stages of a
    pipeline one after the other, so that its step takes as long as on one stage, and the transfers
    between them.
    """
    model, accelerator, layout = placement.model, placement.accelerator, placement.layout
    count = model.parameters
    shared, experts, _ = stored_bytes(count, placement.dtype)
    bandwidth = 1e12 * accelerator.bandwidth_tb_s
    flops = accelerator.flops(placement.dtype) * efficiencies.arithmetic
    reads_s = 1 / (bandwidth * efficiencies.memory)
    passed = count.attention + count.dense + count.router + model.expert_share * count.experts
    constant_us = efficiencies.constant_us + model.num_hidden_layers * efficiencies.layer_us
    exchange_s = 0.0
    one_way = _LINK_EFFICIENCY * 1e9 * accelerator.link_gb_s / 2
    hidden_s = model.hidden_size * ELEMENT_BYTES["bf16"] / one_way
    if layout.tp > 1:
        all_reduces = 2 * model.num_hidden_layers
        constant_us += all_reduces * efficiencies.collective_us
        exchange_s = all_reduces * 2 * (layout.tp - 1) / layout.tp * hidden_s
    constant_us += (layout.pp - 1) * efficiencies.collective_us
    exchange_s += (layout.pp - 1) * hidden_s
    expert_share = model.expert_share
    if model.is_mixture and layout.dp > 1:
        collectives = 2 * (model.num_hidden_layers - model.num_dense_layers)
        constant_us += collectives * efficiencies.collective_us
        exchange_s += collectives * (layout.dp - 1) * hidden_s
        expert_share = 1 - (1 - expert_share) ** layout.dp
    attention = accelerator.flops(_ATTENTION_DTYPE) * efficiencies.arithmetic
    return Roofline(
        alpha0_us=efficiencies.entry_us,
        alpha_input_us=0.0,
        alpha_output_us=0.0,
        constant_us=constant_us,
        weights_us=1e6 * shared / layout.tp * reads_s,
        expert_weights_us=1e6 * experts / layout.expert_ranks * reads_s,
        expert_share=expert_share,
        token_us=1e6 * (2 * passed / layout.tp / flops + exchange_s),
        norm=NORM,
        decode_us=efficiencies.decode_us + 1e6 * 2 * count.head / layout.tp / flops,
        decode_context_us=1e6 * placement.kv_bytes_per_token / (bandwidth * efficiencies.kv),
        prefill_context_us=1e6 * model.attention_flops_per_pair / layout.tp / attention,
        chunk_us=0.0,
    )


def drawn(known: Knowledge, count: int, seed: int) -> Iterator[Efficiencies]:
    """Efficiencies from their uncertainty."""
    rng = np.random.default_rng(seed)
    widths = np.array(dataclasses.astuple(known.widths))
    for _ in range(count):
        yield Efficiencies.from_logs(
            known.efficiencies.logs + widths * rng.standard_normal(len(widths))
        )
