"""Runs that need more memory than is available are refused before they begin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spillway import ConfigError, Simulation, _core, cli, run_many, simulate, trace
from spillway.config import memory

SYNTHETIC: dict[str, Any] = {"kind": "synthetic", "requests_per_s": 100}


def refusal(simulation: Simulation) -> str:
    with pytest.raises(ConfigError) as caught:
        simulate(simulation)
    return str(caught.value)


@pytest.fixture(autouse=True)
def eight_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.LIMIT, "8")


def no_run_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was run")

    monkeypatch.setattr(_core.cluster, "run", run)
    monkeypatch.setattr(_core.cluster, "run_batch", run)


HUGE: dict[str, tuple[dict[str, Any], str]] = {
    "num_requests": (
        {"workload": {**SYNTHETIC, "num_requests": 10**9}},
        (
            "workload.num_requests = 1000000000: the run would need about 92 GB of memory, 92 GB "
            "of it for 1,000,000,000 requests, but only 8 GB is available; set metrics.streaming "
            "to true, or simulate fewer (SPILLWAY_MEMORY_GB sets another limit)"
        ),
    ),
    "duration": (
        {"workload": {**SYNTHETIC, "duration_s": 10**8}},
        "workload.duration_s = 1e+08: the run would need about 920 GB",
    ),
    "of a client": (
        {"workload": {**SYNTHETIC, "clients": [{"duration_s": 10**8}]}},
        "workload = 10,000,000,000 requests: ",
    ),
    "ranks": (
        {"instances": [{}, {"count": 100_000, "data_parallel_size": 1024}]},
        (
            "instances[1].count = 100000: the run would need about 144 GB of memory, 144 GB of it "
            "for instances with 1024 ranks each"
        ),
    ),
    "timeline": (
        {
            "workload": {**SYNTHETIC, "requests_per_s": 1e-6, "num_requests": 1000},
            "metrics": {"timeline_step_s": 0.001},
        },
        (
            "metrics.timeline_step_s = 0.001: the run would need about 110 TB of memory, 110 TB of "
            "it for 1,000,000,000,000 samples for 1 tenant"
        ),
    ),
    "log": (
        {
            "workload": {**SYNTHETIC, "num_requests": 10**7},
            "instances": {"count": 100},
            "metrics": {"traced_candidates": 1000},
        },
        (
            "metrics.traced_candidates = 1000: the run would need about 92.9 GB of memory, 92 GB "
            "of it for the log of 10,000,000 routing decisions"
        ),
    ),
    "ticks": (
        {
            "workload": {**SYNTHETIC, "requests_per_s": 1e-6, "num_requests": 1000},
            "gateway": {
                "limit": "fixed",
                "controller": {"kind": "aimd"},
                "sensor": {"tick_s": 0.01, "source": "kv_utilization"},
            },
            "signals": {"kind": "on_read"},  # renewed at every tick, also while all is idle
        },
        "gateway.sensor.tick_s = 0.01: the run would need about 14 TB",
    ),
    "users": (
        {
            "workload": {
                "kind": "synthetic",
                "duration_s": 1,
                "clients": [
                    {"name": f"c{i}", "arrivals": {"kind": "closed_loop", "users": 10**6}}
                    for i in range(50)
                ],
            }
        },
        "workload.clients = 50,000,000 users: the run would need about 17.6 GB",
    ),
}


@pytest.mark.parametrize("which", HUGE)
def test_what_takes_too_much_is_refused_with_the_estimate(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    no_run_starts(monkeypatch)
    settings, expected = HUGE[which]
    assert refusal(Simulation(**settings)).startswith(expected)


def test_timeline_of_a_trace_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    no_run_starts(monkeypatch)
    requests = trace(arrival_s=[0, 3e9], input_tokens=[1, 1], output_tokens=[1, 1])
    sampled = Simulation(workload=requests, metrics={"timeline_step_s": 0.001})
    assert refusal(sampled).startswith("metrics.timeline_step_s = 0.001: ")
    monkeypatch.undo()
    assert simulate(sampled.replace(horizon_s=1)).ledger["attempts"] == 1


def test_streaming_takes_no_memory_per_request() -> None:
    streaming = Simulation(
        workload={**SYNTHETIC, "num_requests": 10**9}, metrics={"streaming": True}
    )
    assert sum(need.num_bytes for need in memory.needs(streaming)) < 1e6


def test_batch_counts_what_runs_at_a_time_and_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    no_run_starts(monkeypatch)
    one = Simulation(workload={**SYNTHETIC, "num_requests": 10**7})  # 0.92 GB
    with pytest.raises(ConfigError, match=r"20 runs, 10 at a time, would need about 9\.2 GB"):
        run_many([one], range(20), threads=10)
    with pytest.raises(ConfigError, match=r"20 runs, 2 at a time, would need about 18\.4 GB"):
        run_many([one], range(20), threads=2, keep_requests=True)
    with pytest.raises(AssertionError, match="it was run"):
        run_many([one, Simulation()], range(20), threads=8)
    with pytest.raises(ConfigError, match=r"workload\.num_requests = 10000000"):
        simulate(one, seeds=range(20), threads=1)


@pytest.mark.parametrize("limit", ["", "many", "-1", "nan", "0"])
def test_limit_must_be_a_number(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv(memory.LIMIT, limit)
    expected = f"SPILLWAY_MEMORY_GB = {limit!r}: must be a number of GB, > 0"
    assert refusal(Simulation()) == expected


def test_limit_is_what_the_machine_has() -> None:
    code = (
        "import resource, spillway\n"
        "from spillway.config import memory as _memory\n"
        "print(_memory.available_bytes())\n"
        "size, hard = resource.getrlimit(resource.RLIMIT_AS)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 * 10**9, hard))\n"
        "print(_memory.available_bytes())\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != memory.LIMIT}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    free, limited = map(float, ended.stdout.split())
    assert 1e7 < free < 1e15
    assert limited <= 3e9


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc")
def test_estimate_is_near_what_a_run_takes() -> None:
    simulation = Simulation(
        workload={**SYNTHETIC, "num_requests": 2_000_000}, gateway={"admission": "reject_all"}
    )
    expected = sum(need.num_bytes for need in memory.needs(simulation))
    code = (
        "import resource, spillway\n"
        "from pathlib import Path\n"
        "def resident():\n"
        "    pages = int(Path('/proc/self/statm').read_text().split()[1])\n"
        "    return pages * resource.getpagesize()\n"
        f"simulation = spillway.Simulation.from_dict({simulation.to_dict()!r})\n"
        "before = resident()\n"
        "result = spillway.simulate(simulation)\n"
        "print(resident() - before)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.5 * expected < int(ended.stdout) < 2 * expected


def test_memory_that_runs_out_after_all_is_reported_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(_core.cluster, "run", run)
    monkeypatch.setattr(_core.cluster, "run_batch", run)
    expected = "not enough memory for the run; workload = 1,000 requests needs the most"
    with pytest.raises(MemoryError, match=expected):
        simulate(Simulation())
    with pytest.raises(MemoryError, match=expected):
        run_many([Simulation()])
    config = tmp_path / "config.yaml"
    config.write_text("schema: 1")
    assert cli.main(["run", str(config)]) == cli.BAD_INPUT
    found = capsys.readouterr().err
    assert found.startswith(f"spillway: {expected}")
    assert found.count("\n") == 1
