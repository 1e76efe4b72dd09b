"""TraceV2 files as recordings."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.recordings import FILES, run_of, values

import spillway
from spillway.data.recording import ServerFacts

if TYPE_CHECKING:
    from pathlib import Path


def test_blis(tmp_path: Path) -> None:
    run = run_of("blis.csv")
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
    assert run_of(alone).server == ServerFacts()
    assert run_of(alone).sha256 != run.sha256
    # The prompts are those of the same file as a trace.
    with pytest.warns(UserWarning, match="1 calls failed by status"):
        trace = spillway.read_trace(alone, sort=True)
    assert sorted(trace._columns()["input_tokens"].tolist()) == [90, 103, 600]


REFUSED = {
    "blis.csv": [
        ("5,ok,,length", "ok,,length", "line 2: holds 26 fields"),
        ("1764000000051200", "x", r"first_chunk_time_us = 'x': must be a whole number"),
    ]
}
