"""TensorRT-LLM: the flags of `trtllm-serve`, one file per group of instances.

Flags: `flags.csv`, by hand after `tensorrt_llm/commands/serve.py` of NVIDIA/TensorRT-LLM @ 00209af
(1.2), because its wheels are not on the package index; `model`, `kv_block_size` and
`extra_engine_args` are arguments that Dynamo passes on. Fields of `--config`: `LlmArgs` of the same
commit; of its `speculative_config`: docs/source/features/speculative-decoding.md @ 04c8822. Its
defaults: 2,048 requests and 8,192 tokens in a step, blocks that are used again. With an accelerator
the steps and the memory are those of vLLM.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.engines import (
    COVERS,
    Found,
    assumed,
    by_name,
    change_groups,
    classified,
    count,
    described,
    find_answers,
    resize,
)
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.flag_table import table
from spillway.files.deployments.shares import hold_in_seats
from spillway.files.deployments.target import MODEL, Piece, Program, Target, Unread
from spillway.servers import Server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TABLE = Path(__file__).with_name("flags.csv")
_VERSIONS = ("1.2",)
_SEATS, _TOKENS = 2048, 8192
_EXPECTED = (
    "a command line of `trtllm-serve`, or its --config with max_batch_size or kv_cache_config"
)
_DISAGGREGATED = "prefill and decode on workers of their own are not modeled"
_SUBCOMMANDS = ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")
_NOT_MODELED = {
    "lora-config": "adapters of LoRA are not modeled",
    "enable-lora": "adapters of LoRA are not modeled",
    "cache-transceiver-config": _DISAGGREGATED,
    "server-role": _DISAGGREGATED,
    "disagg-cluster-uri": _DISAGGREGATED,
    "max-beam-width": "beams are not modeled",
    "context-parallel-size": "context parallelism is not modeled",
}
_IRRELEVANT = re.compile(
    r"host|port|log-level|tokenizer|custom-.*|trust-remote-code|revision|reasoning-parser|tool-parser"
    r"|otlp-.*|chat-template|num-postprocess-workers|gpus-per-node|print-iter-log|media-io-kwargs"
    r"|metadata-server-.*|served-model-name|fail-fast-.*|return-perf-metrics|enable-iter-perf-stats"
)
_CONFIG_KEYS = {"kv_cache_config", "max_batch_size", "max_num_tokens", "scheduler_config"}
_CONFIG_KEYS |= {"cuda_graph_config", "enable_attention_dp", "moe_config", "speculative_config"}
_METHODS = {
    "Eagle": "eagle",
    "Eagle3": "eagle",
    "MTP": "eagle",
    "NGram": "ngram",
    "DraftTarget": "draft_model",
}
_WRITTEN = {"eagle": "Eagle", "ngram": "NGram", "draft_model": "DraftTarget"}
_TREES = ("use_dynamic_tree", "eagle_choices")
_PROPOSAL = (
    *("speculative_model", "speculative_model_dir", "eagle3_one_model", "dynamic_tree_max_topK"),
    *("max_matching_ngram_size", "is_public_pool", "is_keep_all", "is_use_oldest"),
)


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A command line per group of instances, with its file of options."""
    files = {}
    for i, group in enumerate(settings["instances"]):
        name = f"trtllm-{i}.yaml"
        words = [f"trtllm-serve {MODEL}", f"--max_batch_size {group['max_num_seqs']}"]
        words.append(f"--max_num_tokens {group['max_num_batched_tokens']}")
        if group["max_model_len"]:
            words.append(f"--max_seq_len {group['max_model_len']}")
        words += ["--enable_chunked_prefill", f"--config {name}"]
        reuse = "true" if group["kv_cache"]["prefix_caching"] else "false"
        overlap = "false" if group["async_scheduling"] else "true"
        files[f"trtllm-{i}.sh"] = " \\\n  ".join(words) + "\n"
        files[name] = (
            "kv_cache_config:\n"
            f"  enable_block_reuse: {reuse}\n"
            f"disable_overlap_scheduler: {overlap}\n"
            f"{_drafting(group['speculative_decoding'])}"
        )
    return files


def _drafting(drafts: Mapping[str, Any]) -> str:
    """The option of drafts, in the spelling that old and new versions take; empty without."""
    if not drafts["num_drafts"]:
        return ""
    model = "" if drafts["method"] == "ngram" else "  speculative_model_dir: $DRAFT_MODEL\n"
    return (
        "speculative_config:\n"
        f"  decoding_type: {_WRITTEN[drafts['method']]}\n"
        f"  max_draft_len: {drafts['num_drafts']}\n{model}"
    )


