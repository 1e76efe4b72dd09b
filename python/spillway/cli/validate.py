"""`spillway validate recording`, `real`, `blis` and `vllm-scheduler`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import output, reading
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


_STATUSES = {"met": 0, "not met": 1, "undecided": 3}
"""Exit statuses by the verdict of a recording."""


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
    _add_recording(systems)


def _add_recording(systems: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the arguments of `validate recording`."""
    judged = systems.add_parser(
        "recording",
        help="what a production system recorded, against a configuration",
        description="Sends the recorded requests through the configuration and compares TTFT, time "
        "per output token, cache hit rate, shed share, requests per minute and the coefficients of "
        "the step time, within tolerances. The verdict is stored beside the server. Status 0: met, "
        "1: not met, 3: undecided.",
    )
    judged.add_argument(
        "config", type=Path, metavar="CONFIG", help="configuration file (YAML or JSON)"
    )
    judged.add_argument(
        "recording", type=Path, metavar="RECORDING",
        help="one run of requests with latencies, or a record of spillway serve",
    )  # fmt: skip
    judged.add_argument(
        "--workers", type=Path, metavar="FILE",
        help="instances in service over time: CSV with the columns time_s (since the first "
        "recorded request), group (position in instances) and ready",
    )  # fmt: skip
    judged.add_argument(
        "--requests", type=Path, metavar="FILE",
        help="the same requests as a trace, for hashes of prompts and classes of service",
    )  # fmt: skip
    judged.add_argument(
        "--tolerance", action="append", default=[], metavar="FIGURE=ERROR",
        help="accept this error, e.g. p90_ttft_ms=20%% or coefficients=0.1; may be repeated",
    )  # fmt: skip
    judged.add_argument(
        "--unjudged", action="append", default=[], metavar="COEFFICIENT",
        help="a coefficient of the step time that need not be identified; may be repeated",
    )  # fmt: skip
    judged.add_argument(
        "--warm-up", type=float, dest="warm_up_s", metavar="S",
        help="do not compare requests that were sent before (default: a tenth of the time)",
    )  # fmt: skip
    judged.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="number of simulated runs (default 5)"
    )
    judged.add_argument(
        "--seed", type=int, default=0,
        help="seed of a record's own run (default 0); simulated runs have the following ones",
    )  # fmt: skip
    judged.add_argument(
        "--no-store", action="store_true", help="do not write the verdict beside the server"
    )
    reading.add_arguments(judged)
    reading.add_mismatch(judged)
    output.add_json(
        judged,
        "verdict, reason, date, recording, configuration, servers, seeds, figures {NAME: "
        "{recorded, simulated, error, margin, tolerance, verdict, reason}}, coefficients (the "
        "same), unjudged, notes",
    )
    judged.set_defaults(compare=_recording)


def run(options: argparse.Namespace) -> int:
    """Compares runs with recorded ones; returns 1 where they must agree and do not.

    Returns 3 where a recording does not decide.
    """
    status: int = options.compare(options)
    return status


def _recording(options: argparse.Namespace) -> int:
    from spillway.validation import recording

    report = recording.validate(
        options.config,
        options.recording,
        workers=options.workers,
        requests=options.requests,
        tolerances=_tolerances(options.tolerance),
        unjudged=options.unjudged,
        warm_up_s=options.warm_up_s,
        seeds=options.seeds,
        seed=options.seed,
        allow_mismatch=options.allow_mismatch,
        progress=True,
        **reading.given(options),
    )
    output.show(options, report.text(), report.to_dict)
    if not options.no_store:
        for file in report.store():
            output.say(f"wrote {file}")
    return _STATUSES[report.verdict]


def _tolerances(given: Sequence[str]) -> dict[str, float]:
    """The errors of --tolerance, as shares."""
    found: dict[str, float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        number = value.removesuffix("%")
        try:
            found[name] = float(number) / (100 if number != value else 1)
        except ValueError:
            equals = ""
        if not equals:
            allowed = "must be FIGURE=ERROR, e.g. p90_ttft_ms=20% or p90_ttft_ms=0.2"
            raise config_error([("--tolerance", repr(text), allowed)])
    return found


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
