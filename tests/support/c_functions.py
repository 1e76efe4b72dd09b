"""C functions that a compiler makes of their source."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from spillway import policies


@functools.cache
def c_library(source: str) -> ctypes.CDLL | None:
    """The functions of a source that may include `spillway_policy.h`; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mine.c").write_text(source)
        command = [compiler, "-O2", "-std=c99", "-Wall", "-pedantic", "-shared", "-fPIC"]
        command += ["-ffp-contract=off", f"-I{policies.include_dir()}", "-o", "mine.so", "mine.c"]
        subprocess.run(command, cwd=folder, check=True)
        return ctypes.CDLL(f"{folder}/mine.so")
