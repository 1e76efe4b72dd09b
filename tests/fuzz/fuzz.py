"""Random simulations by the thousand, through every check and every view (`make test-fuzz`).

Each is drawn from the field descriptors (`support/random_simulations.py`) with one alternative
forced, each in turn, under a pressure that sheds none, some or nearly all of the load. Some then
get policies in Python or C functions, servers of the catalog or further changes. It is run, its
identities are checked, and every view of its result is looked at (`support/views.py`); with some,
sessions, deployments, studies and reports are made (`support/random_experiments.py`). Printed are
counts of what was met, and every cause of a failure with the smallest configuration found for it.
Exit status 1: something failed, was slow, or occurred too rarely.
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import multiprocessing
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.random_experiments import (
    EXPERIMENTS,
    EXTENSIONS,
    extended,
    failed_experiments,
    own_policies,
)
from support.random_simulations import (
    CHOICES,
    PRESSURES,
    VARIANTS,
    Drawn,
    alternatives_of,
    minimal,
    random_simulation,
    settings_of,
)
from support.views import Failure, failed_checks, failed_views, has_causes, shed_share
from support.watchdog import SlowError, watched

import spillway

if TYPE_CHECKING:
    from multiprocessing.managers import DictProxy

ALTERNATIVES = (*VARIANTS, *CHOICES)
CONFIGURATIONS = 5000
"""In all; `--part 10` of it in continuous integration."""
PLOTS = 150
CHUNK = 20
OF_A_POOL = 50
"""Chunks, after which the processes are new, and small again."""
MEMORY_BYTES = 8 * 2**30
LEAST_PER_10_000 = 200
"""How often each alternative must occur."""
LEAST_SHEDDING = 0.3
"""Share of the runs that must shed more than half of their requests."""
LEAST_WITH_CAUSES = 0.25
"""Share of the runs of which the latencies of all requests must add up from their causes."""
_EMPTY = "leaves no requests of the trace"
LEAST_MADE = 0.25
"""Of the expected number of each extension and experiment, the share that must be made."""
DIED = "the process died (its frames are above) in this configuration or in one beside it"


@dataclass
class Report:
    """Counts of the events in some of the simulations."""

    counts: Counter[str] = field(default_factory=Counter)
    alternatives: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[int]] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        self.counts += other.counts
        self.alternatives += other.alternatives
        for cause, indices in other.failures.items():
            self.failures.setdefault(cause, []).extend(indices)


def drawn(index: int, seed: int) -> tuple[Drawn, list[str]]:
    """The simulation of an index: alternatives in turn, then again under the next pressure.

    And the names of its extensions.
    """
    rounds, position = divmod(index, len(ALTERNATIVES))
    pressure = PRESSURES[(position + rounds) % len(PRESSURES)]
    plain = random_simulation((seed, index), force=ALTERNATIVES[position], pressure=pressure)
    simulation, extensions = extended(plain.simulation, random.Random(f"extensions {seed} {index}"))
    return replace(plain, simulation=simulation), extensions


def looked_at(
    simulation: spillway.Simulation, index: int, limit_s: float, *, draws: bool
) -> tuple[spillway.Result | None, list[str], list[str]]:
    """The run, the experiments made with it, and the causes of what failed."""
    result, made, causes = None, [], []
    try:
        with watched(limit_s), tempfile.TemporaryDirectory() as folder:
            result = spillway.simulate(simulation, index)
            configures = not own_policies(simulation)["compiled"]  # files cannot hold pointers
            failures = failed_checks(result)
            failures += failed_views(result, Path(folder), draws=draws, configures=configures)
            made, failed = failed_experiments(
                result, random.Random(f"experiments {index}"), Path(folder)
            )
            causes = list(dict.fromkeys(failure.cause for failure in failures + failed))
    except SlowError as error:
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        causes = [f"{error} in {frames[-2]}"]
    except Exception as error:
        # Transforms are drawn so that they leave requests under the first seeds, not under all.
        if _EMPTY not in str(error):
            causes = [Failure("simulate", error).cause]
    return result, made, causes


def work(indices: range, stated_options: argparse.Namespace, begun: DictProxy[int, int]) -> Report:
    """Draws, runs and looks at the simulations of some indices.

    `begun` holds the index that each chunk has come to, by its first: what is left of a process
    that dies.
    """
    faulthandler.enable()
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".* is newer than the rules for its defaults")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    report = Report()
    every = max(1, stated_options.configurations // max(1, stated_options.plots))
    for index in indices:
        begun[indices.start] = index
        case, extensions = drawn(index, stated_options.seed)
        draws = bool(stated_options.plots) and index % every == 0
        report.counts += Counter(configurations=1, refused=case.refused, drawn=int(draws))
        alternatives = alternatives_of(case.simulation)
        report.alternatives.update(map(str, alternatives))
        result, made, causes = looked_at(case.simulation, index, stated_options.slow_s, draws=draws)
        report.counts += Counter(f"with {name}" for name in (*extensions, *made))
        for cause in causes:
            report.failures.setdefault(cause, []).append(index)
        if result is None:
            continue
        share = shed_share(result)
        names = set(map(str, alternatives))
        report.counts += Counter(
            {
                "runs": 1,
                "shed more than half": share > 0.5,
                "shed nothing": share == 0,
                "divided into causes": has_causes(result),
                "closed loops": "Client.arrivals=closed_loop" in names,
                "changes": bool(case.simulation.changes),
                "streaming": case.simulation.metrics.streaming,
                "requests": result.ledger["logical_requests"],
            }
        )
    del begun[indices.start]
    return report


def shortage(report: Report, configurations: int) -> list[str]:
    """What occurred too rarely."""
    rare = []
    least = LEAST_PER_10_000 * configurations // 10_000
    if configurations < CONFIGURATIONS:  # a part: three standard deviations, of 500 alternatives
        least = max(1, round(least - 3 * math.sqrt(least)))
    for alternative in ALTERNATIVES:
        count = report.alternatives[str(alternative)]
        if count < least:
            rare.append(f"{alternative} occurred {count} times, not {least}")
    shares = {**EXTENSIONS, **{name: share for name, (share, _) in EXPERIMENTS.items()}}
    for name, share in shares.items():
        expected = int(LEAST_MADE * share * configurations)
        if report.counts[f"with {name}"] < expected:
            rare.append(f"{name}: {report.counts[f'with {name}']} times, not {expected}")
    if report.counts["shed more than half"] < LEAST_SHEDDING * report.counts["runs"]:
        rare.append(f"fewer than {LEAST_SHEDDING:.0%} of the runs shed more than half")
    if report.counts["divided into causes"] < LEAST_WITH_CAUSES * report.counts["runs"]:
        rare.append(f"fewer than {LEAST_WITH_CAUSES:.0%} of the runs were divided into causes")
    if report.counts["configurations"] < configurations:
        rare.append(f"{report.counts['configurations']} of {configurations} configurations in time")
    return rare


def line_of(cause: str, indices: list[int], options: argparse.Namespace, trials: int) -> str:
    """A cause with the smallest simulation that shows it."""
    index = indices[0]

    def fails(simulation: spillway.Simulation) -> bool:
        _, _, causes = looked_at(simulation, index, options.slow_s / 2, draws="plot" in cause)
        return cause in causes

    smallest = minimal(drawn(index, options.seed)[0].simulation, fails, trials) if trials else None
    lines = [f"{len(indices):6,} x {cause}", f"         e.g. --seed {options.seed} --only {index}"]
    if smallest is not None:
        text = yaml.safe_dump(settings_of(smallest), sort_keys=False, allow_unicode=True)
        lines += [f"         {line}" for line in text.splitlines()]
    return "\n".join(lines)


def main() -> int:
    """Runs the command given by the arguments; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, metavar="N")
    parser.add_argument(
        "--part", type=int, default=1, metavar="K", help="an N/K of them, and plots"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the drawings")
    parser.add_argument("--plots", type=int, default=PLOTS, metavar="N", help="results to draw")
    parser.add_argument("--minutes", type=float, default=90, help="cap of wall time")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--slow-s", type=float, default=20, help="processor time of one simulation")
    parser.add_argument("--trials", type=int, default=100, help="to make a failing one smaller")
    parser.add_argument("--only", type=int, metavar="INDEX", help="one simulation, in full")
    options = parser.parse_args()
    options.configurations //= options.part
    options.plots = -(-options.plots // options.part)
    if options.only is not None:
        return only(options)
    start_s = time.monotonic()
    end_s = start_s + 60 * options.minutes
    report = Report()
    chunks = [
        range(first, min(first + CHUNK, options.configurations))
        for first in range(0, options.configurations, CHUNK)
    ]
    while chunks and time.monotonic() < end_s:
        some, others = chunks[:OF_A_POOL], chunks[OF_A_POOL:]
        chunks = worked(some, options, report, end_s) + others
        print(f"{report.counts['configurations']:,} …", file=sys.stderr, flush=True)
    return publish(report, options, time.monotonic() - start_s)


def worked(
    chunks: list[range], options: argparse.Namespace, report: Report, end_s: float
) -> list[range]:
    """Adds the reports of the chunks until `end_s`; what is left of them when a process died."""
    context = multiprocessing.get_context("spawn")
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(options.jobs, context) as pool,
    ):
        begun = manager.dict()
        left = {pool.submit(work, chunk, options, begun): chunk for chunk in chunks}
        while left:
            done, _ = wait(left, max(0.1, end_s - time.monotonic()), FIRST_COMPLETED)
            if not done:
                pool.shutdown(wait=False, cancel_futures=True)
                break
            try:
                for future in done:
                    report.add(future.result())
                    del left[future]
            except BrokenProcessPool:
                report.failures.setdefault(DIED, []).extend(begun.values())
                return [chunk for chunk in left.values() if chunk.start not in begun]
    return []


def publish(report: Report, options: argparse.Namespace, took_s: float) -> int:
    """Prints the report; the exit status."""
    for name, count in report.counts.items():
        print(f"{count:10,} {name}")
    counts = {str(kind): report.alternatives[str(kind)] for kind in ALTERNATIVES}
    rarest = sorted(counts, key=lambda kind: counts[kind])[:5]
    shown = ", ".join(f"{kind} {counts[kind]:,} times" for kind in rarest)
    print(f"{len(ALTERNATIVES):10,} alternatives; the rarest: {shown}")
    for seam in dict.fromkeys(variant.seam for variant in VARIANTS):
        kinds = (variant for variant in VARIANTS if variant.seam == seam)
        shown = ", ".join(f"{kind.name} {report.alternatives[str(kind)]:,}" for kind in kinds)
        print(f"{seam}: {shown}")
    print(f"{took_s / 60:10.1f} min of at most {options.minutes:g}")
    missing = shortage(report, options.configurations)
    for line in missing:
        print(f"TOO RARE: {line}")
    causes = sorted(report.failures.items(), key=lambda failure: -len(failure[1]))
    if causes:
        print(f"\n{len(causes)} causes of failures:")
    for rank, (cause, indices) in enumerate(causes):
        trials = options.trials if rank < 20 and cause != DIED else 0
        print(
            line_of(cause, sorted(indices), options, trials),
            flush=True,
        )
    return 1 if missing or causes else 0


def only(options: argparse.Namespace) -> int:
    """Runs one simulation and shows all of it."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".* is newer than the rules for its defaults")
    simulation = drawn(options.only, options.seed)[0].simulation
    print(yaml.safe_dump(settings_of(simulation), sort_keys=False, allow_unicode=True))
    _, _, causes = looked_at(simulation, options.only, options.slow_s, draws=True)
    print("\n".join(causes) or "nothing fails")
    return 1 if causes else 0


if __name__ == "__main__":
    sys.exit(main())
