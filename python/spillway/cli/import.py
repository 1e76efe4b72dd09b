"""`spillway import FILE… --from SYSTEM`."""  # noqa: N999

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import output
from spillway.cli.export import add_system

if TYPE_CHECKING:
    import argparse


_MOST_SHOWN = 50  # fields that are not simulated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="files of the system, or their folder"
    )
    add_system(parser, "--from")
    parser.add_argument(
        "--onto", type=Path, metavar="CONFIG",
        help="the configuration file that is changed: traffic, and servers behind a gateway "
        "(default: all defaults)",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", help="compute the servers of vllm on this accelerator of the catalog"
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="where to write it (default: print it)"
    )
    output.add_json(parser, "simulation (the settings that differ from the defaults), unread")


def run(options: argparse.Namespace) -> int:
    """Writes the configuration; lists the fields without a counterpart on standard error."""
    from spillway import loading
    from spillway.config import files, yaml
    from spillway.files import deployments

    onto = None if options.onto is None else loading.load(options.onto)
    found = deployments.import_(options.files, system=options.system, onto=onto, gpu=options.gpu)
    settings = files.to_settings(found.simulation, Path(), brief=True)
    text = yaml.to_yaml(settings).rstrip("\n")
    if options.out is not None:
        output.replaced([options.out])
        files.dump(found.simulation, options.out, brief=True)
        text = f"wrote {options.out}; run it with: spillway run {options.out}"
    output.show(options, text, lambda: {"simulation": settings, "unread": found.unread})
    for setting in found.unread[:_MOST_SHOWN]:
        output.say(f"not simulated: {setting}")
    if (more := len(found.unread) - _MOST_SHOWN) > 0:
        output.say(f"not simulated: … and {more:,} more; --json lists all")
    return 0
