"""`spillway validate blis DIRECTORY`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    systems = parser.add_subparsers(title="systems", required=True, metavar="SYSTEM")
    against = systems.add_parser("blis", help="BLIS v0.6.14, exact to the microsecond")
    against.add_argument("directory", type=Path, help="scenario folders, at any depth")
    against.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Compares runs with recorded ones; returns 1 unless all agree."""
    from spillway.validation import blis  # slow to import, and `--help` does not need it

    report = blis.validate(options.directory)
    print(json.dumps(report.to_dict(), indent=2) if options.json else report.table())
    return 0 if report.agrees else 1
