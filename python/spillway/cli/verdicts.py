"""SLOs (--slo, --goodput), and what makes `spillway run` fail (--strict, --assert)."""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING

from spillway.cli import output
from spillway.findings.finding import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.result import Result
    from spillway.study.objective import Constraint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --strict and --assert."""
    parser.add_argument(
        "--strict", type=_severity, nargs="?", const=SEVERITIES[0], metavar="SEVERITY",
        help="end with status 1 if there is a finding of this severity or worse: high (default), "
        "medium or low",
    )  # fmt: skip
    parser.add_argument(
        "--assert", action="append", default=[], dest="assertions", metavar="FIGURE<=BOUND",
        help="end with status 1 unless this holds, in the mean over the seeds, e.g. "
        "'p99_ttft_ms[gold] <= 500'; may be repeated",
    )  # fmt: skip


def add_slo(parser: argparse.ArgumentParser) -> None:
    """Adds --slo and --goodput."""
    parser.add_argument(
        "--slo", action="append", default=[], metavar="SLO",
        help="what must hold, e.g. 'gold: p99 ttft < 2 s, p99 tpot < 80 ms'; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--goodput", nargs="+", default=[], metavar="LATENCY:MS",
        help="the same as load generators write it, e.g. --goodput ttft:500 tpot:50",
    )  # fmt: skip


def _severity(text: str) -> str:
    if text not in SEVERITIES[:-1]:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be one of {', '.join(SEVERITIES[:-1])}; before CONFIG, write "
            f"--strict={SEVERITIES[0]} CONFIG"
        )
    return text


def assertions(options: argparse.Namespace) -> list[Constraint]:
    """What --assert states. Raises ConfigError for an unknown figure or another form."""
    if not options.assertions:
        return []
    from spillway.study import objective  # slow to import

    found = objective.as_constraints(options.assertions, "--assert")
    objective.check_figures(constraint.metric for constraint in found)
    return found


def status(
    options: argparse.Namespace, constraints: Sequence[Constraint], runs: Sequence[Result]
) -> int:
    """1 if an assertion does not hold or a finding is too severe, which is said; otherwise 0."""
    broken = []
    for constraint in constraints:
        holds, text = _judged(constraint, runs)
        if holds:
            output.say(f"{text}: holds")
        else:
            broken.append(text)
    if options.strict is not None:
        severe = SEVERITIES[: SEVERITIES.index(options.strict) + 1]
        failed = {
            str(finding): f"--strict: {finding.severity}: {finding.name}: {finding}"
            for run in runs
            for finding in run.findings()
            if finding.severity in severe
        }
        broken += failed.values()
    for text in broken:
        output.error(text)
    return 1 if broken else 0


def _judged(constraint: Constraint, runs: Sequence[Result]) -> tuple[bool, str]:
    """Whether an assertion holds, and what the figure is."""
    from spillway.study.objective import NoFigureError

    try:
        values = [constraint.metric.of(run) for run in runs]
    except NoFigureError as error:
        return False, f"--assert {constraint}: {error}"
    value = statistics.fmean(values)
    seeds = f", from {min(values):.6g} to {max(values):.6g} in {len(values)} runs"
    text = f"--assert {constraint}: it is {value:.6g}{seeds if len(values) > 1 else ''}"
    return constraint.violation(value) <= 0, text
