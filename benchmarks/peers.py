"""Other simulators with the load of W8, beside Spillway: `python benchmarks/peers.py`.

Whole processes are compared by CPU time, the minimum of rounds in turns. A simulator that is not
installed is left out; `INSTALL` has the commands. Models of time differ: each is set such that E2E
latencies are alike, which makes the number of steps alike.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import child
from scenarios import NUM_REQUESTS, w8

import spillway

_BENCH = Path(__file__).resolve().with_name("bench.py")
_SPILLWAY = [sys.executable, "-c", "import sys, spillway_cli; sys.exit(spillway_cli.main())"]
INSTALL = {"inference-lab": "cargo install inference-lab --version 1.0.0 --locked"}
ROUNDS = 5

# `time_correction` adds 6.5 ms to every step.
_INFERENCE_LAB = """\
model = "llama-3.1-8b-instruct"
[hardware.h100]
spec = "h100"
tp = 2
replicas = 8
time_correction = { alpha = 1.0, beta = 0.0065 }
router = { policy = "round_robin" }
[scheduler]
max_num_batched_tokens = 2048
max_num_seqs = 256
policy = "fcfs"
enable_chunked_prefill = true
block_size = 16
"""
_INFERENCE_LAB_LOAD = """\
arrival_pattern = "poisson"
arrival_rate = 96.0
num_requests = {}
seed = 0
input_len_dist = {{ type = "fixed", value = 512 }}
output_len_dist = {{ type = "fixed", value = 128 }}
"""

Row = dict[str, Any]


def _cpu_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _spillway(folder: Path, num_requests: int) -> Row:
    simulation = w8(num_requests)
    config = folder / "w8.json"
    config.write_text(json.dumps(simulation.to_dict()))
    summary = spillway.simulate(simulation).summary()
    return {
        "name": f"spillway {spillway.__version__}, `spillway run`",
        "command": [*_SPILLWAY, "run", str(config)],
        "mean_ttft_ms": summary["mean_ttft_ms"],
        "mean_e2el_ms": summary["mean_e2el_ms"],
    }


def _inference_lab(folder: Path, num_requests: int) -> Row | None:
    program = shutil.which("inference-lab")
    if program is None:
        return None
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    config, load, output = (folder / name for name in ("config.toml", "load.toml", "output.json"))
    config.write_text(_INFERENCE_LAB)
    load.write_text(_INFERENCE_LAB_LOAD.format(num_requests))
    command = [program, "--quiet", "--config", str(config), "--workload", str(load)]
    _cpu_s([*command, "--output", str(output)])
    latencies = json.loads(output.read_text())["latency_metrics"]
    return {
        "name": re.sub(r"\s+", " ", version.stdout.strip()),
        "command": command,
        "mean_ttft_ms": latencies["ttft_ms"]["mean"],
        "mean_e2el_ms": latencies["e2e_ms"]["mean"],
    }


def measure(rounds: int = ROUNDS, num_requests: int = NUM_REQUESTS) -> list[Row]:
    """CPU time and latencies: Spillway without and with its process, then the others."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [peer(Path(folder), num_requests) for peer in (_spillway, _inference_lab)]
        rows = [row for row in processes if row]
        core = rows[0] | {"name": f"spillway {spillway.__version__}, requests and run alone"}
        best = [float("inf")] * (1 + len(rows))
        run = ("--scenario", "W8", "--json", "--num-requests", num_requests, "--repeats", 5)
        for _ in range(rounds):
            alone = child(_BENCH, *run)
            times = [alone["generation_s"] + alone["cpu_s"]]
            times += [_cpu_s(row["command"]) for row in rows]
            best = [min(pair) for pair in zip(best, times, strict=True)]
    kept = ("name", "mean_ttft_ms", "mean_e2el_ms")
    return [
        {key: row[key] for key in kept} | {"cpu_s": cpu_s}
        for row, cpu_s in zip([core, *rows], best, strict=True)
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--num-requests", type=int, default=NUM_REQUESTS)
    options = parser.parse_args()
    rows = measure(options.rounds, options.num_requests)
    print(f"{'':<44}{'CPU s':>9}{'ratio':>8}{'TTFT ms':>10}{'E2E ms':>10}")
    for row in rows:
        print(
            f"{row['name']:<44}{row['cpu_s']:>9.4f}{row['cpu_s'] / rows[0]['cpu_s']:>8.1f}"
            f"{row['mean_ttft_ms']:>10.1f}{row['mean_e2el_ms']:>10.1f}"
        )
    for name, command in INSTALL.items():
        if shutil.which(name) is None:
            print(f"{name} is not installed: {command}")


if __name__ == "__main__":
    main()