def absorb(settings: dict[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A fixed limit of the gateway is that of the seats; the engine has no bound of its queue."""
    return hold_in_seats(settings, "--max_batch_size")


def apply(
    pieces: Sequence[Piece], settings: dict[str, Any], version: str, gpu: str | None = None
) -> list[Unread]:
    """Changes the instances to those of the pieces, in order of their names."""
    unread: list[Unread] = []
    servers = []
    for piece in by_name(pieces):
        fields, own = _fields(piece, version)
        unread += own
        servers.append((piece, fields))
    unread += change_groups(
        [Found(piece, fields.values) for piece, fields in servers],
        settings,
        "tensorrt-llm",
        lambda fields, group: _apply(fields, group, gpu),
        None if gpu is None else lambda fields: _server(fields, gpu),
    )
    return classified(unread, _IRRELEVANT)


def _fields(piece: Piece, version: str) -> tuple[Fields, list[Unread]]:
    """Flags and options by name, and what is neither."""
    if piece.content is not None:
        return Fields(piece.where, _dashed(piece.content)), []
    line = table(_TABLE, "tensorrt_llm", version).line(piece.words, piece.where)
    unread = [*line.unread]
    words = [word for word in line.words if word != "serve"]
    if words and words[0] in _SUBCOMMANDS:
        unread.append(Unread(f"{piece.where}: {words[0]}", words, _DISAGGREGATED, "not_modeled"))
        words = []
    if words:
        line.values["model"] = words.pop(0)
    unread += [Unread(f"{piece.where}: words", word, "is not a flag") for word in words]
    config = line.values.pop("config", None)
    if config is None:
        return Fields(piece.where, line.values), unread
    name = str(config).rpartition("/")[2]
    if name not in piece.files:
        reason = "is not among the files, so its options are not known"
        unread.append(Unread(f"{piece.where}: config", config, reason, "not_modeled"))
        return Fields(piece.where, line.values), unread
    content = parse(piece.files[name], name)
    if not isinstance(content, dict):
        raise config_error([(name, f"{content!r:.40}", "must be a mapping of options")])
    options = _dashed(content)
    unread += [
        Unread(f"{piece.where}: {key}", line.values[key], f"is overridden by {name}", "irrelevant")
        for key in options.keys() & line.values.keys()
    ]
    return Fields(piece.where, line.values | options), unread


def _dashed(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in content.items()}


def _apply(fields: Fields, group: dict[str, Any], gpu: str | None) -> list[Unread]:
    unread = described(fields, ("model", "tensor-parallel-size"), ("pipeline-parallel-size",), gpu)
    where = fields.where

    def listed(name: str, reason: str, effect: Any = "not_simulated") -> None:
        fields.drop(name)
        unread.append(Unread(f"{where}: {name}", fields.values[name], reason, effect))

    cache = fields.map("kv-cache-config")
    group["data_parallel_size"] = 1
    group["max_num_seqs"] = count(fields, "max-batch-size", _SEATS)
    group["max_num_batched_tokens"] = count(fields, "max-num-tokens", _TOKENS)
    own_len = group["max_model_len"] if gpu is not None else 0
    group["max_model_len"] = count(fields, "max-seq-len", own_len)
    group["long_prefill_token_threshold"] = 0
    size = cache.take("tokens_per_block", "int", count(fields, "kv-block-size", None))
    resize(group, size, cache.take("max_tokens", "int"))
    caching = cache.take("enable_block_reuse", "bool", default=True)
    group["kv_cache"] = {**group["kv_cache"], "prefix_caching": caching, "watermark": 0.0}
    find_answers(group)
    group["async_scheduling"] = not fields.take("disable-overlap-scheduler", "bool", default=False)
    group["scheduler"] = {"kind": "fcfs"}
    group["ingress"] = {"kind": "open"}
    scheduler = fields.map("scheduler-config")
    policy = scheduler.take("capacity_scheduler_policy", "str", "GUARANTEED_NO_EVICT")
    if policy != "MAX_UTILIZATION":
        reason = "requests are preempted here when memory is short, as with MAX_UTILIZATION"
        unread.append(Unread(f"{where}: capacity_scheduler_policy", policy, reason, "assumed"))
    if not fields.take("enable-chunked-prefill", "bool", default=False):
        reason = "prompts are computed in chunks here"
        name = f"{where}: enable-chunked-prefill"
        unread.append(Unread(name, False, reason, "assumed"))
    unread += _read_drafts(fields, group["speculative_decoding"])
    for name, reason in _NOT_MODELED.items():
        if fields.values.get(name) not in (None, False, 1):
            listed(name, reason, "not_modeled")
    return [*unread, *fields.rest()]


def _read_drafts(fields: Fields, drafts: dict[str, Any]) -> list[Unread]:
    """Changes number and method of drafts to those of a chain; trees of drafts are not modeled."""
    drafts |= {"num_drafts": 0, "method": "ngram"}
    own = fields.map("speculative-config")
    if not own.values:
        return []
    given = dict(own.values)
    kind = own.required("decoding_type", "str")
    number = own.take("max_draft_len", "int")
    if kind == "MTP":
        modules = own.take("num_nextn_predict_layers", "int")
        if None not in (number, modules) and number != modules:
            allowed = f"must be max_draft_len, {number}"
            raise config_error([(f"{own.where}: num_nextn_predict_layers", f"{modules}", allowed)])
        number = modules if number is None else number
    is_tree = any(own.values.get(name) for name in _TREES)
    if kind not in _METHODS or number is None or is_tree:
        own.drop(*own.values)
        what = "as a tree" if is_tree else f"by {kind}"
        what = what if kind not in _METHODS or number is not None else "without max_draft_len"
        reason = f"speculative decoding {what} is not modeled"
        return [Unread(own.where, given, reason, "not_modeled")]
    drafts |= {"num_drafts": number, "method": _METHODS[kind]}
    own.drop(*_PROPOSAL, *_TREES)
    accepted = ", ".join(f"{share:g}" for share in drafts["acceptance"])
    reason = f"acceptance {accepted} and draft_us are those of the simulation: no file has them"
    return [Unread(own.where, given, reason, "assumed")]


def _server(fields: Fields, gpu: str) -> tuple[dict[str, Any], list[Unread]]:
    """The group of a server that is computed from the flags, as vLLM would run it."""
    name = fields.take("model", "str")
    if name is None:
        raise config_error([(f"{fields.where}: model", "", "is missing")])
    given, unread = assumed(name, fields.take("quantization", "str"), fields.where)
    server = Server(
        gpu=gpu,
        tp=count(fields, "tensor-parallel-size", 1),
        max_num_seqs=count(fields, "max-batch-size", _SEATS),
        max_num_batched_tokens=count(fields, "max-num-tokens", _TOKENS),
        max_model_len=count(fields, "max-seq-len", None),
        **given,
    )
    reason = "step times and KV memory are those of vLLM"
    return server.group.to_dict(), [*unread, Unread(f"{fields.where}: gpu", gpu, reason)]


def is_config(content: Any) -> bool:
    """Whether a mapping is a file of options."""
    return isinstance(content, dict) and bool(_CONFIG_KEYS & content.keys())


TARGET = Target(
    name="tensorrt-llm",
    versions=_VERSIONS,
    doc="the command line of `trtllm-serve` and its file of options, one per group of instances",
    covers=(
        *COVERS,
        "instances[].speculative_decoding.num_drafts",
        "instances[].speculative_decoding.method",
    ),
    reasons=(
        ("instances[].kv_cache.generated_tokens", "TensorRT-LLM finds generated tokens, too"),
        ("instances[].ingress", "TensorRT-LLM has no limit of its queue"),
        ("instances[].scheduler", "TensorRT-LLM orders its queue by arrival"),
        ("instances[].data_parallel_size", "ranks of data are not written"),
        ("instances[].long_prefill_token_threshold", "TensorRT-LLM has one chunk for all prompts"),
    ),
    follows=("instances[].kv_cache.generated_tokens",),
    write=write,
    programs=(
        Program(
            "tensorrt_llm",
            (("trtllm-serve",), ("-m", "tensorrt_llm.commands.serve")),
            tagged=r"release|tensorrt-llm",
            containers=r"trtllm(?:-\w+)?|tensorrt-llm",
        ),
    ),
    documents=is_config,
    expected=_EXPECTED,
    read_pieces=apply,
    computes_servers=True,
    absorb=absorb,
    approximated=(
        ("enable-chunked-prefill", "prompts are computed in chunks also without it"),
        ("config", "the options of the file, which must be among those given"),
        ("speculative-config", "chains of drafts, whose acceptance is that of the simulation"),
    ),
)
