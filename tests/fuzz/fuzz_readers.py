"""Damaged files through every reader (`make fuzz-readers SECONDS=600`).

Each reader of `support/readers.py` gets valid files with random damage, for SECONDS of processor
time each, in a process of its own. It must give a value or a documented error of one line, within
10 s and 3 GiB. Printed is a line per reader, and every cause of a failure with the files that
showed it first, below `build/fuzz`. Exit status 1: something failed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.paths import ROOT
from support.readers import READERS, damaged, outcome
from support.views import Failure
from support.watchdog import SlowError, watched

_SLOW_S = 10.0
_MEMORY_BYTES = 3 * 2**30
_KEPT = 10


def fuzz(name: str, seconds: float, seed: int, folder: Path) -> dict[str, int]:
    """Counts of outcomes; each cause of a failure is printed when it is first met."""
    warnings.simplefilter("ignore")
    reader = READERS[name]
    seeds = reader.seeds()
    current = folder / "current"
    counts: Counter[str] = Counter()
    causes: set[str] = set()
    index = 0
    while time.process_time() < seconds:
        rng = random.Random(f"{seed} {name} {index}")
        files = damaged(rng.choice(seeds), rng)
        shutil.rmtree(current, ignore_errors=True)
        current.mkdir(parents=True)
        for file, content in files.items():
            (current / file).write_bytes(content)
        index += 1
        try:
            with watched(_SLOW_S):
                counts[outcome(reader, current)] += 1
            continue
        except SlowError as error:
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            cause = f"{error} in {frames[-2]}"
        except Exception as error:
            cause = Failure(name, error).cause
        counts["failed"] += 1
        if cause not in causes and len(causes) < _KEPT:
            causes.add(cause)
            kept = folder / f"{seed}-{index}"
            shutil.copytree(current, kept, dirs_exist_ok=True)
            print(f"{cause}\n    {kept}", file=sys.stderr, flush=True)
    shutil.rmtree(current, ignore_errors=True)
    return {"inputs": index, **counts}


def main() -> int:
    """Command line; 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of readers")
    parser.add_argument("--seconds", type=float, default=60, help="processor time of each reader")
    parser.add_argument("--seed", type=int, default=0, help="of the damage")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = ROOT / "build" / "fuzz"
    if options.one:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        place = folder / options.one.replace(" ", "-")
        print(json.dumps(fuzz(options.one, options.seconds, options.seed, place)))
        return 0
    chosen = [
        name for name in READERS if not options.names or any(part in name for part in options.names)
    ]
    if not chosen:
        parser.error(f"no reader is named so: {', '.join(READERS)}")
    failed = False
    for name in chosen:
        command = [sys.executable, __file__, "--one", name, "--seconds", str(options.seconds)]
        done = subprocess.run(
            [*command, "--seed", str(options.seed)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            counts, line = {}, f"FAILED: exit status {done.returncode}, see {folder}"
        else:
            counts = json.loads(done.stdout)
            line = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        print(f"{name:<32} {line}", flush=True)
        if done.returncode != 0 or counts.get("failed"):
            failed = True
            print("\n".join(f"    {line}" for line in done.stderr.splitlines()[-40:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
