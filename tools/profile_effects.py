"""Measures the effect of each setting in which the profiles differ, for cpp/cluster/README.md.

    python tools/profile_effects.py DIR    DIR: recorded runs of BLIS, as `validate blis` reads them

Every recorded scenario is run as profile blis_0_6, then again with one setting as in vllm. The last
section of the README is replaced.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import spillway
from spillway import profiles
from spillway.systems.blis import runs as blis

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = Path(__file__).parents[1] / "cpp" / "cluster" / "README.md"

HEADING = "## Differences between the profiles"

TEXT = """\
{heading}

Each of the {count} recorded scenarios of BLIS v0.6.14 was run as `blis_0_6`, and again with one
setting as in `vllm` (`python tools/profile_effects.py DIR` wrote this table). A scenario counts as
changed if any request is served differently; scenarios without completions are excluded. The other
columns give the largest change among the scenarios.

| setting | `vllm` | `blis_0_6` | why | changed | {names} |
|---|---|---|---|---|---|---|---|---|
{rows}

Ties make no difference here because the recordings take the first of equals, and the recordings
avoid preemptions because that version leaks memory in them.
"""

NAMES = "mean TTFT | p99 TTFT | mean E2E | hit rate"
FIGURES = ("mean_ttft_ms", "p99_ttft_ms", "mean_e2el_ms")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    base = [
        (scenario, spillway.simulate(scenario))
        for scenario in blis.simulations(parser.parse_args().directory)
    ]
    rows = []
    for pattern, values, why in profiles.SETTINGS:
        found = [
            (before, spillway.simulate(changed))
            for simulation, before in base
            if (changed := switched(simulation, pattern, values["vllm"])) is not None
        ]
        pairs = [(a, b) for a, b in found if a.summary()["completed"]]
        cells = [f"`{pattern}`", f"`{values['vllm']}`", f"`{values['blis_0_6']}`", why]
        cells.append(f"{sum(differs(a, b) for a, b in pairs)} of {len(pairs)}")
        cells += [percent(largest(pairs, name)) for name in FIGURES]
        cells.append(percent(largest(pairs, "cache_hit_rate")))
        rows.append("| " + " | ".join(cells) + " |")
    text = TEXT.format(heading=HEADING, count=len(base), names=NAMES, rows="\n".join(rows))
    before, _, _ = TARGET.read_text(encoding="utf-8").partition(HEADING)
    TARGET.write_text(before + text, encoding="utf-8")
    return 0


def switched(
    simulation: spillway.Simulation, pattern: str, value: str
) -> spillway.Simulation | None:
    """The simulation with one setting as in `vllm`; None if it has no such setting."""
    changes = dict.fromkeys(profiles.paths(pattern, simulation), profiles.parsed(value))
    return simulation.with_(changes) if changes else None


def differs(a: spillway.Result, b: spillway.Result) -> bool:
    """Whether any request was served differently."""
    names = ("ttft_s", "e2e_s", "instance", "outcome")
    return any(a.requests[name].tobytes() != b.requests[name].tobytes() for name in names)


def largest(pairs: list[tuple[spillway.Result, spillway.Result]], name: str) -> float:
    """The largest relative change of a figure, with its sign."""

    def changes() -> Iterator[float]:
        for a, b in pairs:
            before, after = a.summary()[name], b.summary()[name]
            if before and after:
                yield float(after) / float(before) - 1

    return max(changes(), key=abs, default=0.0)


def percent(change: float) -> str:
    """A relative change for reading."""
    return "-" if change == 0 else f"{change:+.2%}"


if __name__ == "__main__":
    sys.exit(main())
