"""A server as one noun: model, accelerator and engine, or a profile of `spillway calibrate`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import yaml

from spillway._core.instance import InstanceGroup, KvCache
from spillway._core.sim import ConfigError
from spillway.config import acceptance
from spillway.config.classes import config_error
from spillway.config.files import read_settings
from spillway.config.merging import merged
from spillway.config.messages import note
from spillway.config.yaml import to_flow
from spillway.servers import physics
from spillway.servers.accelerator import Accelerator, accelerator
from spillway.servers.engine import DEFAULT_ENGINE, NEWEST, Engine, engine
from spillway.servers.memory import ELEMENT_BYTES, Layout, Memory, Placement, memory_of
from spillway.servers.model import WEIGHT_BYTES, Model, model

if TYPE_CHECKING:
    from pathlib import Path


_BLOCK_SIZE_TOKENS = 16
_PROFILE = "server_profile"
_MOST_TP = 64


class Origin(NamedTuple):
    """A setting of a server: its name, its value as text, and where it comes from."""

    setting: str
    value: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Server:
    """A model server, as `vllm serve` with these flags would start it.

    Step times are computed from datasheets (`physics`) with efficiencies that were fitted to few
    servers: `draws` gives servers from their uncertainty, which measured ones often exceed (see the
    guide *Describe your servers*). Measurements are better: see `spillway.calibrate`. A `Server`
    stands wherever an `InstanceGroup` is expected; `group` is that group, and `group.replace(…)`
    changes any setting.

    Parameters
    ----------
    model : str or Model
        A name of the catalog (`spillway describe servers`), a Hugging Face repository in it, the
        path of a `config.json`, or a `Model`.
    gpu : str, mapping or Accelerator
        A name of the catalog, or the numbers of a datasheet: `memory_gib`, `bandwidth_tb_s`,
        `dense_tflops` (with `bf16`), `link_gb_s`.
    tp, dp : int
        Tensor- and data-parallel size, >= 1. The data-parallel ranks of a mixture of experts share
        its experts, so they step together (`InstanceGroup.lockstep_ranks`).
    pp : int
        Pipeline-parallel size, >= 1. vLLM keeps one batch in flight per stage; these batches are
        simulated as `pp` ranks that each pass all stages and have an equal part of the KV memory
        and of `max_num_seqs`, so an uneven split of requests over batches is overstated. A mixture
        of experts has `pp` or `dp` above 1, not both.
    enable_expert_parallel : bool
        Whole routed experts on each accelerator instead of a part of each. The step time is the
        same: an uneven use of experts is not modeled.
    dtype : str, optional
        Type of the weights: bf16, fp8, int8, int4, mxfp4, nvfp4. By default that of the published
        ones.
    kv_cache_dtype : str
        bf16 or fp8.
    engine : str
        vllm-X.Y; its defaults hold for what is not given.
    gpu_memory_utilization : float, optional
        In (0, 1].
    max_num_seqs, max_num_batched_tokens, max_model_len, num_kv_blocks : int, optional
        By default what the engine chooses; `max_model_len` is also at most what the KV memory
        holds, where vLLM refuses to start.
    block_size_tokens : int

    Raises
    ------
    ConfigError
        An unknown name, a value out of range, or weights that do not fit.

    Examples
    --------
    >>> import spillway
    >>> server = spillway.instance.Server(model="llama-3.1-8b", gpu="h100", tp=2)
    >>> fleet = spillway.Simulation(instances=server.group.replace(count=4))
    >>> fleet.instances[0].count
    4
    """

    model: str | Model
    gpu: str | Mapping[str, Any] | Accelerator
    tp: int = 1
    dp: int = 1
    pp: int = 1
    enable_expert_parallel: bool = False
    dtype: str | None = None
    kv_cache_dtype: str = "bf16"
    engine: str = DEFAULT_ENGINE
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_kv_blocks: int | None = None
    block_size_tokens: int = _BLOCK_SIZE_TOKENS

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "pp", "block_size_tokens"):
            self._check_whole(name)
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_kv_blocks"):
            if getattr(self, name) is not None:
                self._check_whole(name)
        if self.dtype is not None and self.dtype not in WEIGHT_BYTES:
            self._refuse("dtype", _one_of(WEIGHT_BYTES))
        if self.kv_cache_dtype not in ELEMENT_BYTES:
            self._refuse("kv_cache_dtype", _one_of(ELEMENT_BYTES))
        share = self.gpu_memory_utilization
        if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
            self._refuse("gpu_memory_utilization", "must be > 0 and <= 1")
        architecture = self.architecture
        heads, layers = architecture.num_attention_heads, architecture.num_hidden_layers
        if self.tp > _MOST_TP or heads % self.tp:
            allowed = f"must divide the {heads} attention heads of {architecture.name}"
            if architecture.is_mixture and self.tp > 1:
                allowed += (
                    "; experts spread over more accelerators are data-parallel ranks with "
                    "enable_expert_parallel: state these as dp"
                )
            self._refuse("tp", allowed)
        if self.version.version > NEWEST:
            note(
                f"{self.version.name} is newer than the rules for its defaults, which are those of "
                f"vllm-{NEWEST[0]}.{NEWEST[1]}; check limits and memory against its start-up log"
            )
        if self.pp > layers:
            self._refuse("pp", f"must be <= {layers}, the layers")
        if self.pp > 1 and self.dp > 1 and architecture.is_mixture:
            self._refuse("pp", f"must be 1 for a mixture of experts with dp = {self.dp}")
        if self.num_kv_blocks is None and self.memory.blocks(self.block_size_tokens) < 1:
            self._refuse("tp", self._too_large())

    def _check_whole(self, name: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self._refuse(name, "must be a whole number >= 1")

    def _refuse(self, name: str, allowed: str) -> NoReturn:
        raise config_error([(name, repr(getattr(self, name)), allowed)])

    @cached_property
    def architecture(self) -> Model:
        """The model."""
        return self.model if isinstance(self.model, Model) else model(self.model)

    @cached_property
    def accelerator(self) -> Accelerator:
        """The accelerator."""
        return self.gpu if isinstance(self.gpu, Accelerator) else accelerator(self.gpu)

    @property
    def version(self) -> Engine:
        """The engine's version with its defaults."""
        return engine(self.engine)

    @property
    def layout(self) -> Layout:
        """How the model is spread over accelerators."""
        return Layout(self.tp, self.dp, self.pp, self.enable_expert_parallel)

    @property
    def weight_dtype(self) -> str:
        """Type of the weights."""
        return self.dtype or self.architecture.dtype

    @property
    def placement(self) -> Placement:
        """The model on its accelerators."""
        types = (self.weight_dtype, self.kv_cache_dtype)
        return Placement(self.architecture, self.accelerator, self.layout, *types)

    @property
    def memory(self) -> Memory:
        """The memory of one accelerator."""
        return self._memory_with(self.layout)

    def _memory_with(self, layout: Layout) -> Memory:
        placement = dataclasses.replace(self.placement, layout=layout)
        utilization = self.gpu_memory_utilization or self.version.gpu_memory_utilization
        return memory_of(placement, self.version, utilization, self._batch_limits)

    @property
    def group(self) -> InstanceGroup:
        """The server as settings of an instance."""
        return self.group_with(self.knowledge.efficiencies)

    def group_with(self, efficiencies: physics.Efficiencies) -> InstanceGroup:
        """The server as settings of an instance, with other efficiencies."""
        seqs, tokens = self._batch_limits
        version = self.version
        return InstanceGroup(
            data_parallel_size=self.dp * self.pp,
            lockstep_ranks=self.dp > 1 and self.architecture.is_mixture,
            max_num_seqs=math.ceil(seqs / self.pp),
            max_num_batched_tokens=tokens,
            max_model_len=self._max_model_len,
            block_size_tokens=self.block_size_tokens,
            num_kv_blocks=self._blocks // self.pp,
            kv_bytes_per_token=self.placement.kv_bytes_of_a_token,
            kv_cache=KvCache(reserve_full_prompt=version.reserve_full_prompt),
            latency=physics.roofline(self.placement, efficiencies),
            async_scheduling=version.async_scheduling,
            provenance=self.provenance,
        )

    def draws(self, count: int, seed: int = 0) -> list[InstanceGroup]:
        """Servers with efficiencies drawn from their uncertainty."""
        return [self.group_with(drawn) for drawn in physics.drawn(self.knowledge, count, seed)]

    @property
    def knowledge(self) -> physics.Knowledge:
        """The efficiencies; without measurements their source is "unvalidated"."""
        return physics.knowledge(self.placement)

    @property
    def provenance(self) -> str:
        """Where the settings come from, in words."""
        return f"server {to_flow(self.settings)}: physics, {self.knowledge.source}"

    @property
    def settings(self) -> dict[str, Any]:
        """What was given, in the form of a configuration file."""
        settings = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                value = value.name if isinstance(value, Model | Accelerator) else value
                settings[field.name] = dict(value) if isinstance(value, Mapping) else value
        return settings

    def origins(self) -> list[Origin]:
        """Every setting that differs from an instance's defaults, and where it comes from."""
        group = self.group
        chosen = f"default of {self.version.name} on {self.accelerator.name}"
        memory = self.memory
        held = (
            f"memory: {memory.budget / 1e9:.1f} GB - {memory.weights / 1e9:.1f} weights - "
            f"{memory.reserve / 1e9:.1f} reserve, "
            f"{memory.kv_bytes_per_token / 1024:.0f} KiB a token"
        )
        is_whole = self._max_model_len == self._longest
        length = "config.json" if is_whole else "what the KV memory holds"
        engines = f"default of {self.version.name}"

        def origin(name: str, other: str) -> str:
            return other if getattr(self, name) is None else "given"

        rows = [
            Origin("max_num_seqs", str(group.max_num_seqs), origin("max_num_seqs", chosen)),
            Origin("max_num_batched_tokens", str(group.max_num_batched_tokens),
                   origin("max_num_batched_tokens", chosen)),
            Origin("max_model_len", str(group.max_model_len), origin("max_model_len", length)),
            Origin("num_kv_blocks", str(group.num_kv_blocks), origin("num_kv_blocks", held)),
            Origin("kv_bytes_per_token", str(group.kv_bytes_per_token), "config.json"),
            Origin("block_size_tokens", str(group.block_size_tokens), "given"
                   if self.block_size_tokens != _BLOCK_SIZE_TOKENS else engines),
            Origin("async_scheduling", str(group.async_scheduling).lower(), engines),
            Origin("kv_cache.reserve_full_prompt",
                   str(group.kv_cache.reserve_full_prompt).lower(), engines),
        ]  # fmt: skip
        if group.lockstep_ranks:
            rows.append(Origin("lockstep_ranks", "true", "mixture of experts with dp > 1"))
        for name in ("constant_us", "weights_us", "expert_weights_us", "token_us", "decode_us",
                     "decode_context_us", "prefill_context_us", "alpha0_us"):  # fmt: skip
            if value := getattr(group.latency, name):
                source = f"physics, {self.knowledge.source}"
                rows.append(Origin(f"latency.{name}", f"{value:.4g}", source))
        return rows

    def __settings__(self) -> InstanceGroup:
        return self.group

    @property
    def _batch_limits(self) -> tuple[int, int]:
        seqs, tokens = self.version.batch_limits(self.accelerator)
        return self.max_num_seqs or seqs, self.max_num_batched_tokens or tokens

    @property
    def _blocks(self) -> int:
        return self.num_kv_blocks or self.memory.blocks(self.block_size_tokens)

    @property
    def _longest(self) -> int:
        return self.architecture.max_position_embeddings

    @property
    def _max_model_len(self) -> int:
        wanted = self.max_model_len or self._longest
        return min(wanted, self._blocks // self.pp * self.block_size_tokens)

    def _too_large(self) -> str:
        memory = self.memory
        needs = (
            f"{self.architecture.name} needs {memory.weights / 1e9:.1f} GB for {self.weight_dtype} "
            f"weights and {memory.reserve / 1e9:.1f} GB beside on each {self.accelerator.name}, "
            f"which offers {memory.budget / 1e9:.1f} GB"
        )
        for more in (2, 4, 8, 16, 32):
            larger = more > self.tp and self.architecture.num_attention_heads % more == 0
            if larger and self._memory_with(dataclasses.replace(self.layout, tp=more)).kv > 0:
                return f"{needs}; it fits with tp >= {more}"
        return needs


def with_servers(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of a configuration file with the instances that its keys `server` stand for.

    `server` is a mapping of the parameters of `Server`, or the path of a profile of
    `spillway calibrate`, relative to `folder`. Other settings of the instance override it.

    Raises ConfigError with the path of what is wrong.
    """
    given = settings.get("instances")
    groups = given if isinstance(given, list) else [given]
    if not any(isinstance(group, Mapping) and "server" in group for group in groups):
        return dict(settings)
    found = []
    for i, group in enumerate(groups):
        if not isinstance(group, Mapping) or "server" not in group:
            found.append(group)
            continue
        path = f"instances[{i}].server" if isinstance(given, list) else "instances.server"
        own = {key: value for key, value in group.items() if key != "server"}
        server = _group_settings(group["server"], path, folder)
        if "latency" in own:
            server.pop("fitted_states", None)  # which are those of the server's latency
        whole = merged(server, own)
        if isinstance(group["server"], str):
            whole = _judged(whole, folder / group["server"])
        found.append(whole)
    return {**settings, "instances": found}


def _judged(settings: dict[str, Any], file: Path) -> dict[str, Any]:
    """The settings with what recordings say of the server, in its provenance."""
    verdicts = acceptance.file_of(file)
    if not verdicts.is_file():
        return settings
    try:
        group = InstanceGroup.from_dict(settings)
    except ConfigError:
        return settings  # which the reader refuses, with the paths of the file
    return settings | {"provenance": acceptance.marked(group, verdicts).provenance}


def json_schema() -> dict[str, Any]:
    """JSON Schema of the key `server`."""
    types: dict[str, Any] = {"model": {"type": "string"}, "gpu": {"type": ["string", "object"]}}
    names = {"bool": "boolean", "str": "string", "float": "number"}
    for field in dataclasses.fields(Server)[2:]:
        name = names.get(str(field.type).partition(" ")[0])
        types[field.name] = {"type": name} if name else {"type": "integer", "minimum": 1}
    settings = {
        "type": "object",
        "properties": types,
        "required": ["model", "gpu"],
        "additionalProperties": False,
    }
    return {
        "anyOf": [settings, {"type": "string"}],
        "description": "The server: model, accelerator and engine, or a profile of spillway "
        "calibrate. The other settings of the instance override it.",
    }


def _group_settings(given: Any, path: str, folder: Path) -> dict[str, Any]:
    if isinstance(given, str):
        return _of_profile(folder / given)
    if not isinstance(given, Mapping):
        allowed = "must be a mapping such as {model: llama-3.1-8b, gpu: h100}, or a profile's path"
        raise config_error([(path, repr(given), allowed)])
    known = [field.name for field in dataclasses.fields(Server)]
    for key, value in given.items():
        if key not in known:
            raise config_error([(f"{path}.{key}", repr(value), _one_of(known))])
    for key in ("model", "gpu"):
        if key not in given:
            raise config_error([(f"{path}.{key}", "", "is missing")])
    if isinstance(given["model"], str) and given["model"].endswith(".json"):
        given = {**given, "model": str(folder / given["model"])}
    try:
        settings: dict[str, Any] = Server(**given).group.to_dict()
    except ConfigError as error:
        raise config_error(
            [(f"{path}.{place}", value, allowed) for place, value, allowed in error.violations]
        ) from error
    return settings


def read_profile(file: Path) -> tuple[InstanceGroup, dict[str, Any]]:
    """The instance of a profile of `spillway calibrate` or `servers --table`, and the file."""
    document = read_settings(file)
    if document.get("kind") != _PROFILE or not isinstance(document.get("instance"), dict):
        allowed = f"must be a file of spillway calibrate or spillway servers (kind: {_PROFILE})"
        raise config_error([(str(file), "", allowed)])
    return InstanceGroup.from_dict(document["instance"]), document


def model_named_in(provenance: str) -> str | None:
    """The model of the server whose `provenance` this is; None: it names no known one."""
    found = re.match(r"server (\{.*\}): physics, ", provenance)
    name = yaml.safe_load(found[1])["model"] if found else None
    return None if name is None or name.endswith(".json") else str(name)


def _of_profile(file: Path) -> dict[str, Any]:
    group, document = read_profile(file)
    if "source" in document:
        origin = f"table of {document['source']}, unvalidated"
    else:
        origin = f"fitted to {_counted(document)}"
    settings: dict[str, Any] = group.replace(provenance=f"server {file}: {origin}").to_dict()
    return settings


def _counted(document: Mapping[str, Any]) -> str:
    """The measurements of a profile."""
    counts = []
    for what, key in (("measured run", "runs"), ("step log", "logs")):
        if count := len(document.get(key, [])):
            counts.append(f"{count} {what}{'' if count == 1 else 's'}")
    return " and ".join(counts)


def _one_of(names: Any) -> str:
    return f"must be one of {', '.join(names)}"
