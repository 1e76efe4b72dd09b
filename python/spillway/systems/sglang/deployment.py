"""SGLang: the flags of its server, one file per group of instances.

Flags: `flags.csv`, by version, from the parsers in its wheels (`tools/generate_flag_tables.py`). A
batch of prefill is a step of its own in SGLang; here prompts and decodes share steps, of at most
`--chunked-prefill-size` tokens. `--max-queued-requests` bounds the waiting requests. The policies
of the queue other than fcfs, lpm and priority are not simulated; a schedule that overlaps with the
step before is that of vLLM. With an accelerator the steps and the memory are those of vLLM, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.instance import VllmQueueLimits
from spillway.config.classes import config_error
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
    has_flags,
    resize,
    with_config,
)
from spillway.files.deployments.flag_table import Line, table
from spillway.files.deployments.shares import hold_in_seats
from spillway.files.deployments.target import MODEL, Piece, Program, Target, Unread
from spillway.servers import Server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.files.deployments.fields import Fields

_TABLE = Path(__file__).with_name("flags.csv")
_VERSIONS = ("0.4", "0.5.6", "0.5.23")
_SEATS, _CHUNK = 1024, 8192  # where no flag states them
_SPELLINGS = {  # the names of a flag in the versions
    "tp": ("tp-size", "tensor-parallel-size"),
    "dp": ("dp-size", "data-parallel-size"),
    "pp": ("pp-size", "pipeline-parallel-size"),
}
_SPECULATIVE = "speculative decoding is not modeled"
_ALGORITHMS = {"EAGLE": "eagle", "EAGLE3": "eagle", "NEXTN": "eagle", "STANDALONE": "draft_model"}
_DRAFTING = (
    *("speculative-algorithm", "speculative-num-steps", "speculative-eagle-topk"),
    "speculative-num-draft-tokens",
)
_WRITTEN = {"eagle": "EAGLE", "draft_model": "STANDALONE"}
_STANDALONE = _VERSIONS[1:]  # the versions that know it
_DISAGGREGATED = "prefill and decode on workers of their own are not modeled"
_NOT_MODELED = (
    (re.compile(r"speculative-(?:algorithm|draft-model-path|num-.*)"), _SPECULATIVE),
    (re.compile(r"enable-lora|lora-paths"), "adapters of LoRA are not modeled"),
    (re.compile(r"disaggregation-mode"), _DISAGGREGATED),
    (re.compile(r"is-embedding"), "only models that generate are modeled"),
)
_IRRELEVANT = re.compile(
    r"host|port|.*-port|ssl-.*|api-key|admin-api-key|served-model-name|tokenizer.*|skip-.*|log-.*"
    r"|trust-remote-code|load-format|model-loader-.*|revision|download-dir|chat-template|.*logging.*"
    r"|completion-template|tool-.*|reasoning-.*|enable-metrics.*|.*metrics.*|dist-.*|nnodes|node-rank"
    r"|watchdog-timeout|soft-watchdog-.*|show-time-cost|file-storage-path|decode-log-interval|nccl-port"
    r"|warmups|enable-trace|oltp-.*|otlp-.*|crash-.*|weight-version|hf-.*|allow-auto-truncate|device"
    r"|speculative-draft-.*|speculative-attention-.*|lora-.*|max-lora-.*|disaggregation-.*|random-seed"
    r"|stream-.*|grammar-backend|fastapi-root-path|grpc-mode|preferred-sampling-params|gc-.*|bucket-.*"
)
_EXPECTED = "a command line of `sglang.launch_server` or `sglang serve`, or its flags"
_PRIORITY = {
    "kind": "priority_fcfs",
    "priority": "slo_class",
    "class_priorities": [],
    "age_weight_per_s": 0.0,
    "victim": "lowest_priority",
    "preemption_margin": None,
    "max_preemptions_per_step": 3,
}
_LONGEST_PREFIX = {"kind": "longest_prefix", "aging_tokens_per_step": 0, "max_sorted_requests": 128}


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:
    """A command line per group of instances."""
    return {
        f"sglang-{i}.sh": _command(group, version) for i, group in enumerate(settings["instances"])
    }


def _command(group: Mapping[str, Any], version: str) -> str:
    known = table(_TABLE, "sglang", version)
    words = ["python -m sglang.launch_server", f"--model-path {MODEL}"]

    def flag(name: str, value: Any = "") -> None:
        if known.get(f"--{name}") is not None:
            words.append(f"--{name} {value}".rstrip())

    if group["data_parallel_size"] > 1:
        flag("dp-size", group["data_parallel_size"])
    flag("max-running-requests", group["max_num_seqs"])
    flag("chunked-prefill-size", group["max_num_batched_tokens"])
    if group["max_model_len"]:
        flag("context-length", group["max_model_len"])
    if not group["kv_cache"]["prefix_caching"]:
        flag("disable-radix-cache")
    flag("schedule-policy", "lpm" if group["scheduler"]["kind"] == "longest_prefix" else "fcfs")
    if group["scheduler"]["kind"] == "priority_fcfs":
        flag("enable-priority-scheduling")
    if not group["async_scheduling"]:
        flag("disable-overlap-schedule")
    for name, value in _drafting(group["speculative_decoding"], version).items():
        flag(name, value)
    gate = group["ingress"]
    if gate["kind"] == "vllm_queue_limits" and gate["max_num_queued_reqs"] is not None:
        flag("max-queued-requests", gate["max_num_queued_reqs"])
    return " \\\n  ".join(words) + "\n"


def _drafting(drafts: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The flags of drafts in a chain; none without drafts, and for those that a version lacks."""
    number, algorithm = drafts["num_drafts"], _WRITTEN.get(drafts["method"])
    if not number or not algorithm or (algorithm == "STANDALONE" and version not in _STANDALONE):
        return {}
    return {
        "speculative-algorithm": algorithm,
        "speculative-draft-model-path": "${DRAFT_MODEL:?}",
        "speculative-num-steps": number,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": number + 1,
    }


