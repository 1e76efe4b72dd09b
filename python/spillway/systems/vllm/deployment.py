"""vLLM: the flags of `vllm serve`, one file per group of instances.

Flags: `flags.csv`, by version, from the parsers in vLLM's wheels (`tools/generate_flag_tables.py`).
Defaults: https://docs.vllm.ai/en/latest/cli/serve/ and `servers.engine`. A file that is written is
a command line. Read are command lines wherever they are, and files of `--config`.

The limits of the queue exist from 0.29 on (vllm-project/vllm#49445). `--max-num-queued-reqs` counts
the waiting and the running requests of all ranks. Alone, it is a gate without a queue,
`dual_limit_gate`. The limit of `vllm_queue_limits` counts waiting requests; with full batches it is
reached at the same time if the flag is larger by all seats, which is what is written. With a limit
of tokens beside it, the flag is read in this way too, if it is above the number of seats.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.instance import DualLimitGate, EngineRules, VllmQueueLimits
from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.engines import (
    Found,
    assumed,
    auto_length,
    by_name,
    change_groups,
    checkpoint,
    classified,
    count,
    find_answers,
    has_flags,
    with_config,
)
from spillway.files.deployments.fields import Fields, no_counterpart
from spillway.files.deployments.flag_table import Line, number, table
from spillway.files.deployments.shares import hold_in_seats
from spillway.files.deployments.target import MODEL, Effect, Piece, Program, Target, Unread
from spillway.files.deployments.variables import irrelevant
from spillway.servers import Server, model
from spillway.servers.engine import DEFAULT_ENGINE, engine
from spillway.systems.vllm import speculation
from spillway.systems.vllm.rules import PRESETS, preset_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_TABLE = Path(__file__).with_name("flags.csv")
_VERSIONS = ("0.10", "0.12", "0.15", "0.19", "0.24", "0.29", "0.33")
_QUEUE_LIMITS = (0, 29)
_NUMBERS = {"max-num-seqs": "max_num_seqs", "max-num-batched-tokens": "max_num_batched_tokens"}
_PRIORITY = {
    "kind": "priority_fcfs",
    "priority": "slo_class",
    "class_priorities": [],
    "age_weight_per_s": 0.0,
    "victim": "lowest_priority",
    "preemption_margin": None,
    "max_preemptions_per_step": 3,
}
_EXPECTED = "a command line of `vllm serve`, or its flags, also as a mapping in YAML or JSON"
_REQUESTS, _TOKENS = "max-num-queued-reqs", "max-num-queued-tokens"
_BLOCK_SIZE_TOKENS = 16
_KV_DTYPES = {"auto": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
_OF_SERVER = {
    "model": "model",
    "quantization": "dtype",
    "tensor-parallel-size": "tp",
    "pipeline-parallel-size": "pp",
    "enable-expert-parallel": "enable_expert_parallel",
    "kv-cache-dtype": "kv_cache_dtype",
    "gpu-memory-utilization": "gpu_memory_utilization",
}
_HUGGING_FACE = "huggingfaceserver"
_LORA = "adapters of LoRA are not modeled"
_CONTEXT = "context parallelism is not modeled"
_NOT_MODELED = {
    **dict.fromkeys(("enable-lora", "lora-modules"), _LORA),
    **dict.fromkeys(("decode-context-parallel-size", "prefill-context-parallel-size"), _CONTEXT),
    "ec-transfer-config": "encoders on workers of their own are not modeled",
}
_TRANSFER = "kv-transfer-config"
_SHARED = ("kv_producer", "kv_consumer", "Nixl", "P2p", "Mooncake")
_IRRELEVANT = re.compile(
    r"host|port|uds|uvicorn-.*|ssl-.*|enable-ssl-.*|allow.*|api-key|root-path|middleware|grpc|help"
    r"|.*\blogs?\b.*|.*logging.*|chat-template.*|response-role|served-model-name|tokenizer.*"
    r"|trust-remote-code|trust-request-.*|load-format|revision|code-revision|tool-.*|reasoning-.*"
    r"|enable-auto-tool-choice|structured-outputs.*|guided-.*|otlp-.*|collect-detailed-traces"
    r"|show-hidden-metrics.*|hf-.*|config-format|model-loader-.*|ignore-patterns|use-tqdm-on-load"
    r"|generation-config|override-generation-config|return-tokens-.*|enable-prompt-tokens-.*"
    r"|enable-server-load-tracking|enable-request-id-headers|disable-fastapi-docs"
    r"|h11-.*|skip-tokenizer-init|max-logprobs|logprobs-mode|enable-sleep-mode|worker-.*"
    r"|distributed-executor-backend|master-.*|nnodes|node-rank|ray-.*|kv-events-config|usage-.*"
    r"|data-parallel-(?:address|rpc-port|backend|.*-lb|.*rank|size-local)|shutdown-timeout"
    r"|max-parallel-loading-workers|exclude-tools-.*|enable-force-include-usage|dashboard-.*"
    r"|enable-tokenizer-info-.*|disable-uvicorn-.*|max-lora.*|lora-.*|fully-sharded-loras"
    r"|enable-offline-docs|download-dir"
)


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:
    """A command line per group of instances."""
    for i, group in enumerate(settings["instances"]):
        _check_block_size(f"instances[{i}].block_size_tokens", group["block_size_tokens"], version)
    return {
        f"vllm-{i}.sh": _command(group, version) for i, group in enumerate(settings["instances"])
    }


def apply(
    pieces: Sequence[Piece], settings: dict[str, Any], version: str, gpu: str | None = None
) -> list[Unread]:
    """Changes the instances to those of the pieces, which belong to groups in order of their names.

    A single group stands for all pieces if there are several. With `gpu`, a name of the catalog,
    the whole instance is computed from the model and the flags, as `Server` does.
    """
    unread: list[Unread] = []
    servers: list[Found] = []
    for piece in by_name(pieces):
        line = line_of(piece, version)
        if line.values.get("headless") is True:
            reason = "is a further node of a server"
            unread.append(
                Unread(f"{piece.where}: headless", list(piece.words), reason, "irrelevant")
            )
        else:
            servers.append(Found(piece, line.values, line.unread))
    unread += change_groups(
        servers,
        settings,
        "vllm",
        lambda fields, group: _apply(fields, group, version),
        None if gpu is None else lambda fields: _server(fields, version, gpu),
    )
    return classified(unread, _IRRELEVANT)


def line_of(piece: Piece, version: str) -> Line:
    """The flags of a piece by name, those of its `--config` among them."""
    known = table(_TABLE, "vllm", version)
    if piece.content is not None:
        return with_config(Line(), piece.content, piece.where, known)
    is_vllm = piece.program != _HUGGING_FACE
    found = known.line(piece.words if is_vllm else _renamed(piece.words), piece.where)
    config = found.values.pop("config", None)
    if config is not None:
        found = with_config(found, config, piece.where, known, piece.files)
    if found.words:
        tag = found.words.pop(0)
        if "model" in found.values:
            reason = f"stands beside --model {found.values['model']}"
            found.unread.append(Unread(f"{piece.where}: model_tag", tag, reason))
        else:
            found.values["model"] = tag
    found.unread += [
        Unread(f"{piece.where}: words", word, "is neither a flag nor the model")
        for word in found.words
    ]
    return found


def _renamed(words: Sequence[str]) -> list[str]:
    """The arguments of the server of Hugging Face under the names of vLLM."""
    names = {"model_id": "model", "model_dir": "model", "model_name": "served-model-name"}
    found = []
    for word in words:
        name, is_given, value = word.partition("=")
        key = name.lstrip("-").replace("-", "_")
        is_name = name.startswith("--") and key in names
        found.append(f"--{names[key]}{is_given}{value}" if is_name else word)
    return found


def absorb(settings: dict[str, Any], version: str) -> dict[str, str]:
    """A fixed limit of the gateway is that of the seats; its queue is that of the engines."""

    def gate(group: Mapping[str, Any], waiting: int) -> dict[str, Any]:
        return _ingress(Fields("", {_REQUESTS: waiting + _seats(group)}), group)

    return hold_in_seats(settings, "--max-num-seqs", gate if _has_queue_limits(version) else None)


def notes(settings: Mapping[str, Any], version: str) -> list[str]:
    """The groups that are computed with the defaults of another version than is written."""
    found = []
    for i, group in enumerate(settings["instances"]):
        server = model_of(group)
        known = engine(server.get("engine", DEFAULT_ENGINE))
        if server and known.name != f"vllm-{version}":
            found.append(
                f"instances[{i}]: what the server does not state has the defaults of {known.name}, "
                f"and is written for {version}; engine: vllm-{version} in the server gives those "
                "of that version"
            )
    return found


def model_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """The stated facts of a group that is a `Server`: model, gpu, tp …; empty for others."""
    found = re.match(r"server (\{.*\}): ", group["provenance"])
    server = parse(found[1], "provenance") if found else {}
    return server if isinstance(server, dict) and isinstance(server.get("model"), str) else {}


def _check_block_size(path: str, tokens: int, version: str) -> None:
    """Up to 0.15 vLLM's parser lists the sizes of blocks. Raises ConfigError for others."""
    listed = (1, 8, 16, 32, 64, 128, *((256,) if number(version) >= number("0.12") else ()))
    if number(version) < number("0.19") and tokens not in listed:
        allowed = f"cannot be the --block-size of vllm {version}: must be one of {listed}"
        raise config_error([(path, str(tokens), allowed)])


