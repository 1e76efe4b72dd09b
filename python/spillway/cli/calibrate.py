"""`spillway calibrate DATA… -o server.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from spillway._core.instance import StepTable
from spillway.cli import output, reading
from spillway.config.classes import config_error
from spillway.servers.server import read_profile

if TYPE_CHECKING:
    import argparse


UNIDENTIFIED = 3
"""Exit status for measurements that do not identify a server."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "data", nargs="*", type=Path,
        help="measured runs and logs of steps (--enable-logging-iteration-details of vLLM) of one "
        "server: files or folders",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("server.yaml"), metavar="FILE",
        help="the fitted server (default: server.yaml)",
    )  # fmt: skip
    parser.add_argument(
        "--scrapes", nargs=3, action="append", default=[], metavar=("EARLY", "LATE", "WORKLOAD"),
        help="two scrapes of the server's page /metrics, and the requests between them: a trace, "
        "or a configuration file that states them; may be given several times",
    )  # fmt: skip
    reading.add_arguments(parser)
    parser.add_argument(
        "--table", type=Path, metavar="FILE",
        help="a server of `spillway servers --table`: fits its two scales and the entry delay",
    )  # fmt: skip
    parser.add_argument(
        "--server", action="append", default=[], metavar="NAME=VALUE",
        help="a fact that the data do not state, e.g. num_kv_blocks=17600; one that they state "
        "otherwise is replaced, with a warning",
    )  # fmt: skip
    reading.add_mismatch(parser)
    parser.add_argument(
        "--allow-unidentified", action="store_true",
        help="write a fit that is no server, because runs do not fit or identify too little, too",
    )  # fmt: skip
    output.add_json(parser, "the content of the fitted server's file")


def run(options: argparse.Namespace) -> int:
    """Fits a server, prints how well it is known, and writes it; returns 3 if it is none."""
    from spillway.calibration import Scraped, calibrate

    server = {}
    for given in options.server:
        name, equals, value = given.partition("=")
        if not equals:
            raise config_error([("--server", given, "must be NAME=VALUE")])
        server[name] = yaml.safe_load(value)
    profile = calibrate(
        [*options.data, *(Scraped.read(*scrape) for scrape in options.scrapes)],
        server=server,
        table=None if options.table is None else _table_of(options.table),
        allow_mismatch=options.allow_mismatch,
        allow_unidentified=True,
        progress=True,
        **reading.given(options),
    )
    output.show(options, profile.text(), profile.to_dict)
    assert profile.verdict is not None
    if not (profile.verdict.is_server or options.allow_unidentified):
        output.error(
            f"{options.output} is not written: the fit is no server (verdict: "
            f"{profile.verdict.kind}); --allow-unidentified writes it all the same"
        )
        return UNIDENTIFIED
    output.replaced([options.output])
    profile.save(options.output)
    output.say(f"wrote {options.output}")
    return 0


def _table_of(file: Path) -> StepTable:
    latency = read_profile(file)[0].latency
    if not isinstance(latency, StepTable):
        allowed = "must be a server with a step table, written by spillway servers --table"
        raise config_error([("--table", str(file), allowed)])
    return latency