def absorb(settings: dict[str, Any], version: str) -> dict[str, str]:
    """A fixed limit of the gateway is that of the seats; its queue is that of the engines."""
    has_bound = table(_TABLE, "sglang", version).get("--max-queued-requests") is not None
    return hold_in_seats(settings, "--max-running-requests", _bound if has_bound else None)


def _bound(group: Mapping[str, Any], waiting: int) -> dict[str, Any]:  # noqa: ARG001
    """The gate of an engine with this bound of its queue."""
    limits = VllmQueueLimits(max_num_queued_reqs=waiting, max_num_queued_tokens=None)
    return limits.to_dict()


def apply(
    pieces: Sequence[Piece], settings: dict[str, Any], version: str, gpu: str | None = None
) -> list[Unread]:
    """Changes the instances to those of the pieces, in order of their names."""
    lines = [(piece, _line(piece, version)) for piece in by_name(pieces)]
    unread = change_groups(
        [Found(piece, line.values, line.unread) for piece, line in lines],
        settings,
        "sglang",
        lambda fields, group: _apply(fields, group, gpu),
        None if gpu is None else lambda fields: _server(fields, gpu),
    )
    return classified(unread, _IRRELEVANT)


def _line(piece: Piece, version: str) -> Line:
    """The flags of a piece by name, those of its `--config` among them."""
    known = table(_TABLE, "sglang", version)
    if piece.content is not None:
        return with_config(Line(), piece.content, piece.where, known)
    found = known.line(piece.words, piece.where)
    config = found.values.pop("config", None)
    if config is not None:
        found = with_config(found, config, piece.where, known, piece.files)
    if found.words and "model-path" not in found.values:
        found.values["model-path"] = found.words.pop(0)
    found.unread += [Unread(f"{piece.where}: words", word, "is not a flag") for word in found.words]
    return found


