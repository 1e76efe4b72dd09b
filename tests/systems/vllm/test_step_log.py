"""Logs of vLLM's steps."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from support.recordings import FILES, values

from spillway.data.recording import ServerFacts
from spillway.files.recordings import TraceError, read_step_logs

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_given_size_of_the_memory_that_the_log_contradicts_is_said() -> None:
    path = FILES / "serve.log"
    message = (
        r"serve\.log, server: states num_kv_blocks = 18038; .* replaces that: num_kv_blocks = 999"
    )
    with pytest.warns(UserWarning, match=message):
        log, _ = read_step_logs(path, server={"num_kv_blocks": 999})
    assert log.server.num_kv_blocks == 999
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log, _ = read_step_logs(path, server={"num_kv_blocks": 18_038})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the log does not state the size of a block
        log, _ = read_step_logs(path, server={"block_size_tokens": 32})
    assert log.server.num_kv_blocks == 288_608 // 32
