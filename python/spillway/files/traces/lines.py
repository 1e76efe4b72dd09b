"""Text files in batches of lines: plain, gzip or Zstandard, or standard input; Parquet."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sys
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from spillway.config import extras, filesystem
from spillway.files.error import TraceError
from spillway.files.traces import access_log, documents, parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TextIO


STANDARD_INPUT = "-"

_BATCH_CHARACTERS = 1 << 20
_GZIP = b"\x1f\x8b"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_READ_BYTES = 1 << 17
_LONGEST_LINE_BYTES = 1 << 26  # of compressed files
_LONGEST_HEAD = 1 << 24


class NotTextError(TraceError):
    """A file is not text in UTF-8."""


class Lines:
    """The lines of a text stream, each read once.

    Attributes
    ----------
    head : str
        The first line that is not empty, stripped; "" if there is none. Of a JSON document that was
        entered, its first object.
    items : iterator, optional
        The objects of a JSON document that was entered, or of a Parquet file, which have no lines.
    holds : str
        What the file holds, if that is JSON or like it, for errors.

    """

    def __init__(self, path: Path, stream: TextIO) -> None:
        self.path = path
        self._stream = stream
        self._held: list[str] = []
        self.head = self._first()
        self.items: Iterator[Any] | None = None
        self.holds = "a JSON object per line"

    @classmethod
    def of_parquet(cls, path: Path, stream: BinaryIO) -> Lines:
        """Return the rows of a Parquet file."""
        found = cls(path, io.StringIO())
        found.head, found.items = parquet.opened(path, stream)
        found.holds = "Parquet"
        return found

    @property
    def is_json(self) -> bool:
        """Whether the requests are JSON objects."""
        return self.items is not None or self.head.startswith("{")

    def enter(self, fits: Callable[[dict[str, Any]], bool]) -> None:
        """Read the objects of a JSON document instead of lines, if the file is one.

        It is an array, objects over several lines, or an object that does not fit and has a list of
        objects.
        """
        if self.items is not None or access_log.is_line(self.head):
            return
        if not documents.is_spread(self.head) and len(self.head) < _LONGEST_HEAD // 2:
            found = _parsed(self.head) if self.head.startswith("{") else None
            if not isinstance(found, dict) or fits(found):
                return
            if documents.key_of_list(found, fits) is None:
                return
        values = documents.values_in(self.path, "".join(self._held), self._stream.read)
        first, self.items = documents.items_of(self.path, values, fits)
        self._held = []
        if isinstance(first, dict):
            self.head = json.dumps(first, default=str)
        self.holds = "objects of a JSON document"

    def read(self, characters: int) -> str:
        """Return about this many characters of the text; "" at its end."""
        if self._held:
            held, self._held = "".join(self._held), []
            return held
        return self._stream.read(characters)

    def read_at_least(self, characters: int) -> str:
        """Return the text, or at least this many characters of it."""
        text = ""
        while len(text) < characters and (more := self.read(characters - len(text))):
            text += more
        return text

    def _first(self) -> str:
        """Return the first line that is not empty, stripped; "" if there is none.

        Of a longer line it is the beginning: a document may be one line.
        """
        while line := self._stream.readline(_LONGEST_HEAD):
            self._held.append(line)
            if line.strip():
                return line.strip()
        return ""

    def batches(self) -> Iterator[tuple[int, str]]:
        """Yield the text of some lines, and before it the number of the first, from 1."""
        number = 1
        while text := "".join(self._held) + self._stream.read(_BATCH_CHARACTERS):
            self._held = []
            text += self._stream.readline()
            yield number, text
            number += len(split_lines(text)) if "\r" in text else text.count("\n")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def split_lines(text: str) -> list[str]:
    """Return lines with their ends: line feed, carriage return, or both."""
    return io.StringIO(text, newline="").readlines()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Lines]:
    """Open a text file in UTF-8, plain, gzip or Zstandard, or Parquet; "-" is standard input.

    Raises TraceError if it cannot be opened, also for lack of the extra `zstd`, and for failures to
    read it within the block.
    """
    try:
        with _binary(path) as raw:
            if raw.peek(4)[:4] == parquet.MAGIC:
                yield Lines.of_parquet(path, raw)
                return
            text = io.TextIOWrapper(_unpacked(path, raw), encoding="utf-8-sig", newline="")
            try:
                yield Lines(path, text)
            finally:
                text.detach()
    except OSError as error:
        raise TraceError(str(filesystem.cannot("read", path, error))) from error
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path}: damaged gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise NotTextError(
            f"{path}: not a text file; must be CSV or JSON in UTF-8, or Parquet"
        ) from error


def _unpacked(path: Path, raw: io.BufferedReader) -> BinaryIO:
    """Return a stream without its compression, which its first bytes name."""
    start = raw.peek(4)[:4]
    if start.startswith(_GZIP):
        return _bounded(path, cast("io.RawIOBase", gzip.GzipFile(fileobj=raw)))
    if start == _ZSTANDARD:
        try:
            zstandard = extras.require("zstandard", "zstd")
        except ImportError as error:
            raise TraceError(f"{path}: compressed with Zstandard: {error}") from error
        return _bounded(path, _Zstandard(path, raw, zstandard))
    return cast("BinaryIO", raw)


def _bounded(path: Path, unpacked: io.RawIOBase) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_ShortLines(path, unpacked), _READ_BYTES))


class _ShortLines(io.RawIOBase):
    """A stream that refuses endless lines: a small compressed file can unpack to any size."""

    def __init__(self, path: Path, stream: io.RawIOBase) -> None:
        super().__init__()
        self._path = path
        self._stream = stream
        self._line_bytes = 0  # of the line that is being read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(len(buffer)) or b""
        buffer[: len(found)] = found
        at = found.rfind(b"\n")
        self._line_bytes = len(found) - 1 - at if at >= 0 else self._line_bytes + len(found)
        if self._line_bytes > _LONGEST_LINE_BYTES:
            allowed = f"must be <= {_LONGEST_LINE_BYTES >> 20} MiB"
            raise TraceError(f"{self._path}: a line unpacks to more: {allowed}")
        return len(found)


class _Zstandard(io.RawIOBase):
    """A stream of Zstandard frames; unlike the package's own, it refuses one that is cut off."""

    def __init__(self, path: Path, raw: io.BufferedReader, zstandard: Any) -> None:
        super().__init__()
        self._path = path
        self._raw = raw
        self._frames = zstandard.ZstdDecompressor()
        self._error = zstandard.ZstdError
        self._frame = self._frames.decompressobj()
        self._left = b""  # of the file, not yet given to the frame
        self._is_inside = False  # a frame
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            packed = self._left or self._raw.read1(_READ_BYTES)
            self._left = b""
            if not packed:
                if self._is_inside:
                    raise TraceError(f"{self._path}: damaged Zstandard file: it is cut off")
                return 0
            try:
                self._ready = memoryview(self._frame.decompress(packed))
            except self._error as error:
                raise TraceError(f"{self._path}: damaged Zstandard file: {error}") from error
            self._is_inside = not self._frame.eof
            if self._frame.eof:
                self._left = self._frame.unused_data
                self._frame = self._frames.decompressobj()
        taken = min(len(buffer), len(self._ready))
        buffer[:taken] = self._ready[:taken]
        self._ready = self._ready[taken:]
        return taken


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