def _spelled(fields: Fields, name: str) -> Any:
    """The number of a flag that has another name in other versions."""
    given = [count(fields, spelling, None) for spelling in _SPELLINGS[name]]
    return next((value for value in given if value is not None), 1)


def _apply(fields: Fields, group: dict[str, Any], gpu: str | None) -> list[Unread]:
    for name in ("tp", "pp"):
        _spelled(fields, name)  # refuses other values than numbers
    unread = described(
        fields,
        (
            *("model-path", *_SPELLINGS["tp"], "quantization", "kv-cache-dtype"),
            "mem-fraction-static",
        ),
        _SPELLINGS["pp"],
        gpu,
    )
    where = fields.where

    def listed(name: str, reason: str, effect: Any = "not_simulated") -> None:
        fields.drop(name)
        unread.append(Unread(f"{where}: {name}", fields.values[name], reason, effect))

    fields.drop("model")
    for name in ("kv-cache-dtype", "mem-fraction-static", "quantization", "model-path"):
        fields.take(name, "float" if name == "mem-fraction-static" else "str")
    group["data_parallel_size"] = _spelled(fields, "dp")
    group["max_num_seqs"] = count(fields, "max-running-requests", group["max_num_seqs"])
    chunk = count(fields, "chunked-prefill-size", group["max_num_batched_tokens"])
    if chunk <= 0:
        unread.append(
            Unread(f"{where}: chunked-prefill-size", chunk, "prompts are computed in chunks here")
        )
        chunk = group["max_num_batched_tokens"]
    group["max_num_batched_tokens"] = chunk
    group["long_prefill_token_threshold"] = 0
    group["max_model_len"] = count(
        fields, "context-length", group["max_model_len"] if gpu is not None else 0
    )
    resize(group, count(fields, "page-size", None), count(fields, "max-total-tokens", None))
    caching = not fields.take("disable-radix-cache", "bool", default=False)
    group["kv_cache"] = {**group["kv_cache"], "prefix_caching": caching, "watermark": 0.0}
    find_answers(group)
    group["async_scheduling"] = not fields.take("disable-overlap-schedule", "bool", default=False)
    is_priority = fields.take("enable-priority-scheduling", "bool", default=False)
    group["scheduler"] = dict(_PRIORITY) if is_priority else {"kind": "fcfs"}
    policy = fields.take("schedule-policy", "str", "fcfs")
    if policy == "lpm" and not is_priority:
        group["scheduler"] = dict(_LONGEST_PREFIX)
    elif policy not in ("fcfs", "priority"):
        reason = "the queue of an instance is in the order of arrival here"
        unread.append(Unread(f"{where}: schedule-policy", policy, reason))
    queued = count(fields, "max-queued-requests", None)
    group["ingress"] = {"kind": "open"} if queued is None else _bound(group, queued)
    unread += _read_drafts(fields, group["speculative_decoding"])
    for name, value in fields.values.items():
        if name in fields.taken:
            continue
        for pattern, reason in _NOT_MODELED:
            if pattern.fullmatch(name) and value not in (None, False, "null", "None", []):
                listed(name, reason, "not_modeled")
    return [*unread, *fields.rest()]


def _read_drafts(fields: Fields, drafts: dict[str, Any]) -> list[Unread]:
    """Changes number and method of drafts to those of a chain; trees of drafts are not modeled."""
    drafts |= {"num_drafts": 0, "method": "ngram"}
    algorithm = fields.take("speculative-algorithm", "str")
    if algorithm is None:
        return []
    where = f"{fields.where}: speculative-algorithm"
    steps, width = (
        count(fields, f"speculative-{name}", None) for name in ("num-steps", "eagle-topk")
    )
    verified = count(fields, "speculative-num-draft-tokens", steps and steps + 1)
    method = _ALGORITHMS.get(algorithm)
    if method is None or not steps or width != 1 or verified != steps + 1:
        reason = (
            "speculative decoding is modeled as a chain by EAGLE, EAGLE3, NEXTN or STANDALONE: "
            "num-steps n, eagle-topk 1, num-draft-tokens n + 1"
        )
        given = {name: value for name, value in fields.values.items() if name in _DRAFTING}
        return [Unread(where, given, reason, "not_modeled")]
    drafts |= {"num_drafts": steps, "method": method}
    fields.drop("speculative-draft-model-path")
    accepted = ", ".join(f"{share:g}" for share in drafts["acceptance"])
    reason = f"acceptance {accepted} and draft_us are those of the simulation: no file has them"
    return [Unread(where, algorithm, reason, "assumed")]


