"""`vllm bench serve` and `vllm bench sweep serve` of vLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .recipe import FAILING, Case, Recipe, compact, scaled, without

if TYPE_CHECKING:
    from pathlib import Path

_SERVE = [
    *("vllm", "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
    *("--base-url", "{url}", "--model", "stub", "--tokenizer", "{tokenizer}"),
    *("--dataset-name", "random", "--random-input-len", "64", "--random-output-len", "12"),
    *("--ignore-eos", "--percentile-metrics", "ttft,tpot,itl,e2el", "--disable-tqdm"),
    *("--ready-check-timeout-sec", "5"),
]
_SAVE = ["--save-result", "--result-filename", "result.json"]
_DROPPED = frozenset({"generated_texts"})


def _cases(version: str) -> dict[str, Case]:
    del version
    detailed = [*_SERVE, *_SAVE, "--save-detailed"]
    closed = [*_SERVE, "--num-prompts", "6", "--max-concurrency", "3", *_SAVE]
    append = [*closed, "--save-detailed", "--append-result"]
    limit = {"max_in_flight": 3, "warmup_requests": 0}
    cases = {
        "rate": Case(
            [*detailed, "--num-prompts", "14", "--request-rate", "12"],
            {"max_in_flight": None, "warmup_requests": 0},
            FAILING,
        ),
        "concurrency_warmup": Case(
            [*detailed, "--num-prompts", "10", "--max-concurrency", "3", "--num-warmups", "2"],
            {"max_in_flight": 3, "warmup_requests": 2},
        ),
        "not_detailed": Case(closed, limit),
        "append": Case(["bash", "-c", f"{_quoted(append)} && {_quoted(append)}"], limit),
    }
    bench = _quoted([*_SERVE, "--num-prompts", "6"])
    # The sweep starts and ends a process, but asks the stub whether it is ready.
    server = "bash -c 'sleep 600' server --host 127.0.0.1 --port {port}"
    cases["sweep"] = Case(
        [
            *("vllm", "bench", "sweep", "serve", "--serve-cmd", server, "--bench-cmd", bench),
            *("--bench-params", "bench.json", "--num-runs", "1", "-o", "results"),
            *("--after-bench-cmd", "true", "--experiment-name", "sweep"),
        ],
        {"runs": [1, 3]},
        files={"bench.json": '[{"max_concurrency": 1}, {"max_concurrency": 3}]\n'},
    )
    return cases


def _quoted(words: list[str]) -> str:
    return " ".join(words)


def _documents(text: str) -> list[Any]:
    """The only document of a file, or that of each line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def _small(text: str) -> str:
    return "".join(compact(without(document, _DROPPED)) for document in _documents(text))


def _same(text: str) -> str:
    return text


def _expected(folder: Path) -> list[dict[str, Any]]:
    paths = [folder / "result.json", *sorted(folder.glob("results/*/**/run=*.json"))]
    results = [
        result
        for path in paths
        if path.exists()
        for result in _documents(path.read_text(encoding="utf-8"))
    ]
    return [
        {
            "completed": result["completed"],
            "failed": result.get("failed"),
            "total_input_tokens": result["total_input_tokens"],
            "total_output_tokens": result["total_output_tokens"],
            "mean_ttft_s": scaled(result["mean_ttft_ms"], 1e-3),
            "mean_tpot_s": scaled(result["mean_tpot_ms"], 1e-3),
            "mean_itl_s": scaled(result["mean_itl_ms"], 1e-3),
            "mean_e2e_s": scaled(result.get("mean_e2el_ms"), 1e-3),
            "requests_per_s": result["request_throughput"],
        }
        for result in results
    ]


RECIPE = Recipe(
    versions=("0.33.0",),
    packages=lambda version: [f"vllm=={version}", "pandas"],
    cases=_cases,
    keep={"result.json": _small, "results/*/**/*.json": _small, "results/*/**/*.csv": _same},
    expected=_expected,
    changes="without generated_texts, in one line",
)
