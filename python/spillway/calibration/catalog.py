"""What the catalog of servers knows about a server that is fitted."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

from spillway._core.sim import ConfigError
from spillway.servers.engine import DEFAULT_ENGINE, engine
from spillway.servers.model import WEIGHT_BYTES, Model, model
from spillway.servers.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.data.recording import ServerFacts


NEVER_BINDS = 132_139
"""KV blocks of a server about whose memory nothing is known."""

_DTYPES = ("moe_quant_mode", "gemm_quant_mode", "precision", "dtype")


class Limit(NamedTuple):
    """A limit of an engine, and where it comes from."""

    value: int
    source: str


@functools.lru_cache(maxsize=64)
def architecture_of(name: str | None) -> Model | None:
    """The model of the catalog with this name."""
    if name is None:
        return None
    try:
        return model(name)
    except ConfigError:
        return None


def version_of(server: ServerFacts) -> tuple[int, int] | None:
    """Major and minor version of vLLM; None: not stated, or another engine."""
    if server.engine is not None and not server.engine.lower().startswith("vllm"):
        return None
    found = re.match(r"v?(\d+)\.(\d+)", server.engine_version or "")
    return (int(found[1]), int(found[2])) if found else None


@functools.lru_cache(maxsize=64)
def server_of(facts: ServerFacts, dtype: str | None = None) -> Server | None:
    """The server of the catalog; None without a model and an accelerator that it knows."""
    if facts.model is None or facts.gpu is None:
        return None
    version = version_of(facts)
    try:
        name = f"vllm-{version[0]}.{version[1]}" if version else DEFAULT_ENGINE
        return Server(
            model=facts.model,
            gpu=facts.gpu,
            tp=facts.tensor_parallel_size or 1,
            dp=facts.data_parallel_size or 1,
            dtype=dtype,
            engine=name if _is_known(name) else DEFAULT_ENGINE,
            max_num_seqs=facts.max_num_seqs,
            max_num_batched_tokens=facts.max_num_batched_tokens,
            max_model_len=facts.max_model_len,
            num_kv_blocks=facts.num_kv_blocks,
            block_size_tokens=facts.block_size_tokens or 16,
        )
    except ConfigError:
        return None


def _is_known(name: str) -> bool:
    try:
        engine(name)
    except ConfigError:
        return False
    return True


def dtype_of(columns: Mapping[str, str]) -> str | None:
    """The type of weights that the columns of a table of points state."""
    found = (columns.get(name, "").removesuffix("_wo") for name in _DTYPES)
    return next((dtype for dtype in found if dtype in WEIGHT_BYTES), None)


def limits_of(facts: ServerFacts) -> dict[str, Limit]:
    """The limits of the engine: stated, of the catalog, or a default."""
    known = {
        "data_parallel_size": Limit(1, "default"),
        "max_num_seqs": Limit(256, "default: vLLM's on small accelerators"),
        "max_num_batched_tokens": Limit(2048, "default: vLLM's on small accelerators"),
        "max_model_len": Limit(0, "default: no limit"),
        "block_size_tokens": Limit(16, "default"),
        "num_kv_blocks": Limit(NEVER_BINDS, "default: memory hardly ever binds"),
    }
    server = server_of(facts)
    if server is not None:
        group = server.group
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            source = f"default of {server.version.name} on {server.accelerator.name}"
            known[name] = Limit(getattr(group, name), source)
        known["num_kv_blocks"] = Limit(
            group.num_kv_blocks,
            "the catalog's memory model, which was 29 to 38% too high on two servers",
        )
    for name in known:
        if (value := getattr(facts, name)) is not None:
            known[name] = Limit(value, "stated")
    return known
