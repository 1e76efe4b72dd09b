"""Whether a scenario takes more instructions than before: `make bench-check`.

The counts of `instructions.py` are compared with those of `instructions.json`, which are committed;
a scenario that takes more than 3% more is a failure. They are compared only if compiler, libraries
and Python are those of the committed counts. `--renew` replaces these. The shares of the skeleton
(`shares.py`) are shown, but a machine with other work to do cannot judge them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import instructions
import shares
from scenarios import SCENARIOS

_COMMITTED = Path(__file__).resolve().with_name("instructions.json")
_TOLERANCE = 0.03
_RENEW = "renew with make bench-check RENEW=1"


def differences(committed: dict[str, str], now: dict[str, str]) -> list[str]:
    """What makes counts incomparable, a clause each."""
    return [
        f"{what} is {now.get(what)}, was {committed.get(what)}"
        for what in sorted(committed.keys() | now.keys())
        if committed.get(what) != now.get(what)
    ]


def verdict(count: float, committed: float | None) -> tuple[bool, str]:
    """Whether a count passes, and a comment on it."""
    if committed is None:
        return False, f"FAILED: none committed, {_RENEW}"
    change = count / committed - 1
    comment = f"{change:+.1%} of {committed:,.0f}"
    if change > _TOLERANCE:
        return False, f"{comment}, FAILED: more than {_TOLERANCE:.0%}"
    return True, comment if change >= -_TOLERANCE else f"{comment}, {_RENEW}"


def _count(name: str, num_requests: int = instructions.NUM_REQUESTS) -> float:
    print(f"{name:<12}", end="", flush=True)
    count = round(instructions.measure(name, num_requests), 1)
    print(f"{count:>10,.0f}  ", end="")
    return count


def _compare(committed: dict[str, Any]) -> bool:
    """Whether all scenarios pass; if the counts are not comparable, they do."""
    obstacles = differences(committed["environment"], instructions.environment())
    passes = True
    for name in SCENARIOS:
        count = _count(name)
        passed, comment = verdict(count, committed["instructions_per_request"].get(name))
        passes = passes and (passed or bool(obstacles))
        print("not compared" if obstacles else comment)
    if obstacles:
        print(f"not compared with the committed counts: {'; '.join(obstacles)}")
    return passes


def _renew() -> None:
    counts = {}
    for name in SCENARIOS:
        counts[name] = _count(name)
        print()
    content = {"environment": instructions.environment(), "instructions_per_request": counts}
    _COMMITTED.write_text(json.dumps(content, indent=1) + "\n")


def _show_shares(sizes: dict[str, int], rounds: int) -> None:
    print("shares of the skeleton (CPU time, not judged)")
    measured = shares.measure(sizes, rounds)
    if not measured:
        print("not shown: there is no C++ compiler, set CXX")
    for name, figures in measured.items():
        print(f"{name:<12}{figures['share']:>10.3f}")


def main() -> int:
    """Command line; 0 if no scenario takes more instructions."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--renew", action="store_true", help="replace the committed counts")
    what.add_argument("--smoke", action="store_true", help="one scenario, compares nothing")
    parser.add_argument("--rounds", type=int, default=2, help="of the shares")
    options = parser.parse_args()
    passes = True
    if reason := instructions.missing():
        print(f"instructions are not compared: {reason}")
    else:
        print("instructions per completed request")
        if options.smoke:
            _count("W8", 100)
            print()
        elif options.renew:
            _renew()
        else:
            passes = _compare(json.loads(_COMMITTED.read_text()))
    _show_shares({"W8": 100} if options.smoke else shares.SIZES, options.rounds)
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
