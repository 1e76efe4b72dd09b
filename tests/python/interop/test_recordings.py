"""Recordings of real servers, from files of every format."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples, few_of
from support.paths import DATA, SHARED

import spillway
from spillway.data.recording import ServerFacts
from spillway.interop import recordings
from spillway.interop.recordings import (
    FORMATS,
    TraceError,
    format_of,
    read_histograms,
    read_points,
    read_recordings,
    read_step_logs,
    units,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from spillway.data.recording import Recording

FILES = DATA / "recordings"
MEASURED = SHARED / "data"

READERS: Mapping[str, Callable[..., list[Any]]] = {
    "recordings": read_recordings,
    "step_logs": read_step_logs,
    "histograms": read_histograms,
    "points": read_points,
}
FORMAT_OF = {
    "list_of_runs/runs.json": "folder",
    "object_of_runs/runs.json": "folder",
    "engine_timestamps/runs.json": "folder",
    "list_of_runs/chat.csv": "csv",
    "list_of_runs/code.csv": "csv",
    "object_of_runs/two_tenants.csv": "csv",
    "engine_timestamps/pro6000.csv": "csv",
    "requests.csv": "csv",
    "vllm_bench.json": "vllm_bench",
    "profile_export.jsonl": "aiperf",
    "aiperf_0_13.jsonl": "aiperf",
    "benchmarks.json": "guidellm",
    "guidellm_0_8.json": "guidellm",
    "per_request_lifecycle_metrics.json": "inference_perf",
    "inference_perf_0_7.json": "inference_perf",
    "blis.csv": "blis",
    "serve.log": "vllm_steps",
    "metrics.prom": "prometheus",
    "silicon.csv": "silicon",
}
GATEWAY = {
    "columns": {
        "send_s": "t0",
        "input_tokens": "prompt",
        "output_tokens": "answer",
        "ttft_s": "first_ms",
        "e2e_s": "last_us",
        "failed": "bad",
        "tenant": "key",
    },
    "units": {"t0": "s"},
}


def one(path: str | Path, **options: Any) -> Recording:
    """The only run of a file, which may be named relative to the files of these tests."""
    (run,) = read_recordings(FILES / path, **options)
    return run


def values(column: Any) -> list[Any]:
    """A column as a list; None for NaN."""
    listed = column.tolist()
    return [None if isinstance(value, float) and math.isnan(value) else value for value in listed]


# --- formats --------------------------------------------------------------------------------------


def test_every_format_has_a_file() -> None:
    assert {*FORMAT_OF.values(), "columns"} == set(FORMATS)
    found = {
        str(path.relative_to(FILES))
        for path in FILES.rglob("*")
        if path.is_file() and path.suffix not in (".md", ".yaml")
    }
    assert found == {*FORMAT_OF, "gateway.csv"}


@pytest.mark.parametrize("name", FORMAT_OF)
def test_exactly_one_format_detects_a_file(name: str) -> None:
    source = recordings.reading.Source(FILES / name)
    assert [form.name for form in FORMATS.values() if form.detect(source)] == [FORMAT_OF[name]]
    assert format_of(FILES / name).name == FORMAT_OF[name]


@pytest.mark.parametrize("name", FORMAT_OF)
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_file_of_another_format_is_refused(name: str, form: Any) -> None:
    """Every pair: a format reads its own files, and no other, even when it is named."""
    reader = READERS[form.kind]
    if form.name == FORMAT_OF[name]:
        by_content, by_name = reader(FILES / name), reader(FILES / name, form.name)
        assert len(by_content) == len(by_name) >= 1
        assert {run.format for run in by_content} == {form.name}
        assert all(len(run.sha256) == 64 for run in by_content)
    else:
        options = GATEWAY if form.name == "columns" else {}
        with pytest.raises(TraceError):
            reader(FILES / name, form.name, **options)


@pytest.mark.parametrize("name", FORMAT_OF)
@pytest.mark.parametrize("kind", READERS)
def test_the_right_reader_is_named(name: str, kind: str) -> None:
    form = FORMATS[FORMAT_OF[name]]
    if form.kind != kind:
        with pytest.raises(TraceError, match=f"format {form.name}, which read_{form.kind} reads"):
            READERS[kind](FILES / name)
        with pytest.raises(TraceError, match=f"format = '{form.name}': read_{form.kind} reads it"):
            READERS[kind](FILES / name, form.name)


def test_formats_are_documented() -> None:
    for form in FORMATS.values():
        assert f"- `{form.name}`: " in (READERS[form.kind].__doc__ or "")
    assert spillway.read_recordings is read_recordings


def test_unknown_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_recordings(path)
    for content, message in (
        (b"", "file: empty$"),
        (b"a,b\n1,2\n", "unknown format: a,b\nFormats tried:\n  folder: "),
        (b"\xff\xfe\x00", "unknown format: not a text file"),
        (b"[" * 100_000, r"unknown format: \[\["),
    ):
        path.write_bytes(content)
        with pytest.raises(TraceError, match=message):
            read_recordings(path)
    with pytest.raises(TraceError, match="format = 'toy': must be one of aiperf, blis, columns"):
        read_recordings(path, "toy")
    with pytest.raises(TraceError, match="holds no file of a known format"):
        read_recordings(tmp_path)
    with pytest.raises(TraceError, match=r"holds no runs\.json"):
        read_recordings(tmp_path, "folder")


def test_the_files_of_a_folder_are_read(tmp_path: Path) -> None:
    for name in ("vllm_bench.json", "requests.csv", "serve.log", "metrics.prom", "README.md"):
        shutil.copy(FILES / name, tmp_path)
    assert [run.name for run in read_recordings(tmp_path)] == ["requests", "vllm_bench"]
    assert [run.name for run in read_recordings(tmp_path / "requests.csv")] == ["requests"]
    assert [log.name for log in read_step_logs(tmp_path)] == ["000", "001"]
    assert len(read_histograms(tmp_path)) == 1


# --- one format after the other -------------------------------------------------------------------


def test_list_of_runs() -> None:
    chat, code = read_recordings(FILES / "list_of_runs")
    assert (chat.name, code.name) == ("chat", "code")
    assert values(chat.send_s) == [0, 0.074788, 0.180654, 0.256515]
    assert values(chat.input_tokens) == [571, 571, 0, 578]
    assert values(chat.output_tokens) == [251, 252, 0, 250]
    assert values(chat.ttft_s) == [0.072754, 0.391959, None, 0.21023]
    assert values(chat.e2e_s) == [4.632085, 4.603483, None, 4.421914]
    assert values(chat.failed) == [False, False, True, False]
    assert values(chat.failure_s) == [None, None, 300.58895, None]
    assert values(code.itl_s) == [pytest.approx(0.02), None]
    assert chat.server == ServerFacts(
        model="meta-llama/Llama-2-7b-hf",
        gpu="H100 SXM 80GB",
        tensor_parallel_size=1,
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        block_size_tokens=16,
        num_kv_blocks=7462,
    )
    assert code.server.key != chat.server.key
    assert chat.source == str(FILES / "list_of_runs" / "chat.csv")
    assert chat.sha256 != code.sha256
    assert (chat.tenant, chat.token_gaps, chat.client_max_in_flight) == (None, None, None)


def test_object_of_runs() -> None:
    run = one("object_of_runs")
    assert values(run.send_s) == [0, 0.280739, 1.980036]  # sorted
    assert values(run.input_tokens) == [1010, 987, 996]
    assert values(run.ttft_s) == [0.072784, 0.059438, None]
    assert values(run.e2e_s) == [1.652685, 1.615632, None]
    assert run.tenant == ("a", "b", "b")
    assert run.client_max_in_flight == 2
    assert run.in_flight() == 2
    assert run.server == ServerFacts(
        model="Qwen/Qwen3-14B",
        gpu="H100 80GB HBM3",
        engine="vllm",
        engine_version="0.23.0",
        tensor_parallel_size=1,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        block_size_tokens=16,
        num_kv_blocks=18038,
        max_model_len=40960,
        prefix_caching=True,
    )


def test_engine_timestamps() -> None:
    run = one("engine_timestamps")
    assert values(run.send_s) == [0, 0.265091]
    assert values(run.ttft_s) == pytest.approx([0.691279, 0.691279 - 0.265091])
    assert values(run.e2e_s) == pytest.approx([17.572162, 25.621038 - 0.265091])
    assert run.server == ServerFacts(
        model="Qwen/Qwen3-32B",
        gpu="RTXPRO6000",
        engine="vllm",
        engine_version="0.19.0",
        tensor_parallel_size=2,
        data_parallel_size=1,
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        block_size_tokens=16,
        num_kv_blocks=2588,
        prefix_caching=True,
        async_scheduling=True,
    )


def test_csv_with_known_names() -> None:
    run = one("requests.csv")
    assert values(run.send_s) == [0, 0.1, 1]
    assert values(run.failed) == [False, True, False]
    assert values(run.ttft_s) == [0.05, None, 0.07]
    assert values(run.e2e_s) == [0.25, None, 0.67]
    assert values(run.itl_s) == [pytest.approx(0.02), None, pytest.approx(0.02)]
    assert run.tenant == ("a", "b", "a")


def test_csv_with_any_names() -> None:
    run = one("gateway.csv", **GATEWAY)
    assert values(run.send_s) == [0, 0.5]
    assert values(run.ttft_s) == [0.05, None]
    assert values(run.e2e_s) == [0.25, None]
    assert values(run.failed) == [False, True]
    assert run.tenant == ("a", "b")
    with pytest.raises(TraceError, match="unknown format: t0,prompt,answer"):
        one("gateway.csv")


def test_vllm_bench() -> None:
    run = one("vllm_bench.json")
    assert values(run.send_s) == [0, 0.5, 1.25]
    assert values(run.input_tokens) == [1010, 987, 996]
    assert values(run.output_tokens) == [4, 0, 3]
    assert values(run.ttft_s) == [0.072, None, 0.065]
    assert values(run.e2e_s) == [pytest.approx(0.108), None, pytest.approx(0.091)]
    assert values(run.failed) == [False, True, False]
    assert run.token_gaps is not None
    assert [values(run.token_gaps.of(row)) for row in range(3)] == [
        [0.012, 0.013, 0.011],
        [],
        [0.012, 0.014],
    ]
    assert run.client_max_in_flight == 8
    assert run.server.model == "Qwen/Qwen3-14B"


def test_aiperf() -> None:
    run = one("profile_export.jsonl")  # without the warm-up
    assert values(run.send_s) == [0, 1e-7]  # nanoseconds since 1970 exceed a float
    assert values(run.input_tokens) == [550, 540]
    assert values(run.output_tokens) == [9, 0]
    assert values(run.ttft_s) == [0.2555, None]
    assert values(run.e2e_s) == [0.2975, None]
    assert values(run.failure_s) == [None, pytest.approx(0.0025)]
    assert run.token_gaps is not None
    assert run.token_gaps.of(0).sum() == pytest.approx(0.042)


def test_guidellm() -> None:
    run = one("benchmarks.json")
    assert values(run.send_s) == [0, 1, 2]
    assert values(run.input_tokens) == [1000, 1010, 0]
    assert values(run.ttft_s) == [0.09, 0.1, None]
    assert values(run.e2e_s) == [1.5, 1.6, None]
    assert values(run.failed) == [False, False, True]  # the request that was never sent is not here
    assert run.server.model == "Qwen/Qwen3-14B"


def test_output_of_aiperf() -> None:
    run = one("aiperf_0_13.jsonl")
    assert values(run.input_tokens)[0] == 13  # as the server counts; AIPerf counts 10
    assert values(run.output_tokens[~run.failed]) == [9] * 5
    assert values(run.failed).count(True) == 1
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0122, abs=0.0005)
    assert run.token_gaps is not None
    decode_s = run.e2e_s - run.ttft_s
    for row in np.flatnonzero(~run.failed):
        assert run.token_gaps.of(row).sum() == pytest.approx(decode_s[row], abs=1e-6)
    assert run.in_flight() == 2


def test_output_of_guidellm() -> None:
    run = one("guidellm_0_8.json")
    assert np.diff(run.send_s).tolist() == pytest.approx([0.25] * 4, abs=0.01)
    assert values(run.output_tokens[~run.failed]) == [9] * 4
    assert values(run.failed).count(True) == 1
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0122, abs=0.0005)
    assert run.server.model == "stub"
    assert run.failure_s[run.failed][0] < 0.05


def test_output_of_inference_perf() -> None:
    run = one("inference_perf_0_7.json")
    done = ~run.failed
    assert (run.num_requests, int(done.sum())) == (6, 4)
    assert values(run.input_tokens) == [0, 35, 23, 33, 32, 0]
    assert values(run.output_tokens[done]) == [9] * 4
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0125, abs=0.0005)
    assert run.token_gaps is not None
    assert values(np.diff(run.token_gaps.offsets)) == [0, 8, 8, 8, 8, 0]


def test_the_server_counts_tokens(tmp_path: Path) -> None:
    """The usage that a server reports has precedence over the tokenizer of the client."""
    content = json.loads((FILES / "inference_perf_0_7.json").read_text())
    response = content[1]["info"]["response_metrics"]
    response["server_usage"] |= {"prompt_tokens": 40, "completion_tokens": 10}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    assert (one(path).input_tokens[1], one(path).output_tokens[1]) == (40, 10)
    response["server_usage"] = None
    path.write_text(json.dumps(content))
    assert (one(path).input_tokens[1], one(path).output_tokens[1]) == (35, 9)


def test_guidellm_names_several_benchmarks(tmp_path: Path) -> None:
    report = json.loads((FILES / "benchmarks.json").read_text())
    report["benchmarks"] *= 2
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(report))
    assert [run.name for run in read_recordings(path)] == ["sweep[0]", "sweep[1]"]


def test_inference_perf() -> None:
    run = one("per_request_lifecycle_metrics.json")
    assert values(run.send_s) == [0, 0.5, 1]
    assert values(run.input_tokens) == [571, 580, 0]
    assert values(run.output_tokens) == [4, 3, 0]
    assert values(run.ttft_s) == [0.0625, 0.125, None]
    assert values(run.e2e_s) == [0.125, 0.1875, None]
    assert values(run.failure_s) == [None, None, 300]
    assert run.token_gaps is not None
    assert values(run.token_gaps.of(1)) == [0.015625, 0.015625]


def test_blis(tmp_path: Path) -> None:
    run = one("blis.csv")
    assert values(run.send_s) == pytest.approx([0, 0.0005, 0.0025])
    assert values(run.input_tokens) == [600, 103, 90]  # with prefix; as the server counts
    assert values(run.ttft_s) == [0.06, 0.05, None]
    assert values(run.e2e_s) == [0.104, 0.09, None]
    assert values(run.failed) == [False, False, True]
    assert run.tenant == ("default", "gold", "gold")
    assert run.server == ServerFacts(
        model="Qwen/Qwen3-14B",
        engine="vllm",
        tensor_parallel_size=1,
        max_num_seqs=256,
        block_size_tokens=16,
    )
    alone = tmp_path / "blis.csv"
    shutil.copy(FILES / "blis.csv", alone)
    assert one(alone).server == ServerFacts()
    assert one(alone).sha256 != run.sha256
    # The prompts are those of the same file as a trace.
    trace = spillway.read_trace(alone, sort=True)
    assert sorted(trace._columns()["input_tokens"].tolist()) == [90, 103, 600]


def test_step_logs() -> None:
    first, second = read_step_logs(FILES / "serve.log")
    assert (first.name, second.name) == ("000", "001")
    assert values(first.prefill_requests) == [1, 1, 0]
    assert values(first.prefill_tokens) == [1010, 987, 0]
    assert values(first.decode_requests) == [0, 1, 2]
    assert values(first.decode_tokens) == [0, 1, 2]
    assert values(first.step_s) == [0.06125, 0.0605, 0.0115]
    assert first.context_tokens is not None
    assert values(first.context_tokens) == [1443, 2020, 2020]
    assert second.num_steps == 1  # without the dummy step
    assert first.server == ServerFacts(
        model="Qwen/Qwen3-14B",
        engine="vllm",
        engine_version="0.23.0",
        tensor_parallel_size=1,
        max_num_seqs=256,
        block_size_tokens=16,
        num_kv_blocks=288_608 // 16,
    )


def test_step_logs_without_capacity(tmp_path: Path) -> None:
    line = (
        "Iteration(7): 2 context requests, 7957 context tokens, 43 generation requests, "
        "43 generation tokens, iteration elapsed time: 1125.94 ms"
    )
    path = tmp_path / "serve.log"
    path.write_text(f"{line}\n(EngineCore_DP1 pid=7) {line}, GPU KV cache usage: 50.0%\n")
    server = {"num_kv_blocks": 100, "block_size_tokens": 16}
    ranked, unnamed = read_step_logs(path)
    assert (ranked.name, unnamed.name) == ("DP1", "engine")
    assert unnamed.context_tokens is ranked.context_tokens is None
    ranked, unnamed = read_step_logs(path, server=server)
    assert unnamed.context_tokens is None  # the line does not state the usage
    assert ranked.context_tokens is not None
    assert values(ranked.context_tokens) == [800]
    path.write_text(f"{line[:60]}\n")
    with pytest.raises(TraceError, match=r"serve\.log line 1: not a complete step: 'Iteration\(7"):
        read_step_logs(path)


def test_histograms(tmp_path: Path) -> None:
    (found,) = read_histograms(FILES / "metrics.prom")
    assert set(found.histograms) == {"ttft_s", "step_tokens"}
    assert values(found.histograms["ttft_s"].upper) == [0.05, 0.1, 0.25, math.inf]
    assert values(found.histograms["ttft_s"].cumulative) == [0, 3, 4, 4]
    assert found.histograms["ttft_s"].mean == pytest.approx(0.09)
    assert found.gauges == {"running": 3, "waiting": 1, "kv_usage": 0.0125}
    assert found.counters == {
        "prefix_cache_queries": 4000,
        "prefix_cache_hits": 1000,
        "preemptions": 0,
    }
    assert found.prefix_hit_rate == 0.25
    assert found.server == ServerFacts(model="Qwen/Qwen3-14B", engine="vllm")
    text = (FILES / "metrics.prom").read_text()
    path = tmp_path / "metrics"
    path.write_text(text + text.replace('engine="0"', 'engine="1"').replace("} 3.0", "} 2.0"))
    first, second = read_histograms(path)
    assert (first.name, second.name) == ("0", "1")
    assert second.gauges["running"] == 2
    for old, new, message in (
        ('le="0.1"', 'le="x"', "le = 'x': must be a number"),
        ('le="0.25"', 'le="0.1"', r"le = 0\.1: twice; it is also on line 20"),
        (
            '0.1",model_name="Qwen/Qwen3-14B"} 3.0',
            '0.1",model_name=""} 3.5',
            "line 20, .* = 3.5: must be a wh",
        ),
        ('"} 0.36', '"} x', "line 24: not a sample"),
        ('engine="0"', "engine=0", "line 3: not a sample"),
        ("_seconds_sum", "_seconds_total", "vllm:time_to_first_token_seconds_sum: missing"),
        (
            '0.25",model_name="Qwen/Qwen3-14B"} 4.0',
            '0.25",model_name="Qwen/Qwen3-14B"} 2.0',
            "decr",
        ),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(TraceError, match=message):
            read_histograms(path)


def test_old_names_of_metrics(tmp_path: Path) -> None:
    """Versions of vLLM that report a metric under two names count it once."""

    def samples(metric: str, value: int) -> str:
        return (
            f'{metric}_bucket{{le="0.1",model_name="m"}} {value}\n'
            f'{metric}_bucket{{le="+Inf",model_name="m"}} {value}\n'
            f'{metric}_sum{{model_name="m"}} 1\n'
        )

    old = samples("vllm:time_per_output_token_seconds", 3) + (
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
        'vllm:gpu_prefix_cache_hits_total{model_name="m"} 2\n'
        'vllm:gpu_prefix_cache_queries_total{model_name="m"} 8\n'
    )
    new = samples("vllm:inter_token_latency_seconds", 4) + (
        'vllm:kv_cache_usage_perc{model_name="m"} 0.25\n'
        'vllm:prefix_cache_hits_total{model_name="m"} 3\n'
        'vllm:prefix_cache_queries_total{model_name="m"} 4\n'
    )
    path = tmp_path / "metrics"
    for text, count, usage, rate in ((old, 3, 0.5, 0.25), (old + new, 4, 0.25, 0.75)):
        path.write_text(text)
        (found,) = read_histograms(path)
        assert found.histograms["itl_s"].count == count
        assert found.gauges["kv_usage"] == usage
        assert found.prefix_hit_rate == rate
        assert found.name == "engine"


def test_points() -> None:
    short, long = read_points(FILES / "silicon.csv")
    assert (short.input_tokens, short.output_tokens) == (1024, 1024)
    assert values(short.concurrency) == [16, 64]
    assert values(short.ttft_s) == [0.1055, 0.2055]
    assert values(short.itl_s) == [0.0125, 0.01775]
    assert values(long.concurrency) == [4]
    assert short.server == ServerFacts(
        model="Qwen/Qwen3-32B",
        gpu="h100_sxm",
        engine="vllm",
        engine_version="0.19.0",
        tensor_parallel_size=4,
        data_parallel_size=4,
    )
    assert long.server.data_parallel_size is None


# --- arguments ------------------------------------------------------------------------------------


def test_the_caller_completes_the_server() -> None:
    run = one("vllm_bench.json", server={"gpu": "H100", "max_num_seqs": 64}, client_max_in_flight=2)
    assert run.server == ServerFacts(model="Qwen/Qwen3-14B", gpu="H100", max_num_seqs=64)
    assert run.client_max_in_flight == 2
    assert one("vllm_bench.json", server=ServerFacts(name="mine")).server.key == "mine"
    for server, message in (
        (
            {"gpus": 2},
            r"vllm_bench\.json, server\.gpus = 2: not a fact; must be one of name, model",
        ),
        ({"max_num_seqs": 0}, "server: max_num_seqs = 0: must be a whole number >= 1"),
        ({"model": 5}, "model = 5: must be text"),
        ({"prefix_caching": 1}, "prefix_caching = 1: must be True or False"),
    ):
        with pytest.raises(TraceError, match=message):
            one("vllm_bench.json", server=server)
    with pytest.raises(TraceError, match="client_max_in_flight = 0: must be a whole number >= 1"):
        one("vllm_bench.json", client_max_in_flight=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": {}}, "columns: missing"),
        (
            {"columns": {"at": "t0"}},
            r"columns\['at'\] = 't0': not a meaning; must be one of send_s",
        ),
        ({"columns": {"send_s": 1}}, r"columns\['send_s'\] = 1: must be the name of a column"),
        ({"columns": {"send_s": "t0"}}, "columns: input_tokens, output_tokens missing"),
        (
            {"columns": {"send_s": "t0", "input_tokens": "prompt", "output_tokens": "answer"}},
            "columns: must name a latency: ttft_s",
        ),
        (
            {"columns": GATEWAY["columns"] | {"send_s": "t1"}, "units": {"t1": "s"}},
            r"gateway\.csv, send_s = 't1': the header row has no such column",
        ),
        ({"units": {}}, r"columns\['send_s'\] = 't0': the name does not end in a unit; state it"),
        ({"units": {"t0": "min"}}, r"units\['t0'\] = 'min': must be one of s, ms, us, ns"),
        (
            {"units": {"key": "s"}},
            r"units\['key'\] = 's': not a column of times; must be one of t0",
        ),
        ({"format": "csv"}, "columns: an argument of the format columns, not of csv"),
        ({"columns": None, "format": None}, "units: an argument of the format columns$"),
    ],
)
def test_invalid_maps_of_columns(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        one("gateway.csv", **(GATEWAY | change))


# --- invalid files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("requests.csv", "100,11", "x,11", r"line 2, input_tokens = 'x': must be a whole number"),
        ("requests.csv", "100,11", "0,11", r"line 2, input_tokens = 0: must be >= 1"),
        (
            "requests.csv",
            ",50,250",
            ",5O,250",
            r"line 2, ttft_ms = '5O': must be a number or empty",
        ),
        (
            "requests.csv",
            ",50,250",
            ",-5,250",
            r"line 2, ttft_ms = -5: the latency must be a number",
        ),
        ("requests.csv", ",50,250", ",1e400,250", "ttft_ms = '1e400': must be a finite number"),
        ("requests.csv", ",50,250", ",1e309,250", "ttft_ms = '1e309': must be a finite number"),
        ("requests.csv", "1764000000000.5", "", r"line 2, send_ms = '': must be a number"),
        (
            "requests.csv",
            "a,1764000001000.5,300,31,70,670,completed",
            "a",
            "line 4: holds 1 fields",
        ),
        ("vllm_bench.json", '"input_lens"', '"inputs"', "input_lens: missing; measure again with"),
        ("vllm_bench.json", '"start_times"', '"begin"', "start_times: missing; .* since 0.11"),
        ("vllm_bench.json", "[0.072, 0.0, 0.065]", "[0.072]", "ttfts = '1 values': must hold 3"),
        (
            "vllm_bench.json",
            "[4, 0, 3]",
            "[4, 0, 3.5]",
            r"output_lens\[2\] = 3\.5: must be a whole",
        ),
        (
            "vllm_bench.json",
            "[0.012, 0.014]",
            "[-1, 2]",
            "request 2, itls = -1: a gap must be a num",
        ),
        ("vllm_bench.json", "[0.012, 0.014]", "[true]", r"itls\[2\]\[0\] = True: must be a number"),
        ("vllm_bench.json", "[8123.5,", "[NaN,", "request 0, start_times = nan: must be a number"),
        (
            "benchmarks.json",
            '"prompt_tokens": 1010, ',
            "",
            r"successful\[0\]\.prompt_tokens: missing",
        ),
        (
            "benchmarks.json",
            "101,",
            "10.5,",
            r"requests\.successful\[0\]\.output_tokens = 10\.5: must",
        ),
        (
            "benchmarks.json",
            '"errored": [',
            '"errored": [1, ',
            r"errored\[0\] = 1: must be an object",
        ),
        *(
            ("requests.csv", *replaced, message)
            for digits in (400, 5000)
            for replaced, message in (
                (("1764000000000.5", "9" * digits), "send_ms = .*must be a finite number"),
                ((",100,11,", f",{'9' * digits},11,"), "input_tokens = .*must be a whole number"),
            )
        ),
        ("profile_export.jsonl", '"error": null}\n', "\n", "line 1: not valid JSON"),
        ("profile_export.jsonl", '"error": null}\n', "9" * 5000, "line 1: not valid JSON"),
        ("profile_export.jsonl", '"error": null}\n', "[" * 100_000, "line 1: not valid JSON"),
        ("vllm_bench.json", "[0.012, 0.014]", "9" * 5000, "vllm_bench.json: "),
        ("vllm_bench.json", "[8123.5,", f"[1{'0' * 400},", "start_times.* must be a number"),
        ("vllm_bench.json", "[0.012, 0.014]", '"\\ud800"', "vllm_bench.json: "),
        (
            "profile_export.jsonl",
            '"value": 255.5, "unit": "ms"',
            '"value": 1, "unit": "h"',
            "one of sec",
        ),
        (
            "per_request_lifecycle_metrics.json",
            '"start_time": 7061.75, ',
            "",
            "start_time: missing",
        ),
        ("blis.csv", "0,ok,,length", "ok,,length", "line 2: holds 26 fields"),
        ("blis.csv", "1764000000051200", "x", r"first_chunk_time_us = 'x': must be a whole number"),
    ],
)
def test_invalid_values_are_named(
    name: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    text = (FILES / name).read_text()
    if name == "blis.csv" and new.startswith("ok"):
        old, new = "5,ok,,length", "ok,,length"
    assert old in text
    path = tmp_path / name
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(TraceError, match=message) as caught:
        read_recordings(path, FORMAT_OF[name])
    assert str(path) in str(caught.value)


def test_several_wrong_facts_are_one_line(tmp_path: Path) -> None:
    for path in (FILES / "list_of_runs").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    runs = json.loads((tmp_path / "runs.json").read_text())
    runs[0]["model"] = ""
    runs[0]["config"]["tensor_parallelism"] = 0
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    with pytest.raises(TraceError) as caught:
        read_recordings(tmp_path)
    assert "model = '': must be text that is not empty; tensor_parallel_size" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"requests": 3',
            '"requests": 4',
            r"runs\[0\]\.requests = 4: must be 3, as in two_tenants",
        ),
        ('"ok": 2', '"ok": 3', r"runs\[0\]\.ok = 3: must be 2"),
        ('"two_tenants"', '"../x"', r"runs\[0\]\.run = '\.\./x': must be the name of a CSV file"),
        ('"two_tenants"', '"three"', r"three\.csv: cannot be read"),
        ('"max_num_seqs": 256', '"max_num_seqs": -1', r"runs\[0\]: max_num_seqs = -1: must be"),
        ('_in_flight": 2', '_in_flight": "a"', r"client_max_in_flight = 'a': must be a whole"),
        ('"runs"', '"rows"', "must be a list of runs"),
    ],
)
def test_invalid_index_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FILES / "object_of_runs", tmp_path / "runs")
    index = folder / "runs.json"
    assert old in index.read_text()
    index.write_text(index.read_text().replace(old, new))
    with pytest.raises(TraceError, match=message):
        read_recordings(folder)


TOKENS = ["null", "-1", "1e999", '"x"', "[]", "{}", "NaN", "", str(10**21), "1.5", "\0", "\n", ","]


@pytest.mark.parametrize("name", few_of(list(FORMAT_OF), 2))
@examples(600)
@given(data=st.data())
def test_a_broken_file_is_read_or_refused(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tokens replaced at random places: the only error is a TraceError."""
    text = (FILES / name).read_text()
    for _ in range(data.draw(st.integers(1, 2))):
        places = list(re.finditer(r"[-\w.+]+|\"[^\"]*\"|\[[^\[\]]*\]|\{[^{}]*\}", text))
        if not places:
            break
        place = places[data.draw(st.integers(0, len(places) - 1))]
        text = text[: place.start()] + data.draw(st.sampled_from(TOKENS)) + text[place.end() :]
    path = tmp_path_factory.getbasetemp() / "broken" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("runs.json"):
            shutil.copytree((FILES / name).parent, path.parent, dirs_exist_ok=True)
    path.write_text(text)
    for kind, reader in READERS.items():
        forms = [None, FORMAT_OF[name]] if FORMATS[FORMAT_OF[name]].kind == kind else [None]
        for form in forms:
            with contextlib.suppress(TraceError):
                assert reader(path, form)