def _server(fields: Fields, gpu: str) -> tuple[dict[str, Any], list[Unread]]:
    """The group of a server that is computed from the flags, as vLLM would run it."""
    name = fields.take("model-path", "str")
    if name is None:
        raise config_error([(f"{fields.where}: model-path", "", "is missing")])
    method = fields.take("quantization", "str")
    given, unread = assumed(name, method, fields.where)
    share = fields.take("mem-fraction-static", "float")
    cache = fields.take("kv-cache-dtype", "str", "auto")
    given |= {"gpu_memory_utilization": share} if share is not None else {}
    given |= {"kv_cache_dtype": "fp8"} if cache.startswith("fp8") else {}
    server = Server(
        gpu=gpu,
        tp=_spelled(fields, "tp"),
        dp=_spelled(fields, "dp"),
        max_num_seqs=count(fields, "max-running-requests", _SEATS),
        max_num_batched_tokens=max(1, count(fields, "chunked-prefill-size", _CHUNK)),
        max_model_len=count(fields, "context-length", None),
        **given,
    )
    reason = "step times and KV memory are those of vLLM"
    return server.group.to_dict(), [*unread, Unread(f"{fields.where}: gpu", gpu, reason)]


def is_config(content: Any) -> bool:
    """Whether a mapping is a file of `--config`, by its keys."""
    return has_flags(content, table(_TABLE, "sglang", _VERSIONS[-1]), {"model-path"})


TARGET = Target(
    name="sglang",
    versions=_VERSIONS,
    doc="the command line of SGLang's server, one per group of instances",
    covers=(
        *COVERS,
        "instances[].speculative_decoding.num_drafts",
        "instances[].speculative_decoding.method",
    ),
    reasons=(
        ("instances[].kv_cache.generated_tokens", "SGLang finds generated tokens, too"),
        ("instances[].ingress", "SGLang bounds the waiting requests, from 0.5 on"),
        ("instances[].scheduler.victim", "SGLang preempts the lowest priority"),
        ("instances[].scheduler.aging_tokens_per_step", "no flag of SGLang makes prefixes age"),
        ("instances[].scheduler", "SGLang orders its queue by arrival, by prefixes or by priority"),
        ("instances[].speculative_decoding", "SGLang has chains of EAGLE, of a model from 0.5 on"),
        ("instances[].long_prefill_token_threshold", "SGLang has one chunk for all prompts"),
    ),
    follows=("instances[].kv_cache.generated_tokens",),
    write=write,
    programs=(
        Program(
            "sglang",
            (("-m", "sglang.launch_server"), ("sglang", "serve"), ("-m", "sglang", "serve")),
            tagged=r"sglang",
            containers=r"sglang(?:-\w+)?",
        ),
    ),
    documents=is_config,
    expected=_EXPECTED,
    read_pieces=apply,
    computes_servers=True,
    absorb=absorb,
    approximated=(
        ("chunked-prefill-size", "the tokens of a step, which prompts and decodes share"),
        ("enable-priority-scheduling", "the priorities of vLLM"),
        ("disable-overlap-schedule", "one step ahead, as in vLLM"),
        ("speculative-algorithm", "chains of drafts, whose acceptance is that of the simulation"),
        ("config", "the flags of the file, which must be among those given"),
        ("mem-fraction-static", "with --gpu: the share of memory that vLLM takes"),
        ("quantization", "with --gpu: the type of the weights, not the kernels"),
        ("kv-cache-dtype", "with --gpu: its size, not the kernels"),
    ),
)
