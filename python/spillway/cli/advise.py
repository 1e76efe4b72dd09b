"""`spillway advise LOG`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import spillway
from spillway.cli import output, reading, verdicts
from spillway.cli.export import add_system

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "log",
        type=Path,
        metavar="LOG",
        help="a log of requests: any file that `spillway read` takes",
    )
    reading.add_arguments(parser)
    verdicts.add_slo(parser)
    parser.add_argument(
        "--server", metavar="NAME=VALUE,…",
        help="the model server: model=llama-3.1-8b,gpu=h100, with other facts such as tp=2; "
        "`spillway describe instances.server` lists them",
    )  # fmt: skip
    parser.add_argument(
        "--calibrated", type=Path, metavar="FILE",
        help="in place of --server: a server that `spillway calibrate` wrote",
    )  # fmt: skip
    parser.add_argument(
        "--count", type=int, default=1, metavar="N", help="how many such servers (default 1)"
    )
    parser.add_argument(
        "--today", type=Path, metavar="CONFIG",
        help="the configuration that runs today, as `spillway import` writes it: gateway, router, "
        "servers (default: nothing is limited)",
    )  # fmt: skip
    parser.add_argument(
        "--what-if", action="append", default=[], metavar="CHANGE",
        help="traffic that the settings must withstand, as in --traffic of `spillway run`, e.g. "
        "'bronze: rate x5 for 60s' or 'instance 3 crashes at 300s for 200s'; may be repeated",
    )  # fmt: skip
    add_system(parser, "--target", without="no files are written for one")
    parser.add_argument(
        "--replicate", choices=("resample", "replay", "fit"), default="resample",
        help="how runs get their requests: from resamples of the log in blocks (default), from the "
        "log as it is, or from a generator that is fitted to it",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("advice"), metavar="DIR",
        help="where to write report.html, advice.json, the configurations, and with --target the "
        "files to deploy (default: advice)",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, metavar="N", help="concurrent runs (default: CPUs)")
    output.add_json(
        parser,
        "outcome, verdict, settings {PATH: VALUE}, scenarios, servers, findings, files {NAME: "
        "TEXT}, commands, notes …",
    )


def run(options: argparse.Namespace) -> int:
    """Says which settings keep the SLO, and writes them; returns 1 if none do."""
    output.check_at_least(options, 1, "threads")
    found = spillway.advise(
        options.log,
        options.slo,
        goodput=options.goodput,
        server=_server(options.server),
        calibrated=options.calibrated,
        count=options.count,
        today=options.today,
        what_if=options.what_if,
        target=options.system,
        replicate=options.replicate,
        out=options.out,
        threads=options.threads,
        progress=True,
        **reading.given(options),
    )
    output.show(options, found, found.to_dict)
    advised = [f"{known.settings}.yaml" for known in found.scenarios if known.settings != "today"]
    names = ["report.html", *advised[:1], *(f"deploy/{name}" for name in found.files)]
    output.say(f"wrote {', '.join(str(options.out / name) for name in names)}")
    return 0 if found.outcome in ("holds", "found", "undecided") else 1


def _server(text: str | None) -> dict[str, Any] | None:
    """The facts of --server."""
    from spillway.config import yaml

    pairs = reading.pairs("--server", text, "NAME=VALUE")
    if pairs is None:
        return None
    return {name: yaml.parse(value, f"--server {name}") for name, value in pairs.items()}
