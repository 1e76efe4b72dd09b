"""What a model's architecture costs in memory and arithmetic."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error
from spillway.config.filesystem import cannot
from spillway.servers.data_files import entry, names

if TYPE_CHECKING:
    import os


WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.53125,  # a scale of 16 bits per 128 weights, and zero points
    "mxfp4": 0.53125,  # a scale of 8 bits per 32 weights
    "nvfp4": 0.5625,  # a scale of 8 bits per 16 weights
}
"""Bytes per quantized weight, with its share of the scales."""

_FILE = "models.yaml"
_DTYPES = {"bfloat16": "bf16", "float16": "bf16", "float32": "bf16"}


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters.

    Attributes
    ----------
    attention, dense : int
        Of the projections of attention; of feed-forward networks that every token passes, shared
        experts among them.
    experts : int
        Of all routed experts.
    head, embedding : int
        Of the output head and of the embedding. A model that ties them has the same matrix twice.
    router : int
        Of the gates of mixtures of experts.

    """

    attention: int
    dense: int
    experts: int
    router: int
    head: int
    embedding: int
    is_tied: bool

    @property
    def total(self) -> int:
        """All parameters that are stored."""
        head = 0 if self.is_tied else self.head
        matrices = self.attention + self.dense + self.experts + self.router
        return matrices + head + self.embedding


@dataclass(frozen=True, kw_only=True)
class Model:
    """An architecture, in the terms of a Hugging Face `config.json`.

    Attributes
    ----------
    name, repository, source, license : str
        `repository` is the name on Hugging Face.
    dtype : str
        Of the published weights: a key of `WEIGHT_BYTES`.
    num_experts, num_experts_per_tok, moe_intermediate_size : int
        Of the routed experts; 0: a dense model.
    num_dense_layers : int
        Layers without routed experts of a mixture of experts.
    shared_expert_intermediate_size : int
        Total width of the experts that every token passes.
    kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim, q_lora_rank : int
        Of multi-head latent attention; 0: plain or grouped-query attention.
    sliding_window, num_sliding_layers : int
        Tokens that a layer with sliding-window attention reads, and the number of such layers.

    """

    name: str
    repository: str = ""
    source: str = "given"
    license: str = ""
    dtype: str = "bf16"
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    num_dense_layers: int = 0
    shared_expert_intermediate_size: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0
    num_sliding_layers: int = 0

    @property
    def is_mixture(self) -> bool:
        """Whether it has routed experts."""
        return self.num_experts > 0

    @property
    def num_full_layers(self) -> int:
        """Layers whose attention reads the whole context."""
        return self.num_hidden_layers - self.num_sliding_layers

    @property
    def expert_share(self) -> float:
        """Share of the routed experts that a token uses; 1 for a dense model."""
        return self.num_experts_per_tok / self.num_experts if self.is_mixture else 1.0

    @property
    def parameters(self) -> Parameters:
        """The numbers of parameters; norms and biases are left out."""
        h, layers = self.hidden_size, self.num_hidden_layers
        moe_layers = layers - self.num_dense_layers if self.is_mixture else 0
        dense_layers = layers - moe_layers
        return Parameters(
            attention=layers * self._attention_per_layer,
            dense=3 * h * (dense_layers * self.intermediate_size
                           + moe_layers * self.shared_expert_intermediate_size),
            experts=moe_layers * self.num_experts * 3 * h * self.moe_intermediate_size,
            router=moe_layers * self.num_experts * h,
            head=self.vocab_size * h,
            embedding=self.vocab_size * h,
            is_tied=self.tie_word_embeddings,
        )  # fmt: skip

    @property
    def _attention_per_layer(self) -> int:
        h, heads = self.hidden_size, self.num_attention_heads
        if not self.kv_lora_rank:
            return h * self.head_dim * (2 * heads + 2 * self.num_key_value_heads)
        query_dim = self.qk_nope_head_dim + self.qk_rope_head_dim
        query = h * heads * query_dim
        if self.q_lora_rank:
            query = self.q_lora_rank * (h + heads * query_dim)
        compressed = h * (self.kv_lora_rank + self.qk_rope_head_dim)
        expanded = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        return query + compressed + expanded + heads * self.v_head_dim * h

    def kv_bytes_per_token(self, *, tp: int = 1, element_bytes: float = 2.0) -> float:
        """Bytes of KV that one token of context takes on one accelerator.

        Layers with a sliding window keep no more than that window, so they are left out. Ranks
        share KV heads out, one each at least; latent KV is the same on all ranks.
        """
        if self.kv_lora_rank:
            per_layer = self.kv_lora_rank + self.qk_rope_head_dim
        else:
            per_layer = 2 * math.ceil(self.num_key_value_heads / tp) * self.head_dim
        layers = self.num_full_layers or self.num_hidden_layers
        return layers * per_layer * element_bytes

    @property
    def attention_flops_per_pair(self) -> float:
        """Operations per pair of a token and one before it, of the layers with full attention."""
        if self.kv_lora_rank:
            dims = self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim
        else:
            dims = 2 * self.head_dim
        return 2.0 * self.num_full_layers * self.num_attention_heads * dims

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any] | str | os.PathLike[str], *, name: str | None = None
    ) -> Model:
        """The architecture of a `config.json` of Hugging Face: a path or its content.

        Raises ConfigError for a file that cannot be read and for a missing key.
        """
        if isinstance(config, Mapping):
            return cls(**_from_hugging_face(config, name or str(config.get("model_type", "model"))))
        path = Path(config)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise cannot("read", path, error) from error
        except (ValueError, RecursionError) as error:
            raise config_error([(str(path), "", f"must be a config.json: {error}")]) from error
        return cls(**_from_hugging_face(content, name or path.parent.name or path.stem))


