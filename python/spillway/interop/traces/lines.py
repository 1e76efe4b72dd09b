"""Text files in batches of lines: plain or gzip, or standard input."""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

from spillway.config import filesystem
from spillway.interop.traces.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

__all__ = ["STANDARD_INPUT", "Lines", "opened"]


def __dir__() -> list[str]:
    return __all__


STANDARD_INPUT = "-"

_BATCH_CHARACTERS = 1 << 16  # small batches stay in the processor's cache
_GZIP = b"\x1f\x8b"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


class Lines:
    """The lines of a text stream, each read once."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self.path = path
        self._stream = stream
        self._held: list[str] = []
        self.head = self._first()

    def _first(self) -> str:
        """Return the first line that is not empty, stripped; "" if there is none."""
        while line := self._stream.readline():
            self._held.append(line)
            if line.strip():
                return line.strip()
        return ""

    def batches(self) -> Iterator[tuple[int, list[str]]]:
        """Yield lines with their ends, and before them the number of the first, from 1."""
        number = 1
        while lines := self._held + self._stream.readlines(_BATCH_CHARACTERS):
            self._held = []
            yield number, lines
            number += len(lines)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Lines]:
    """Open a text file in UTF-8, plain or gzip; the path "-" is standard input.

    Raises TraceError if it cannot be opened, and for failures to read it within the block.
    """
    try:
        with _binary(path) as raw:
            start = raw.peek(4)[:4]
            if start == _ZSTANDARD:
                raise TraceError(
                    f"{path}: compressed with Zstandard, which is not read; e.g. "
                    "`zstd -dc FILE | spillway run CONFIG --trace -`"
                )
            unpacked = gzip.GzipFile(fileobj=raw) if start.startswith(_GZIP) else raw
            text = io.TextIOWrapper(cast("BinaryIO", unpacked), encoding="utf-8-sig", newline="")
            try:
                yield Lines(path, text)
            finally:
                text.detach()
    except OSError as error:
        raise TraceError(str(filesystem.cannot("read", path, error))) from error
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path}: damaged gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file; must be CSV or JSONL in UTF-8") from error


@contextlib.contextmanager
def _binary(path: Path) -> Iterator[io.BufferedReader]:
    if str(path) != STANDARD_INPUT:
        with filesystem.open_binary(path) as stream:
            yield stream
        return
    stream = io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer))
    try:
        yield stream
    finally:
        stream.detach()  # leaves standard input open
