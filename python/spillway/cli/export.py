"""`spillway export CONFIG --to SYSTEM`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli import configuration, output

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
    output.add_json(parser, "target, files {NAME: TEXT}, losses, outside")


def run(options: argparse.Namespace) -> int:
    """Writes the files of a system; prints the settings that they do not carry."""
    from spillway.interop import deployments

    found = deployments.export(configuration.load(options), to=options.to)
    lines = []
    if options.out is None:
        lines += [f"# --- {name}\n{text}" for name, text in found.files.items()]
    else:
        output.replaced(options.out / name for name in found.files)
        lines += [f"wrote {path}" for path in found.write(options.out)]
    system = found.target.partition("@")[0]
    if found.losses:
        lines.append(f"{found.target} does not carry:")
        lines += [f"  {loss}" for loss in found.losses]
    else:
        lines.append(f"{found.target} carries every setting that it decides")
    if found.outside:
        lines.append(f"not up to {system}: {', '.join(found.outside)}")

    def document() -> dict[str, Any]:
        names = ("target", "files", "losses", "outside")
        return {name: getattr(found, name) for name in names}

    output.show(options, "\n".join(lines), document)
    return 0
