"""Whether a scenario takes more instructions than before: `make bench-check`.

The counts of `instructions.py` are compared with the committed ones of `instructions.json`, which
holds them by toolchain: what they depend on besides the code. A scenario that takes more than 2%
more is a failure; one that takes more than 2% less asks for its count to be renewed. Without counts
of this toolchain, or without valgrind, nothing is compared: one line says so.

`make bench-check RENEW="reason"` replaces the counts of this toolchain. The reason, which is stored
with them, is a passage of `CHANGELOG.md`: what users read of the change. `--shares` also shows the
shares of the skeleton (`shares.py`), which a machine with other work to do cannot judge.
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

_ROOT = Path(__file__).resolve().parents[1]
_COMMITTED = Path(__file__).resolve().with_name("instructions.json")
TOLERANCE = 0.02
_RENEW = 'renew with make bench-check RENEW="reason"'

Table = dict[str, dict[str, Any]]
"""By toolchain: the reason for its counts, and the counts by scenario."""


_FEWEST_WORDS = 4
"""Of a reason: a shorter one occurs by chance."""


def changelog_has(reason: str, changelog: str) -> bool:
    """Whether the reason is a passage of the changelog, wherever its lines break."""
    words = reason.split()
    return len(words) >= _FEWEST_WORDS and " ".join(words) in " ".join(changelog.split())


def verdict(count: float, committed: float | None) -> tuple[bool, str]:
    """Whether a count passes, and a comment on it."""
    if committed is None:
        return False, f"FAILED: none committed, {_RENEW}"
    change = count / committed - 1
    comment = f"{change:+.1%} of {committed:,.0f}"
    if change > TOLERANCE:
        return False, f"{comment}, FAILED: more than {TOLERANCE:.0%} slower"
    if change < -TOLERANCE:
        return True, f"{comment}, more than {TOLERANCE:.0%} faster: {_RENEW}"
    return True, comment


def _count(name: str, num_requests: int = instructions.NUM_REQUESTS) -> float:
    print(f"{name:<12}", end="", flush=True)
    count = round(instructions.measure(name, num_requests), 1)
    print(f"{count:>10,.0f}  ", end="")
    return count


def _not_compared(why: str) -> int:
    print(f"bench-check: NOTHING WAS COMPARED: {why}", flush=True)
    return 0


def _compare(committed: Table, changelog: str) -> int:
    if reason := instructions.missing():
        return _not_compared(reason)
    toolchain = instructions.toolchain()
    if toolchain not in committed:
        known = "; ".join(committed)
        return _not_compared(f"no counts of {toolchain} are committed, only of {known}: {_RENEW}")
    of_toolchain = committed[toolchain]
    counts = of_toolchain["instructions_per_request"]
    print(f"instructions per completed request, {toolchain}")
    passes = True
    for name in SCENARIOS:
        passed, comment = verdict(_count(name), counts.get(name))
        passes = passes and passed
        print(comment)
    for name in counts.keys() - SCENARIOS.keys():
        passes = False
        print(f"{name:<12}FAILED: committed, but no scenario: {_RENEW}")
    if not changelog_has(of_toolchain["reason"], changelog):
        passes = False
        print(f"FAILED: CHANGELOG.md lacks the reason of the counts: {of_toolchain['reason']}")
    return 0 if passes else 1


def _renew(committed: Table, changelog: str, reason: str) -> int:
    if not changelog_has(reason, changelog):
        print(
            f"bench-check: the reason must be a passage of CHANGELOG.md of {_FEWEST_WORDS} words "
            f"or more, got {reason!r}"
        )
        return 1
    if why := instructions.missing():
        print(f"bench-check: nothing was renewed: {why}")
        return 1
    counts = {}
    for name in SCENARIOS:
        counts[name] = _count(name)
        print()
    committed[instructions.toolchain()] = {
        "reason": " ".join(reason.split()),
        "instructions_per_request": counts,
    }
    _COMMITTED.write_text(json.dumps(committed, indent=1, ensure_ascii=False) + "\n")
    return 0


def _show_shares(sizes: dict[str, int], rounds: int) -> None:
    print("shares of the skeleton (CPU time, not judged)")
    measured = shares.measure(sizes, rounds)
    if not measured:
        print("not shown: there is no C++ compiler, set CXX")
    for name, figures in measured.items():
        print(f"{name:<12}{figures['share']:>10.3f}")


def main(arguments: list[str] | None = None) -> int:
    """Command line; 1 if a scenario takes more instructions, or nothing is renewed."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--renew", metavar="REASON", help="replace the counts of this toolchain")
    what.add_argument("--smoke", action="store_true", help="one scenario, compares nothing")
    parser.add_argument("--shares", action="store_true", help="also show shares of the skeleton")
    parser.add_argument("--rounds", type=int, default=2, help="of the shares")
    options = parser.parse_args(arguments)
    committed: Table = json.loads(_COMMITTED.read_text())
    changelog = (_ROOT / "CHANGELOG.md").read_text()
    status = 0
    if options.smoke:
        if reason := instructions.missing():
            _not_compared(reason)
        else:
            _count("W8", 100)
            print()
    elif options.renew is not None:
        status = _renew(committed, changelog, options.renew)
    else:
        status = _compare(committed, changelog)
    if options.shares:
        _show_shares({"W8": 100} if options.smoke else shares.SIZES, options.rounds)
    return status


if __name__ == "__main__":
    sys.exit(main())
