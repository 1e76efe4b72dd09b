"""`spillway validate blis DIRECTORY`, `vllm-scheduler DIRECTORY` and `real --fit DIRECTORY`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import output, reading

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    systems = parser.add_subparsers(title="systems", required=True, metavar="SYSTEM")
    against = systems.add_parser("blis", help="BLIS v0.6.14, exact to the microsecond")
    against.add_argument("directory", type=Path, help="scenario folders, at any depth")
    output.add_json(against, "agrees, scenarios")
    against.set_defaults(compare=_blis)
    scheduler = systems.add_parser(
        "vllm-scheduler",
        help="vLLM's own scheduler, every step",
        description="Runs the cases of recordings of vLLM's own scheduler, and compares tokens, "
        "admissions, preemptions, blocks and queues of every step. Prints the first difference of "
        "each case that has one.",
    )
    scheduler.add_argument(
        "directory", type=Path, help="cases.jsonl and recordings-vllm-VERSION.jsonl, also as .gz"
    )
    output.add_json(scheduler, "agrees, versions, cases")
    scheduler.set_defaults(compare=_vllm_scheduler)
    servers = systems.add_parser(
        "real",
        help="measured runs of real servers",
        description="Fits servers to measured runs and predicts others. Without --score and --half "
        "each run is predicted from the server's other runs.",
    )
    servers.add_argument("--fit", type=Path, required=True, metavar="DIR", help="runs to fit")
    scored = servers.add_mutually_exclusive_group()
    scored.add_argument("--score", type=Path, metavar="DIR", help="runs to predict")
    scored.add_argument(
        "--half", action="store_true",
        help="fit the first half of each run's requests, predict the second",
    )  # fmt: skip
    reading.add_arguments(servers)
    reading.add_mismatch(servers)
    output.add_json(servers, "runs, with the statistics of each")
    servers.set_defaults(compare=_real)


def run(options: argparse.Namespace) -> int:
    """Compares runs with recorded ones; returns 1 where they must agree and do not."""
    status: int = options.compare(options)
    return status


def _real(options: argparse.Namespace) -> int:
    from spillway.validation import real

    report = real.validate(
        options.fit,
        options.score,
        half=options.half,
        allow_mismatch=options.allow_mismatch,
        progress=True,
        **reading.given(options),
    )
    output.show(options, report.table(), report.to_dict)
    return 0


def _vllm_scheduler(options: argparse.Namespace) -> int:
    from spillway.validation import vllm_scheduler

    report = vllm_scheduler.validate(options.directory, progress=True)
    output.show(options, report.table(), report.to_dict)
    return 0 if report.agrees else 1


def _blis(options: argparse.Namespace) -> int:
    from spillway.validation import blis  # slow to import, and `--help` does not need it

    report = blis.validate(options.directory, progress=True)
    output.show(options, report.table(), report.to_dict)
    return 0 if report.agrees else 1
