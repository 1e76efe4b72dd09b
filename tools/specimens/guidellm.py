"""GuideLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .recipe import FAILING, USUAL, Case, Recipe, compact, scaled, version_of, without

if TYPE_CHECKING:
    from pathlib import Path

_DROPPED = frozenset(
    {"request_args", "prompt", "output", "warnings", "api_routes", "environment"}
    | {
        "settings",
        "traceback",
        "end_queuing_constraints",
        "end_processing_constraints",
        "scheduler_constraints",
    }
)


_FULL = ("0.3.1", "0.8.1")
_FEW = ("concurrent", "poisson_warmup", "turns")


def _packages(version: str) -> list[str]:
    return [f"guidellm=={version}", *(["transformers<5"] if version < "0.5" else [])]


def _command(
    version: str, profile: str, rate: str, count: int, *, warmup: str = "", data: str = ""
) -> list[str]:
    data = f"prompt_tokens=64,output_tokens=12{data}"
    if version_of(version) >= (0, 7):
        rates = {"concurrent": "streams", "sweep": "sweep_size"}
        chosen: dict[str, Any] = {"kind": profile}
        if rate:
            chosen[rates.get(profile, "rate")] = json.loads(rate)
        if warmup:
            chosen["warmup"] = {"percent": float(warmup)}
        return [
            *("guidellm", "run", "--backend", "kind=openai_http,target={url},model=stub"),
            *("--profile", json.dumps(chosen)),
            *("--constraint", f"kind=max_requests,count={count}"),
            *("--data", f"kind=synthetic_text,{data}"),
            *("--tokenizer", "kind=hf_auto,model={tokenizer}"),
            *("--output", "kind=json,path=benchmarks.json", "--disable-console-interactive"),
        ]
    old = version_of(version) < (0, 4)
    warm = "--warmup" if version_of(version) >= (0, 5) else "--warmup-percent"
    return [
        *("guidellm", "benchmark", "run", "--target", "{url}", "--model", "stub"),
        *("--rate-type" if old else "--profile", profile),
        *(["--rate", rate] if rate else []),
        *("--max-requests", str(count), "--data", data, "--processor", "{tokenizer}"),
        *(["--output-path", "benchmarks.json"] if old else ["--output-dir", "."]),
        *([] if old else ["--outputs", "json"]),
        *([warm, warmup] if warmup else []),
        "--disable-progress",
    ]


def _cases(version: str) -> dict[str, Case]:
    def closed(limit: int) -> dict[str, Any]:
        return {"max_in_flight": limit, "warmup_requests": 0}

    # Version 0.3 ends with an exception at the first error of a server.
    behavior = FAILING if version_of(version) >= (0, 4) else USUAL
    cases = {
        "synchronous": Case(_command(version, "synchronous", "", 6), closed(1)),
        "concurrent": Case(_command(version, "concurrent", "3", 14), closed(3), behavior),
        "constant": Case(_command(version, "constant", "10", 8), {"max_in_flight": None}),
        "poisson_warmup": Case(
            _command(version, "poisson", "12", 12, warmup="0.25"),
            {"max_in_flight": None, "warmup_share": 0.25},
        ),
        "sweep": Case(
            _command(version, "sweep", "3", 6), {"runs": ["synchronous", "throughput", "constant"]}
        ),
    }
    if version_of(version) >= (0, 6):
        cases["turns"] = Case(
            _command(version, "concurrent", "2", 9, data=",turns=3"),
            closed(2) | {"turns": 3},
        )
    if version not in _FULL:
        return {name: case for name, case in cases.items() if name in _FEW}
    return cases


def _small(text: str) -> str:
    report = without(json.loads(text), _DROPPED)
    for benchmark in report["benchmarks"]:
        benchmark["metrics"] = {
            key: value for key, value in benchmark["metrics"].items() if key == "request_totals"
        }
        for requests in benchmark["requests"].values():
            for request in requests or ():
                for key in ("input_metrics", "output_metrics"):
                    if key in request:
                        known = {k: v for k, v in request[key].items() if v is not None}
                        request[key] = known
    return compact(report)


def _expected(folder: Path) -> list[dict[str, Any]]:
    report = json.loads((folder / "benchmarks.json").read_text(encoding="utf-8"))
    runs = []
    for benchmark in report["benchmarks"]:
        metrics = benchmark["metrics"]

        def mean(name: str, scale: float = 1.0, metrics: Any = metrics) -> float | None:
            return scaled(metrics[name]["successful"]["mean"], scale)

        totals = metrics.get("request_totals") or benchmark["request_totals"]
        runs.append(
            {
                "completed": totals["successful"],
                "failed": totals["errored"],
                "incomplete": totals["incomplete"],
                "mean_input_tokens": mean("prompt_token_count"),
                "mean_output_tokens": mean("output_token_count"),
                "mean_ttft_s": mean("time_to_first_token_ms", 1e-3),
                "mean_itl_s": mean("inter_token_latency_ms", 1e-3),
                "mean_e2e_s": mean("request_latency"),
                "mean_concurrency": mean("request_concurrency"),
                "requests_per_s": mean("requests_per_second"),
            }
        )
    return runs


RECIPE = Recipe(
    versions=("0.3.1", "0.5.4", "0.7.4", "0.8.1"),
    packages=_packages,
    cases=_cases,
    keep={"benchmarks.json": _small},
    expected=_expected,
    environment={"GUIDELLM__MAX_WORKER_PROCESSES": "1"},
    changes=f"without the keys {', '.join(sorted(_DROPPED))}; of `metrics` only `request_totals`; "
    "without the nulls of `input_metrics` and `output_metrics`",
)
