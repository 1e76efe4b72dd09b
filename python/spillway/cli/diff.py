"""`spillway diff BEFORE AFTER`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import output
from spillway.config.differences import ABSENT, differences

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("before", type=Path, metavar="BEFORE", help="configuration file")
    parser.add_argument("after", type=Path, metavar="AFTER", help="configuration file")
    output.add_json(
        parser,
        "a list of path, before and after; a side that does not have the setting is left out",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the settings that differ, with presets, servers and defaults resolved."""
    from spillway import loading

    before, after = (loading.load(file).to_dict() for file in (options.before, options.after))
    found = differences(before, after)
    text = "\n".join(map(str, found)) or "no differences"
    output.show(
        options,
        text,
        lambda: [
            {key: value for key, value in difference._asdict().items() if value is not ABSENT}
            for difference in found
        ],
    )
    return 0
