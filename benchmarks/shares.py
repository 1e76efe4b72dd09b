"""How close each scenario comes to the limit: `python benchmarks/shares.py`.

The limit is the skeleton of W8 (`micro/skeleton_w8.cpp`), which does the work of that scenario and
nothing else. A share is the skeleton's CPU time per request over that of a scenario per completed
request: 1 would be as fast. Both are the minimum of rounds in turns, so that other work on the
machine counts for little.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import skeleton
from bench import child
from scenarios import SCENARIOS

_BENCH = Path(__file__).resolve().with_name("bench.py")
_REPEATS = 5
SIZES = dict.fromkeys(SCENARIOS, 20_000) | {"W1000": 50_000}
"""How many requests each scenario has here."""
ROUNDS = 15
Shares = dict[str, dict[str, float]]


def measure(sizes: dict[str, int], rounds: int = ROUNDS) -> Shares:
    """CPU time per request in us and share, by scenario and for `skeleton`.

    `sizes` has the number of requests of each scenario. Empty without a compiler for the skeleton.
    """
    program = skeleton.build()
    if program is None:
        return {}
    best_s = dict.fromkeys(["skeleton", *sizes], float("inf"))
    for _ in range(rounds):
        limit = skeleton.run(program, "--repeats", 2 * _REPEATS)
        best_s["skeleton"] = min(best_s["skeleton"], limit["cpu_s"] / limit["requests"])
        for name, size in sizes.items():
            run = ("--scenario", name, "--json", "--num-requests", size, "--repeats", _REPEATS)
            row = child(_BENCH, *run)
            best_s[name] = min(best_s[name], row["cpu_s"] / row["completed"])
    return {
        name: {"cpu_us": 1e6 * seconds, "share": best_s["skeleton"] / seconds}
        for name, seconds in best_s.items()
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--num-requests", type=int, help="instead of the scenario's own number")
    options = parser.parse_args()
    names = options.scenario or SCENARIOS
    sizes = {name: options.num_requests or SIZES[name] for name in names}
    shares = measure(sizes, options.rounds)
    if not shares:
        sys.exit("no C++ compiler for the skeleton: set CXX")
    print(f"{'':<12}{'us/request':>12}{'share':>8}")
    for name, figures in shares.items():
        print(f"{name:<12}{figures['cpu_us']:>12.3f}{figures['share']:>8.3f}")


if __name__ == "__main__":
    main()
