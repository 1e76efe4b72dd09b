"""Whether a scenario takes more instructions than before: `make bench-check`.

The counts of `instructions.py` are compared with those of `instructions.json`, which are committed;
a scenario that takes more than 3 % more is a failure. They are compared only if compiler, libraries
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
_NUM_REQUESTS = 3000
_TOLERANCE = 0.03
_RENEW = "renew them with make bench-check RENEW=1"


def differences(known: dict[str, str], now: dict[str, str]) -> list[str]:
    """What makes counts incomparable, a clause each."""
    return [
        f"{what} is {now.get(what)}, was {known.get(what)}"
        for what in sorted(known.keys() | now.keys())
        if known.get(what) != now.get(what)
    ]


def verdict(name: str, count: float, known: float | None) -> tuple[bool, str]:
    """Whether the count passes, and a line that says why."""
    line = f"{name:<12}{count:>10,.0f} instructions per request"
    if known is None:
        return False, f"{line}, none committed: {_RENEW}"
    change = count / known - 1
    line += f", committed {known:,.0f} ({change:+.1%})"
    if change > _TOLERANCE:
        return False, f"{line}: FAILED, more than {_TOLERANCE:.0%} above"
    if change < -_TOLERANCE:
        line += f": {_RENEW}"
    return True, line


def _check_instructions(num_requests: int, *, renews: bool) -> bool:
    if reason := instructions.missing():
        print(f"instructions are not compared: {reason}")
        return True
    known: dict[str, Any] = json.loads(_COMMITTED.read_text()) if _COMMITTED.exists() else {}
    now = instructions.environment() | {"requests": str(num_requests)}
    obstacles = differences(known.get("environment", {}), now)
    counts = {}
    passes = True
    for name in SCENARIOS:
        counts[name] = round(instructions.measure(name, num_requests), 1)
        if obstacles or renews:
            print(f"{name:<12}{counts[name]:>10,.0f} instructions per request", flush=True)
        else:
            passed, line = verdict(name, counts[name], known["instructions_per_request"].get(name))
            passes = passes and passed
            print(line, flush=True)
    if renews:
        content = {"environment": now, "instructions_per_request": counts}
        _COMMITTED.write_text(json.dumps(content, indent=1) + "\n")
    elif obstacles:
        print(f"not compared with the committed counts: {'; '.join(obstacles)}")
    return passes


def _show_shares(rounds: int, num_requests: int | None) -> None:
    measured = shares.measure(rounds=rounds, num_requests=num_requests)
    if not measured:
        print("shares of the skeleton are not shown: there is no C++ compiler, set CXX")
        return
    print("CPU time of the skeleton as a share of that of a scenario, per request (not judged):")
    for name, figures in measured.items():
        print(f"{name:<12}{figures['share']:>10.3f}")


def main() -> int:
    """Command line; 0 if no scenario takes more instructions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--renew", action="store_true", help="replace the committed counts")
    parser.add_argument("--rounds", type=int, default=2, help="of the shares")
    parser.add_argument("--smoke", action="store_true", help="with few requests, compares nothing")
    options = parser.parse_args()
    if options.smoke and options.renew:
        parser.error("--renew: must be given without --smoke")
    small = 100 if options.smoke else None
    passes = _check_instructions(small or _NUM_REQUESTS, renews=options.renew)
    _show_shares(options.rounds, small)
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
