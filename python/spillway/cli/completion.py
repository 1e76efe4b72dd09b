"""`spillway completion SHELL`, and the completion itself: argcomplete (extra `completion`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from spillway.config.extras import require

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "shell",
        choices=("bash", "zsh", "fish"),
        help='e.g. eval "$(spillway completion bash)" in ~/.bashrc',
    )


def run(options: argparse.Namespace) -> int:
    """Prints the lines that a shell reads to complete `spillway`."""
    print(require("argcomplete", "completion").shellcode(["spillway"], shell=options.shell))
    return 0


def words() -> list[str] | None:
    """The words before the cursor if a shell asks for completions, else None."""
    if "_ARGCOMPLETE" not in os.environ:
        return None
    line = os.environ.get("COMP_LINE", "")
    return line[: int(os.environ.get("COMP_POINT", len(line)))].split()[1:]


def complete(parser: argparse.ArgumentParser) -> None:
    """Writes the completions where the shell reads them, and exits."""
    require("argcomplete", "completion").autocomplete(parser)


def completes(action: argparse.Action, completer: Callable[..., Iterator[str]]) -> None:
    """Sets what completes the values of an argument."""
    action.completer = completer  # type: ignore[attr-defined]


def changes(prefix: str, **_: Any) -> Iterator[str]:
    """Paths of settings for --set, with `=` where a value follows."""
    from spillway.config.describe import paths

    seen = dict.fromkeys(f"{path}=" for path, is_kind in paths(kinds=False) if not is_kind and path)
    return _next_steps(["presets=", *seen], prefix)


def described(prefix: str, **_: Any) -> Iterator[str]:
    """What `spillway describe` explains."""
    from spillway.cli.explanations import TOPICS
    from spillway.config.describe import paths
    from spillway.data.figures import FIGURES
    from spillway.presets import by_name

    presets = [f"presets.{name}" for kind in by_name.KINDS for name in by_name.names(kind)]
    known = [*TOPICS, *FIGURES, *presets, *(path for path, _ in paths())]
    return _next_steps(known, prefix)


def _next_steps(known: list[str], prefix: str) -> Iterator[str]:
    """The paths that continue the prefix by at most one step beyond the present one."""
    deepest = prefix.count(".") + 1
    return (path for path in known if path.startswith(prefix) and path.count(".") <= deepest)
