"""Files and folders, with errors that name them and atomic replacement of files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from spillway.config.classes import config_error

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Sequence

    from spillway._core.sim import ConfigError

__all__ = [
    "cannot",
    "make_folder",
    "open_binary",
    "open_text",
    "reason",
    "replacing",
    "replacing_all",
    "shown",
]


def __dir__() -> list[str]:
    return __all__


def open_text(path: Path, newline: str | None = None) -> TextIO:
    """Opens a text file in UTF-8 for reading. Raises OSError like `open_binary`."""
    _check_regular(path)
    return path.open(newline=newline, encoding="utf-8-sig")


def open_binary(path: Path) -> io.BufferedReader:
    """Opens a file for reading.

    Raises OSError if that fails, or if it is not a regular file: a device may be endless, and a
    pipe may never receive data.
    """
    _check_regular(path)
    return path.open("rb")


def _check_regular(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except ValueError as error:
        raise OSError(errno.EINVAL, "not a valid file name") from error
    if not stat.S_ISREG(mode):
        problem = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "Not a regular file"
        raise OSError(errno.EINVAL, problem)


def cannot(verb: str, path: Path, error: OSError) -> ConfigError:
    """The ConfigError that a file cannot be read, written, … (the participle `verb`)."""
    return config_error([(shown(path), "", f"cannot be {verb}: {reason(error)}")])


def shown(path: Path) -> str:
    """A path for messages: on one line, whatever characters it holds."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def reason(error: OSError) -> str:
    """The system's description of a failure."""
    return error.strerror or str(error)


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents, unless they exist.

    Raises ConfigError if that fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot("written", folder, error) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that replaces `path` on success and is removed on failure.

    Raises ConfigError if it cannot be written.
    """
    with replacing_all([path]) as (temporary,):
        yield temporary


@contextlib.contextmanager
def replacing_all(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary files that replace `paths`: all of them on success, otherwise none.

    If the caller removes one, its path stays empty. Raises ConfigError if they cannot be written.
    """
    try:
        with _all_or_none(paths) as temporaries:
            yield temporaries
    except OSError as error:
        place = error.filename2 or (paths[0].parent if len(paths) > 1 else paths[0])
        raise cannot("written", Path(place), error) from error


@contextlib.contextmanager
def _all_or_none(paths: Sequence[Path]) -> Iterator[list[Path]]:
    import tempfile

    with contextlib.ExitStack() as discarded:

        def beside(path: Path) -> Path:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(handle)
            discarded.callback(Path(name).unlink, missing_ok=True)
            return Path(name)

        temporaries = [beside(path) for path in paths]
        yield temporaries
        with contextlib.ExitStack() as undone:
            for path, temporary in zip(paths, temporaries, strict=True):
                # If the last replacement fails, there is nothing to undo for its path.
                if path != paths[-1] and path.is_file():
                    kept = beside(path)
                    path.replace(kept)
                    undone.callback(kept.replace, path)
                if temporary.exists():
                    temporary.chmod(0o666 & ~_umask())
                    temporary.replace(path)
                    undone.callback(path.unlink)
            undone.pop_all()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