def models() -> tuple[str, ...]:
    """The names of the models in the catalog."""
    return names(_FILE)


def model(name: str) -> Model:
    """The model of a name, an alias, a Hugging Face repository or the path of a `config.json`.

    Raises ConfigError with the nearest name if there is none.
    """
    if isinstance(name, str) and name.endswith(".json"):
        return Model.from_config(name)
    key, found = entry(_FILE, name, "model", also="or give the path of its config.json")
    dtype = found["dtype"]
    text = {field: found[field] for field in ("repository", "source", "license")}
    config = _normalized(found["config"])
    return Model(name=key, dtype=_DTYPES.get(dtype, dtype), **text, **config)


def _normalized(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our fields from a mapping that names them, and the number of shared experts."""
    known = {key for key in Model.__dataclass_fields__ if key in config}
    fields = {key: 0 if config[key] is None else config[key] for key in known}
    shared = config.get("num_shared_experts", 0) or 0
    if shared and not fields.get("shared_expert_intermediate_size"):
        fields["shared_expert_intermediate_size"] = shared * fields["moe_intermediate_size"]
    return fields


_RENAMED = {
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "experts_per_token", "moe_topk"),
    "num_shared_experts": ("n_shared_experts", "num_shared_experts"),
    "num_dense_layers": ("first_k_dense_replace", "num_dense_layers"),
    "shared_expert_intermediate_size": ("shared_expert_intermediate_size",),
}


def _from_hugging_face(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = config.get("text_config", config)
    required = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    if missing := [key for key in required if not isinstance(inner.get(key), int)]:
        raise config_error([(f"{name}.{missing[0]}", "", "is missing in the model's config.json")])
    fields: dict[str, Any] = {key: inner[key] for key in required}
    fields["num_key_value_heads"] = inner.get("num_key_value_heads") or fields[required[2]]
    fields["head_dim"] = inner.get("head_dim") or fields["hidden_size"] // fields[required[2]]
    fields["intermediate_size"] = inner.get("intermediate_size") or 4 * fields["hidden_size"]
    fields["max_position_embeddings"] = inner.get("max_position_embeddings") or 8192
    tied = inner.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
    fields["tie_word_embeddings"] = bool(tied)
    for ours, theirs in _RENAMED.items():
        fields[ours] = next((inner[key] for key in theirs if inner.get(key)), 0)
    if fields["num_experts"]:
        width = inner.get("moe_intermediate_size") or fields["intermediate_size"]
        fields["moe_intermediate_size"] = width
    else:
        fields["num_experts_per_tok"] = 0
    latent = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    fields |= {key: inner.get(key) or 0 for key in latent}
    layer_types = inner.get("layer_types") or []
    sliding = sum("sliding" in str(kind) for kind in layer_types)
    if sliding and inner.get("sliding_window"):
        fields |= {"sliding_window": inner["sliding_window"], "num_sliding_layers": sliding}
    quantized = config.get("quantization_config", {}).get("quant_method", "")
    dtype = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
    dtype = quantized if quantized in WEIGHT_BYTES else _DTYPES.get(dtype, dtype)
    return {
        **_normalized(fields),
        "name": name,
        "repository": str(config.get("_name_or_path", "")),
        "source": "config.json",
        "dtype": dtype if dtype in WEIGHT_BYTES else "bf16",
    }
