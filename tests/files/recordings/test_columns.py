"""Columns of recordings: arrays and lists give the same, with PyArrow and without; their size."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.files.recordings import TraceError, read_recordings
from spillway.files.recordings.columns import Lists, Numbers, Places, as_array
from spillway.files.recordings.rows import Request, RequestList, Settings, recording, rows_of
from spillway.files.recordings.source import Source
from spillway.files.traces import arrow

if TYPE_CHECKING:
    from pathlib import Path


def test_numbers_keep_whole_ones_exact() -> None:
    assert as_array([2**60 + 1, 5]).tolist() == [2**60 + 1, 5]
    assert np.isnan(as_array([1, None])).tolist() == [False, True]
    assert as_array([2**70, 1]).tolist() == [2.0**70, 1.0]
    numbers = Numbers()
    for value in range(10_000):
        numbers.append(value + 2**60)
    assert numbers.array().tolist() == [value + 2**60 for value in range(10_000)]
    numbers.append(0.5)
    assert numbers.array()[-1] == 0.5
    assert sum(map(len, numbers.parts())) == 10_001


def test_requests_are_kept_as_they_are() -> None:
    rng = random.Random(0)
    requests = [
        Request(
            f"line {number}",
            1_764_000_000_000_000_000 + number,
            None if number % 7 == 0 else rng.random(),
            rng.random(),
            number % 50,
            None if number % 11 == 0 else number,
            number % 3 == 0,
            [rng.random() for _ in range(number % 4)],
            None if number % 2 else number,
            f"s{number % 5}",
        )
        for number in range(9_000)
    ]
    listed = RequestList(requests)
    assert len(listed) == len(requests)
    assert [r._replace(gaps=list(r.gaps)) for r in listed] == requests
    assert listed[8_999].place == "line 8999"
    assert [request.place for request in listed[1:3]] == ["line 1", "line 2"]
    places = Places()
    for number in range(5_000):
        places.append(str(number))
    assert list(places) == list(map(str, range(5_000)))
    assert (places[4_999], places[3], len(places)) == ("4999", "3", 5_000)


def test_lists_in_another_order() -> None:
    lists = Lists.of([[1.0, 2.0], [], [3.0]])
    changed = lists.rows(np.array([2, 1, 0]))
    assert [part.tolist() for part in changed] == [[3.0], [], [1.0, 2.0]]
    assert [lists.row_of(value) for value in range(3)] == [0, 0, 2]


def test_arrays_and_lists_give_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.txt"
    path.write_text("x\n")
    rng = random.Random(1)
    requests = [
        Request(f"request {n}", rng.random(), 0.1, 0.5, 10, 5, n == 3, [0.1] * 4) for n in range(20)
    ]
    fields = {"send": ("t", "s"), "ttft": ("f", "s"), "e2e": ("e", "s"), "gaps": ("g", "s")}
    rows = rows_of(Source(path), requests, fields)
    run = recording(rows, Settings(), "x")
    assert run.send_s.tolist() == pytest.approx(
        sorted(request.send - min(r.send for r in requests) for request in requests)
    )
    assert run.failed.sum() == 1
    assert run.token_gaps is not None
    assert len(run.token_gaps.values_s) == 80
    assert not run.send_s.flags.writeable


CELLS = st.sampled_from(
    ["1", "0", "-5", "2.5", "", " 7", "1e3", "+4", "1764000000000000123", "9007199254740993", ".5"]
)


@pytest.mark.filterwarnings("ignore")
@given(cells=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=8))
def test_pyarrow_reads_what_is_read_without_it(
    cells: list[tuple[str, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    lines = [f"{send},10,{tokens},{ttft},\n" for send, tokens, ttft in cells]
    path.write_text("".join(["send_ns,input_tokens,output_tokens,ttft_ns,error\n", *lines]))
    found: list[Any] = []
    for is_fast in (True, False):
        with pytest.MonkeyPatch.context() as patched:
            if not is_fast:
                patched.setattr(arrow, "_installed", lambda: None)
            assert (arrow._loaded(1 << 20) is not None) == is_fast
            try:
                (run,) = read_recordings(path, check_units=False)
            except TraceError as error:
                found.append(str(error))
            else:
                found.append([run.send_s.tolist(), str(run.ttft_s.tolist()), run.failed.tolist()])
    assert found[0] == found[1]


MEASURED = """
    import re, sys, time, warnings
    from pathlib import Path
    import spillway
    warnings.simplefilter("ignore")
    begin = time.process_time()
    (run,) = spillway.read_recordings(sys.argv[1])
    taken_s = time.process_time() - begin
    peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    print(run.num_requests, int(peak) // 1024, taken_s)
"""


def measured(path: Path) -> tuple[int, int, float]:
    """Requests, peak memory in MiB and seconds of processor time of reading a file."""
    code = textwrap.dedent(MEASURED)
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    requests, peak, taken = done.stdout.split()
    return int(requests), int(peak), float(taken)


@pytest.mark.long
def test_a_million_requests_of_csv(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "runs.csv"
    at_us = 1_764_000_000_000_000
    with path.open("w") as file:
        file.write("send_time_us,input_tokens,output_tokens,ttft_us,e2e_us,status,tenant_id\n")
        for number in range(1_000_000):
            at_us += rng.randrange(200_000)
            output, ttft_us = rng.randrange(2, 400), rng.randrange(30_000, 500_000)
            cells = f"{output},{ttft_us},{ttft_us + output * 20_000},ok"
            if number % 100 == 0:
                cells = "0,,,error"
            file.write(f"{at_us},{rng.randrange(10, 4000)},{cells},t{number % 20}\n")
    code = "import pandas, sys, time; b = time.process_time(); pandas.read_csv(sys.argv[1]); "
    command = [sys.executable, "-c", f"{code}print(time.process_time() - b)", str(path)]
    pandas_s = min(float(subprocess.check_output(command)) for _ in range(3))
    requests, peak_mib, taken_s = min((measured(path) for _ in range(3)), key=lambda m: m[2])
    print(f"{taken_s:.2f} s, pandas {pandas_s:.2f} s, {peak_mib} MiB")
    assert requests == 1_000_000
    assert peak_mib <= 250
    assert taken_s <= 6 * pandas_s


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*without its summary")
@pytest.mark.parametrize("padding", [0, 4_000])
def test_memory_grows_with_the_columns_alone(padding: int, tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    with path.open("w") as file:
        for number in range(100_000):
            begin_ns = 1_764_000_000_000_000_000 + number * 10**8
            metrics = {
                "time_to_first_token": {"value": 50 + number % 7, "unit": "ms"},
                "request_latency": {"value": 900 + number % 5, "unit": "ms"},
                "input_sequence_length": {"value": 100, "unit": "tokens"},
                "output_sequence_length": {"value": 50, "unit": "tokens"},
            }
            metadata: dict[str, Any] = {
                "benchmark_phase": "profiling",
                "request_start_ns": begin_ns,
                "worker_id": "w" * padding,
            }
            row = {"metadata": metadata, "metrics": metrics, "error": None}
            file.write(json.dumps(row) + "\n")
    requests, peak_mib, _ = measured(path)
    print(f"{path.stat().st_size / 1e6:.0f} MB: {peak_mib} MiB")
    assert requests == 100_000
    assert peak_mib <= 120
    assert re.fullmatch(r"[0-9a-f]{64}", read_recordings(path)[0].sha256)