# --- round trip -----------------------------------------------------------------------------------

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 10**9),  # time of sending in µs
        st.integers(1, 10**6),
        st.integers(0, 10**5),
        st.integers(0, 10**8),  # TTFT in µs
        st.integers(0, 10**9),  # decode in µs
        st.booleans(),
        st.sampled_from(["a", "b", "ä,\n"]),
    ),
    min_size=1,
    max_size=20,
)


@given(
    requests=REQUESTS,
    unit=st.sampled_from(list(units.PER_SECOND)),
    origin_us=st.sampled_from([0, -5_000, 1_764_000_000_000_000]),
    instants=st.booleans(),
)
def test_a_written_file_is_read_back(
    requests: Sequence[tuple[Any, ...]],
    unit: str,
    origin_us: int,
    instants: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("written") / "requests.csv"

    def written(time_us: int) -> str:
        """A time in the unit, exactly."""
        sign, digits = "-" if time_us < 0 else "", str(abs(time_us)).rjust(7, "0")
        if unit == "ns":
            return f"{sign}{int(digits) * 1000}"
        point = {"us": 0, "ms": 3, "s": 6}[unit]
        return sign + (f"{digits[:-point]}.{digits[-point:]}" if point else str(int(digits)))

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "n", "m", "at", "first", "end", "why"])
        for send, prompt, output, ttft, decode, failed, tenant in requests:
            begin = origin_us + send
            first, end = (
                (begin + ttft, begin + ttft + decode) if instants else (ttft, ttft + decode)
            )
            latencies = ("", "") if failed else (written(first), written(end))
            row = [tenant, prompt, output, written(begin), *latencies, "timeout" if failed else ""]
            writer.writerow(row)
    first_name, end_name = ("first_token_s", "last_token_s") if instants else ("ttft_s", "e2e_s")
    run = one(
        path,
        columns={
            "tenant": "key",
            "input_tokens": "n",
            "output_tokens": "m",
            "send_s": "at",
            first_name: "first",
            end_name: "end",
            "failed": "why",
        },
        units=dict.fromkeys(("at", "first", "end"), unit),
        check_units=False,
    )
    expected = sorted(requests, key=lambda request: request[0])
    begin_us = expected[0][0]
    # Seconds since 1970 have a resolution of a quarter of a microsecond as a float.
    near = {"rel": 1e-9, "abs": 1e-6 if origin_us > 0 else 1e-9}
    assert values(run.send_s) == pytest.approx([(r[0] - begin_us) / 1e6 for r in expected], **near)
    assert values(run.input_tokens) == [request[1] for request in expected]
    assert values(run.output_tokens) == [request[2] for request in expected]
    assert values(run.failed) == [request[5] for request in expected]
    assert run.tenant == tuple(request[6] for request in expected)
    done = [request for request in expected if not request[5]]
    assert run.ttft_s[~run.failed].tolist() == pytest.approx([r[3] / 1e6 for r in done], **near)
    e2e_s = [(r[3] + r[4]) / 1e6 for r in done]
    assert run.e2e_s[~run.failed].tolist() == pytest.approx(e2e_s, **near)
    assert np.isnan(run.ttft_s[run.failed]).all()


