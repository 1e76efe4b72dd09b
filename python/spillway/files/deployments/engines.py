"""What the readers of engines share: groups, checkpoints, numbers, files of flags."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._core.instance import EngineRules
from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.target import MODEL, Unread, has_pools
from spillway.files.deployments.variables import variables
from spillway.servers.model import model, models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.files.deployments.flag_table import Flags, Line
    from spillway.files.deployments.target import Piece


COVERS = tuple(
    f"instances[].{name}"
    for name in (
        "data_parallel_size",
        "ingress",
        "max_num_seqs",
        "max_num_batched_tokens",
        "long_prefill_token_threshold",
        "max_model_len",
        "kv_cache.prefix_caching",
        "kv_cache.watermark",
        "kv_cache.generated_tokens",
        "scheduler",
        "async_scheduling",
    )
)
"""The settings that the engines but vLLM decide."""


def find_answers(group: dict[str, Any]) -> None:
    """Lets a group find answers in its prefix cache, as engines do, not groups of other simulators.

    No flag states it.
    """
    if (group["preemption"], group["kv_cache"]["allocation"]) == ("keep_emitted", "check_then_act"):
        group["kv_cache"]["generated_tokens"] = True


def groups_of(
    pieces: Sequence[Piece], settings: Mapping[str, Any], system: str
) -> list[dict[str, Any]]:
    """A group for each piece; a single one stands for all of them.

    Raises ConfigError if there are several groups, but not as many.
    """
    groups: list[dict[str, Any]] = settings["instances"]
    if len(groups) == 1 and len(pieces) > 1:
        groups = [copy.deepcopy(groups[0]) for _ in pieces]
    if len(groups) != len(pieces):
        allowed = f"must be as many as the groups of instances: {len(groups)}"
        raise config_error([(f"servers of {system}", str(len(pieces)), allowed)])
    return groups


class Found(NamedTuple):
    """A server: its piece, its flags by name, and what of its command line is not read."""

    piece: Piece
    values: Mapping[str, Any]
    unread: Sequence[Unread] = ()


def change_groups(
    servers: Sequence[Found],
    settings: dict[str, Any],
    system: str,
    apply: Callable[[Fields, dict[str, Any]], list[Unread]],
    computed: Callable[[Fields], tuple[dict[str, Any], list[Unread]]] | None,
) -> list[Unread]:
    """Changes the instances to those of the servers of a system; what is not simulated.

    `apply` changes a group to its flags. `computed`: the group that is computed from the flags, or
    None if no accelerator is given.
    """
    unread: list[Unread] = []
    groups = groups_of([server.piece for server in servers], settings, system)
    states_roles = any(server.piece.role == "prefill" for server in servers)
    for i, (piece, values, own) in enumerate(servers):
        count_ = piece.replicas or groups[i]["count"]
        if computed is not None:
            groups[i], notes = computed(Fields(piece.where, values))
            unread += notes
        groups[i]["count"] = count_
        if states_roles:
            groups[i]["role"] = piece.role or "both"
        unread += [*own, *apply(Fields(piece.where, values), groups[i]), *variables(piece)]
    settings["instances"] = groups
    if has_pools(settings):
        plain = EngineRules().to_dict()
        for (piece, *_), group in zip(servers, groups, strict=True):
            if group["engine_rules"] != plain:
                group["engine_rules"] = plain
                reason = "with two pools, the scheduler has the rules of the default server"
                unread.append(Unread(f"{piece.where}: version", None, reason, "assumed"))
    return unread


def by_name(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces in the natural order of their places."""
    return sorted(pieces, key=lambda piece: _natural(piece.where))


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)]


# --- values ---------------------------------------------------------------------------------------

_MULTIPLES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def count(fields: Fields, name: str, default: Any) -> Any:
    """A whole number; engines also take 16k (16,000) and 16K (16,384)."""
    value = fields.take(name, "str" if isinstance(fields.values.get(name), str) else "int")
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmgKMG])", value)
        if not found:
            where = f"{fields.where}: {name}"
            raise config_error([(where, repr(value), "must be a whole number, e.g. 8192 or 8K")])
        value = int(float(found[1]) * _MULTIPLES[found[2]])
    return default if value is None else value


def described(
    fields: Fields, names: Iterable[str], pipelines: Iterable[str], gpu: str | None
) -> list[Unread]:
    """What of a server, by the names of its flags, nothing simulates.

    Without an accelerator that is model, types and parallelism; pipelines are never modeled.
    """
    unread = []
    for name in pipelines:
        if count(fields, name, 1) != 1:
            reason = "pipeline parallelism is not modeled"
            unread.append(
                Unread(f"{fields.where}: {name}", fields.values[name], reason, "not_modeled")
            )
    for name in names:
        value = fields.values.get(name)
        fields.drop(name)
        if gpu is None and value not in (None, 1, "auto", MODEL, "$MODEL"):
            reason = "describes the server: give gpu, and it is computed"
            unread.append(Unread(f"{fields.where}: {name}", value, reason))
    return unread


def auto_length(group: Mapping[str, Any], own_len: int) -> int:
    """The longest request that the KV memory of a rank holds; at most that of the model."""
    tokens = int(group["num_kv_blocks"] * group["block_size_tokens"])
    return min(own_len, tokens) if own_len else tokens


