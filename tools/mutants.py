"""Measures what the tests notice: small faults put into the core, one at a time.

    python tools/mutants.py [--count N] [--seed N] [--file FILE] [--tests TESTS] [--list] [--anew]

Each fault replaces one operator or constant in `gateway/`, `router/`, `instance/` or `signals/`,
drawn uniformly from all such places. A clone of the last commit in `build/mutants` is changed,
built and tested. A fault is killed by the first step that fails or takes ten times as long as
without faults: the quick Python tests of its folder, `make test-native`, `make test-python`. A
fault that does not compile is replaced by the next draw. Survivors are not always gaps: some faults
change nothing observable. `--file` takes the faults of one file, and `--tests` runs only these
Python tests, such as those of a policy.

Every verdict is a row of `build/mutants.csv`. An interrupted run continues after its last row, at
the commit at which it began; `--anew` begins again at the last commit.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
ROWS = BUILD / "mutants.csv"
LOG = BUILD / "mutants.log"  # what the last step printed
COLUMNS = ["revision", "seed", "file", "line", "found", "instead", "offset", "killed_by"]
COMPILER = "compiler"  # as killer: the fault does not count

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


def make(step: str, root: Path, limit_s: float | None = None) -> str | None:
    """Runs `make` in the checkout: the step if it fails, with a remark if it was out of time."""
    target, _, variable = step.partition(" ")
    with (
        LOG.open("w") as log,
        subprocess.Popen(
            ["make", target, *([variable] if variable else [])],
            cwd=root,
            env={**os.environ, "PYTEST_ADDOPTS": "--exitfirst"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            return step if process.wait(limit_s) else None
        except subprocess.TimeoutExpired:
            return f"{step}, out of time"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def steps(fault: Fault, tests: str | None) -> list[str]:
    """Arguments of `make`, those first that are most likely to fail."""
    if tests is not None:
        return [f"test-python TESTS={tests}"]
    near = f"tests/{fault.path.parts[1]}"
    return [
        f'test-python TESTS={near} -m "not slow and not long" -n 2',
        "test-native",
        "test-python",
    ]


def clone(*, anew: bool) -> tuple[Path, str]:
    """The checkout to change and its revision: of the run to continue, or of the last commit."""
    root = BUILD / "mutants"
    git = ["git", "-C", str(root)]
    if anew or not (ROWS.exists() and root.exists()):
        ROWS.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
    subprocess.run([*git, "checkout", "--quiet", "."], check=True)
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, stdout=subprocess.PIPE, text=True
    )
    return root, head.stdout.strip()[:12]


class Judge:
    """Which step kills a fault."""

    def __init__(self, root: Path, tests: str | None) -> None:
        self._root = root
        self._tests = tests
        self._limits_s: dict[str, float] = {}

    def killer(self, fault: Fault) -> str:
        """The step that fails with this fault in place; empty if none does."""
        path = self._root / fault.path
        source = path.read_text()
        needed = steps(fault, self._tests)
        for step in needed:
            self._measure(step)
        end = fault.offset + len(fault.found)
        try:
            path.write_text(source[: fault.offset] + fault.instead + source[end:])
            if make(".venv/.dev", self._root):
                return COMPILER
            verdicts = (make(step, self._root, self._limits_s[step]) for step in needed)
            return next(filter(None, verdicts), "")
        finally:
            path.write_text(source)

    def _measure(self, step: str) -> None:
        """Sets the time limit of a step by a run without faults."""
        if step in self._limits_s:
            return
        start = time.monotonic()
        if make(step, self._root):
            sys.exit(f"make {step} fails without a fault: see {LOG}")
        self._limits_s[step] = 60 + 10 * (time.monotonic() - start)


def read_rows(revision: str, seed: int) -> dict[tuple[str, ...], str]:
    """The verdicts that exist, by what precedes them in a row."""
    if not ROWS.exists():
        return {}
    with ROWS.open(newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    done = {tuple(row[:-1]): row[-1] for row in rows}
    if any(row[:2] != [revision, str(seed)] for row in rows):
        sys.exit(f"{ROWS} holds another run: add --anew, or take its seed")
    return done


def append_row(row: list[str]) -> None:
    """One more verdict, under a line of headings."""
    is_new = not ROWS.exists()
    with ROWS.open("a", newline="") as stream:
        writer = csv.writer(stream)
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow(row)


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
    parser.add_argument("--anew", action="store_true", help="begin again at the last commit")
    options = parser.parse_args()

    root, revision = (ROOT, "") if options.list else clone(anew=options.anew)
    places = faults(root, options.file)
    if not places:
        sys.exit(f"{options.file}: no place for a fault")
    random.Random(options.seed).shuffle(places)
    if options.list:
        for fault in places[: options.count]:
            line = fault.line((ROOT / fault.path).read_text())
            print(f"{fault.path}:{line}: {fault.found.strip()} → {fault.instead.strip()}")
        return 0

    done = read_rows(revision, options.seed)
    judge = Judge(root, options.tests)
    tried = killed = 0
    for fault in places:
        if tried == options.count:
            break
        row = [
            revision,
            str(options.seed),
            str(fault.path),
            str(fault.line((root / fault.path).read_text())),
            fault.found.strip(),
            fault.instead.strip(),
            str(fault.offset),
        ]
        key = tuple(row)
        if key in done:
            killer = done[key]
        else:
            killer = judge.killer(fault)
            append_row([*row, killer])
        if killer == COMPILER:
            continue
        tried += 1
        killed += bool(killer)
        print(
            f"{killed} of {tried} killed; {' '.join(row[2:6])}: {killer or 'survives'}", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
