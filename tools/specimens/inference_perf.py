"""inference-perf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .recipe import FAILING, Case, Recipe, compact, version_of, without

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG = """\
api:
  type: {api}
  streaming: true
server:
  type: vllm
  model_name: stub
  base_url: {{url}}
  ignore_eos: true
tokenizer:
  pretrained_model_name_or_path: {{tokenizer}}
data:
{data}
load:
{load}
report:
  request_lifecycle:
    summary: true
    per_stage: true
    per_request: true
storage:
  local_storage:
    path: reports
"""
_RANDOM = """\
  type: random
  input_distribution: {{min: 48, max: 80, mean: 64, std_dev: 8, total_count: {count}}}
  output_distribution: {{min: 12, max: 12, mean: 12, std_dev: 0, total_count: {count}}}"""
_TURNS = """\
  type: shared_prefix
  shared_prefix:
    num_groups: 2
    num_prompts_per_group: 3
    system_prompt_len: 64
    question_len: 24
    output_len: 12
    enable_multi_turn_chat: true"""
_DROPPED = frozenset({"request", "response", "output_text", "response_chunks"})


def _case(client: dict[str, Any], load: str, data: str, api: str, **options: Any) -> Case:
    text = _CONFIG.format(api=api, data=data, load=load)
    return Case(
        ["inference-perf", "--config_file", "config.yml"],
        client,
        files={"config.yml": text},
        **options,
    )


def _cases(version: str) -> dict[str, Case]:
    random = _RANDOM.format(count=24)
    stages = "  type: {kind}\n  num_workers: 1\n  worker_max_concurrency: 20\n  stages:\n{stages}"
    two = "    - {rate: 4, duration: 2}\n    - {rate: 8, duration: 1}"
    cases = {
        "constant_stages": _case(
            {"max_in_flight": None, "warmup_requests": 0, "stages": 2},
            stages.format(kind="constant", stages=two),
            random,
            "completion",
            behavior=FAILING,
        ),
        "poisson": _case(
            {"max_in_flight": None, "warmup_requests": 0},
            stages.format(kind="poisson", stages="    - {rate: 5, duration: 2}"),
            random,
            "completion",
        ),
    }
    if version_of(version) >= (0, 3):
        closed = "    - {num_requests: 10, concurrency_level: 3}"
        cases["concurrent"] = _case(
            {"max_in_flight": 3, "warmup_requests": 0},
            stages.format(kind="concurrent", stages=closed),
            random,
            "completion",
        )
        cases["turns"] = _case(
            {"max_in_flight": None, "warmup_requests": 0, "sessions": 6},
            stages.format(kind="constant", stages="    - {rate: 6, duration: 3}"),
            _TURNS,
            "completion",
        )
    return cases


def _small(text: str) -> str:
    return compact(without(json.loads(text), _DROPPED))


def _same(text: str) -> str:
    return text


def _expected(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("reports/**/summary_lifecycle_metrics.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    good, latency = found["successes"], found["successes"]["latency"]

    def mean(values: dict[str, Any] | None) -> float | None:
        return values["mean"] if values else None

    return [
        {
            "completed": good["count"],
            "failed": found["failures"]["count"],
            "mean_input_tokens": mean(good.get("prompt_len") or good.get("prompt_tokens")),
            "mean_output_tokens": mean(good.get("output_len")),
            "mean_ttft_s": mean(latency.get("time_to_first_token")),
            "mean_tpot_s": mean(latency.get("time_per_output_token")),
            "mean_itl_s": mean(latency.get("inter_token_latency")),
            "mean_e2e_s": mean(latency.get("request_latency")),
            "cached_tokens": (good.get("prompt_tokens") or {}).get("cached"),
            "requests_per_s": good["throughput"]["requests_per_sec"],
        }
    ]


RECIPE = Recipe(
    versions=("0.3.0", "0.7.0"),
    packages=lambda version: [f"inference-perf=={version}"],
    cases=_cases,
    keep={"reports/**/*.json": _small, "reports/**/*.y*ml": _same},
    expected=_expected,
    changes=f"without {', '.join(sorted(_DROPPED))}; JSON in one line",
    python="3.13",
)
