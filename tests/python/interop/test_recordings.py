"""Measured runs from files: formats, facts about servers, and errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import SHARED

from spillway import TraceError, read_recordings
from spillway.interop.recordings import read_step_log
from spillway.interop.recordings.repeats import repeat_period

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "send_time_ms,input_tokens,output_tokens,ttft_ms,e2e_ms,status"
ROWS = ["2000,10,5,100,500,ok", "1000,20,6,150,900,ok", "3000,,,,,timeout"]


def write(path: Path, header: str = HEADER, rows: list[str] = ROWS) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_csv_file(tmp_path: Path) -> None:
    (run,) = read_recordings(write(tmp_path / "night.csv"))
    assert run.name == "night"
    np.testing.assert_allclose(run.send_s, [0, 1, 2])
    assert run.input_tokens.tolist() == [20, 10, 0]
    np.testing.assert_allclose(run.ttft_s, [0.15, 0.1, np.nan])
    np.testing.assert_allclose(run.e2e_s, [0.9, 0.5, np.nan])
    np.testing.assert_allclose(run.itl_s, [0.15, 0.1, np.nan])
    assert run.failed.tolist() == [False, False, True]
    assert run.most_in_flight == 1
    assert not run.is_limited_by_client


def test_other_names_of_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path / "run.csv",
        "t_s,prompt,completion,first_s,last_s",
        ["0,10,5,0.1,0.5", "1.5,10,5,1.7,2.5"],
    )
    columns = {
        "send": "t_s", "input_tokens": "prompt", "output_tokens": "completion",
        "first_token": "first_s", "last_token": "last_s",
    }  # fmt: skip
    (run,) = read_recordings(path, columns=columns)
    np.testing.assert_allclose(run.ttft_s, [0.1, 0.2])
    np.testing.assert_allclose(run.e2e_s, [0.5, 1.0])


def test_a_folder_states_its_servers(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    write(tmp_path / "b.csv")
    described: dict[str, Any] = {
        "server": {"model": "m", "vllm_version": "0.20.1", "num_gpu_blocks": 77, "block_size": 16},
        "runs": [{"run": "a"}, {"run": "b", "config": {"max_num_seqs": 9}}],
        "client_max_in_flight": 1,
    }
    (tmp_path / "runs.json").write_text(json.dumps(described))
    a, b = read_recordings(tmp_path)
    assert (a.server.model, a.server.num_kv_blocks, a.server.max_num_seqs) == ("m", 77, None)
    assert (b.server.engine_version, b.server.max_num_seqs) == ("0.20.1", 9)
    assert a.server.key != b.server.key
    assert a.is_limited_by_client
    assert a.limited_from == 1


def bench(**changes: Any) -> dict[str, Any]:
    result = {
        "model_id": "m",
        "max_concurrency": 4,
        "input_lens": [10, 20],
        "output_lens": [3, 1],
        "ttfts": [0.1, 0.2],
        "itls": [[0.01, 0.03], []],
        "start_times": [100.5, 100.0],
        "errors": ["", ""],
    }
    return result | changes


def test_vllm_bench(tmp_path: Path) -> None:
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(bench()))
    (run,) = read_recordings(path)
    np.testing.assert_allclose(run.send_s, [0, 0.5])
    np.testing.assert_allclose(run.e2e_s, [0.2, 0.14])
    assert (run.server.model, run.client_max_in_flight) == ("m", 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"itls": None}, r"itls must be a list with an entry per request; run .*--save-detailed"),
        ({"ttfts": [0.1]}, "ttfts has 1 entries, but input_lens has 2"),
        ({"ttfts": [0.1, "x"]}, r"ttfts\[1\] = 'x': must be a number"),
        ({"itls": [[0.1], ["x"]]}, r"itls must be lists of numbers \(s\)"),
    ],
)
def test_an_invalid_vllm_bench_file(tmp_path: Path, changes: Any, message: str) -> None:
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(bench(**changes)))
    with pytest.raises(TraceError, match=message):
        read_recordings(path)


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (HEADER, ["1000,x,5,100,500,ok"], r"line 2, input_tokens: 'x' must be a number"),
        (HEADER, ["1000,1.5,5,100,500,ok"], r"'1.5' must be a whole number >= 1"),
        (HEADER, ["1000,10,5,nan,500,ok"], r"ttft_ms: 'nan' must be finite"),
        (HEADER, ["1000,10,5,100"], r"line 2: 4 fields, but the header has 6"),
        (HEADER, [], "holds no requests"),
        ("input_tokens,output_tokens", ["1,2"], "no column for send"),
        ("send_s,input_tokens,output_tokens,e2e_s", ["0,1,2,1"], "no column for ttft"),
        (HEADER, ["1000,10,5,-1,500,ok"], r"ttft: -0.001 s of request 0 must be >= 0"),
    ],
)
def test_an_invalid_csv_file(tmp_path: Path, header: str, rows: list[str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_recordings(write(tmp_path / "run.csv", header, rows))


def test_a_folder_without_a_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"runs.json: cannot be read"):
        read_recordings(tmp_path)
    (tmp_path / "runs.json").write_text('[{"run": "a", "max_num_seqs": "many"}]')
    with pytest.raises(TraceError, match=r"max_num_seqs = 'many': must be a whole number"):
        read_recordings(tmp_path)


# Steps


def test_a_log_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        "INFO GPU KV cache size: 288,608 tokens\n"
        "INFO Iteration(0): 1 context requests, 512 context tokens, 0 generation requests, "
        "0 generation tokens, iteration elapsed time: 31.5 ms, GPU KV cache usage: 0.2%\n"
        "INFO something else\n"
        "INFO Iteration(1): 0 context requests, 0 context tokens, 1 generation requests, "
        "1 generation tokens, iteration elapsed time: 12.25 ms, GPU KV cache usage: 0.2%\n"
    )
    log = read_step_log(path)
    assert log.prefill_tokens.tolist() == [512, 0]
    assert log.prefill_requests.tolist() == [1, 0]
    assert log.decode_requests.tolist() == [0, 1]
    np.testing.assert_allclose(log.step_s, [0.0315, 0.01225])
    assert log.context_tokens is not None
    assert log.context_tokens.tolist() == [577, 577]
    other = read_step_log(path, kv_cache_tokens=1000).context_tokens
    assert other is not None
    assert other.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing\n", "no line of a step; run vLLM with --enable-logging-iteration-details"),
        (
            (
                "Iteration(3): 1 context requests, 5 context tokens, 0 generation requests, "
                "0 generation tokens, iteration elapsed time: 0.0 ms\n"
            ),
            r"Iteration\(3\): an elapsed time of 0.0 ms must be > 0",
        ),
    ],
)
def test_an_invalid_log_of_steps(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_step_log(path)


# Units


def run_with(tmp_path: Path, header: str, scale: dict[str, float]) -> Path:
    rng = np.random.default_rng(3)
    rows = []
    for i in range(60):
        ttft = rng.uniform(0.05, 0.4)
        e2e = ttft + 99 * rng.uniform(0.01, 0.04)
        rows.append(
            f"{i},500,100,{ttft * scale.get('ttft', 1):.9g},{e2e * scale.get('e2e', 1):.9g}"
        )
    return write(tmp_path / "run.csv", header, rows)


SECONDS = "send_s,input_tokens,output_tokens,ttft_s,e2e_s"


@pytest.mark.parametrize(
    ("scale", "suspected"),
    [
        ({"ttft": 1e3}, "is ttft in milliseconds"),
        ({"ttft": 1e6}, "is ttft in microseconds"),
        ({"ttft": 1e3, "e2e": 1e3}, "are the latencies in milliseconds"),
        ({"ttft": 1e6, "e2e": 1e6}, "is it in microseconds|milliseconds"),
    ],
)
def test_a_wrong_unit_is_suspected(tmp_path: Path, scale: Any, suspected: str) -> None:
    with pytest.raises(TraceError, match=suspected):
        read_recordings(run_with(tmp_path, SECONDS, scale))


def test_seconds_in_a_column_of_milliseconds_are_suspected(tmp_path: Path) -> None:
    header = SECONDS.replace("ttft_s", "ttft_ms").replace("e2e_s", "e2e_ms")
    with pytest.raises(TraceError, match="are the latencies in seconds, with names that say milli"):
        read_recordings(run_with(tmp_path, header, {}))


def test_right_units_pass(tmp_path: Path) -> None:
    (run,) = read_recordings(run_with(tmp_path, SECONDS, {}))
    assert run.num_requests == 60
    milliseconds = SECONDS.replace("ttft_s", "ttft_ms").replace("e2e_s", "e2e_ms")
    (same,) = read_recordings(run_with(tmp_path, milliseconds, {"ttft": 1e3, "e2e": 1e3}))
    np.testing.assert_allclose(same.e2e_s, run.e2e_s)


# Repeated prompts


def test_a_cycle_of_prompts_is_found() -> None:
    rng = np.random.default_rng(0)
    cycle = rng.integers(400, 440, 100)
    lengths = np.tile(cycle, 9)
    assert repeat_period(lengths) == 100
    lengths[rng.integers(0, 900, 15)] += 1
    assert repeat_period(lengths) == 100


def test_other_lengths_have_no_cycle() -> None:
    rng = np.random.default_rng(0)
    assert repeat_period(np.full(500, 128)) is None
    assert repeat_period(rng.integers(1, 2000, 500)) is None
    assert repeat_period(np.where(rng.random(500) < 0.97, 128, 256)) is None
    assert repeat_period(np.array([5])) is None


# Real runs


@pytest.mark.parametrize(
    ("folder", "period"),
    [("vllm_h100", 100), ("vllm_h100_qwen3_14b", None), ("llmservingsim", None)],
)
def test_real_runs_are_read(folder: str, period: int | None) -> None:
    path = SHARED / "data" / folder
    if not path.is_dir():
        pytest.skip(f"{path} is missing")
    runs = read_recordings(path)
    assert len(runs) > 3
    for run in runs:
        assert run.num_requests >= 300
        if run.failed.mean() < 0.01:
            assert repeat_period(run.input_tokens) == period, run.name
