"""`spillway sweep SWEEP`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli.configuration import warnings_as_lines
from spillway.config.filesystem import make_folder

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="sweep file (YAML or JSON)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write sweep.csv, or solution.json, there"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="concurrent runs (default: CPUs)")


def run(options: argparse.Namespace) -> int:
    """Runs configurations side by side, or solves for one number, and prints the results."""
    from spillway.study import files  # slow to import, and `--help` does not need it

    with warnings_as_lines():
        found = files.run_sweep(options.sweep, threads=options.threads)
        if options.out is not None:
            make_folder(options.out)
            files.write_sweep(found, options.out)
    print(found)
    return 0
