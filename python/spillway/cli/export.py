"""`spillway export CONFIG --to SYSTEM`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import configuration

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    from spillway.interop.deployments import TARGETS

    configuration.add_arguments(parser)
    names = [f"{one.name}@{version}" for one in TARGETS.values() for version in one.versions]
    parser.add_argument(
        "--to",
        required=True,
        metavar="SYSTEM[@VERSION]",
        help=f"the system: {', '.join(names)}; the newest version by default",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write the files (default: print them)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the files of a system; prints the settings that they do not carry."""
    from spillway.interop import deployments

    found = deployments.export(configuration.load(options), to=options.to)
    if options.out is None:
        for name, text in found.files.items():
            print(f"# --- {name}\n{text}")
    else:
        for path in found.write(options.out):
            print(f"wrote {path}")
    system = found.target.partition("@")[0]
    if found.losses:
        print(f"{found.target} does not carry:")
        for loss in found.losses:
            print(f"  {loss}")
    else:
        print(f"{found.target} carries every setting that it decides")
    if found.outside:
        print(f"not up to {system}: {', '.join(found.outside)}")
    return 0
