"""Runs clang-tidy over the core's sources; files that are still clean are skipped.

    python tools/run_clang_tidy.py BUILD_DIR [--analyze]

BUILD_DIR is configured with CMake to get the compile commands; nothing is compiled. The sources of
a folder are checked together, as they are compiled: most of the time goes into their headers.
Clang's static analyzer, which takes longer, runs only with --analyze, and then alone. It takes
every source separately and without a precompiled header, so that missing includes are found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def digest_of_headers() -> str:
    """Changes whenever any header, or the list of checks, does."""
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for header in sorted((ROOT / "cpp").rglob("*.h")):
        digest.update(header.read_bytes())
    return digest.hexdigest()


def digest_of(source: Path) -> str:
    """Changes whenever a source does, or one that it puts together."""
    text = source.read_bytes()
    digest = hashlib.sha256(text)
    for part in re.findall(rb'#include "(.+\.cpp)"', text):
        digest.update(Path(part.decode()).read_bytes())
    return digest.hexdigest()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, metavar="BUILD_DIR")
    parser.add_argument("--analyze", action="store_true")
    arguments = parser.parse_args()
    build = arguments.build
    analyzer = "clang-analyzer-*"
    checks = f"-*,{analyzer},-clang-analyzer-unix.Malloc" if arguments.analyze else f"-{analyzer}"
    options = ["PYTHON=OFF", f"UNITY={'OFF' if arguments.analyze else 'ON'}"]
    subprocess.run(
        [
            BIN / "cmake",
            "-S",
            ROOT,
            "-B",
            build,
            "-G",
            "Ninja",
            "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
        ]
        + [f"-DSPILLWAY_{option}" for option in options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    cache = build / ("analyzed.json" if arguments.analyze else "clean.json")
    clean = json.loads(cache.read_text()) if cache.exists() else {}
    headers = digest_of_headers()

    def check(source: Path) -> tuple[Path, str, str]:
        digest = headers + digest_of(source)
        if clean.get(str(source)) == digest:
            return source, digest, ""
        found = subprocess.run(
            [BIN / "clang-tidy", "--quiet", f"--checks={checks}", "-p", build, source],
            capture_output=True,
            text=True,
            check=False,
        )
        return source, digest, "" if found.returncode == 0 else found.stdout + found.stderr

    commands = json.loads((build / "compile_commands.json").read_text())
    sources = sorted(
        Path(command["file"]) for command in commands if "/spillway_core.dir/" in command["command"]
    )
    if not sources:
        sys.exit(f"{build}: no compile command of the core")
    failed = False
    with ThreadPoolExecutor(2) as pool:
        for source, digest, output in pool.map(check, sources):
            if output:
                failed = True
                print(output)
            else:
                clean[str(source)] = digest
    cache.write_text(json.dumps(clean))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
