"""`spillway run CONFIG`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import spillway
from spillway.cli import configuration
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse

    from spillway._core.cluster import Simulation

__all__ = ["add_arguments", "run"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of every random stream (default 0)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write summary.json and requests.csv there"
    )
    parser.add_argument(
        "--out-format",
        choices=("csv", "parquet", "vllm_bench"),
        default="csv",
        help="requests.csv (default), requests.parquet, or vllm_bench.json, the result of "
        "`vllm bench serve --save-detailed`",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the content of summary.json instead of tables"
    )
    parser.add_argument(
        "--allow-python",
        action="store_true",
        help="import the policies written in Python that the configuration names, which runs their "
        "code; modules beside the configuration file are found",
    )


def run(options: argparse.Namespace) -> int:
    """Runs a simulation and prints its results."""
    if not 0 <= options.seed < 2**64:
        raise config_error([("--seed", str(options.seed), "must be >= 0 and < 2**64")])
    simulation = configuration.load(options)
    if options.allow_python:
        simulation = _with_python(simulation, options.config.parent.resolve())
    configuration.report_findings(simulation)
    result = spillway.simulate(simulation, options.seed)
    if options.out is not None:
        result.write(options.out, requests=options.out_format)
    print(json.dumps(result.to_dict(), indent=2) if options.json else result)
    return 0


def _with_python(simulation: Simulation, folder: Path) -> Simulation:
    """The simulation with its Python policies imported, also from `folder`."""
    from spillway import policies

    sys.path.insert(0, str(folder))
    try:
        return policies.load(simulation)
    finally:
        sys.path.remove(str(folder))
