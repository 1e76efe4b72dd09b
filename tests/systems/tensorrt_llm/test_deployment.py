"""Command lines of trtllm-serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import written

from spillway import ConfigError
from spillway.files.deployments import import_

if TYPE_CHECKING:
    from pathlib import Path


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    group = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "max_model_len": 16384,
        "kv_cache": {"prefix_caching": False, "generated_tokens": True},
        "async_scheduling": False,
        "speculative_decoding": {"num_drafts": 3, "method": "eagle"},
    }
    return {"instances": [group]}


OPTIONS = """\
kv_cache_config: {enable_block_reuse: false, free_gpu_memory_fraction: 0.85}
cuda_graph_config: {enable_padding: true}
max_batch_size: 96
"""


def test_trtllm_as_in_production(tmp_path: Path) -> None:
    text = (
        "trtllm-llmapi-launch trtllm-serve Qwen/Qwen3-8B --tp_size 2 --max_batch_size 48 \\\n"
        "  --max_seq_len 8192 --extra_llm_api_options /etc/options.yaml --port 8000"
    )
    files = written(tmp_path, a__sh=text, options__yaml=OPTIONS)
    found = import_(files, system="tensorrt-llm")
    (group,) = found.simulation.instances
    # The file of options overrides the flags.
    assert (group.max_num_seqs, group.max_model_len, group.block_size_tokens) == (96, 8192, 16)
    assert (group.kv_cache.prefix_caching, group.kv_cache.generated_tokens) == (False, True)
    assert {unread.field.rpartition(": ")[2] for unread in found.unread} == {
        "model",
        "tensor-parallel-size",
        "cuda-graph-config",
        "free_gpu_memory_fraction",
    }
    assert any("MAX_UTILIZATION" in note for note in found.notes)


def test_options_that_are_not_given_are_not_known(tmp_path: Path) -> None:
    text = "trtllm-serve m --config other.yaml"
    with pytest.raises(ConfigError, match=r"other\.yaml.*is not among the files"):
        import_(written(tmp_path, a__sh=text), system="tensorrt-llm")


def test_disaggregated_serving_is_refused(tmp_path: Path) -> None:
    text = "trtllm-serve disaggregated -c disagg.yaml"
    with pytest.raises(ConfigError, match="prefill and decode on workers of their own"):
        import_(written(tmp_path, a__sh=text), system="tensorrt-llm")


def drafting(folder: Path, options: str, **others: Any) -> Any:
    """The import of a server with a `speculative_config`."""
    text = "trtllm-serve m --extra_llm_api_options options.yaml"
    config = f"speculative_config: {{{options}}}\n"
    files = written(folder, a__sh=text, options__yaml=config)
    return import_(files, system="tensorrt-llm", **others)


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ("decoding_type: Eagle3, max_draft_len: 4, speculative_model: org/d", "eagle"),
        ("decoding_type: Eagle, max_draft_len: 4, speculative_model_dir: /d", "eagle"),
        ("decoding_type: MTP, num_nextn_predict_layers: 4", "eagle"),
        ("decoding_type: MTP, num_nextn_predict_layers: 4, max_draft_len: 4", "eagle"),
        ("decoding_type: NGram, max_draft_len: 4, is_public_pool: true", "ngram"),
        ("decoding_type: DraftTarget, max_draft_len: 4, speculative_model: d", "draft_model"),
    ],
)
def test_a_chain_of_drafts(tmp_path: Path, options: str, method: str) -> None:
    found = drafting(tmp_path, options)
    drafts = found.simulation.instances[0].speculative_decoding
    assert (drafts.num_drafts, drafts.method) == (4, method)
    assert any("are those of the simulation" in note for note in found.notes)
    assert [unread.field.rpartition(": ")[2] for unread in found.unread] == ["model"]


def test_options_of_drafts_that_are_not_simulated_are_listed(tmp_path: Path) -> None:
    options = "decoding_type: Eagle3, max_draft_len: 4, use_sa_spec: true, max_concurrency: 8"
    listed = {unread.field.rpartition(": ")[2] for unread in drafting(tmp_path, options).unread}
    assert listed == {"model", "use_sa_spec", "max_concurrency"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("decoding_type: PARD, max_draft_len: 4", "by PARD is not modeled"),
        ("decoding_type: AUTO", "by AUTO is not modeled"),
        ("decoding_type: Eagle3", "without max_draft_len is not modeled"),
        ("decoding_type: Eagle3, max_draft_len: 4, use_dynamic_tree: true", "as a tree"),
        ("max_draft_len: 4", "decoding_type: is missing"),
        (
            "decoding_type: MTP, max_draft_len: 4, num_nextn_predict_layers: 1",
            "num_nextn_predict_layers = 1: must be max_draft_len, 4",
        ),
    ],
)
def test_other_drafts_are_refused(tmp_path: Path, options: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        drafting(tmp_path, options)


REFUSED = {
    "a.sh": [
        ("trtllm-serve m --max_batch_size many", "must be a whole number"),
        ("trtllm-serve m --max_num_tokens 0", "must be >= 1"),
    ]
}
