"""Files and folders, with errors that name them and atomic replacement of files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from spillway.config import interruption
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Sequence

    from spillway._core.sim import ConfigError


def open_text(path: Path, newline: str | None = None) -> TextIO:
    """Opens a text file in UTF-8 for reading. Raises OSError like `open_binary`."""
    _check_regular(path)
    return path.open(newline=newline, encoding="utf-8-sig")


def read_text(path: Path, must: str = "must be UTF-8") -> str:
    """The content of a text file. Raises ConfigError if it cannot be read; `must`: what it is."""
    try:
        with open_text(path) as stream:
            return stream.read()
    except OSError as error:
        raise cannot("read", path, error) from error
    except UnicodeDecodeError as error:
        raise config_error([(shown(path), "", f"not a text file; {must}")]) from error


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
        for parent in reversed([folder, *folder.parents]):
            if not parent.exists():
                with interruption.deferred():
                    parent.mkdir(exist_ok=True)
                    if _together:
                        _together[-1].folders.callback(_remove_if_empty, parent)
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot("written", folder, error) from error


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


class _Files:
    """Temporary files, the paths that they will replace, and what removes them again."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Path, Path]] = []
        self.temporaries = contextlib.ExitStack()
        self.folders = contextlib.ExitStack()


_together: list[_Files] = []


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Lets the files that `replacing` writes within appear at the end: all, or after an error none.

    Folders that `make_folder` made within are removed after an error, if they are empty. Within
    another `together` its end counts. Raises ConfigError if the files cannot get their names.
    """
    if _together:
        yield
        return
    files = _Files()
    with files.folders, files.temporaries:
        _together.append(files)
        try:
            yield
        finally:
            _together.remove(files)
        try:
            _replace(files.pairs)
        except OSError as error:
            raise cannot("written", Path(error.filename2 or error.filename), error) from error
        files.folders.pop_all()


def discard() -> None:
    """Removes what is written so far within `together`, for a process that is about to end."""
    for files in _together:
        files.temporaries.close()
        files.folders.close()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that replaces `path` on success and is removed on failure.

    If the caller removes it, so is `path`. Raises ConfigError if it cannot be written.
    """
    with replacing_all([path]) as (temporary,):
        yield temporary


@contextlib.contextmanager
def replacing_all(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary files that replace `paths`: all of them on success, otherwise none.

    If the caller removes one, its path stays empty. Within `together`, the paths are replaced at
    its end. Raises ConfigError if they cannot be written.
    """
    try:
        if _together:
            for path in paths:
                if path.is_dir():
                    raise cannot("written", path, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
            temporaries = [_beside(path, _together[-1].temporaries) for path in paths]
            yield temporaries
            _together[-1].pairs += zip(paths, temporaries, strict=True)
        else:
            with contextlib.ExitStack() as discarded:
                temporaries = [_beside(path, discarded) for path in paths]
                yield temporaries
                _replace(list(zip(paths, temporaries, strict=True)))
    except OSError as error:
        place = error.filename2 or (paths[0].parent if len(paths) > 1 else paths[0])
        raise cannot("written", Path(place), error) from error


def _beside(path: Path, discarded: contextlib.ExitStack) -> Path:
    import tempfile

    with interruption.deferred():
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        discarded.callback(Path(name).unlink, missing_ok=True)
    return Path(name)


def _replace(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Moves temporary files to their paths; if one cannot be moved, all are as before."""
    with interruption.deferred(), contextlib.ExitStack() as kept, contextlib.ExitStack() as undone:
        for i, (path, temporary) in enumerate(pairs):
            # If the last replacement fails, there is nothing to undo for its path.
            if path.is_file() and (i < len(pairs) - 1 or not temporary.exists()):
                before = _beside(path, kept)
                path.replace(before)
                undone.callback(before.replace, path)
            if temporary.exists():
                temporary.chmod(0o666 & ~_umask())
                temporary.replace(path)
                undone.callback(path.unlink)
        undone.pop_all()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
