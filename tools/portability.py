"""Whether other compilers, levels of optimization and C libraries give the same outcomes.

    python tools/portability.py [NAME …] [--list]

Builds the extension with each compiler that is present, at -O0, -O2 and -O3, in a folder of its own
below `build/portability`, and compares the digests of `tests/golden/digests.json`; then the
installed extension with a C library that uses no fused multiplication and addition, where the
library has that option. A line each; exit status 1 if a digest differs, or if nothing was built. A
compiler that is missing or too old is named. COMPILERS names others, e.g. "g++-13 clang++-18";
arguments of a compiler follow a semicolon: "zig;c++" (`pip install ziglang`) brings Clang with a
standard library of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pybind11

import spillway
from spillway import _core

_ROOT = Path(__file__).resolve().parents[1]
_FOLDER = _ROOT / "build" / "portability"
_LEVELS = ("O0", "O2", "O3")
_COMPILERS = os.environ.get("COMPILERS", "g++ clang++").split()
_PACKAGE = Path(spillway.__file__).resolve().parent
_EXTENSION = Path(_core.__file__)
# The spelling of glibc 2.33 and later, and that before.
_WITHOUT_FMA = "-AVX2,-FMA,-FMA4,-AVX2_Usable,-FMA_Usable,-FMA4_Usable"
_PROBE = """
import hashlib, math, random
rng = random.Random(1)
values = [math.exp(rng.uniform(-5, 5)) for _ in range(50_000)]
print(hashlib.sha256(repr(values).encode()).hexdigest())
"""

_RUN = """
import runpy, sys
from spillway import _core
assert _core.__file__.startswith(sys.argv[1]), _core.__file__
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def build(name: str, compiler: str, level: str) -> Path:
    """The folder with a package whose extension is built so."""
    folder = _FOLDER / name
    configure = [
        *("cmake", "-S", _ROOT, "-B", folder / "build", "-G", "Ninja"),
        *("-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_FLAGS_RELEASE=-{level} -DNDEBUG"),
        f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder / "build.log").open("w", encoding="utf-8") as log:
        for step in (configure, ["cmake", "--build", folder / "build", "--target", "_core"]):
            subprocess.run(
                step, check=True, stdout=log, stderr=log, env={**os.environ, "PATH": path}
            )
    shutil.rmtree(folder / "spillway", ignore_errors=True)
    ignored = shutil.ignore_patterns(_EXTENSION.name, "__pycache__")
    shutil.copytree(_PACKAGE, folder / "spillway", ignore=ignored)
    (built,) = (folder / "build" / "cpp").glob("_core*.so")
    shutil.copy(built, folder / "spillway" / _EXTENSION.relative_to(_PACKAGE))
    return folder


def compare(environment: dict[str, str], package: Path) -> tuple[bool, str]:
    """Whether the digests are the recorded ones, and a line about it."""
    shown = subprocess.run(
        [
            *(sys.executable, "-c"),
            _RUN,
            *(package, _ROOT / "tests" / "golden" / "digests.py"),
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.returncode == 0, (shown.stdout + shown.stderr).strip()


def libraries_differ(environment: dict[str, str]) -> bool:
    """Whether the C library gives other last bits in this environment."""
    found = [
        subprocess.check_output([sys.executable, "-c", _PROBE], env={**os.environ, **variables})
        for variables in ({}, environment)
    ]
    return found[0] != found[1]


def has_source_location(compiler: str) -> bool:
    """Whether the compiler and its library have this part of C++20; Clang has it from 16 on."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text("#include <source_location>\nstd::source_location at;\n")
        command = [*compiler.split(";"), "-std=c++20", "-c", str(source), "-o", f"{source}.o"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def variants() -> dict[str, tuple[str, str] | None]:
    """By name: a compiler and a level; None for the installed extension with another library."""
    found: dict[str, tuple[str, str] | None] = {"without-fma": None}
    for compiler in _COMPILERS:
        name = Path(compiler.partition(";")[0]).name
        if shutil.which(compiler.partition(";")[0]) is None:
            print(f"{name:<16} not compared: not installed", flush=True)
            continue
        if not has_source_location(compiler):
            print(f"{name:<16} not compared: too old, without std::source_location", flush=True)
            continue
        found |= {f"{name}-{level}": (compiler, level) for level in _LEVELS}
    return found


def run(name: str, variant: tuple[str, str] | None) -> bool:
    """Compares a variant and prints its line."""
    start_s = time.monotonic()
    if variant is None:
        environment = {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={_WITHOUT_FMA}"}
        if not libraries_differ(environment):
            print(f"{name:<16} not compared: the C library gives the same last bits")
            return True
        passed, shown = compare(environment, _PACKAGE)
    else:
        try:
            folder = build(name, *variant)
        except subprocess.CalledProcessError:
            print(f"{name:<16} FAILED: not built, see {_FOLDER}/*/build.log")
            return False
        passed, shown = compare({"PYTHONPATH": str(folder)}, folder)
    lines = shown.splitlines()
    took = f"{time.monotonic() - start_s:.0f} s"
    print(f"{name:<16} {lines[-1] if passed else 'FAILED'} ({took})")
    if not passed:
        print("\n".join(f"    {line}" for line in lines[:20]))
    sys.stdout.flush()
    return passed


def main() -> int:
    """Command line; 1 if a digest differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="variants; all by default")
    parser.add_argument("--list", action="store_true", help="print the names of the variants")
    options = parser.parse_args()
    print(f"{platform.machine()}, {' '.join(platform.libc_ver())}, Python {sys.version.split()[0]}")
    found = variants()
    if options.list:
        print("\n".join(found))
        return 0
    if unknown := [name for name in options.names if name not in found]:
        parser.error(f"{', '.join(unknown)}: must be some of {', '.join(found)}")
    passed = [run(name, found[name]) for name in options.names or found]
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
