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


HEADER = "trace_version: 2\nwarm_up_requests: 1\n"


def test_warm_up_of_the_header_is_left_out(tmp_path: Path) -> None:
    shutil.copy(FILES / "blis.csv", tmp_path / "run.csv")
    (tmp_path / "run.yaml").write_text(HEADER)
    with pytest.warns(UserWarning, match="1 warm-up requests, which its header counts, are left"):
        run = run_of(tmp_path / "run.csv")
    assert (run.num_requests, run.counts.warm_up) == (2, 1)


def test_sessions_accumulate_as_in_the_trace(tmp_path: Path) -> None:
    rows = [line.split(",") for line in (FILES / "blis.csv").read_text().splitlines()]
    names = rows[0]
    for row in rows[1:]:
        for name, text in (
            ("session_id", "s"),
            ("prefix_group", ""),
            ("prefix_length", "0"),
            ("server_input_tokens", "0"),
            ("input_tokens", "50"),
            ("text_tokens", "50"),
            ("output_tokens", "10"),
        ):
            row[names.index(name)] = text
    rows[1:] = sorted(rows[1:], key=lambda row: int(row[names.index("arrival_time_us")]))
    path = tmp_path / "run.csv"
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    (tmp_path / "run.yaml").write_text("trace_version: 2\nsession_context_growth: accumulate\n")
    run = run_of(path)
    assert values(run.input_tokens) == [50, 110, 170]
    assert run.session == ("s", "s", "s")


@pytest.mark.parametrize("bad", ["x", "", "1,2"])
def test_malformed_rows_are_skipped_and_counted(bad: str, tmp_path: Path) -> None:
    lines = (FILES / "blis.csv").read_text().splitlines()
    cells = lines[2].split(",")
    cells[lines[0].split(",").index("arrival_time_us")] = bad
    path = tmp_path / "run.csv"
    path.write_text("\n".join([*lines[:2], ",".join(cells), *lines[2:], ""]))
    with pytest.raises(spillway.TraceError, match=r"run\.csv line 3"):
        run_of(path)
    with pytest.warns(UserWarning, match="1 malformed request left out"):
        run = run_of(path, skip_bad=True)
    assert (run.num_requests, run.counts.skipped, len(run.tenant or ())) == (3, 1, 3)
    assert values(run.input_tokens) == values(run_of("blis.csv").input_tokens)
    assert spillway.read(FILES / "blis.csv").offers == ("trace", "recording")