def resize(group: dict[str, Any], size: int | None, tokens: int | None) -> None:
    """Gives blocks another size, in the same KV memory, and the memory other tokens."""
    held = group["block_size_tokens"] * group["num_kv_blocks"] if tokens is None else tokens
    if size is None and tokens is None:
        return
    size = group["block_size_tokens"] if size is None else size
    if size < 1 or held < size:
        raise config_error([("size of a block", str(size), f"must be >= 1 and <= {held} tokens")])
    group |= {"block_size_tokens": size, "num_kv_blocks": held // size}


def classified(unread: Iterable[Unread], irrelevant: re.Pattern[str]) -> list[Unread]:
    """The same fields; those whose name matches are irrelevant."""
    return [
        Unread(entry.field, entry.value, "does not concern a simulation", "irrelevant")
        if entry.effect == "not_simulated"
        and entry.reason == "has no counterpart in a simulation"
        and irrelevant.fullmatch(entry.field.rpartition(": ")[2])
        else entry
        for entry in unread
    ]


def with_config(
    line: Line, config: Any, where: str, known: Flags, files: Mapping[str, str] | None = None
) -> Line:
    """A command line with the flags of a file, which its own flags override.

    `config`: the content, or the path of a file that is among `files`.
    """
    if files is not None:
        name = str(config).rpartition("/")[2]
        if name not in files:
            reason = "is not among the files, so its flags are not known"
            line.unread.append(Unread(f"{where}: config", config, reason, "not_modeled"))
            return line
        config, where = parse(files[name], name, is_json=name.endswith(".json")), name
    if not isinstance(config, dict):
        raise config_error([(where, f"{config!r:.40}", "must be a mapping of flags")])
    given: dict[str, Any] = {}
    for key, value in config.items():
        name = key.replace("_", "-")
        flag = known.get(f"--{name}", where)
        is_off = flag is None and name.startswith("no-") and isinstance(value, bool)
        if is_off:
            flag = known.get(f"--{name[3:]}", where)
        if flag is None:
            reason = f"is no flag of {known.program} {known.version}{known.nearest(f'--{name}')}"
            line.unread.append(Unread(f"{where}: {key}", value, reason))
        else:
            given[flag.name] = not value if is_off else value
    for name in given.keys() & line.values.keys():
        reason = "is overridden by the command line"
        line.unread.append(Unread(f"{where}: {name}", given[name], reason, "irrelevant"))
    line.values = given | line.values
    return line


def has_flags(content: Any, known: Flags, naming: set[str]) -> bool:
    """Whether the keys of a mapping are flags: all, or most and one that names the model."""
    if not isinstance(content, dict) or not content:
        return False
    names = [str(key).replace("_", "-") for key in content]
    flags = [name for name in names if known.exactly(f"--{name.removeprefix('no-')}")]
    if len(flags) == len(names):
        return any("-" in name for name in names) or not naming.isdisjoint(names)
    return not naming.isdisjoint(names) and 2 * len(flags) >= len(names)


# --- checkpoints ----------------------------------------------------------------------------------

_TAGS = (
    (re.compile(r"nvfp4|fp4"), "nvfp4"),
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r".*fp8.*|f8"), "fp8"),
    (re.compile(r"awq.*|gptq.*|.*w4a\d+|int4|.*4bit|bnb|bitsandbytes|marlin|q4\w*"), "int4"),
    (re.compile(r".*w8a\d+|int8|.*8bit|smoothquant|q8\w*"), "int8"),
)
_METHODS = {
    method: dtype
    for dtype, methods in {
        "fp8": "fp8 fbgemm_fp8 ptpc_fp8 modelopt w8a8_fp8 fp8_per_tensor",
        "nvfp4": "modelopt_fp4 nvfp4 petit_nvfp4",
        "mxfp4": "mxfp4 quark_mxfp4",
        "int4": "awq awq_marlin gptq gptq_marlin gptq_bitblas moe_wna16 bitsandbytes auto-round "
        "hqq w4afp8 marlin",
        "int8": "w8a8_int8 experts_int8 tpu_int8 blockwise_int8",
    }.items()
    for method in methods.split()
}


def checkpoint(name: str) -> tuple[str, str | None]:
    """The model of the catalog that a checkpoint is, and the type of its weights by its name.

    The name may be a repository of quantized weights, or a path that ends like a repository. It
    stays as it is if nothing in the catalog is like it; None: the published type.
    """
    if name.endswith(".json") or name == "$MODEL":
        return name, None
    known = {found.repository.rpartition("/")[2].lower(): found for found in map(model, models())}
    names = {found.repository.lower() for found in known.values()} | {*models()}
    if name.lower() in names:
        return name, None
    base = name.rstrip("/").rpartition("/")[2].lower()
    words = re.split(r"[-_]", base)
    dtype, stem = None, base
    for i, word in enumerate(words):
        dtype = next((kind for tag, kind in _TAGS if tag.fullmatch(word)), None)
        if dtype is None and word.startswith("quantized."):
            dtype = next((kind for tag, kind in _TAGS if tag.fullmatch(word[10:])), None)
        if dtype is not None:
            stem = "-".join(words[:i])
            break
    for candidate in (stem, stem.removeprefix("meta-"), f"{stem}-instruct"):
        if candidate in known:
            return known[candidate].repository, dtype
    return name, dtype


def assumed(name: str, method: str | None, where: str) -> tuple[dict[str, Any], list[Unread]]:
    """Model and type of the weights of a checkpoint, and what was assumed of it."""
    found, dtype = checkpoint(name)
    unread = []
    if method is not None:
        known = _METHODS.get(method.lower(), dtype)
        if known is None:
            reason = "is no quantization that is modeled: the weights would be in bf16"
            unread.append(Unread(f"{where}: quantization", method, reason, "not_modeled"))
        dtype = known
    if found != name:
        reason = f"is computed as {found}" + (f" with weights in {dtype}" if dtype else "")
        unread.append(Unread(f"{where}: model", name, reason))
    return {"model": found} | ({"dtype": dtype} if dtype else {}), unread
