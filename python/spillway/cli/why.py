"""`spillway why RUN ID`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import spillway
from spillway.cli import configuration, output
from spillway.config.classes import config_error
from spillway.config.filesystem import cannot

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(
        parser, "RUN", "a saved result (Result.save, .npz), or a configuration file, which is run"
    )
    parser.add_argument("request_id", metavar="ID", help="the request, as in requests.csv")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the run of a configuration (default 0)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write it as JSON, which Why.load reads"
    )
    output.add_json(parser, "request_id, text, causes_s {CAUSE: SECONDS}")


def run(options: argparse.Namespace) -> int:
    """Explains one request of a run."""
    if not 0 <= options.seed < 2**64:
        raise config_error([("--seed", str(options.seed), "must be >= 0 and < 2**64")])
    if options.config.suffix == ".npz":
        if given := configuration.given_changes(options):
            allowed = f"is a saved result, which {' and '.join(given)} cannot change"
            raise config_error([("RUN", str(options.config), allowed)])
        try:
            result = spillway.Result.load(options.config)
        except OSError as error:
            raise cannot("read", options.config, error) from None
        except ValueError as error:
            raise config_error([("RUN", str(options.config), str(error))]) from None
    else:
        result = spillway.simulate(configuration.load(options), options.seed, progress=True)
    from spillway.findings.why import row_of

    try:
        row = row_of(result, options.request_id)
    except KeyError as error:
        raise config_error([("ID", options.request_id, str(error.args[0]))]) from None
    found = result.why(row)
    output.save(found, options.out)
    output.show(options, found, found.to_dict)
    return 0
