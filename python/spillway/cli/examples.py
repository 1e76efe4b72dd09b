"""`spillway examples [DIR]`."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from spillway.config.classes import config_error
from spillway.config.filesystem import make_folder, replacing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="DIR", help="where to write them (default: list)"
    )


def run(options: argparse.Namespace) -> int:
    """Lists the examples, or writes them into a folder, where none of them may exist yet."""
    examples = dict(sorted(_files(resources.files("spillway_cli") / "examples", PurePosixPath())))
    if options.folder is None:
        width = max(len(str(name)) for name in examples)
        for name, content in examples.items():
            print(f"{name!s:{width}}  {_summary(content)}".rstrip())
        return 0
    paths = {options.folder / name: content for name, content in examples.items()}
    if existing := [path for path in paths if path.exists()]:
        raise config_error([(str(existing[0]), "", "already exists; nothing is written")])
    for path, content in paths.items():
        make_folder(path.parent)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    print(f"wrote {len(paths)} files; try: python {options.folder / 'first_run.py'}")
    return 0


def _files(folder: Traversable, name: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    for entry in folder.iterdir():
        if entry.is_file():
            yield name / entry.name, entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _files(entry, name / entry.name)


def _summary(content: bytes) -> str:
    """The first line of a script's docstring, or of the comment at the start of a file."""
    found = re.match(r'(?:"""|# )(.+?)(?:""")?\n', content.decode())
    return found[1] if found else ""
