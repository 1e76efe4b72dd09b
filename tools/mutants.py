"""Measures what the tests notice: small faults put into the core, one at a time.

    python tools/mutants.py [--count N] [--seed N] [--list]

Each fault replaces one operator or constant in `gateway/`, `router/`, `instance/` or `signals/`,
drawn uniformly from all such places. A clone of the last commit in `build/mutants` is changed,
built and tested. A fault is killed by the first of `make test-native` and `make test-python` that
fails or takes ten times as long as without faults. A fault that does not compile is replaced by the
next draw. Survivors are not always gaps: some faults change nothing observable.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
TESTS = ("test-native", "test-python")

FOLDERS = ("gateway", "router", "instance", "signals")

# Operator or constant → its replacements.
REPLACEMENTS = {
    " < ": (" <= ",),
    " <= ": (" < ",),
    " > ": (" >= ",),
    " >= ": (" > ",),
    " == ": (" != ",),
    " != ": (" == ",),
    " && ": (" || ",),
    " || ": (" && ",),
    " + ": (" - ",),
    " - ": (" + ",),
    " * ": (" / ",),
    " / ": (" * ",),
    " += ": (" -= ",),
    " -= ": (" += ",),
    "std::min(": ("std::max(",),
    "std::max(": ("std::min(",),
    "++": ("--",),
    "true": ("false",),
    "false": ("true",),
    "0": ("1",),
    "1": ("0", "2"),
}
_PLACE = re.compile(
    r" (?:<=|>=|==|!=|&&|\|\||\+=|-=|<|>|\+|-|\*|/) |std::m(?:in|ax)\(|\+\+"
    r"|\b(?:true|false|0|1)\b(?![.'])"
)
# Skipped: comments, text, directives, descriptions of settings, declarations of templates.
_SKIPPED = re.compile(
    r'//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#[^\n]*|\bfield\((?:[^;]*?)\)[,;}]'
    r"|\.(?:range|search|log_search)\([^\n]*|\btemplate <[^\n]*|\bstatic_assert\([^;]*;"
    r"|\boperator[^\s(]+",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Fault:
    """One replacement in one file."""

    path: Path
    offset: int
    found: str
    instead: str

    def line(self, source: str) -> int:
        """Number of its line."""
        return source.count("\n", 0, self.offset) + 1


def faults(root: Path) -> list[Fault]:
    """All possible faults of a checkout, in order."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / "cpp" / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp"} or path.name.endswith("config.h"):
                continue
            source = path.read_text()
            code = _SKIPPED.sub(lambda match: " " * len(match.group()), source)
            for match in _PLACE.finditer(code):
                for instead in REPLACEMENTS[match.group()]:
                    place = path.relative_to(root)
                    found.append(Fault(place, match.start(), match.group(), instead))
    return found


def make(target: str, root: Path, limit_s: float | None = None) -> bool:
    """Whether a target of the checkout's Makefile succeeds within a time."""
    try:
        done = subprocess.run(
            ["make", target],
            cwd=root,
            env={**os.environ, "PYTEST_ADDOPTS": "--exitfirst"},
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def limit_of(target: str, root: Path) -> float:
    """Time limit in seconds of a target, from a run without faults."""
    start = time.monotonic()
    if not make(target, root):
        sys.exit(f"make {target} fails without a fault")
    return 60 + 10 * (time.monotonic() - start)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=60, metavar="N", help="faults to try")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--list", action="store_true", help="print the first draws only")
    options = parser.parse_args()

    places = faults(ROOT)
    random.Random(options.seed).shuffle(places)
    if options.list:
        for fault in places[: options.count]:
            line = fault.line((ROOT / fault.path).read_text())
            print(f"{fault.path}:{line}: {fault.found.strip()} → {fault.instead.strip()}")
        return 0
    root = BUILD / "mutants"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
    limits_s = {target: limit_of(target, root) for target in TESTS}
    tried = killed = 0
    with (BUILD / "mutants.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["file", "line", "found", "instead", "killed_by"])
        for fault in places:
            if tried == options.count:
                break
            path = root / fault.path
            source = path.read_text()
            end = fault.offset + len(fault.found)
            path.write_text(source[: fault.offset] + fault.instead + source[end:])
            try:
                if not make(".venv/.dev", root):
                    continue
                killer = next((one for one in TESTS if not make(one, root, limits_s[one])), "")
            finally:
                path.write_text(source)
            tried += 1
            killed += bool(killer)
            row = [fault.path, fault.line(source), fault.found.strip(), fault.instead.strip()]
            writer.writerow([*row, killer])
            stream.flush()
            print(f"{killed} of {tried} killed; {' '.join(map(str, row))}: {killer or 'survives'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
