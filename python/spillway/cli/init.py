"""`spillway init [FILE]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.config.classes import config_error
from spillway.config.describe import all_settings, starter
from spillway.config.filesystem import replacing

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "--full", action="store_true", help="every setting with its default, explained"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "file", type=Path, nargs="?", help="where to write it (default: standard output)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes a commented configuration file."""
    text = all_settings() if options.full else starter()
    if options.file is None:
        print(text, end="")
        return 0
    if options.file.exists() and not options.force:
        allowed = "already exists; not overwritten (--force replaces it)"
        raise config_error([(str(options.file), "", allowed)])
    with replacing(options.file) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"wrote {options.file}; run it with: spillway run {options.file}")
    return 0
