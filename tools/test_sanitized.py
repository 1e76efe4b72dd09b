"""Runs Python tests against an extension that is built with sanitizers: `make test-sanitized`.

    python tools/test_sanitized.py asan              AddressSanitizer, UndefinedBehaviorSanitizer
    python tools/test_sanitized.py tsan              ThreadSanitizer
    python tools/test_sanitized.py asan tests/x.py   other tests, or options of pytest

The tests are those in which Python and threads meet the core: callbacks, batches, sessions,
environments, policies in Python and in C. They run in one process, so that a report names its test.
It needs GCC on Linux, whose runtimes the interpreter loads first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pybind11

_ROOT = Path(__file__).resolve().parents[1]

RUNTIMES = {"asan": "libasan.so", "tsan": "libtsan.so"}
TESTS = [
    "tests/python/test_reentrancy.py",
    "tests/python/test_session.py",
    "tests/python/test_session_submissions.py",
    "tests/python/test_envs.py",
    "tests/python/test_python_policies.py",
    "tests/python/test_seams_of_python_policies.py",
    "tests/python/test_compiled_policies.py",
    "tests/router/test_own_deciders.py",
    "tests/python/test_testing.py",
    "tests/cluster",
]


# What the sanitizer must report, in a library that is loaded like the extension.
FAULTS = """
#include <sched.h>
#include <stdlib.h>
int arrived, shared;
void asan(void) { volatile char *eight = malloc(8); eight[8] = 1; }
void tsan(void) {
  __atomic_fetch_add(&arrived, 1, __ATOMIC_RELAXED);
  while (__atomic_load_n(&arrived, __ATOMIC_RELAXED) < 2) sched_yield();
  ++shared;
}
"""
CALL_TWICE = """
import ctypes, sys, threading
fault = getattr(ctypes.CDLL(sys.argv[2]), sys.argv[1])
threads = [threading.Thread(target=fault) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
REPORTS = {"asan": "heap-buffer-overflow", "tsan": "data race"}


def check_that_it_reports(sanitizer: str, variables: dict[str, str]) -> None:
    """Ends the program unless a fault is reported, because no report would then mean nothing."""
    kind = {"asan": "address,undefined", "tsan": "thread"}[sanitizer]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "faults.c"), Path(folder, "faults.so")
        source.write_text(FAULTS)
        options = [f"-fsanitize={kind}", "-g", "-shared", "-fPIC"]
        subprocess.run(["cc", *options, str(source), "-o", str(library)], check=True)
        command = [sys.executable, "-c", CALL_TWICE, sanitizer, str(library)]
        done = subprocess.run(
            command, check=False, env=variables, stderr=subprocess.PIPE, text=True
        )
    if done.returncode == 0 or REPORTS[sanitizer] not in done.stderr:
        raise SystemExit(f"{sanitizer} does not report a fault:\n{done.stderr}")


def environment(sanitizer: str, package: Path) -> dict[str, str]:
    """The variables with which the interpreter loads the runtime and the built package."""
    # The runtime looks for the functions that throw before any extension is loaded.
    found = [
        subprocess.run(
            ["c++", f"-print-file-name={name}"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        for name in (RUNTIMES[sanitizer], "libstdc++.so.6")
    ]
    if not Path(found[0]).is_absolute():
        raise SystemExit(f"c++ has no {RUNTIMES[sanitizer]}: this needs GCC on Linux")
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(found),
        "PYTHONPATH": str(package),
        # Each object of Python is then an allocation that the sanitizer knows.
        "PYTHONMALLOC": "malloc",
        # The interpreter does not free what lives as long as itself.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "second_deadlock_stack=1",
    }


def build(sanitizer: str) -> Path:
    """Builds the extension in a folder of its own. Returns the folder of the package."""
    preset = f"{sanitizer}-extension"
    folder = _ROOT / "build" / preset
    installed = folder / "installed"
    cmake = str(Path(sys.executable).parent / "cmake")
    for step in (
        [
            *("--preset", preset, "--log-level=WARNING"),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        ],
        ["--build", "--preset", preset],
        ["--install", str(folder), "--prefix", str(installed)],
    ):
        subprocess.run([cmake, *step], check=True, cwd=_ROOT)
    for name in ("spillway", "spillway_cli"):
        shutil.copytree(_ROOT / "python" / name, installed / name, dirs_exist_ok=True)
    return installed


def main() -> int:
    """Returns the status of pytest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sanitizer", choices=RUNTIMES)
    options, chosen = parser.parse_known_args()
    package = build(options.sanitizer)
    variables = environment(options.sanitizer, package)
    check_that_it_reports(options.sanitizer, variables)
    where = "import spillway; print(spillway.__file__)"
    loaded = subprocess.run(
        [sys.executable, "-c", where],
        check=True,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    ).stdout.strip()
    if not Path(loaded).is_relative_to(package):
        raise SystemExit(f"{loaded} would be tested instead of {package}")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "not long",
        "-p",
        "no:cacheprovider",
        "--capture=sys",
    ]
    return subprocess.run(
        [*command, *(chosen or TESTS)], check=False, env=variables, cwd=_ROOT
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
