"""vLLM: the flags of `vllm serve`, one file per group of instances.

Flags and defaults: https://docs.vllm.ai/en/latest/cli/serve/ and `servers.engine`. A file
that is written is a command line; `vllm serve --config FILE` takes the same flags as YAML, and both
are read.

The limits of the queue exist from 0.29 on (vllm-project/vllm#49445). `--max-num-queued-reqs` counts
the waiting and the running requests of all ranks. Alone, it is a gate without a queue,
`dual_limit_gate`. The limit of `vllm_queue_limits` counts waiting requests; with full batches it is
reached at the same time if the flag is larger by all seats, which is what is written. With a limit
of tokens beside it, the flag is read in this way too, if it is above the number of seats.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from spillway._core.instance import DualLimitGate, VllmQueueLimits
from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.fields import Fields, flags
from spillway.files.deployments.shares import hold_in_seats
from spillway.files.deployments.target import Target, Unread, unrecognized
from spillway.servers import Server, model
from spillway.servers.engine import DEFAULT_ENGINE, engine

if TYPE_CHECKING:
    from collections.abc import Mapping


_QUEUE_LIMITS = (0, 29)
_SHORT = {"-tp": "--tensor-parallel-size", "-dp": "--data-parallel-size"}
_NUMBERS = {"max-num-seqs": "max_num_seqs", "max-num-batched-tokens": "max_num_batched_tokens"}
_MULTIPLES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
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
_MODEL = re.compile(r"""--model\b|^\s*["']?model["']?\s*:""", re.MULTILINE)
_REQUESTS, _TOKENS = "max-num-queued-reqs", "max-num-queued-tokens"
_BLOCK_SIZE_TOKENS = 16
_KV_DTYPES = {"auto": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8"}
_OF_SERVER = {
    "model": "model",
    "tensor-parallel-size": "tp",
    "enable-expert-parallel": "enable_expert_parallel",
    "kv-cache-dtype": "kv_cache_dtype",
    "gpu-memory-utilization": "gpu_memory_utilization",
}


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:
    """A command line per group of instances."""
    return {
        f"vllm-{i}.sh": _command(group, version) for i, group in enumerate(settings["instances"])
    }


def read(
    files: Mapping[str, str], settings: dict[str, Any], version: str, gpu: str | None = None
) -> list[Unread]:
    """Changes the instances to those of the files, which belong to groups in order of their names.

    A single group stands for all files if there are several. With `gpu`, a name of the catalog, the
    whole instance is computed from the model and the flags, as `Server` does.
    """
    groups = settings["instances"]
    if len(groups) == 1 and len(files) > 1:
        groups = [copy.deepcopy(groups[0]) for _ in files]
    if len(groups) != len(files):
        allowed = f"must be as many as the groups of instances: {len(groups)}"
        raise config_error([("files of vllm", str(len(files)), allowed)])
    unread: list[Unread] = []
    for i, (name, text) in enumerate(sorted(files.items(), key=lambda file: _natural(file[0]))):
        fields = _fields(name, text)
        if gpu is not None:
            described = Fields(name, fields.values)
            groups[i] = _server(described, version, gpu) | {"count": groups[i]["count"]}
        unread += _apply(fields, groups[i], version)
        is_known = _is_command(text) or bool(fields.taken - {"model"}) or bool(_MODEL.search(text))
        unrecognized({name: is_known}, _EXPECTED)
    settings["instances"] = groups
    return unread


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


def _command(group: Mapping[str, Any], version: str) -> str:
    server = model_of(group)
    words = [f"vllm serve {_repository(server['model']) if server else '$MODEL'}"]

    def flag(name: str, value: Any = "") -> None:
        words.append(f"--{name} {value}".rstrip())

    def switch(name: str, is_on: bool) -> None:
        flag(name if is_on else f"no-{name}")

    if server.get("tp", 1) > 1:
        flag("tensor-parallel-size", server["tp"])
    if group["data_parallel_size"] > 1:
        flag("data-parallel-size", group["data_parallel_size"])
    if server.get("enable_expert_parallel"):
        flag("enable-expert-parallel")
    for name in ("kv_cache_dtype", "gpu_memory_utilization"):
        if name in server:
            flag(name.replace("_", "-"), server[name])
    for name, setting in _NUMBERS.items():
        flag(name, group[setting])
    if group["max_model_len"]:
        flag("max-model-len", group["max_model_len"])
    if group["long_prefill_token_threshold"]:
        flag("long-prefill-token-threshold", group["long_prefill_token_threshold"])
    flag("block-size", group["block_size_tokens"])
    switch("enable-prefix-caching", group["kv_cache"]["prefix_caching"])
    if engine(f"vllm-{version}").reserve_full_prompt:
        switch("scheduler-reserve-full-isl", group["kv_cache"]["reserve_full_prompt"])
    switch("async-scheduling", group["async_scheduling"])
    is_priority = group["scheduler"]["kind"] == _PRIORITY["kind"]
    flag("scheduling-policy", "priority" if is_priority else "fcfs")
    if _has_queue_limits(version):
        for name, limit in _limits(group).items():
            flag(name, limit)
    return " \\\n  ".join(words) + "\n"


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
    inside = _number(fields, _REQUESTS, None)
    has_gates = group["completion"] == "step_end"  # a gate needs first tokens
    if inside and has_gates and (inside <= _seats(group) or _TOKENS not in fields):
        gate = DualLimitGate(request_limit=inside, wait_limit=inside, queue_size=0)
        return gate.to_dict()
    tokens = _number(fields, _TOKENS, None)
    if inside is None and tokens is None:
        return {"kind": "open"}
    waiting = inside and max(1, inside - _seats(group))
    limits = VllmQueueLimits(max_num_queued_reqs=waiting, max_num_queued_tokens=tokens)
    return limits.to_dict()


def _is_command(text: str) -> bool:
    return "vllm serve" in text


def _fields(name: str, text: str) -> Fields:
    is_flags = text.lstrip().startswith("-") or name.endswith((".sh", ".args"))
    if _is_command(text) or is_flags:
        words, found = flags(text.partition("vllm serve")[2] or text, name, _SHORT)
        if words and (_is_command(text) or found):
            found["model"] = words[0]
        return Fields(name, found)
    content = parse(text, name, is_json=name.endswith(".json"))
    values = Fields(name, content)  # checks that it is a mapping
    return Fields(
        values.where,
        {
            key.replace("_", "-").removeprefix("no-"): not value
            if key.startswith(("no-", "no_")) and isinstance(value, bool)
            else value
            for key, value in content.items()
        },
    )


def _apply(fields: Fields, group: dict[str, Any], version: str) -> list[Unread]:
    for name, setting in _NUMBERS.items():
        group[setting] = _number(fields, name, group[setting])
    own_len = group["max_model_len"] if model_of(group) else 0  # without the flag: the model's
    group["max_model_len"] = _number(fields, "max-model-len", own_len)
    group["long_prefill_token_threshold"] = _number(fields, "long-prefill-token-threshold", 0)
    group["block_size_tokens"] = _number(fields, "block-size", _BLOCK_SIZE_TOKENS)
    group["num_kv_blocks"] = _number(fields, "num-gpu-blocks-override", group["num_kv_blocks"])
    group["data_parallel_size"] = _number(fields, "data-parallel-size", 1)
    known = engine(f"vllm-{version}")
    caching = fields.take("enable-prefix-caching", "bool", default=True)
    group["kv_cache"] = {**group["kv_cache"], "prefix_caching": caching, "watermark": 0.0}
    group["kv_cache"]["reserve_full_prompt"] = fields.take(
        "scheduler-reserve-full-isl", "bool", known.reserve_full_prompt
    )
    group["async_scheduling"] = fields.take("async-scheduling", "bool", known.async_scheduling)
    group["scheduler"] = fields.choice(
        "scheduling-policy", {"fcfs": {"kind": "fcfs"}, "priority": dict(_PRIORITY)}, "fcfs"
    )
    group["ingress"] = {"kind": "open"}
    if _has_queue_limits(version):
        group["ingress"] = _ingress(fields, group)
    fields.drop("enable-chunked-prefill", "port", "host")
    return [*_take_server(fields, group), *fields.rest()]


def _take_server(fields: Fields, group: Mapping[str, Any]) -> list[Unread]:
    """Takes what describes the server itself; returns what differs from the group's server."""
    server = model_of(group)
    unread = []
    for flag, value in _server_flags(fields).items():
        name = _OF_SERVER[flag]
        known = {server.get(name), "$MODEL"}
        if flag == "model" and server:
            known |= {_repository(server[name])}
        if value not in known:
            reason = "describes the server: give gpu, and it is computed"
            unread.append(Unread(f"{fields.where}: {flag}", value, reason))
    return unread


def _server_flags(fields: Fields) -> dict[str, Any]:
    """The flags that describe the server itself, without those at their defaults."""
    found = {
        "model": fields.take("model", "str"),
        "tensor-parallel-size": _number(fields, "tensor-parallel-size", 1),
        "enable-expert-parallel": fields.take("enable-expert-parallel", "bool", default=False),
        "kv-cache-dtype": fields.take("kv-cache-dtype", "str", "auto"),
        "gpu-memory-utilization": fields.take("gpu-memory-utilization", "float"),
    }
    found["kv-cache-dtype"] = _KV_DTYPES.get(found["kv-cache-dtype"], found["kv-cache-dtype"])
    return {flag: value for flag, value in found.items() if value not in (None, 1, False, "bf16")}


def _server(fields: Fields, version: str, gpu: str) -> dict[str, Any]:
    """The group of a server that is computed from the flags."""
    given = {_OF_SERVER[flag]: value for flag, value in _server_flags(fields).items()}
    if "model" not in given:
        raise config_error([(f"{fields.where}: model", "", "is missing")])
    given |= {
        setting: value
        for flag, setting in {**_NUMBERS, "max-model-len": "max_model_len"}.items()
        if (value := _number(fields, flag, None)) is not None
    }
    dp = _number(fields, "data-parallel-size", 1)
    blocks = _number(fields, "block-size", _BLOCK_SIZE_TOKENS)
    server = Server(gpu=gpu, dp=dp, block_size_tokens=blocks, engine=f"vllm-{version}", **given)
    return server.group.to_dict()


def _repository(name: str) -> str:
    """The Hugging Face repository of a model of the catalog; other names stay."""
    if name.endswith(".json"):
        return name
    try:
        return model(name).repository
    except ConfigError:
        return name


def _number(fields: Fields, name: str, default: Any) -> Any:
    """A whole number; vLLM also takes 16k (16,000) and 16K (16,384)."""
    value = fields.take(name, "str" if isinstance(fields.values.get(name), str) else "int")
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmgKMG])", value)
        if not found:
            where = f"{fields.where}: {name}"
            raise config_error([(where, repr(value), "must be a whole number, e.g. 8192 or 8K")])
        value = int(float(found[1]) * _MULTIPLES[found[2]])
    return default if value is None else value


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)]


def _has_queue_limits(version: str) -> bool:
    return tuple(int(part) for part in version.split(".")) >= _QUEUE_LIMITS


TARGET = Target(
    name="vllm",
    versions=("0.19", "0.29"),
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
        )
    ),
    reasons=(
        (
            "instances[].ingress",
            "from 0.29 on, vLLM limits waiting and running requests together, and tokens",
        ),
        ("instances[].scheduler", "vLLM orders its queue by arrival, or by priority and arrival"),
        ("instances[].kv_cache.reserve_full_prompt", "a flag of vLLM from 0.19 on"),
    ),
    write=write,
    read=read,
    read_on=read,
    notes=notes,
    absorb=absorb,
)