def test_a_simulated_run_is_a_recording(tmp_path: Path) -> None:
    simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 50})
    result = spillway.simulate(simulation)
    result.write(tmp_path)
    run = one(tmp_path / "requests.csv", check_units=False)
    assert run.num_requests == 50
    assert run.ttft_s[~run.failed].tolist() == pytest.approx(
        result.requests["ttft_s"][~run.failed].tolist(), abs=1e-9
    )


# --- suspected units ------------------------------------------------------------------------------


def table(path: Path, **columns: Any) -> Path:
    """A file of 200 requests, one per second, TTFT 60 ms, ITL 12 ms; columns replace these."""
    content: dict[str, Any] = {
        "send_s": np.arange(200.0),
        "input_tokens": np.full(200, 1000),
        "output_tokens": np.full(200, 101),
        "ttft_s": np.full(200, 0.06),
        "e2e_s": np.full(200, 1.26),
    }
    content |= {name: np.asarray(values) for name, values in columns.items()}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(content)
        writer.writerows(zip(*(column.tolist() for column in content.values()), strict=True))
    return path


# Each rule just inside of its threshold, and just outside with what the message says.
ONES = np.ones(200)
SENDS = np.arange(200.0)
RULES = {
    "ttft too long": (
        {"ttft_s": ONES * 600, "e2e_s": ONES * 700},
        {"ttft_s": ONES * 601, "e2e_s": ONES * 700},
        r"ttft_s = 601 s \(median TTFT\): looks like milliseconds, read as seconds; must be >= 0",
    ),
    "ttft too short": (
        {"ttft_s": ONES * 1e-4, "e2e_s": ONES * 0.1001},
        {"ttft_s": ONES * 0.9e-4, "e2e_s": ONES * 0.1001},
        r"ttft_s = 9e-05 s \(median TTFT\): read as seconds, which it probably is not; must be",
    ),
    "itl too long": (
        {"ttft_s": ONES, "e2e_s": ONES * 200.99},
        {"ttft_s": ONES, "e2e_s": ONES * 201.01},
        r"e2e_s = 2 s \(median time between tokens\): looks like milliseconds, read as seconds",
    ),
    "itl too short": (
        {"e2e_s": ONES * 0.0801},
        {"e2e_s": ONES * 0.0799},
        r"e2e_s = 0.000199 s \(median .*\): .*; or the answers are not streamed; must be >= 0.0002",
    ),
    "ttft above e2e": (
        {"ttft_s": np.where(SENDS < 2, 5, 0.06)},
        {"ttft_s": np.where(SENDS < 3, 5, 0.06)},
        r"ttft_s = 0.06 s \(median\): exceeds e2e_s \(1.26 s, median\) in 3 of 200 requests",
    ),
    "ttft below a step": (
        {"ttft_s": ONES * 0.00061, "e2e_s": ONES * 1.20061},
        {"ttft_s": ONES * 0.00059, "e2e_s": ONES * 1.20059},
        r"ttft_s = 0.00059 s \(median TTFT\): read as seconds, which it probably is not; must be",
    ),
    "span too long": (
        {"send_s": SENDS / 199 * 2_678_400, "e2e_s": ONES * 100, "ttft_s": ONES * 70},
        {"send_s": SENDS / 199 * 2_678_401, "e2e_s": ONES * 100, "ttft_s": ONES * 70},
        r"send_s = 2.678e\+06 s \(span of all requests\): looks like milliseconds, read as seconds",
    ),
    "mostly idle": (
        {"send_s": SENDS / 199 * 100_000, "e2e_s": ONES * 2.501},
        {"send_s": SENDS / 199 * 100_000, "e2e_s": ONES * 2.499},
        r"send_s = 1e\+05 s \(span of all requests\): looks like milliseconds, read as seconds",
    ),
    "sent too fast": (
        {"send_s": SENDS / 199 * 0.0020001},
        {"send_s": SENDS / 199 * 0.0019999},
        r"send_s = 0.002 s \(span of all requests\): read as seconds, which it probably is not",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_suspected_units(rule: str, tmp_path: Path) -> None:
    accepted, refused, message = RULES[rule]
    assert one(table(tmp_path / "accepted.csv", **accepted)).num_requests == 200
    path = table(tmp_path / "refused.csv", **refused)
    with pytest.raises(TraceError, match=message) as caught:
        read_recordings(path)
    assert str(caught.value).startswith(f"{path}, ")
    assert str(caught.value).endswith("; check_units=False accepts it")
    assert one(path, check_units=False).num_requests == 200


def test_times_since_1970(tmp_path: Path) -> None:
    absolute = SENDS + 1_764_000_000
    assert one(table(tmp_path / "all.csv", send_s=absolute)).send_s[-1] == 199
    path = table(tmp_path / "some.csv", send_s=np.where(SENDS < 5, SENDS, absolute))
    with pytest.raises(TraceError, match="or some times count from 1970 and others from the start"):
        read_recordings(path)


def test_small_runs_may_be_idle(tmp_path: Path) -> None:
    content = {name: column[:19] for name, column in RULES["mostly idle"][1].items()}
    short = {"input_tokens": [9] * 19, "output_tokens": [101] * 19, "ttft_s": [0.06] * 19}
    assert one(table(tmp_path / "few.csv", **short, **content)).num_requests == 19
    assert one(table(tmp_path / "burst.csv", send_s=ONES * 5)).in_flight() == 200


def test_more_in_flight_than_the_client_allows(tmp_path: Path) -> None:
    path = table(tmp_path / "run.csv", send_s=SENDS / 10)  # 13 in flight
    assert one(path).in_flight() == 13
    assert one(path, client_max_in_flight=11).num_requests == 200  # 11 · 1.1 + 1
    with pytest.raises(
        TraceError,
        match=r"run\.csv, send_s: 13 requests are in flight at once, but the client limits them to "
        r"10; the unit of the times of sending \(seconds\) or of the latencies \(seconds\) is",
    ):
        one(path, client_max_in_flight=10)


@pytest.mark.parametrize(
    ("factor", "accepted"), [(0.51, True), (0.49, False), (1.99, True), (2.01, False)]
)
def test_gaps_are_compared_with_the_decode_time(
    factor: float, accepted: bool, tmp_path: Path
) -> None:
    lines = (FILES / "profile_export.jsonl").read_text().splitlines()
    record = json.loads(lines[1])
    gaps = record["metrics"]["inter_chunk_latency"]
    gaps["value"] = [gap * factor for gap in gaps["value"]]
    path = tmp_path / "profile_export.jsonl"
    path.write_text(json.dumps(record))
    if accepted:
        assert one(path).num_requests == 1
    else:
        with pytest.raises(
            TraceError, match=r"inter_chunk_latency = .* of E2E - TTFT .*must be >= 0"
        ):
            one(path)


@pytest.mark.parametrize(("stated", "real"), list(itertools.permutations(("s", "ms", "us"), 2)))
def test_latencies_in_another_unit_are_refused(stated: str, real: str, tmp_path: Path) -> None:
    """A plausible run, all of whose latencies have another unit than their name says."""
    scale = units.PER_SECOND[real] / units.PER_SECOND[stated]
    path = table(tmp_path / "run.csv")
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    names = [
        name.replace("ttft_s", f"ttft_{stated}").replace("e2e_s", f"e2e_{stated}")
        for name in header
    ]
    as_written = [
        [*row[:3], *(str(float(cell) * units.PER_SECOND[real]) for cell in row[3:])] for row in rows
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *as_written])
    words = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
    with pytest.raises(TraceError, match=f"looks like {words[real]}, read as {words[stated]}"):
        one(path)
    assert one(path, check_units=False).e2e_s[0] == pytest.approx(1.26 * scale)


# --- measured runs --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "runs"), [("vllm_h100", 12), ("vllm_h100_qwen3_14b", 8), ("llmservingsim", 4)]
)
def test_measured_runs_are_read(folder: str, runs: int) -> None:
    if not (MEASURED / folder).is_dir():
        pytest.skip(f"{MEASURED / folder} is missing: it is not part of the repository")
    read = read_recordings(MEASURED / folder)
    assert len(read) >= runs
    for run in read:
        assert run.num_requests == run.to_trace()._columns()["arrival_ns"].size + run.failed.sum()
        assert run.server.model
        assert run.server.tensor_parallel_size
        limit = run.client_max_in_flight or run.num_requests
        assert 1 <= run.in_flight() <= limit


