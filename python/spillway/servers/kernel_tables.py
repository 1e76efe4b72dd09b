"""Step tables from the kernel measurements of the PyPI package aiconfigurator-core.

The package (0.12, Apache-2.0) holds measured times of kernels by accelerator and engine version,
and adds them up to steps. None of its data is part of Spillway. Such tables know kernels alone: not
the engine's work on the host between steps, nor the way of a request into its queue. Measured on
Llama-70B elsewhere, they reach TPOT within 3 to 4% without calibration, but TTFT only within 25%.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.instance import InstanceGroup, StepTable
from spillway.config.classes import config_error
from spillway.config.extras import require
from spillway.servers.physics import PRIOR, WIDTHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.servers.server import Server


_PACKAGE = "aiconfigurator_core"
_EXTRA = "aiconfigurator"
_BACKEND = "vllm"

# The names of its quantization modes: of matrix products, of experts.
_GEMM = {"bf16": "bfloat16", "fp8": "fp8", "int8": "sq", "int4": "int4_wo", "nvfp4": "nvfp4"}
_EXPERTS = {
    "bf16": "bfloat16",
    "fp8": "fp8_block",
    "int4": "int4_wo",
    "mxfp4": "w4a16_mxfp4",
    "nvfp4": "nvfp4",
}
_KV = {"bf16": "bfloat16", "fp8": "fp8"}

_FIRST_TOKENS = 16
_FIRST_CONTEXT = 128
_PREFIX_TOKENS = 4096

# Standard deviations of the logarithms of what calibration may change.
_SCALE_WIDTHS = {"decode_scale": 0.05, "prefill_scale": 0.25, "alpha0_us": WIDTHS.entry_us}


@dataclass(frozen=True)
class KernelTable:
    """A server whose step times are sums of measured kernels.

    Attributes
    ----------
    group : InstanceGroup
        The server with a `StepTable`.
    source : str
        Package, accelerator and engine version of the measurements.

    """

    group: InstanceGroup
    source: str

    def to_dict(self) -> dict[str, Any]:
        """The content of a profile, as `server: FILE` in a configuration reads it."""
        names = list(_SCALE_WIDTHS)
        return {
            "kind": "server_profile",
            "version": 1,
            "source": self.source,
            "instance": self.group.to_dict(),
            "coefficients": {name: getattr(self.group.latency, name) for name in names},
            "covariance_of_logs": [
                [_SCALE_WIDTHS[name] ** 2 if name == other else 0.0 for other in names]
                for name in names
            ],
        }


def kernel_table(
    server: Server,
    *,
    decode_requests: Sequence[int] | None = None,
    prefill_tokens: Sequence[int] | None = None,
    context_tokens: Sequence[int] | None = None,
) -> KernelTable:
    """A server with the step table of aiconfigurator-core in place of the physics model.

    A step with prompts is the sum of the matrix products for all its tokens, of the attention of
    one prompt, and of the attention of its decoding requests. The entry delay is the physics
    model's prior.

    Parameters
    ----------
    server : Server
        A model whose architecture the package knows: one of the catalog, or the path of a
        `config.json`.
    decode_requests, prefill_tokens, context_tokens : sequences of int, optional
        Axes of the table, ascending, >= 1; by default powers of two up to the server's limits.

    Raises
    ------
    ImportError
        The extra `aiconfigurator` is not installed.
    ConfigError
        The package does not know the accelerator, the model or the type of the weights.

    """
    if server.pp > 1:
        raise config_error([("pp", str(server.pp), "must be 1 for a table of kernels")])
    engine = require(f"{_PACKAGE}.sdk.engine", _EXTRA)
    package = require(_PACKAGE, _EXTRA)
    logging.getLogger(_PACKAGE).setLevel(logging.ERROR)
    system, version = _system(server)
    layout = _layout(server)
    group = server.group
    longest = group.max_model_len
    decodes = list(decode_requests or _doubling(1, group.max_num_seqs))
    tokens = list(prefill_tokens or _doubling(_FIRST_TOKENS, group.max_num_batched_tokens))
    contexts = list(context_tokens or _doubling(_FIRST_CONTEXT, longest, factor=4))
    with tempfile.TemporaryDirectory() as folder:
        path = _model_path(server, Path(folder))
        try:
            steps = engine.EngineHandle.compile(path, system, _BACKEND, **layout)
            step_us = _durations_us(steps, decodes, tokens, contexts)
            prefix_us = _prefix_us(steps, tokens[-1], longest)
        except Exception as error:  # whatever the package raises
            allowed = f"aiconfigurator-core cannot compute this server: {error}"
            raise config_error([("--table", "aiconfigurator", allowed)]) from error
    table = StepTable(
        alpha0_us=PRIOR.entry_us,
        decode_requests=[0, *decodes],
        prefill_tokens=[0, *tokens],
        context_tokens=contexts,
        step_us=step_us,
        prefill_context_us=prefix_us,
    )
    source = f"{_PACKAGE.replace('_', '-')} {_version_of(package)}, {system}, {_BACKEND} {version}"
    return KernelTable(group.replace(latency=table, provenance=""), source)


def _durations_us(
    steps: Any, decodes: Sequence[int], tokens: Sequence[int], contexts: Sequence[int]
) -> list[float]:
    """Durations in the order of `StepTable.step_us`; those of no request are of the shortest."""
    found = []
    mixed = steps.mixed_step_breakdown
    for requests, prompt, context in itertools.product((0, *decodes), (0, *tokens), contexts):
        if prompt == 0:
            # The output's length of 2 puts the step at the end of the context.
            at = context if requests else contexts[0]
            ms = steps.decode_step_latency(requests or decodes[0], at, 2)
        else:
            _, shared, attention, _ = mixed(prompt, 0, prompt, 2)
            reads = 0.0
            if requests:
                _, shared, _, reads = mixed(prompt, requests, context, 2)
            ms = shared + attention + reads
        found.append(1e3 * ms)
    return found


def _prefix_us(steps: Any, tokens: int, longest: int) -> float:
    """Time per pair of a prompt token and one of a cached prefix."""
    prefix = min(_PREFIX_TOKENS, longest // 2)
    tokens = min(tokens, longest - prefix)
    behind = steps.predict_prefill_latency(1, prefix + tokens, prefix)
    alone = steps.predict_prefill_latency(1, tokens, 0)
    return max(0.0, float(1e3 * (behind - alone) / (prefix * tokens)))


def _system(server: Server) -> tuple[str, str]:
    """The name of the accelerator there, and the engine version of the measurements."""
    database = require(f"{_PACKAGE}.sdk.perf_database", _EXTRA)
    accelerator = server.accelerator
    for name in (accelerator.name, f"{accelerator.name}_sxm"):
        found = name.lower().replace("-", "_")
        if slots := database.get_version_slots(found, _BACKEND):
            return found, slots["current"]
    allowed = "is not an accelerator with measurements of vLLM in aiconfigurator-core"
    raise config_error([("gpu", accelerator.name, allowed)])


def _layout(server: Server) -> dict[str, Any]:
    """Types and parallelism, as `EngineHandle.compile` takes them."""
    model, dtype, layout = server.architecture, server.weight_dtype, server.layout
    known = _EXPERTS if model.is_mixture else _GEMM
    if dtype not in known:
        raise config_error([("dtype", dtype, f"must be one of {', '.join(known)}")])
    found: dict[str, Any] = {
        "tp_size": layout.tp,
        "attention_dp_size": layout.dp,
        "gemm_quant_mode": _GEMM.get(dtype, "bfloat16"),
        "kvcache_quant_mode": _KV[server.kv_cache_dtype],
    }
    if model.is_mixture:
        ways = ("moe_ep_size", "moe_tp_size")
        used, unused = ways if layout.has_expert_parallel else reversed(ways)
        found |= {used: layout.expert_ranks, unused: 1, "moe_quant_mode": _EXPERTS[dtype]}
    return found


def _model_path(server: Server, folder: Path) -> str:
    """A name or folder with a `config.json` that the package reads without network."""
    if isinstance(server.model, str) and server.model.endswith(".json"):
        text = Path(server.model).read_text(encoding="utf-8")
    else:
        model = server.architecture
        if model.is_mixture or model.kv_lora_rank or model.sliding_window:
            shipped = Path(require(_PACKAGE, _EXTRA).__file__).parent / "model_configs"
            name = f"{model.repository.replace('/', '--')}_config.json"
            if (shipped / name).is_file():
                return str(model.repository)
            allowed = "give the path of its config.json: its architecture is not a plain one"
            raise config_error([("model", model.name, allowed)])
        # What a step costs depends on these numbers alone.
        fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                  "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings",
                  "tie_word_embeddings")  # fmt: skip
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
        text = json.dumps(config | {name: getattr(model, name) for name in fields})
    (folder / "config.json").write_text(text, encoding="utf-8")
    return str(folder)


def _doubling(first: int, last: int, factor: int = 2) -> list[int]:
    """Powers from the first value on, and the last one."""
    count = max(0, math.ceil(math.log(last / first, factor))) if last > first else 0
    return [*(first * factor**i for i in range(count)), last]


def _version_of(package: Any) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        return str(getattr(package, "__version__", "of unknown version"))
