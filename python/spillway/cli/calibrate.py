"""`spillway calibrate DATA… -o server.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from spillway._core.instance import StepTable
from spillway.cli import output
from spillway.cli.configuration import pairs
from spillway.config.classes import config_error
from spillway.servers.server import read_profile

if TYPE_CHECKING:
    import argparse


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
    parser.add_argument(
        "--columns", metavar="MEANING=COLUMN,…",
        help="the columns of CSV files with other names, e.g. send_s=t0,input_tokens=prompt,"
        "output_tokens=completion,ttft_s=ttft_ms,e2e_s=total_ms",
    )  # fmt: skip
    parser.add_argument(
        "--units", metavar="COLUMN=UNIT,…",
        help="with --columns: s, ms, us or ns of columns whose names do not end in their unit",
    )  # fmt: skip
    parser.add_argument(
        "--table", type=Path, metavar="FILE",
        help="a server of `spillway servers --table`: fits its two scales and the entry delay",
    )  # fmt: skip
    parser.add_argument(
        "--server", action="append", default=[], metavar="NAME=VALUE",
        help="a fact that the data do not state, e.g. num_kv_blocks=17600",
    )  # fmt: skip
    output.add_json(parser, "the content of the fitted server's file")


def run(options: argparse.Namespace) -> int:
    """Fits a server, prints how well it is known, and writes it."""
    from spillway.calibration import Scraped, calibrate
    from spillway.files.recordings import read_recordings

    server = {}
    for given in options.server:
        name, equals, value = given.partition("=")
        if not equals:
            raise config_error([("--server", given, "must be NAME=VALUE")])
        server[name] = yaml.safe_load(value)
    data = options.data
    if options.columns is not None or options.units is not None:
        columns = pairs("--columns", options.columns, "MEANING=COLUMN")
        units = pairs("--units", options.units, "COLUMN=UNIT")
        data = [run for path in data for run in read_recordings(path, columns=columns, units=units)]
    profile = calibrate(
        [*data, *(Scraped.read(*scrape) for scrape in options.scrapes)],
        server=server,
        table=None if options.table is None else _table_of(options.table),
        progress=True,
    )
    output.replaced([options.output])
    profile.save(options.output)
    output.show(options, profile.text(), profile.to_dict)
    output.say(f"wrote {options.output}")
    return 0


def _table_of(file: Path) -> StepTable:
    latency = read_profile(file)[0].latency
    if not isinstance(latency, StepTable):
        allowed = "must be a server with a step table, written by spillway servers --table"
        raise config_error([("--table", str(file), allowed)])
    return latency
