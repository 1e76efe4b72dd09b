"""Reports of GuideLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def report_of(
    path: Path,
    benchmarks: list[dict[str, Any]] | dict[str, Any],
    **others: Any,
) -> Path:
    listed = benchmarks if isinstance(benchmarks, list) else [benchmarks]
    path.write_text(json.dumps({"benchmarks": listed, **others}))
    return path


def entry(begin_s: float, *, ttft_ms: float | None = 50.0, **others: Any) -> dict[str, Any]:
    return {
        "request_start_time": begin_s,
        "request_end_time": begin_s + 1.1,
        "request_latency": 1.1,
        "prompt_tokens": 100,
        "output_tokens": 50,
        "time_to_first_token_ms": ttft_ms,
        **others,
    }


def benchmark_of(
    successful: list[dict[str, Any]],
    *,
    strategy: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
    errored: Sequence[dict[str, Any]] = (),
    incomplete: Sequence[dict[str, Any]] = (),
    counts: tuple[int, int, int] | None = None,
    profile: dict[str, Any] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """A benchmark of 0.5 to 0.8."""
    statuses = ("successful", "errored", "incomplete")
    listed = dict(zip(statuses, (successful, errored, incomplete), strict=True))
    totals = counts or tuple(map(len, listed.values()))
    return {
        "config": {"strategy": strategy or {"type_": "poisson"}, "profile": profile or {}},
        "metrics": {"request_totals": dict(zip(statuses, totals, strict=True)), **(metrics or {})},
        "requests": listed,
        **others,
    }


def mean(value: float) -> dict[str, Any]:
    return {"successful": {"mean": value}}


START = 1772470000.0
TEN = [entry(START + 10 * at) for at in range(10)]
