"""Traces that stay in files are those that are in memory."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import spillway
from spillway import ConfigError, Simulation, TraceError, instance, metrics, workload
from spillway.cli import main

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 70_000  # more than are read at once
STREAMING = metrics.Metrics(streaming=True)


def csv_file(path: Path, rows: int = ROWS, extra: str = "") -> Path:
    rng = np.random.default_rng(1)
    arrival_s = np.cumsum(rng.exponential(0.002, rows))
    tokens = rng.integers(1, 60, (rows, 2))
    tenants = rng.choice(["chat", "batch"], rows)
    header = f"arrival_s,input_tokens,output_tokens,tenant{',' if extra else ''}{extra}"
    lines = [
        f"{at:.6f},{prompt},{output},{tenant}{f',{i}' if extra else ''}"
        for i, (at, (prompt, output), tenant) in enumerate(
            zip(arrival_s, tokens.tolist(), tenants, strict=True)
        )
    ]
    path.write_text("\n".join([header, *lines, ""]))
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return csv_file(tmp_path_factory.mktemp("traces") / "trace.csv")


@pytest.mark.slow
def test_a_streamed_trace_is_equal_and_runs_alike(file: Path) -> None:
    kept, streamed = spillway.read_trace(file), spillway.read_trace(file, stream=True)
    assert streamed == kept
    assert (streamed.rows, streamed.sha256) == (ROWS, kept.sha256)
    assert not streamed.has_requests
    fleet = instance.InstanceGroup(count=2)
    runs = [
        Simulation(workload=trace, instances=fleet, metrics=STREAMING, router="least_loaded")
        for trace in (kept, streamed, streamed)
    ]
    # At the same time, from the same files.
    first, *others = spillway.run_many(runs)
    for other in others:
        assert other[0].summary() == first[0].summary()
        assert other[0].digest == first[0].digest


def test_a_client_at_its_limit_is_streamed(file: Path) -> None:
    runs = [
        Simulation(workload=trace.replace(max_in_flight=8), metrics=STREAMING)
        for trace in (spillway.read_trace(file), spillway.read_trace(file, stream=True))
    ]
    kept, streamed = spillway.run_many(runs)
    assert kept[0].summary() == streamed[0].summary()


def test_what_needs_all_requests_says_so(file: Path) -> None:
    streamed = spillway.read_trace(file, stream=True)
    with pytest.raises(ConfigError, match=r"needs metrics\.streaming and no transforms"):
        spillway.simulate(Simulation(workload=streamed))
    transformed = streamed.replace(transforms=[workload.ScaleRate(factor=2)])
    with pytest.raises(ConfigError, match=r"needs metrics\.streaming and no transforms"):
        spillway.simulate(Simulation(workload=transformed, metrics=STREAMING))


@pytest.mark.parametrize("column", ["request_id", "prefix_tokens"])
def test_columns_that_cannot_be_streamed(column: str, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "trace.csv", 5, column)
    if column == "prefix_tokens":
        text = "arrival_s,input_tokens,output_tokens,prefix_group,prefix_tokens\n0,9,1,a,4\n"
        file.write_text(text)
    with pytest.raises(TraceError, match=r"trace\.csv: a trace with .* cannot be streamed"):
        spillway.read_trace(file, stream=True)
    assert spillway.read_trace(file, stream="auto") == spillway.read_trace(file)


def test_order_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n1,9,1\n0,9,1\n")
    with pytest.raises(TraceError, match="line 3, arrival_s = '0': is earlier than '1' on line 2"):
        spillway.read_trace(file, stream=True)
    with pytest.raises(TraceError, match="sorted cannot be streamed"):
        spillway.read_trace(file, stream=True, sort=True)
    assert spillway.read_trace(file, stream="auto", sort=True).has_requests


def test_a_streaming_configuration_streams_its_trace(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        f"schema: 1\nworkload: {{kind: trace, file: {file}}}\nmetrics: {{streaming: true}}\n"
    )
    simulation = spillway.load(path)
    assert not simulation.workload.has_requests
    assert spillway.simulate(simulation).summary()["offered"] == ROWS
    assert main(["run", str(path), "--trace", str(file)]) == 0
    assert f"{ROWS:,} requests, read while they are simulated" in capsys.readouterr().err
    path.write_text(f"schema: 1\nworkload: {{kind: trace, file: {file}}}\n")
    assert spillway.load(path).workload.has_requests


# The peak of the process alone: `ru_maxrss` begins with that of its parent.
_MEASURED = """
import re, sys
from pathlib import Path
import spillway
from spillway import Simulation, instance, metrics
trace = spillway.read_trace(sys.argv[1], stream=True)
fleet = instance.InstanceGroup(count=40)
simulation = Simulation(
    workload=trace, instances=fleet, router="least_loaded", metrics=metrics.Metrics(streaming=True)
)
assert spillway.simulate(simulation).summary()["offered"] == trace.rows
status = Path("/proc/self/status").read_text()
print(int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) // 1024)
"""


@pytest.mark.long
def test_ten_million_rows_take_less_than_250_mib(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    part = csv_file(tmp_path / "part.csv", 500_000).read_text().splitlines(keepends=True)
    span_s = float(part[-1].split(",")[0]) + 1
    with file.open("w") as stream:
        stream.write(part[0])
        for i in range(20):
            for line in part[1:]:
                at, rest = line.split(",", 1)
                stream.write(f"{float(at) + i * span_s:.6f},{rest}")
    found = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(file)], check=True, capture_output=True, text=True
    )
    assert int(found.stdout) < 250
