"""What architectures cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spillway import ConfigError
from spillway.servers import Model, model, models

if TYPE_CHECKING:
    from pathlib import Path

LLAMA: dict[str, Any] = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def test_a_config_json_and_the_catalog_agree() -> None:
    own, known = Model.from_config(LLAMA), model("llama-3.1-8b")
    assert own.parameters == known.parameters
    assert own.kv_bytes_per_token(tp=2) == known.kv_bytes_per_token(tp=2) == 32 * 2 * 4 * 128 * 2
    assert own.dtype == known.dtype == "bf16"


def test_every_model_is_found_by_its_repository() -> None:
    for name in models():
        assert model(model(name).repository).name == name
        assert model(name.upper()).name == name


def test_parameters_are_those_of_the_layers() -> None:
    count = Model.from_config(LLAMA).parameters
    assert count.attention == 32 * 4096 * 128 * (2 * 32 + 2 * 8)
    assert count.dense == 32 * 3 * 4096 * 14336
    assert count.experts == count.router == 0
    assert count.total == count.attention + count.dense + 2 * 128256 * 4096
    tied = Model.from_config({**LLAMA, "tie_word_embeddings": True}).parameters
    assert tied.total == count.total - 128256 * 4096


def test_mixtures_share_their_experts_out() -> None:
    sparse = Model.from_config(
        {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 1000}
    )
    assert sparse.expert_share == 0.25
    assert sparse.parameters.experts == 32 * 8 * 3 * 4096 * 1000
    assert sparse.parameters.dense == 0
    sparse = Model.from_config(
        {**LLAMA, "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 500,
         "first_k_dense_replace": 2, "n_shared_experts": 1}
    )  # fmt: skip
    assert sparse.parameters.experts == 30 * 16 * 3 * 4096 * 500
    assert sparse.parameters.dense == 3 * 4096 * (2 * 14336 + 30 * 500)


def test_latent_attention_keeps_one_vector_on_every_rank() -> None:
    latent = Model.from_config(
        {**LLAMA, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
         "v_head_dim": 128, "q_lora_rank": 1536}
    )  # fmt: skip
    assert latent.kv_bytes_per_token(tp=8) == latent.kv_bytes_per_token() == 32 * 576 * 2


def test_more_ranks_than_kv_heads_repeat_them() -> None:
    llama = Model.from_config(LLAMA)
    assert llama.kv_bytes_per_token(tp=16) == llama.kv_bytes_per_token(tp=8)
    assert llama.kv_bytes_per_token(element_bytes=1) == llama.kv_bytes_per_token() / 2


def test_layers_with_a_sliding_window_keep_no_long_context() -> None:
    kinds = ["sliding_attention", "full_attention"] * 16
    sliding = Model.from_config({**LLAMA, "layer_types": kinds, "sliding_window": 128})
    assert sliding.kv_bytes_per_token() == Model.from_config(LLAMA).kv_bytes_per_token() / 2


def test_a_model_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": LLAMA, "torch_dtype": "bfloat16"}))
    assert model(str(path)).parameters == model("llama-3.1-8b").parameters
    path.write_text(json.dumps({"hidden_size": 3}))
    with pytest.raises(ConfigError, match="num_hidden_layers: is missing"):
        model(str(path))
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"must be a config\.json"):
        model(str(path))


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'llama-3"):
        model("llama-3-8b")
