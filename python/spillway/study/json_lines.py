"""Crash-safe files of JSON objects, one per line, which several processes may write."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from spillway.config import filesystem
from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from spillway._core.sim import ConfigError


_PIECE = 65536


class JsonLines:
    """JSON objects in a file, one per line; each begins with the key `first_key`.

    `what`: what a line is, for errors. The lock is on the file itself, so the system releases it
    when a process is killed. A torn last line, e.g. from a full disk, is removed before the next
    write; its content was never reported as stored.

    Raises ConfigError if the file cannot be read or written, with the line if one is unreadable.
    """

    def __init__(self, path: Path, first_key: str, what: str) -> None:
        self.path = path
        self._first_key = first_key
        self._begin = f'{{"{first_key}":'.encode()
        self._what = what
        self._offsets = [0]  # of the known lines, and of the next one
        self._held: int | None = None
        with self._locked():
            pass

    def read(self, first: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects from a line on, with the numbers of their lines, counted from 0."""
        try:
            with self.path.open("rb") as stream:
                start = min(first, len(self._offsets) - 1)
                stream.seek(self._offsets[start])
                lines = stream.read().splitlines(keepends=True)
        except OSError as error:
            raise filesystem.cannot("read", self.path, error) from error
        for number, line in enumerate(lines, start):
            if not line.endswith(b"\n"):
                return  # still being written, or torn
            if number >= first:
                found = _parsed(line)
                if not isinstance(found, dict) or self._first_key not in found:
                    raise self.unreadable(number)
                yield number, found
            if number + 1 == len(self._offsets):
                self._offsets.append(self._offsets[number] + len(line))

    def append(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Adds objects, all or none."""
        text = "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in objects)
        with self._locked() as (handle, end):
            try:
                left = text.encode()
                while left:
                    left = left[os.write(handle, left) :]
                os.fsync(handle)
            except BaseException:
                os.ftruncate(handle, end)
                raise

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Locks the file against other processes for several calls of `append`."""
        with self._locked() as (handle, _):
            self._held = handle
            try:
                yield
            finally:
                self._held = None

    def unreadable(self, number: int) -> ConfigError:
        """The error about a line."""
        where = f"{filesystem.shown(self.path)} line {number + 1}"
        return config_error([(where, "", f"not {self._what}")])

    @contextlib.contextmanager
    def _locked(self) -> Iterator[tuple[int, int]]:
        """The file, open for appending and locked against other processes, and its end."""
        if self._held is not None:
            yield self._held, self._mended(self._held)
            return
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(errno.EINVAL, "Not a regular file")
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield handle, self._mended(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise filesystem.cannot("written", self.path, error) from error

    def _mended(self, handle: int) -> int:
        """Removes a torn last line, or ends it if only its end is missing."""
        end = os.fstat(handle).st_size
        start = end
        while start > 0:
            size = min(_PIECE, start)
            newline = os.pread(handle, size, start - size).rfind(b"\n")
            start -= size
            if newline >= 0:
                start += newline + 1
                break
        if start == end:
            return end
        begins = os.pread(handle, len(self._begin), start)
        if begins != self._begin[: len(begins)]:
            raise self.unreadable(self.path.read_bytes().count(b"\n"))
        if _parsed(os.pread(handle, end - start, start)) is not None:
            return end + os.write(handle, b"\n")
        os.ftruncate(handle, start)
        return start


def write_json(content: object, path: Path, *, allow_nan: bool = True) -> None:
    """Writes a JSON file, which replaces `path` on success."""
    with filesystem.replacing(path) as temporary:
        text = json.dumps(content, indent=2, allow_nan=allow_nan)
        temporary.write_text(text + "\n", encoding="utf-8")


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
