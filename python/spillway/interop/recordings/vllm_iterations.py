"""Logs of vLLM's engine steps (`--enable-logging-iteration-details`, vLLM 0.15 and later).

A line per step, with anything before it: `Iteration(7): 2 context requests, 512 context tokens, 30
generation requests, 30 generation tokens, iteration elapsed time: 21.35 ms, GPU KV cache usage:
12.5%`. Source: vLLM pull request 31193; other lines are skipped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spillway.data.recording import StepLog
from spillway.interop.traces import TraceError

if TYPE_CHECKING:
    import os

__all__ = ["read_step_log"]


def __dir__() -> list[str]:
    return __all__


_LINE = re.compile(
    r"Iteration\((?P<index>\d+)\): (?P<prefill_requests>\d+) context requests, "
    r"(?P<prefill_tokens>\d+) context tokens, (?P<decode_requests>\d+) generation requests, "
    r"(?P<decode_tokens>\d+) generation tokens, iteration elapsed time: "
    r"(?P<ms>[\d.]+) ms(?:, GPU KV cache usage: (?P<usage>[\d.]+)%)?"
)


def read_step_log(path: str | os.PathLike[str], *, kv_cache_tokens: int | None = None) -> StepLog:
    """Reads the steps of a vLLM log, for `spillway.calibration.fit_step_logs`.

    Parameters
    ----------
    path : str or path-like
        The log of one server.
    kv_cache_tokens : int, optional
        The size of the KV cache that vLLM logs at its start ("GPU KV cache size: 288,608 tokens"),
        which gives the context tokens from the logged usage; by default it is searched for in the
        log. Without it the log has no context tokens.

    Raises
    ------
    TraceError
        The file cannot be read, has no such lines, or states a duration of 0.

    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    steps = list(_LINE.finditer(text))
    if not steps:
        raise TraceError(
            f"{path}: no line of a step; run vLLM with --enable-logging-iteration-details"
        )
    step_s = np.array([float(step["ms"]) for step in steps]) / 1e3
    if (step_s <= 0).any():
        which = steps[int(np.argmax(step_s <= 0))]
        raise TraceError(
            f"{path}: Iteration({which['index']}): an elapsed time of {which['ms']} ms must be > 0"
        )
    if kv_cache_tokens is None and (stated := re.search(r"KV cache size: ([\d,]+) tokens", text)):
        kv_cache_tokens = int(stated[1].replace(",", ""))
    context = None
    if kv_cache_tokens is not None and all(step["usage"] for step in steps):
        usage = np.array([float(step["usage"]) for step in steps]) / 100
        context = np.rint(usage * kv_cache_tokens).astype(np.int64)

    def column(name: str) -> np.ndarray:
        return np.array([int(step[name]) for step in steps], dtype=np.int64)

    return StepLog(
        name=path.stem,
        prefill_requests=column("prefill_requests"),
        prefill_tokens=column("prefill_tokens"),
        decode_requests=column("decode_requests"),
        step_s=step_s,
        context_tokens=context,
        source=str(path),
    )
