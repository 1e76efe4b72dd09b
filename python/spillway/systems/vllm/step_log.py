"""Logs of vLLM with `--enable-logging-iteration-details`."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.formatting import quoted
from spillway.data.recording import ServerFacts, StepLog
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.server import merged, vllm_facts

if TYPE_CHECKING:
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


_BLOCK_TOKENS = 16  # vLLM's default on GPUs

_BEGIN = re.compile(r"(?<![A-Za-z])Iteration\([0-9]+\):")
_STEP = re.compile(
    r"(?<![A-Za-z])Iteration\([0-9]+\): "
    r"([0-9]{1,9}) context requests, ([0-9]{1,9}) context tokens, "
    r"([0-9]{1,9}) generation requests, ([0-9]{1,9}) generation tokens, "
    r"iteration elapsed time: ([0-9]{1,9}(?:\.[0-9]{1,9})?) ms( \(dummy\))?"
    r"(?:, GPU KV cache usage: ([0-9]{1,3}(?:\.[0-9]{1,9})?)%)?"
)
_ENGINE = re.compile(r"EngineCore_(DP[0-9]+)|Engine ([0-9]{3}):")
_CAPACITY = re.compile(r"GPU KV cache size: ([0-9][0-9,]{0,15}) tokens")
_VERSION = re.compile(r"(?:LLM engine \(v|vLLM API server version )([0-9][^\s)]*)")
_ARGUMENTS = re.compile(r"non-default args: (\{.*\})")


@dataclass
class _Engine:
    """The steps of one engine."""

    counts: list[tuple[int, int, int, int]] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    usage: list[float] = field(default_factory=list)


def _detect(source: Source) -> bool:
    return _BEGIN.search(source.text) is not None


def _read(source: Source, settings: Settings) -> list[StepLog]:
    """Steps without work (dummy) are left out.

    The context follows from the usage of the KV cache and its size, which is in the log too, or in
    `server` as `num_kv_blocks` and `block_size_tokens`. A log that states the size alone gives
    blocks of 16 tokens.
    """
    engines: dict[str, _Engine] = {}
    capacity_tokens: int | None = None
    reported: dict[str, Any] = {}
    for number, line in enumerate(source.text.splitlines(), start=1):
        if _BEGIN.search(line):
            _add(source, number, line, engines)
        elif found := _CAPACITY.search(line):
            capacity_tokens = int(found[1].replace(",", ""))
        if found := _VERSION.search(line):
            reported["vllm_version"] = found[1]
        if found := _ARGUMENTS.search(line):
            reported |= _arguments(found[1])
    if not engines:
        raise TraceError(f"{source.path}: holds no steps ({FORMAT.doc})")
    logged = vllm_facts(str(source.path), reported)
    if capacity_tokens is not None and logged.num_kv_blocks is None:
        of_caller = merged(ServerFacts(), settings.server, source.path).block_size_tokens
        size = of_caller or logged.block_size_tokens or _BLOCK_TOKENS
        logged = logged.replace(num_kv_blocks=capacity_tokens // size)
        if logged.block_size_tokens is None:
            logged = logged.replace(block_size_tokens=size)
    server = merged(logged, settings.server, source.path)
    if server.num_kv_blocks and server.block_size_tokens:
        capacity_tokens = server.num_kv_blocks * server.block_size_tokens
    return [
        _step_log(name, engine, server, capacity_tokens) for name, engine in sorted(engines.items())
    ]


def _add(source: Source, number: int, line: str, engines: dict[str, _Engine]) -> None:
    found = _STEP.search(line)
    if not found:
        shown = quoted(line.strip())
        raise TraceError(f"{source.path} line {number}: not a complete step: {shown}")
    if found[6]:
        return  # a dummy step of an idle engine, beside one that works
    named = _ENGINE.search(line, 0, found.start())
    name = (named[1] or named[2]) if named else "engine"
    engine = engines.setdefault(name, _Engine())
    engine.counts.append((int(found[1]), int(found[2]), int(found[3]), int(found[4])))
    engine.step_ms.append(float(found[5]))
    engine.usage.append(float(found[7]) / 100 if found[7] else math.nan)


def _arguments(text: str) -> dict[str, Any]:
    """Return vLLM's arguments; nothing if they are not plain values."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str | int | bool)}


def _step_log(
    name: str, engine: _Engine, server: ServerFacts, capacity_tokens: int | None
) -> StepLog:
    counts = np.array(engine.counts, np.int64)
    usage = np.array(engine.usage)
    known = capacity_tokens is not None and not np.isnan(usage).any()
    return StepLog(
        name=name,
        server=server,
        prefill_requests=counts[:, 0],
        prefill_tokens=counts[:, 1],
        decode_requests=counts[:, 2],
        decode_tokens=counts[:, 3],
        step_s=np.array(engine.step_ms) / 1e3,
        context_tokens=np.rint(usage * (capacity_tokens or 0)).astype(np.int64) if known else None,
    )


FORMAT = Format(
    name="vllm_steps",
    doc="log of `vllm serve --enable-logging-iteration-details`, an engine per data-parallel rank",
    gives=("step_logs",),
    detect=_detect,
    read=_read,
)
