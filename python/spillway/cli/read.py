"""`spillway read FILE…`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import output, reading

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="traces, results of benchmarks, logs of steps, pages of metrics, or folders of such",
    )
    reading.add_arguments(parser)
    output.add_json(parser, "per file: path, format, offers, runs, notes, mismatches")


def run(options: argparse.Namespace) -> int:
    """Says what each file is, holds and lacks; returns 1 if a tool's own figures are others."""
    from spillway.files.evidence import read

    found = [read(path, **reading.given(options)) for path in options.files]
    text = "\n\n".join(evidence.text() for evidence in found)
    output.show(options, output.in_shell(text), lambda: found)
    return 1 if any(evidence.mismatches for evidence in found) else 0
