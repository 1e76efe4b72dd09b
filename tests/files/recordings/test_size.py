"""Files of gigabytes: memory grows with the columns that are kept, not with the file."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from support.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILES = DATA / "recordings"
BASE_MB = 170  # of the process with the package and NumPy
READER = """
    import re, sys, warnings, spillway
    from pathlib import Path
    warnings.simplefilter("ignore")
    run = spillway.read_recordings(sys.argv[1])[0]
    status = Path("/proc/self/status").read_text()
    # The peak of the process alone: `ru_maxrss` begins with that of its parent.
    print(run.num_requests, int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024)
"""


def lines(size: int, characters: int) -> Iterator[str]:
    """Records of AIPerf with that many characters each, until the file has that size."""
    record = json.loads((FILES / "aiperf_0_13.jsonl").read_text().splitlines()[-1])
    record["metadata"] |= {"benchmark_phase": "profiling", "was_cancelled": False}
    record["error"] = None
    record["metadata"]["note"] = "x" * max(0, characters - len(json.dumps(record)))
    start_ns = record["metadata"]["request_start_ns"]
    texts = json.dumps(record).split(str(start_ns))
    for at in range(size // characters):
        yield str(start_ns + at * 10_000_000).join(texts) + "\n"


def array(size: int, characters: int) -> Iterator[str]:
    """The same of a document of inference-perf."""
    record = json.loads((FILES / "per_request_lifecycle_metrics.json").read_text())[0]
    record |= {"start_time": 0.0, "end_time": 0.5, "error": None}
    record["info"]["output_token_times"] = []
    record["request"] = "x" * max(0, characters - len(json.dumps(record)))
    for at in range(size // characters):
        record |= {"start_time": at / 100, "end_time": at / 100 + 0.5}
        yield f"{',' if at else '['}{json.dumps(record)}"
    yield "]"


def report(size: int, characters: int) -> Iterator[str]:
    """The same of a report of GuideLLM."""
    document = json.loads((FILES / "guidellm_0_8.json").read_text())
    (benchmark,) = document["benchmarks"][:1]
    document["benchmarks"] = [benchmark]
    for key in ("metrics", "scheduler_metrics"):
        benchmark.pop(key, None)
    request = benchmark["requests"]["successful"][0]
    benchmark["requests"] = {"successful": ["HERE"]}
    before, after = json.dumps(document).split('"HERE"')
    request["prompt"] = "x" * max(0, characters - len(json.dumps(request)))
    latency_s = request["request_end_time"] - request["request_start_time"]
    yield before
    for at in range(size // characters):
        begin_s = 1e9 + at / 100
        request |= {"request_start_time": begin_s, "request_end_time": begin_s + latency_s}
        yield f"{',' if at else ''}{json.dumps(request)}"
    yield after


def peak_mb(path: Path) -> tuple[int, float]:
    """How many requests are read, and the peak of memory."""
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READER), str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    count, peak = found.stdout.split()
    return int(count), float(peak)


def written(path: Path, texts: Iterator[str]) -> Path:
    with path.open("w") as file:
        file.writelines(texts)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("texts", [lines, array, report])
def test_a_file_is_not_held_in_memory(
    texts: Callable[[int, int], Iterator[str]], tmp_path: Path
) -> None:
    path = written(tmp_path / "run.json", texts(120 << 20, 12_000))
    count, peak = peak_mb(path)
    assert count == (120 << 20) // 12_000
    assert peak < BASE_MB + 60


@pytest.mark.long
def test_four_gigabytes_of_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", lines(4 << 30, 8_000))
    try:
        count, peak = peak_mb(path)
    finally:
        path.unlink()
    assert count == (4 << 30) // 8_000
    # A request keeps some 300 bytes; of the file's 8,000 characters nothing is left.
    assert peak < BASE_MB + 60 + count * 300 / 2**20
