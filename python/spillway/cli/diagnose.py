"""`spillway diagnose CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import spillway
from spillway.cli import configuration, output
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse

_SEEDS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the run that is explained (default 0)"
    )
    parser.add_argument(
        "--try", action="store_true", dest="tries",
        help="run the remedies of the findings, paired by seed, and rank what helps",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, default=_SEEDS, metavar="N",
        help=f"with --try: number of seeds of each (default {_SEEDS})",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="show all findings, not the worst five")
    parser.add_argument(
        "--out", type=Path, metavar="FILE",
        help="write the diagnosis as JSON, which Diagnosis.load reads",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, metavar="N", help="concurrent runs (default: CPUs)")
    output.add_json(
        parser,
        "findings [{name, severity, path, text, evidence, remedies}], causes, trials [{finding, "
        "settings, in_time, lost, gain, helps, refused}], in_time, lost, seeds",
    )


def run(options: argparse.Namespace) -> int:
    """Says what is wrong with a configuration, what to try, and what helps."""
    if not 0 <= options.seed < 2**64:
        raise config_error([("--seed", str(options.seed), "must be >= 0 and < 2**64")])
    output.check_at_least(options, 2, "seeds")
    output.check_at_least(options, 1, "threads")
    found = spillway.diagnose(
        configuration.load(options),
        options.seed,
        tries=options.tries,
        seeds=options.seeds,
        threads=options.threads,
        progress=True,
    )
    output.save(found, options.out)
    text = found.text(None) if options.all else found.text()
    output.show(options, text, found.to_dict)
    return 0
