"""The entry point of the command `spillway`: a separate package that imports nothing at first."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line; returns the exit status.

    Importing Spillway takes a moment, and Ctrl-C must not end in a traceback then either.
    """
    try:
        from spillway import cli
    except KeyboardInterrupt:
        print("spillway: interrupted", file=sys.stderr)
        return 130
    return cli.main()
