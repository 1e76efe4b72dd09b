"""What commands print: text, with a few colors in a terminal, or JSON; messages on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from spillway.config import progress
from spillway.config.classes import config_error
from spillway.config.filesystem import make_folder
from spillway.config.formatting import without_keys

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


_RED, _GREEN, _YELLOW, _BOLD = "31", "32", "33", "1"
_COLORS: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern, re.MULTILINE), code)
    for pattern, code in (
        (r"^note:|\bundecided$|\bnot comparable$|^cliff:", _YELLOW),
        (r"\bbetter$|: ok\b|\bagrees$|^trial \d+ wins\b", _GREEN),
        (r"\bworse$|\bdiffers$|^DIFFERS:|^lost:|^no winner\b", _RED),
        (r"(?<=-\n)\d+ .* complete$", _BOLD),  # the best trial of a study
    )
]
_when = "auto"


def add_color(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds --color."""
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default=default, metavar="WHEN",
        help="auto (default: in a terminal, unless NO_COLOR is set), always or never",
    )  # fmt: skip


def use_color(when: str) -> None:
    """Sets when to color: auto, always or never."""
    global _when  # noqa: PLW0603
    _when = when


def _is_colored(stream: TextIO) -> bool:
    """The option decides, then NO_COLOR, FORCE_COLOR (no-color.org), then the terminal."""
    if _when != "auto":
        return _when == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _in(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def add_json(parser: argparse.ArgumentParser, keys: str) -> None:
    """Adds --json, whose help names the keys of the document."""
    parser.add_argument("--json", action="store_true", help=f"print JSON: {keys}")


def show(options: argparse.Namespace, text: object, document: Callable[[], Any]) -> None:
    """Prints a result: its text, or with --json its document."""
    if options.json:
        print(json.dumps(plain(document()), indent=2, ensure_ascii=False))
        return
    text = without_keys(str(text))
    if _is_colored(sys.stdout):
        for pattern, code in _COLORS:
            text = pattern.sub(_in(code, r"\g<0>"), text)
    print(text)


def plain(value: Any) -> Any:
    """A value as JSON has it: objects as mappings, NaN and infinity as null."""
    for convert in ("to_dict", "tolist", "_asdict"):
        if hasattr(value, convert):
            value = getattr(value, convert)()
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(element) for key, element in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(element) for element in value]
    return value


def say(text: str) -> None:
    """A message on standard error."""
    progress.erase()
    print(f"spillway: {in_shell(text)}", file=sys.stderr)


_IN_PYTHON = re.compile(r" \((?:[^()]|\([^()]*\))* in Python\)")


def in_shell(text: object) -> str:
    """A message without what it says for Python: `--sort (sort=True in Python)`."""
    return _IN_PYTHON.sub("", without_keys(str(text)))


def warn(text: object) -> None:
    """A warning on standard error, on one line."""
    say(f"{_in(_YELLOW, 'warning:') if _is_colored(sys.stderr) else 'warning:'} {text}")


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints each warning of the package on one line to standard error."""
    with warnings.catch_warnings():
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("default", category)
        warnings.showwarning = lambda message, *_, **__: warn(message)
        yield


def error(text: object) -> None:
    """An error on standard error."""
    progress.erase()
    name = _in(_RED, "spillway:") if _is_colored(sys.stderr) else "spillway:"
    print(f"{name} {in_shell(text)}", file=sys.stderr)


class Savable(Protocol):
    """What is written as a file."""

    def save(self, path: Path) -> None:
        """Writes it."""


def save(found: Savable, path: Path | None) -> None:
    """Writes what was found, where a path is given."""
    if path is not None:
        replaced([path])
        found.save(path)
        say(f"wrote {path}")


def save_picture(figure: Any, path: Path, dpi: int = 150) -> None:
    """Writes a figure."""
    from spillway.report.style import save

    save(figure, path, dpi=dpi)
    say(f"wrote {path}")


def check_at_least(options: argparse.Namespace, least: int, *names: str) -> None:
    """Raises ConfigError if one of these options is given and less."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            flag = f"--{name.replace('_', '-')}"
            raise config_error([(flag, str(value), f"must be >= {least}")])


def journal_in(options: argparse.Namespace, name: str) -> Path | None:
    """The journal in the folder of --out, which is made; --force discards it."""
    if options.out is None:
        return None
    make_folder(options.out)
    journal: Path = options.out / name
    if options.force:
        journal.unlink(missing_ok=True)
    return journal


def replaced(paths: Iterable[Path]) -> None:
    """Says which of these files exist, before a command replaces them."""
    if known := [str(path) for path in paths if path.is_file()]:
        say(f"replaces {', '.join(known)}")
