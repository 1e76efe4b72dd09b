"""`sglang.bench_serving`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .recipe import FAILING, Case, Recipe, compact, scaled, without

if TYPE_CHECKING:
    from pathlib import Path

# Versions before 0.5 name what the load generator imports only in extras.
_IMPORTS = ["datasets", "pillow", "pybase64", "torch", "transformers"]
_DROPPED = frozenset({"generated_texts"})


def _packages(version: str) -> list[str]:
    return [f"sglang=={version}", *(_IMPORTS if version < "0.5" else [])]


def _case(client: dict[str, Any], *arguments: str, **options: Any) -> Case:
    return Case(
        [
            *("python", "-m", "sglang.bench_serving", "--base-url", "{url}", "--model", "stub"),
            *("--tokenizer", "{tokenizer}", "--dataset-name", "random-ids", "--disable-tqdm"),
            *("--random-input-len", "64", "--random-output-len", "12"),
            *("--random-range-ratio", "1", "--output-file", "result.jsonl", *arguments),
        ],
        client,
        **options,
    )


def _cases(version: str) -> dict[str, Case]:
    chat = "sglang-oai" if version < "0.5" else "sglang-oai-chat"
    return {
        "rate": _case(
            {"max_in_flight": None, "warmup_requests": 1},
            *("--backend", chat, "--num-prompts", "13", "--request-rate", "12"),
            "--output-details",
            behavior=FAILING,
        ),
        "concurrency": _case(
            {"max_in_flight": 3, "warmup_requests": 2},
            *("--backend", "sglang", "--num-prompts", "10", "--max-concurrency", "3"),
            *("--warmup-requests", "2", "--output-details"),
        ),
        "not_detailed": _case(
            {"max_in_flight": 3, "warmup_requests": 0},
            *("--backend", "sglang-oai", "--num-prompts", "6", "--max-concurrency", "3"),
            *("--warmup-requests", "0"),
        ),
    }


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def _small(text: str) -> str:
    return "".join(compact(without(line, _DROPPED)) for line in _lines(text))


def _expected(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "completed": result["completed"],
            "total_input_tokens": result["total_input_tokens"],
            "total_output_tokens": result["total_output_tokens"],
            "mean_ttft_s": scaled(result["mean_ttft_ms"], 1e-3),
            "mean_tpot_s": scaled(result["mean_tpot_ms"], 1e-3),
            "mean_itl_s": scaled(result["mean_itl_ms"], 1e-3),
            "mean_e2e_s": scaled(result["mean_e2e_latency_ms"], 1e-3),
            "requests_per_s": result["request_throughput"],
            "mean_concurrency": result["concurrency"],
        }
        for result in _lines((folder / "result.jsonl").read_text(encoding="utf-8"))
    ]


RECIPE = Recipe(
    versions=("0.4.6.post5", "0.5.23"),
    packages=_packages,
    cases=_cases,
    keep={"result.jsonl": _small},
    expected=_expected,
    changes="without generated_texts",
)
