"""Whether every benchmark and experiment still runs: `make smoke`.

Each runs once, at its smallest size, in a folder that is thrown away. One that is not listed here
is an error, so that none is forgotten. Examples run in `tests/examples`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import spillway

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = Path(spillway.__file__).parents[1]

# Arguments with which a script takes seconds; {out} is a folder, {package} that of Spillway, {root}
# that of the repository. `make_readme` calls all of `bench`, `search` and `suite`.
BENCHMARKS = {
    "bench": "--scenario W8 --repeats 1 --num-requests 100",
    "check": "--smoke --shares --rounds 1",
    "compare": "--base-path {package} --head-path {package} --scenario W8 --rounds 1 --repeats 1",
    "make_readme": "--smoke --store {out}/store.json --output {out}/README.md",
    "instructions": "--scenario W8 --num-requests 100",
    "peers": "--rounds 1 --num-requests 100",
    "readers": "--rows 100 --rounds 1",
    "search": "--smoke --only fits",
    "session": "--smoke",
    "shares": "--rounds 1 --num-requests 100",
    "suite": "--smoke --only streaming_long",
}
_ADMISSION = "--requests 200 --seeds 2 --output {out}/README.md"
_SEARCHES = "--smoke --processes 1 --output {out}/README.md"
EXPERIMENTS = {
    "fidelity_ledger": "--smoke {root}/examples/measured_runs --output {out}/README.md",
    "fleet_searches": _SEARCHES,
    "head_to_head": f"{_ADMISSION} --trials 2",
    "iteration_14": f"{_ADMISSION} --published-seeds 2",
    "kernel_tables": "--smoke --output {out}/README.md",
    "physics_points": "--smoke --output {out}/README.md",
    "predictive_vs_gated": f"{_ADMISSION} --trials 2",
    "real_servers": "--data {root}/examples --output {out}/README.md",
    "search_regret": _SEARCHES,
    "server_failure": _ADMISSION,
    "silicon_points": "--smoke --output {out}/README.md",
    "two_pools": _ADMISSION,
    "trace_bootstrap": (
        "--replications 2 --truths 3 --resamples 3 --requests 400 --output {out}/README.md"
    ),
}
NO_BENCHMARK = {"scenarios", "skeleton"}


def commands() -> dict[str, list[str]]:
    """What to run, by name, with {out} and {package} still to be filled in."""
    found = {}
    for script in sorted((_ROOT / "benchmarks").glob("*.py")):
        if script.stem not in NO_BENCHMARK:
            arguments = BENCHMARKS[script.stem].split()
            found[f"benchmarks/{script.name}"] = [sys.executable, str(script), *arguments]
    for script in sorted((_ROOT / "experiments").glob("*/run.py")):
        name = script.parent.name
        module = ["-m", f"experiments.{name}.run"]
        found[f"experiments/{name}"] = [sys.executable, *module, *EXPERIMENTS[name].split()]
    return found


def main() -> int:
    """Runs what the arguments name; the number of failures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="default: all")
    options = parser.parse_args()
    path = os.pathsep.join((str(_ROOT), str(_PACKAGE)))
    failures = 0
    for name, template in commands().items():
        if options.names and name not in options.names:
            continue
        start_s = time.monotonic()
        with tempfile.TemporaryDirectory() as out:
            places = {"{out}": out, "{package}": str(_PACKAGE), "{root}": str(_ROOT)}
            command = template
            for mark, place in places.items():
                command = [word.replace(mark, place) for word in command]
            done = subprocess.run(
                command, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        failures += done.returncode != 0
        word = "ok" if done.returncode == 0 else f"FAILED ({done.returncode})"
        print(f"{name:<50}{time.monotonic() - start_s:>7.1f} s  {word}", flush=True)
        if done.returncode:
            print(done.stdout)
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
