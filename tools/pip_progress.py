"""Runs `pip install -v` with what it is given and shows how far it is.

pip is silent while it compiles, for minutes, or else shows every command. Here its output becomes
one line that changes, or, where that is no terminal, a line for every tenth of the compilation. If
pip fails, all it said follows, and its exit status is passed on. Needs nothing but Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STEP = re.compile(r"\s*\[([1-9]\d*)/(\d+)\] ")  # as ninja begins its lines; 0: a look at files
_COLLECTED = re.compile(r"\s*Collecting ([\w.-]+)")


def stages(lines: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """What pip is at, by line of its output; while it compiles with the share done in per cent."""
    for line in lines:
        if step := _STEP.match(line):
            done, total = int(step[1]), int(step[2])
            yield f"compiling: {done} of {total}", 100 * done // total
        elif collected := _COLLECTED.match(line):
            yield f"fetching {collected[1]}", None
        elif line.lstrip().startswith("Installing collected packages"):
            yield "installing", None


class Display:
    """A line that changes on a terminal; elsewhere a line for every tenth of the compilation."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._start_s = time.monotonic()
        self._next = 0  # per cent at which the next line is due

    def show(self, stage: str, per_cent: int | None) -> None:
        """Takes notice of a stage."""
        text = f"{stage} ({self._elapsed()})"
        if self._is_live:
            self._write(f"\r\033[K  {text}")
        elif per_cent is not None and per_cent >= self._next:
            self._next = per_cent // 10 * 10 + 10
            self._write(f"  {text}\n")

    def clear(self) -> None:
        """Ends the line that changes."""
        if self._is_live:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _elapsed(self) -> str:
        minutes, seconds = divmod(round(time.monotonic() - self._start_s), 60)
        return f"{minutes} min {seconds:02} s"


def run(command: list[str], display: Display) -> tuple[int, str]:
    """Runs a command; its exit status and all it printed."""
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
            process.terminate()  # which Ctrl-C has ended already, but not a signal from elsewhere
            raise
        finally:
            display.clear()
    return process.returncode, "".join(log)


def main() -> int:
    """Runs pip with the arguments given; returns its exit status."""
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
