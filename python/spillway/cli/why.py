"""`spillway why RUN ID`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import spillway
from spillway.cli import output
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "run_file", type=Path, metavar="RUN",
        help="a saved result (Result.save, .npz), or a configuration file, which is run",
    )  # fmt: skip
    parser.add_argument("request_id", metavar="ID", help="the request, as in requests.csv")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the run of a configuration (default 0)"
    )
    output.add_json(parser, "request_id, text, causes_s {CAUSE: SECONDS}")


def run(options: argparse.Namespace) -> int:
    """Explains one request of a run."""
    if not 0 <= options.seed < 2**64:
        raise config_error([("--seed", str(options.seed), "must be >= 0 and < 2**64")])
    if options.run_file.suffix == ".npz":
        try:
            result = spillway.Result.load(options.run_file)
        except ValueError as error:
            raise config_error([("RUN", str(options.run_file), str(error))]) from None
    else:
        result = spillway.simulate(options.run_file, options.seed, progress=True)
    from spillway.findings.why import row_of

    try:
        row = row_of(result, options.request_id)
    except KeyError as error:
        raise config_error([("ID", options.request_id, str(error.args[0]))]) from None
    text = result.why(row)

    def document() -> dict[str, object]:
        try:
            causes = result.time_by_cause().seconds(row)
        except (spillway.UsageError, spillway.ConfigError):
            causes = {}
        return {"request_id": options.request_id, "text": text, "causes_s": causes}

    output.show(options, text, document)
    return 0
