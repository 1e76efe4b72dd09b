"""Speed of the simulator on one thread: `python benchmarks/bench.py --scenario W8 --json`.

A run does the work of `spillway.simulate` with default metrics, ledger and summary, except that the
requests are generated once in advance and timed separately.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scenarios import SCENARIOS, make

import spillway
from spillway import _core

_SEED = 0


def peak_rss_mb() -> float:
    """Largest resident set of this process so far, in MiB.

    On Linux a child inherits the `ru_maxrss` of its parent; VmHWM belongs only to the process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def child(script: Path, *arguments: object, package: Path | None = None) -> dict[str, Any]:
    """Runs a script of this folder in a fresh process and reads the JSON object it prints.

    `package` is the folder to import Spillway from, if not the installed one.
    """
    command = [sys.executable, str(script), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(package)} if package else None
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def measure(
    name: str, num_requests: int | None = None, repeats: int = 5, *, reference: bool = False
) -> dict[str, Any]:
    """Median of `repeats` runs after a warm-up run, which is skipped before a single run.

    `cpu_s` is the CPU time of the fastest of them.
    """
    simulation = make(name, num_requests)
    start = time.perf_counter()
    requests = _core.cluster.offered_requests(simulation, _SEED)
    generation_s = time.perf_counter() - start
    assert requests is not None  # no scenario streams
    times = []
    cpu_times = []
    result = None
    for _ in range(repeats + (repeats > 1)):
        result = None  # freed outside the timing
        cpu_start = time.process_time()
        start = time.perf_counter()
        output = _core.cluster.run(simulation, _SEED, reference, requests)
        result = spillway.Result(simulation, _SEED, output)
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
        del output
    assert result is not None
    memory = peak_rss_mb()  # before the digest, which derives every column
    run_s = statistics.median(times[repeats > 1 :])
    completed = result.ledger["completed"]
    output_tokens = int(result.requests["output_tokens"].sum())
    return {
        "scenario": name,
        "requests": len(requests),
        "completed": completed,
        "requests_per_s": completed / run_s,
        "steps_per_s": result.steps / run_s,
        "output_tokens_per_s": output_tokens / run_s,
        "events_per_s": result.events / run_s,
        "peak_rss_mb": memory,
        "digest": result.digest,
        "generation_s": generation_s,
        "run_s": run_s,
        "cpu_s": min(cpu_times[repeats > 1 :]),
        "steps": result.steps,
        "events": result.events,
        "preemptions": sum(instance["preemptions"] for instance in result.instances),
        "reference": reference,
        "repeats": repeats,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--scenario", choices=SCENARIOS)
    which.add_argument("--all", action="store_true", help="every scenario, each in a fresh process")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no table")
    parser.add_argument("--reference", action="store_true", help="simulate every step separately")
    parser.add_argument("--repeats", type=int, default=5, help="runs; 1: without a warm-up run")
    parser.add_argument("--num-requests", type=int, help="instead of the scenario's own number")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be >= 1")
    if not options.all and options.json:
        print(
            json.dumps(
                measure(
                    options.scenario,
                    options.num_requests,
                    options.repeats,
                    reference=options.reference,
                )
            )
        )
        return
    arguments: list[object] = ["--json", "--repeats", options.repeats]
    if options.num_requests is not None:
        arguments += ["--num-requests", options.num_requests]
    if options.reference:
        arguments.append("--reference")
    if not options.json:
        print(
            f"{'scenario':<10}{'requests':>10}{'run ms':>10}{'M req/s':>9}{'M steps/s':>11}"
            f"{'M tok/s':>9}{'M ev/s':>8}{'MiB':>7}  digest"
        )
    for name in SCENARIOS if options.all else [options.scenario]:
        row = child(Path(__file__), "--scenario", name, *arguments)
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        print(
            f"{name:<10}{row['requests']:>10,}{row['run_s'] * 1e3:>10.1f}"
            f"{row['requests_per_s'] / 1e6:>9.2f}{row['steps_per_s'] / 1e6:>11.1f}"
            f"{row['output_tokens_per_s'] / 1e6:>9.0f}{row['events_per_s'] / 1e6:>8.1f}"
            f"{row['peak_rss_mb']:>7.0f}  {row['digest'][:12]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
