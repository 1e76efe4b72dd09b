"""Runs `pip install -v` with the given arguments and shows its progress.

pip is silent for minutes while it compiles, or shows every command. Here its output becomes
one changing line or, if the output is not a terminal, a line for every tenth of the compilation. If
pip fails, its whole output follows, and its exit status is passed on. Needs only Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STEP = re.compile(r"\s*\[([1-9]\d*)/(\d+)\] ")  # the prefix of ninja's lines; 0: a check of files
_COLLECTED = re.compile(r"\s*Collecting ([\w.-]+)")


def stages(lines: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """The stages of pip from its output; during compilation with the percentage done."""
    for line in lines:
        if step := _STEP.match(line):
            done, total = int(step[1]), int(step[2])
            yield f"compiling: {done} of {total}", 100 * done // total
        elif collected := _COLLECTED.match(line):
            yield f"fetching {collected[1]}", None
        elif line.lstrip().startswith("Installing collected packages"):
            yield "installing", None


class Display:
    """A changing line on a terminal; elsewhere a line for every tenth of the compilation."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._start_s = time.monotonic()
        self._next = 0  # percentage at which the next line is due

    def show(self, stage: str, per_cent: int | None) -> None:
        """Shows a stage."""
        text = f"{stage} ({self._elapsed()})"
        if self._is_live:
            self._write(f"\r\033[K  {text}")
        elif per_cent is not None and per_cent >= self._next:
            self._next = per_cent // 10 * 10 + 10
            self._write(f"  {text}\n")

    def clear(self) -> None:
        """Clears the changing line."""
        if self._is_live:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _elapsed(self) -> str:
        minutes, seconds = divmod(round(time.monotonic() - self._start_s), 60)
        return f"{minutes} min {seconds:02} s"


def run(command: list[str], display: Display) -> tuple[int, str]:
    """Runs a command; returns its exit status and its output."""
    log: list[str] = []

    def logged(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            log.append(line)
            yield line

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            display.show("preparing", None)
            for stage, per_cent in stages(logged(process.stdout)):
                display.show(stage, per_cent)
        except KeyboardInterrupt:
            process.terminate()  # already ended by Ctrl-C, but not by a signal from elsewhere
            raise
        finally:
            display.clear()
    return process.returncode, "".join(log)


def main() -> int:
    """Runs pip with the given arguments; returns its exit status."""
    command = [sys.executable, "-m", "pip", "install", "-v", "--disable-pip-version-check"]
    try:
        status, log = run([*command, *sys.argv[1:]], Display(sys.stdout))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if status:
        print(log, end="", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
