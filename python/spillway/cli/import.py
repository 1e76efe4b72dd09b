"""`spillway import FILE… [--from SYSTEM]`."""  # noqa: N999

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import output
from spillway.cli.export import add_system

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable


_MOST_SHOWN = 50  # fields that are not simulated
_MOST_NAMED = 12  # fields that do not concern a simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE",
        help="command lines, manifests, charts' values, configurations, or their folder",
    )  # fmt: skip
    add_system(parser, "--from", without="all that know something in the files read them")
    parser.add_argument(
        "--onto", type=Path, metavar="CONFIG",
        help="the configuration file that is changed: traffic, and servers behind a gateway "
        "(default: all defaults)",
    )  # fmt: skip
    parser.add_argument("--gpu", help="compute the servers on this accelerator of the catalog")
    parser.add_argument(
        "--allow-lossy", action="store_true",
        help="import without what is not modeled, such as speculative decoding",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="where to write it (default: print it)"
    )
    output.add_json(
        parser,
        "simulation (the settings that differ from the defaults), unread, irrelevant, notes, "
        "undecided",
    )


def run(options: argparse.Namespace) -> int:
    """Writes what differs from the defaults; says on standard error what has no counterpart."""
    from spillway import loading
    from spillway.config import files, yaml
    from spillway.files import deployments

    onto = None if options.onto is None else loading.load(options.onto)
    found = deployments.import_(
        options.files,
        system=options.system,
        onto=onto,
        gpu=options.gpu,
        allow_lossy=options.allow_lossy,
    )
    settings = files.to_settings(found.simulation, Path(), brief=True)
    text = yaml.to_yaml(settings).rstrip("\n")
    if options.out is not None:
        output.replaced([options.out])
        files.dump(found.simulation, options.out, brief=True)
        text = f"wrote {options.out}; run it with: spillway run {options.out}"
    lists = {name: getattr(found, name) for name in ("unread", "irrelevant", "notes", "undecided")}
    output.show(options, text, lambda: {"simulation": settings, **lists})
    for note in found.notes:
        output.say(f"note: {note}")
    if found.undecided and (onto is None or options.system is None):
        kept = "the defaults" if onto is None else f"those of {options.onto}"
        output.say(f"note: no file decides {', '.join(found.undecided)}: {kept}")
    for setting in found.unread[:_MOST_SHOWN]:
        output.say(f"not simulated: {setting}")
    if (more := len(found.unread) - _MOST_SHOWN) > 0:
        output.say(f"not simulated: … and {more:,} more; --json lists all")
    if found.irrelevant:
        output.say(f"irrelevant: {_names(entry.field for entry in found.irrelevant)}")
    return 0


def _names(fields: Iterable[str]) -> str:
    """The last parts of the names of fields, each once."""
    names = list(dict.fromkeys(field.rpartition(": ")[2] for field in fields))
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (
        f" and {more} more; --json lists all" if more > 0 else ""
    )