def _command(group: Mapping[str, Any], version: str) -> str:
    server = model_of(group)
    words = [f"vllm serve {_repository(server['model']) if server else MODEL}"]
    known = table(_TABLE, "vllm", version)

    def flag(name: str, value: Any = "") -> None:
        if known.get(f"--{name.removeprefix('no-')}") is not None:
            words.append(f"--{name} {value}".rstrip())

    def switch(name: str, is_on: bool) -> None:
        flag(name if is_on else f"no-{name}")

    stages = _stages(group)
    if server.get("tp", 1) > 1:
        flag("tensor-parallel-size", server["tp"])
    if stages > 1:
        flag("pipeline-parallel-size", stages)
    if group["data_parallel_size"] > stages:
        flag("data-parallel-size", group["data_parallel_size"] // stages)
    if server.get("enable_expert_parallel"):
        flag("enable-expert-parallel")
    for name in ("kv_cache_dtype", "gpu_memory_utilization"):
        if name in server:
            flag(name.replace("_", "-"), server[name])
    flag("max-num-seqs", group["max_num_seqs"] * stages)
    flag("max-num-batched-tokens", group["max_num_batched_tokens"])
    if group["max_model_len"]:
        flag("max-model-len", group["max_model_len"])
    if group["long_prefill_token_threshold"]:
        flag("long-prefill-token-threshold", group["long_prefill_token_threshold"])
    flag("block-size", group["block_size_tokens"])
    switch("enable-prefix-caching", group["kv_cache"]["prefix_caching"])
    switch("scheduler-reserve-full-isl", group["kv_cache"]["reserve_full_prompt"])
    if group["kv_cache"]["watermark"]:
        flag("watermark", group["kv_cache"]["watermark"])
    switch("async-scheduling", group["async_scheduling"])
    for name, value in _scheduling(group, stages).items():
        flag(name, value)
    is_priority = group["scheduler"]["kind"] == _PRIORITY["kind"]
    flag("scheduling-policy", "priority" if is_priority else "fcfs")
    if _has_queue_limits(version):
        for name, limit in _limits(group).items():
            flag(name, limit)
    return " \\\n  ".join(words) + "\n"


def _scheduling(group: Mapping[str, Any], stages: int) -> dict[str, Any]:
    """The flags of API servers and of what a step holds that are not at their defaults."""
    found: dict[str, Any] = {}
    if group["front_end"]["workers"] > 1:
        found["api-server-count"] = group["front_end"]["workers"]
    if not group["chunked_prefill"]:
        found["no-enable-chunked-prefill"] = ""
    if group["long_prefill_token_threshold_adaptive"]:
        found["long-prefill-token-threshold-adaptive"] = ""
    if group["prefill_schedule_interval"] > 1:
        found["prefill-schedule-interval"] = group["prefill_schedule_interval"]
    if group["max_num_active_seqs"] is not None:
        found["max-num-active-seqs"] = group["max_num_active_seqs"] * stages
    if config := speculation.written(group["speculative_decoding"]):
        found["speculative-config"] = config
    return found


def _stages(group: Mapping[str, Any]) -> int:
    """The stages of a pipeline: of its ranks, each has one batch in flight per stage."""
    stages = int(model_of(group).get("pp", 1))
    return stages if group["data_parallel_size"] % stages == 0 else 1


def _seats(group: Mapping[str, Any]) -> int:
    return int(group["data_parallel_size"] * group["max_num_seqs"])


def _limits(group: Mapping[str, Any]) -> dict[str, int]:
    """The limits of the queue as flags."""
    gate = group["ingress"]
    found = {}
    if gate["kind"] == "dual_limit_gate":
        if not gate["queue_size"] and gate["wait_limit"] >= gate["request_limit"]:
            found[_REQUESTS] = gate["request_limit"]
    elif gate["kind"] == "vllm_queue_limits":
        waiting, tokens = gate["max_num_queued_reqs"], gate["max_num_queued_tokens"]
        if waiting is not None:
            found[_REQUESTS] = waiting and waiting + _seats(group)
        if tokens is not None:
            found[_TOKENS] = tokens
    return found


def _ingress(fields: Fields, group: Mapping[str, Any]) -> dict[str, Any]:
    """The gate with the limits of the flags; a limit of tokens that never counts stays unread."""
    inside = count(fields, _REQUESTS, None)
    has_gates = group["completion"] == "step_end"  # a gate needs first tokens
    if inside and has_gates and (inside <= _seats(group) or _TOKENS not in fields):
        gate = DualLimitGate(request_limit=inside, wait_limit=inside, queue_size=0)
        return gate.to_dict()
    tokens = count(fields, _TOKENS, None)
    if inside is None and tokens is None:
        return {"kind": "open"}
    waiting = inside and max(1, inside - _seats(group))
    limits = VllmQueueLimits(max_num_queued_reqs=waiting, max_num_queued_tokens=tokens)
    return limits.to_dict()


def _apply(fields: Fields, group: dict[str, Any], version: str) -> list[Unread]:
    stages = count(fields, "pipeline-parallel-size", 1)
    stages = stages if stages == model_of(group).get("pp") else 1
    seats = count(fields, "max-num-seqs", None)
    group["max_num_seqs"] = group["max_num_seqs"] if seats is None else -(-seats // stages)
    group["max_num_batched_tokens"] = count(
        fields, "max-num-batched-tokens", group["max_num_batched_tokens"]
    )
    group["long_prefill_token_threshold"] = count(fields, "long-prefill-token-threshold", 0)
    group["block_size_tokens"] = count(fields, "block-size", _BLOCK_SIZE_TOKENS)
    group["num_kv_blocks"] = count(fields, "num-gpu-blocks-override", group["num_kv_blocks"])
    own_len = group["max_model_len"] if model_of(group) else 0  # without the flag: the model's
    if fields.values.get("max-model-len") in ("auto", -1):
        fields.drop("max-model-len")
        group["max_model_len"] = auto_length(group, own_len)
    else:
        group["max_model_len"] = count(fields, "max-model-len", own_len)
    group["data_parallel_size"] = stages * count(fields, "data-parallel-size", 1)
    known = engine(f"vllm-{version}")
    group["kv_cache"] = {
        **group["kv_cache"],
        "prefix_caching": fields.take("enable-prefix-caching", "bool", default=True),
        "watermark": fields.take("watermark", "float", 0.0),
        "reserve_full_prompt": fields.take(
            "scheduler-reserve-full-isl", "bool", known.reserve_full_prompt
        ),
    }
    group["async_scheduling"] = fields.take("async-scheduling", "bool", known.async_scheduling)
    group["scheduler"] = fields.choice(
        "scheduling-policy", {"fcfs": {"kind": "fcfs"}, "priority": dict(_PRIORITY)}, "fcfs"
    )
    group["ingress"] = {"kind": "open"}
    if _has_queue_limits(version):
        group["ingress"] = _ingress(fields, group)
    group["chunked_prefill"] = fields.take("enable-chunked-prefill", "bool", default=True)
    group["long_prefill_token_threshold_adaptive"] = fields.take(
        "long-prefill-token-threshold-adaptive", "bool", default=False
    )
    group["prefill_schedule_interval"] = count(fields, "prefill-schedule-interval", 1)
    active = count(fields, "max-num-active-seqs", None)
    group["max_num_active_seqs"] = active and -(-active // stages)
    group["front_end"]["workers"] = count(fields, "api-server-count", 1)
    unread = [*_take_server(fields, group), *_follow(fields.where, group, version)]
    unread += speculation.taken(fields, group["speculative_decoding"])
    return [*unread, *_others(fields, group)]


def _follow(where: str, group: dict[str, Any], version: str) -> list[Unread]:
    """Gives a group the rules of a version, which no flag states."""
    engine = (group["completion"], group["preemption"], group["kv_cache"]["allocation"])
    if engine != ("step_end", "keep_emitted", "check_then_act"):  # of another simulator
        return []
    oldest = PRESETS[0].removeprefix("vllm-")
    is_older = number(version) < number(oldest)
    rules = EngineRules.preset(PRESETS[0] if is_older else preset_of(version))
    find_answers(group)
    group["engine_rules"] = rules.to_dict()
    if not is_older:
        return []
    reason = f"has the rules of the scheduler of {oldest}, the oldest ones that are known"
    return [Unread(f"{where}: version", version, reason, "assumed")]


def _others(fields: Fields, group: Mapping[str, Any]) -> list[Unread]:
    """The flags that nothing has taken, and what is not modeled of them."""
    found: list[Unread] = []

    def listed(name: str, reason: str, effect: Effect) -> None:
        fields.drop(name)
        found.append(Unread(f"{fields.where}: {name}", fields.values[name], reason, effect))

    for name, same in {
        "dtype": ("auto", "bfloat16", "float16", "half"),
        "backend": ("auto", "vllm"),
        "task": ("auto", "generate"),
        "runner": ("auto", "generate"),
    }.items():
        if fields.values.get(name) in same:
            listed(name, irrelevant, "irrelevant")
        elif name in fields and name != "dtype":
            listed(name, "is not modeled: only models that generate are", "not_modeled")
    if _TRANSFER in fields:
        if group["role"] != "both":
            listed(_TRANSFER, "moves prompts: as disaggregation.link states", "assumed")
        elif any(word in str(fields.values[_TRANSFER]) for word in _SHARED):
            reason = "transfers of KV memory between servers are not modeled"
            listed(_TRANSFER, reason, "not_modeled")
        else:
            listed(_TRANSFER, no_counterpart, "not_simulated")
    for name, reason in _NOT_MODELED.items():
        if fields.values.get(name) not in (None, False, 1, []) or fields.values.get(name) is True:
            listed(name, reason, "not_modeled")
    return [*found, *fields.rest()]


def _take_server(fields: Fields, group: Mapping[str, Any]) -> list[Unread]:
    """Takes what describes the server itself; returns what differs from the group's server."""
    server = model_of(group)
    unread = []
    for flag, value in _server_flags(fields).items():
        name = _OF_SERVER[flag]
        known = {server.get(name), "$MODEL"}
        if flag == "model" and server:
            known |= {_repository(server[name]), value if _is_same(value, server[name]) else None}
        if flag == "quantization" and server:
            known.add(value)  # its type of weights is in the server
        if value not in known:
            reason = "describes the server: give gpu, and it is computed"
            effect: Effect = "not_simulated"
            if flag == "pipeline-parallel-size":
                reason = "pipeline parallelism is not modeled unless gpu is given"
                effect = "not_modeled"
            unread.append(Unread(f"{fields.where}: {flag}", value, reason, effect))
    return unread


def _is_same(name: str, known: str) -> bool:
    return _repository(checkpoint(name)[0]) == _repository(known)


def _server_flags(fields: Fields) -> dict[str, Any]:
    """The flags that describe the server itself, without those at their defaults."""
    found = {
        "model": fields.take("model", "str"),
        "quantization": fields.take("quantization", "str"),
        "tensor-parallel-size": count(fields, "tensor-parallel-size", 1),
        "pipeline-parallel-size": count(fields, "pipeline-parallel-size", 1),
        "enable-expert-parallel": fields.take("enable-expert-parallel", "bool", default=False),
        "kv-cache-dtype": fields.take("kv-cache-dtype", "str", "auto"),
        "gpu-memory-utilization": fields.take("gpu-memory-utilization", "float"),
    }
    found["kv-cache-dtype"] = _KV_DTYPES.get(found["kv-cache-dtype"], found["kv-cache-dtype"])
    return {flag: value for flag, value in found.items() if value not in (None, 1, False, "bf16")}


def _server(fields: Fields, version: str, gpu: str) -> tuple[dict[str, Any], list[Unread]]:
    """The group of a server that is computed from the flags, and what was assumed."""
    given = {_OF_SERVER[flag]: value for flag, value in _server_flags(fields).items()}
    if "model" not in given:
        raise config_error([(f"{fields.where}: model", "", "is missing")])
    found, unread = assumed(given.pop("model"), given.pop("dtype", None), fields.where)
    given |= found | {
        setting: value
        for flag, setting in {**_NUMBERS, "max-model-len": "max_model_len"}.items()
        if fields.values.get(flag) not in ("auto", -1)
        and (value := count(fields, flag, None)) is not None
    }
    dp = count(fields, "data-parallel-size", 1)
    blocks = count(fields, "block-size", _BLOCK_SIZE_TOKENS)
    server = Server(gpu=gpu, dp=dp, block_size_tokens=blocks, engine=f"vllm-{version}", **given)
    return server.group.to_dict(), unread


def _repository(name: str) -> str:
    """The Hugging Face repository of a model of the catalog; other names stay."""
    if name.endswith(".json"):
        return name
    try:
        return model(name).repository
    except ConfigError:
        return name


def _has_queue_limits(version: str) -> bool:
    return tuple(int(part) for part in version.split(".")) >= _QUEUE_LIMITS


def is_config(content: Any) -> bool:
    """Whether a mapping is a file of `--config`, by its keys."""
    return has_flags(content, table(_TABLE, "vllm", _VERSIONS[-1]), {"model", "model-tag"})


TARGET = Target(
    name="vllm",
    versions=_VERSIONS,
    doc="the command line of `vllm serve`, one per group of instances",
    covers=tuple(
        f"instances[].{name}"
        for name in (
            "data_parallel_size",
            "ingress",
            "max_num_seqs",
            "max_num_batched_tokens",
            "long_prefill_token_threshold",
            "max_model_len",
            "block_size_tokens",
            "kv_cache.prefix_caching",
            "kv_cache.reserve_full_prompt",
            "kv_cache.watermark",
            "scheduler",
            "async_scheduling",
            "chunked_prefill",
            "long_prefill_token_threshold_adaptive",
            "prefill_schedule_interval",
            "max_num_active_seqs",
            "speculative_decoding.num_drafts",
            "speculative_decoding.method",
            "engine_rules",
            "kv_cache.generated_tokens",
            "front_end.workers",
        )
    ),
    follows=("instances[].engine_rules", "instances[].kv_cache.generated_tokens"),
    reasons=(
        (
            "instances[].ingress",
            "from 0.29 on, vLLM limits waiting and running requests together, and tokens",
        ),
        ("instances[].scheduler.victim", "vLLM preempts the last one of the lowest priority"),
        ("instances[].scheduler", "vLLM orders its queue by arrival, or by priority and arrival"),
        ("instances[].kv_cache.reserve_full_prompt", "a flag of vLLM from 0.19 on"),
        ("instances[].prefill_schedule_interval", "a flag of vLLM from 0.24 on"),
        ("instances[].long_prefill_token_threshold_adaptive", "a flag of the newest versions"),
        ("instances[].max_num_active_seqs", "a flag of the newest versions of vLLM"),
        ("instances[].engine_rules", "the rules of the scheduler are those of the version"),
        ("instances[].kv_cache.generated_tokens", "vLLM finds generated tokens, too"),
        ("instances[].kv_cache.watermark", "a flag of the newest versions of vLLM"),
    ),
    write=write,
    programs=(
        Program(
            "vllm",
            (
                ("vllm", "serve"),
                ("-m", "vllm.entrypoints.openai.api_server"),
                ("-m", "vllm.entrypoints.cli.main", "serve"),
                ("-m", "vllm.entrypoints.api_server"),
            ),
            images=r"(?!.*(?:router|runtime|proxy|sim|sidecar|exporter|bench))(?:.*/)?"
            r"(?:[\w-]*vllm[\w-]*|llm-d-(?:cuda|rocm|xpu|hpu|cpu|aws|gb200))",
            tagged=r"vllm-openai[\w-]*|vllm",
            containers=r"vllm(?:-\w+)?|modelserver|model-server",
        ),
        Program(
            _HUGGING_FACE,
            (("-m", _HUGGING_FACE), (_HUGGING_FACE,)),
            images=r"(?:.*/)?huggingfaceserver",
        ),
    ),
    documents=is_config,
    expected=_EXPECTED,
    read_pieces=apply,
    computes_servers=True,
    approximated=(
        ("max-num-queued-reqs", "beside a limit of tokens: waiting requests, all seats subtracted"),
        ("pipeline-parallel-size", "with --gpu: a rank per stage, with an equal part of memory"),
        ("enable-expert-parallel", "with --gpu: an uneven use of experts is not modeled"),
        ("quantization", "with --gpu: the type of the weights, not the kernels"),
        ("kv-cache-dtype", "with --gpu: its size, not the kernels"),
        ("gpu-memory-utilization", "with --gpu: the computed memory"),
        ("async-scheduling", "one step ahead"),
        ("speculative-config", "the acceptance of drafts is that of the simulation"),
        ("kv-transfer-config", "of pools: the link; refused if other servers share KV memory"),
        ("config", "the flags of the file, which must be among those given"),
    ),
    notes=notes,
    absorb=absorb,
)
