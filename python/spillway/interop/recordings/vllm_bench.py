"""Results of `vllm bench serve --save-result --save-detailed`.

One JSON object whose lists have an entry per request: `input_lens`, `output_lens`, `ttfts` (s),
`itls` (a list of gaps in seconds each), `start_times` (s) and `errors` (text, empty if it
succeeded). Source: vLLM 0.11, `vllm/benchmarks/serve.py`.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.data.recording import Recording
from spillway.interop.recordings.csv_runs import facts_of
from spillway.interop.traces import TraceError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read"]


def __dir__() -> list[str]:
    return __all__


_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times")


def read(path: Path) -> Recording:
    """The run of one file."""
    try:
        text = path.read_bytes()
        document: Any = json.loads(text)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path}: is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise TraceError(f"{path}: must be a JSON object with {', '.join(_LISTS)}")
    for name in _LISTS:
        if not isinstance(document.get(name), list):
            hint = "; run vllm bench serve with --save-detailed"
            raise TraceError(f"{path}: {name} must be a list with an entry per request{hint}")
    n = len(document["input_lens"])
    for name in _LISTS:
        if len(document[name]) != n:
            raise TraceError(
                f"{path}: {name} has {len(document[name])} entries, but input_lens has {n}"
            )
    if n == 0:
        raise TraceError(f"{path}: holds no requests")
    errors = document.get("errors") or [""] * n
    failed = np.array([bool(one) for one in errors])
    send_s = _numbers(path, document, "start_times")
    ttft_s = _numbers(path, document, "ttfts")
    try:
        gaps_s = np.array([float(np.sum(one)) for one in document["itls"]])
    except (TypeError, ValueError):
        raise TraceError(f"{path}: itls must be lists of numbers (s)") from None
    limit = document.get("max_concurrency")
    order = np.argsort(send_s, kind="stable")
    return Recording(
        name=path.stem,
        server=facts_of([{"model": document.get("model_id"), "engine": "vllm"}], str(path)),
        send_s=(send_s - send_s.min())[order],
        input_tokens=_numbers(path, document, "input_lens").astype(np.int64)[order],
        output_tokens=_numbers(path, document, "output_lens").astype(np.int64)[order],
        ttft_s=np.where(failed, np.nan, ttft_s)[order],
        e2e_s=np.where(failed, np.nan, ttft_s + gaps_s)[order],
        failed=failed[order],
        client_max_in_flight=limit if isinstance(limit, int) else None,
        source=str(path),
        sha256=hashlib.sha256(text).hexdigest(),
    )


def _numbers(path: Path, document: dict[str, Any], name: str) -> np.ndarray:
    for i, value in enumerate(document[name]):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TraceError(f"{path}: {name}[{i}] = {value!r}: must be a number")
    return np.array(document[name], dtype=float)
