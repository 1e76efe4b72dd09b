"""AIPerf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .recipe import FAILING, Case, Recipe, compact, scaled, version_of

if TYPE_CHECKING:
    from pathlib import Path


def _case(client: dict[str, Any], *arguments: str, **options: Any) -> Case:
    return Case(
        [
            *("aiperf", "profile", "--model", "stub", "--url", "{url}", "--endpoint-type", "chat"),
            *("--streaming", "--tokenizer", "{tokenizer}", "--isl", "64", "--osl", "12"),
            *("--ui", "none", "--artifact-dir", ".", "--no-gpu-telemetry", "--no-server-metrics"),
            *("--random-seed", "1", "--workers-max", "1", "--record-processors", "1", *arguments),
        ],
        client,
        **options,
    )


def _cases(version: str) -> dict[str, Case]:
    turns = ("--num-conversations", "4", "--session-turns-mean", "3", "--session-turns-stddev", "0")
    cases = {
        "concurrency_warmup": _case(
            {"max_in_flight": 3, "warmup_requests": 2},
            *("--concurrency", "3", "--request-count", "8", "--warmup-request-count", "2"),
        ),
        "request_rate": _case(
            {"max_in_flight": None, "warmup_requests": 0},
            *("--request-rate", "12", "--request-count", "10"),
            behavior=FAILING,
        ),
        "rate_and_concurrency": _case(
            {"max_in_flight": 2, "warmup_requests": 0},
            *("--request-rate", "40", "--concurrency", "2", "--request-count", "8"),
        ),
        "turns": _case(
            {"max_in_flight": 2, "warmup_requests": 0, "turns": 3}, "--concurrency", "2", *turns
        ),
    }
    if version == "0.8.0":
        return {name: cases[name] for name in ("concurrency_warmup", "turns")}
    if version_of(version) >= (0, 8):
        cases["raw"] = _case(
            {"max_in_flight": 2, "warmup_requests": 0},
            *("--concurrency", "2", "--request-count", "3", "--export-level", "raw"),
        )
    return cases


def _without_texts(text: str) -> str:
    found = json.loads(text)
    found.get("input_config", {}).pop("cli_command", None)
    return compact(found)


def _raw(text: str) -> str:
    return "".join(compact(json.loads(line)) for line in text.splitlines()[:3])


def _same(text: str) -> str:
    return text


def _expected(folder: Path) -> list[dict[str, Any]]:
    found = json.loads((folder / "profile_export_aiperf.json").read_text(encoding="utf-8"))

    def average(name: str, scale: float = 1.0) -> float | None:
        return scaled((found.get(name) or {}).get("avg"), scale)

    return [
        {
            "completed": average("request_count"),
            "failed": average("error_request_count") or 0,
            "mean_input_tokens": average("input_sequence_length"),
            "mean_usage_input_tokens": average("usage_prompt_tokens"),
            "mean_output_tokens": average("output_sequence_length"),
            "mean_ttft_s": average("time_to_first_token", 1e-3),
            "mean_itl_s": average("inter_token_latency", 1e-3),
            "mean_e2e_s": average("request_latency", 1e-3),
            "requests_per_s": average("request_throughput"),
            "cached_tokens": average("total_usage_prompt_cache_read_tokens"),
        }
    ]


RECIPE = Recipe(
    versions=("0.4.0", "0.8.0", "0.13.0"),
    packages=lambda version: [
        f"aiperf=={version}",
        *(["transformers<5", "pyarrow<20"] if version_of(version) < (0, 8) else []),
    ],
    cases=_cases,
    keep={
        "profile_export.jsonl": _same,
        "profile_export_aiperf.json": _without_texts,
        "profile_export_raw.jsonl": _raw,
        "phase_manifest.json": _same,
    },
    expected=_expected,
    changes="profile_export_aiperf.json in one line, without input_config.cli_command",
)
