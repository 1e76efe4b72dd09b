"""Lines of `sglang.bench_serving --output-file`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def line_of(
    *, rate: float | str = float("inf"), limit: int | None = 2, count: int = 4, **others: Any
) -> dict[str, Any]:
    """The aggregate of a run."""
    return {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": rate,
        "max_concurrency": limit,
        "random_input_len": 100,
        "random_output_len": 3,
        "random_range_ratio": 1.0,
        "duration": 2.0,
        "completed": count,
        "total_input_tokens": 100 * count,
        "total_output_tokens": 3 * count,
        "mean_e2e_latency_ms": 760.0,
        "mean_ttft_ms": 500.0,
        "mean_tpot_ms": 125.0,
        "mean_itl_ms": 125.0,
        "concurrency": 1.52,
        **others,
    }


def details_of(ttfts: Sequence[float], **others: Any) -> dict[str, Any]:
    """The lists of a run of requests with three tokens, 125 ms apart."""
    return {
        "input_lens": [100] * len(ttfts),
        "output_lens": [3] * len(ttfts),
        "ttfts": list(ttfts),
        "itls": [[0.125, 0.125]] * len(ttfts),
        "generated_texts": [""] * len(ttfts),
        "errors": [""] * len(ttfts),
        **others,
    }


def written(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path
