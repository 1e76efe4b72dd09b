"""Instructions per completed request: `python benchmarks/instructions.py`.

Callgrind counts those of one run of each scenario, with its requests generated beforehand, after a
run for warming up. The counts do not depend on what else the machine does, but on compiler,
libraries and Python. It needs valgrind with its headers, and a C++ compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import skeleton
from scenarios import SCENARIOS, make

import spillway
from spillway import _core

_SOURCE = Path(__file__).resolve().parent / "micro" / "callgrind_marks.cpp"
NUM_REQUESTS = 3000
"""Of a run whose instructions are counted."""


def toolchain() -> str:
    """What the counts depend on, besides the code."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (
        f"{platform.machine()}, compiler {spillway.build_info['compiler']}, "
        f"{spillway.build_info['build_type']}, {' '.join(platform.libc_ver())}, Python {python}"
    )


def missing() -> str | None:
    """What is needed and not there; None if nothing is."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if skeleton.compiler() is None:
        return "there is no C++ compiler: set CXX"
    return None if _marks() else "the headers of valgrind are not installed"


def measure(name: str, num_requests: int) -> float:
    """Instructions per completed request of a scenario, in a fresh process.

    Precondition: nothing is `missing`.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
        command += [f"--callgrind-out-file={out}", sys.executable, __file__]
        command += ["--scenario", name, "--num-requests", str(num_requests)]
        command += ["--marks", str(_marks())]
        done = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
        )
        return _total(Path(f"{out}.1")) / int(done.stdout)


@functools.cache
def _marks() -> str | None:
    """The library of the marks, built once; None without the headers of valgrind."""
    library = skeleton.BUILD / "callgrind_marks.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    command = [*(skeleton.compiler() or []), "-shared", "-fPIC", str(_SOURCE), "-o", str(library)]
    done = subprocess.run(command, check=False, capture_output=True)
    return str(library) if done.returncode == 0 else None


def _total(dump: Path) -> int:
    (total,) = re.findall(r"^totals: (\d+)$", dump.read_text(), re.MULTILINE)
    return int(total)


def _run(name: str, num_requests: int, marks: str) -> None:
    """Under callgrind: makes the run and prints how many requests were completed."""
    library = ctypes.CDLL(marks)
    gc.disable()
    simulation = make(name, num_requests)
    requests = _core.cluster.offered_requests(simulation, 0)
    _core.cluster.run(simulation, 0, False, requests)
    library.begin()
    output = _core.cluster.run(simulation, 0, False, requests)
    library.end()
    print(output["ledger"]["completed"])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="default: all")
    parser.add_argument("--num-requests", type=int, default=NUM_REQUESTS)
    parser.add_argument("--marks", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.marks:
        _run(options.scenario[0], options.num_requests, options.marks)
        return
    if reason := missing():
        print(f"instructions are not counted: {reason}")
        return
    for name in options.scenario or SCENARIOS:
        print(f"{name:<12}{measure(name, options.num_requests):>12,.1f}", flush=True)


if __name__ == "__main__":
    main()
