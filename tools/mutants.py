"""Measures what the tests notice: small faults put into the core, one at a time.

    python tools/mutants.py [--count N] [--seed N] [--file FILE] [--tests TESTS] [--list]

Each fault replaces one operator or constant in `gateway/`, `router/`, `instance/` or `signals/`,
drawn uniformly from all such places. A clone of the last commit in `build/mutants` is changed,
built and tested. A fault is killed by the first of `make test-native` and `make test-python` that
fails or takes ten times as long as without faults. A fault that does not compile is replaced by the
next draw. Survivors are not always gaps: some faults change nothing observable. `--file` takes the
faults of one file, and `--tests` runs only these Python tests, such as those of a policy.
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
TESTS = (["test-native"], ["test-python"])  # arguments of make

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


def faults(root: Path, only: Path | None = None) -> list[Fault]:
    """All possible faults of a checkout, or of one of its files, in order."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / "cpp" / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp"} or path.name.endswith("config.h"):
                continue
            place = path.relative_to(root)
            if only not in {None, place}:
                continue
            source = path.read_text()
            code = _SKIPPED.sub(lambda match: " " * len(match.group()), source)
            for match in _PLACE.finditer(code):
                found += [
                    Fault(place, match.start(), match.group(), instead)
                    for instead in REPLACEMENTS[match.group()]
                ]
    return found


def make(arguments: list[str], root: Path, limit_s: float | None = None) -> bool:
    """Whether `make` succeeds in the checkout within a time."""
    try:
        done = subprocess.run(
            ["make", *arguments],
            cwd=root,
            env={**os.environ, "PYTEST_ADDOPTS": "--exitfirst"},
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def limit_of(arguments: list[str], root: Path) -> float:
    """Time limit in seconds of `make`, from a run without faults."""
    start = time.monotonic()
    if not make(arguments, root):
        sys.exit(f"make {' '.join(arguments)} fails without a fault")
    return 60 + 10 * (time.monotonic() - start)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=60, metavar="N", help="faults to try")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--file", type=Path, help="e.g. cpp/gateway/admission/token_bucket.cpp")
    parser.add_argument("--tests", help="e.g. tests/gateway/admission/test_token_bucket.py")
    parser.add_argument("--list", action="store_true", help="print the first draws only")
    options = parser.parse_args()

    places = faults(ROOT, options.file)
    if not places:
        sys.exit(f"{options.file}: no place for a fault")
    random.Random(options.seed).shuffle(places)
    if options.list:
        for fault in places[: options.count]:
            line = fault.line((ROOT / fault.path).read_text())
            print(f"{fault.path}:{line}: {fault.found.strip()} → {fault.instead.strip()}")
        return 0
    root = BUILD / "mutants"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
    tests = TESTS if options.tests is None else (["test-python", f"TESTS={options.tests}"],)
    limited = [(arguments, limit_of(arguments, root)) for arguments in tests]
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
                if not make([".venv/.dev"], root):
                    continue
                killer = next(
                    (one[0] for one, limit_s in limited if not make(one, root, limit_s)), ""
                )
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
