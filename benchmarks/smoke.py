"""Whether every script of this folder and every example still runs: `make smoke`.

Each runs once, at its smallest size, in a folder that is thrown away. A script with a command line
that is not listed here is an error, so that none is forgotten.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import spillway

_HERE = Path(__file__).resolve().parent
_EXAMPLES = _HERE.parent / "examples"
_PACKAGE = Path(spillway.__file__).parents[1]

# Arguments at which a script takes seconds; {out} is a folder, {package} that of Spillway.
_EXPERIMENT = "--requests 200 --seeds 2 --output {out}/report.md"
SCRIPTS = {
    "bench.py": "--all --repeats 1 --num-requests 100",
    "compare.py": "--base-path {package} --head-path {package} --scenario W8"
    " --rounds 1 --repeats 1",
    "head_to_head.py": f"{_EXPERIMENT} --trials 2",
    "iteration14.py": f"{_EXPERIMENT} --published-seeds 2",
    "make_readme.py": "--smoke --store {out}/store.json --output {out}/README.md",
    "predictive_vs_gated.py": f"{_EXPERIMENT} --trials 2",
    "search.py": "--smoke --processes 1",
    "studies.py": "--smoke --processes 1 --output {out}/studies.md",
    "suite.py": "--smoke --full",
}
NO_COMMAND = {"experiments.py", "scenarios.py", "smoke.py"}


def commands() -> dict[str, list[str]]:
    """What to run, by name, with {out} and {package} still to be filled in."""
    found = {}
    for script in sorted(_HERE.glob("*.py")):
        if script.name not in NO_COMMAND:
            found[script.name] = [sys.executable, str(script), *SCRIPTS[script.name].split()]
    spillway_command = [sys.executable, "-m", "spillway.cli"]
    for example in sorted(_EXAMPLES.glob("*.yaml")):
        verbs = {"check": "", "run": "--out {out}"}
        if example.stem.endswith("_study"):
            verbs = {"optimize": "--trials 2 --out {out}"}
        for verb, more in verbs.items():
            name = f"spillway {verb} {example.name}"
            found[name] = [*spillway_command, verb, str(example), *more.split()]
    for example in sorted(_EXAMPLES.glob("*.py")):
        found[example.name] = [sys.executable, str(example)]
    return found


def main() -> int:
    """Runs what the arguments name; the number of failures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="default: all")
    options = parser.parse_args()
    failures = 0
    for name, template in commands().items():
        if options.names and name not in options.names:
            continue
        start_s = time.monotonic()
        with tempfile.TemporaryDirectory() as out:
            places = {"{out}": out, "{package}": str(_PACKAGE)}
            command = template
            for mark, place in places.items():
                command = [word.replace(mark, place) for word in command]
            done = subprocess.run(
                command, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False,
            )  # fmt: skip
        failures += done.returncode != 0
        word = "ok" if done.returncode == 0 else f"FAILED ({done.returncode})"
        print(f"{name:<50}{time.monotonic() - start_s:>7.1f} s  {word}", flush=True)
        if done.returncode:
            print(done.stdout)
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
