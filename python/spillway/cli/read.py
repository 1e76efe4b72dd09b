"""`spillway read FILE…`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import output, reading
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse

    from spillway.files.evidence import Evidence


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
    parser.add_argument(
        "--write", type=Path, metavar="TRACE",
        help="write the requests of the file as a trace that every command reads without options: "
        "….csv, or ….jsonl in Mooncake's format",
    )  # fmt: skip
    output.add_json(parser, "per file: path, format, offers, runs, notes, mismatches")


def run(options: argparse.Namespace) -> int:
    """Says what each file is, holds and lacks; writes its requests if asked.

    Returns 1 if a tool's own figures are others.
    """
    from spillway.files.evidence import read

    if options.write is not None and len(options.files) > 1:
        allowed = f"needs one FILE, not {len(options.files)}"
        raise config_error([("--write", str(options.write), allowed)])
    found = [read(path, **reading.given(options)) for path in options.files]
    if options.write is not None:
        _write(found[0], options.write)
    text = "\n\n".join(evidence.text() for evidence in found)
    output.show(options, output.in_shell(text), lambda: found)
    return 1 if any(evidence.mismatches for evidence in found) else 0


def _write(evidence: Evidence, path: Path) -> None:
    """Writes the requests; what a trace does not hold, such as latencies, is left out."""
    from spillway import traffic

    trace = evidence.trace
    output.replaced([path])
    traffic.write(trace, path)
    output.say(f"wrote {path}: {trace.rows:,} requests")