def test_measured_figures_are_the_published_ones() -> None:
    folder = MEASURED / "vllm_h100_qwen3_14b"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: it is not part of the repository")
    by_name = {run.name: run for run in read_recordings(folder)}
    for name, ttft_ms, e2e_ms, itl_ms, most in (
        ("sweep_rate_agg_2rps", 65, 1624, 12.3, 13),
        ("sweep_rate_agg_6rps", 70, 1993, 15.1, 31),
        ("w5_agg30", 1056, 14638, 107, 256),
        ("w7_agg18", 15790, 30582, 117, 256),
    ):
        run = by_name[name]
        assert np.median(run.ttft_s) * 1e3 == pytest.approx(ttft_ms, abs=0.5)
        assert np.median(run.e2e_s) * 1e3 == pytest.approx(e2e_ms, abs=0.5)
        assert np.median(run.itl_s) * 1e3 == pytest.approx(itl_ms, rel=0.005)
        assert run.in_flight() == most


def test_measured_points_are_read() -> None:
    path = MEASURED / "silicon_sample.csv"
    if not path.is_file():
        pytest.skip(f"{path} is missing: it is not part of the repository")
    points = read_points(path)
    with path.open(newline="") as file:
        aggregated = [row for row in csv.DictReader(file) if row["mode"] == "agg"]
    assert sum(len(group.concurrency) for group in points) == len(aggregated)
    assert all((np.diff(group.concurrency) >= 0).all() for group in points)
    assert sum(group.ttft_s.sum() for group in points) == pytest.approx(
        sum(float(row["silicon_ttft_ms"]) for row in aggregated) / 1e3
    )
