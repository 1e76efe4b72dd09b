"""What takes too long for every change: `make weekly`, once a week in continuous integration.

    python tools/weekly.py [TARGET …] [--skip TARGET …] [--resume] [--list]

Runs the targets of `make`, one after the other, and goes on when one fails. The output of each is
in `build/weekly/TARGET.log`. At the end is a table: target, status, processor time. `--resume` runs
only those that have not succeeded since the last run without it. Exit status 1: one failed.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_FOLDER = _ROOT / "build" / "weekly"
_STATE = _FOLDER / "state.json"
_TAIL = 15

TARGETS = {
    "analyze": "",
    "bench-check": "",
    "build-check": "",
    "command-lines": "",
    "docs-links": "",
    "fuzz-readers": "SECONDS=120",
    "notebooks-check": "",
    "portability": "",
    "recordings": "",
    "specimens": "",
    "test-dist-full": "",
    "test-fuzz": "",
    "test-long": "",
    "test-sanitized": "",
    "test-tsan": "",
    "mutants": "",
}
"""The targets with their variables, the longest last."""


def existing() -> set[str]:
    """The targets of the Makefile."""
    text = (_ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))


def processor_s() -> float:
    """Processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(target: str, variables: str) -> dict[str, str | float]:
    """Runs a target; its row of the table."""
    print(f"make {target} {variables}".rstrip(), flush=True)
    before_s, start_s = processor_s(), time.monotonic()
    log = _FOLDER / f"{target}.log"
    with log.open("w", encoding="utf-8") as stream:
        status = subprocess.run(
            ["make", target, *variables.split()],
            cwd=_ROOT,
            stdout=stream,
            stderr=stream,
            check=False,
        ).returncode
    if status != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print("\n".join(f"    {line}" for line in lines[-_TAIL:]), flush=True)
    return {
        "status": "ok" if status == 0 else f"FAILED ({status})",
        "processor_s": round(processor_s() - before_s),
        "wall_s": round(time.monotonic() - start_s),
    }


def main() -> int:
    """Command line; 1 if a target failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all by default")
    parser.add_argument("--skip", action="append", default=[], metavar="TARGET")
    parser.add_argument("--resume", action="store_true", help="not those that have succeeded")
    parser.add_argument("--list", action="store_true", help="print the targets as JSON")
    options = parser.parse_args()
    if options.list:
        print(json.dumps(list(TARGETS)))
        return 0
    if unknown := [target for target in (*options.targets, *options.skip) if target not in TARGETS]:
        parser.error(f"{', '.join(unknown)}: must be some of {', '.join(TARGETS)}")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    rows = json.loads(_STATE.read_text()) if options.resume and _STATE.exists() else {}
    chosen = [target for target in options.targets or TARGETS if target not in options.skip]
    for target in chosen:
        if rows.get(target, {}).get("status") == "ok":
            continue
        if target in existing():
            rows[target] = run(target, TARGETS[target])
        else:
            rows[target] = {"status": "FAILED (no such target)", "processor_s": 0, "wall_s": 0}
        _STATE.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"\n{'target':<16} {'CPU s':>8} {'wall s':>8}  status")
    for target in chosen:
        row = rows[target]
        print(f"{target:<16} {row['processor_s']:>8,} {row['wall_s']:>8,}  {row['status']}")
    return 0 if all(rows[target]["status"] == "ok" for target in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
