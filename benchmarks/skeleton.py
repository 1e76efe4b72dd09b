"""The skeleton of W8 (`micro/skeleton_w8.cpp`), built with the compiler that is found."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).resolve().parent / "micro" / "skeleton_w8.cpp"
BUILD = _SOURCE.parents[2] / "build"
"""The folder of what the benchmarks compile."""
_PROGRAM = BUILD / "skeleton_w8"
_FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-ffp-contract=off"]


def compiler() -> list[str] | None:
    """The command of `CXX`, or the first compiler on the path; None without one."""
    if "CXX" in os.environ:
        return shlex.split(os.environ["CXX"])
    found = next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    return [found] if found else None


def build(program: Path = _PROGRAM) -> Path | None:
    """The program, compiled anew if its source has changed; None without a compiler."""
    if program.exists() and program.stat().st_mtime >= _SOURCE.stat().st_mtime:
        return program
    command = compiler()
    if command is None:
        return None
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command, *_FLAGS, str(_SOURCE), "-o", str(program)], check=True)
    return program


def run(program: Path, *arguments: object) -> dict[str, Any]:
    """What it prints: CPU time of the fastest repeat, steps and figures."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
