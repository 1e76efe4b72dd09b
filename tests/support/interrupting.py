"""Processes that are interrupted at instants of their own processor time, whatever the load."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from support.paths import TESTS

import spillway

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_CPU_S = 3.0
"""What follows an interruption takes less than that of the process's time."""

_MOST_S = 120.0  # of the clock on the wall: a process that hangs
_LOOK_S = 0.001

COMMAND = """
import os, signal, sys
# Shells start jobs in the background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from spillway_cli import main
os.write(int(sys.argv.pop(1)), b".")
sys.exit(main())
"""
"""Runs `spillway`, and says that it begins."""


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    `status`: as of `subprocess`; `cpu_s`: processor time since it began, or since the interruption;
    `was_settled`: whether it ignored interruptions when it got one, because its work was done.
    """

    status: int
    out: str
    err: str
    cpu_s: float
    was_settled: bool = False


class Child:
    """A Python process. It writes to the descriptor in its first argument when it begins."""

    def __init__(self, script: str, arguments: Sequence[str], folder: Path) -> None:
        self._ready, said = os.pipe()
        root = str(Path(spillway.__file__).parents[1])
        with contextlib.ExitStack() as files:
            files.callback(os.close, said)
            # Files and not pipes, so that nothing needs to read while the process is held.
            self._out = (folder.parent / f"{folder.name}.out").open("w+b")
            self._err = (folder.parent / f"{folder.name}.err").open("w+b")
            self._process = subprocess.Popen(
                [sys.executable, "-c", script, str(said), *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([root, str(TESTS)])},
                stdout=self._out,
                stderr=self._err,
                pass_fds=[said],
            )
        self.pid = self._process.pid
        # The number that the system gives to the clock of this process's time (Linux).
        self._clock = (~self.pid << 3) | 2

    def wait_until_it_begins(self) -> None:
        assert os.read(self._ready, 1) == b".", self._text(self._err)
        self.began_s = self.cpu_s()

    def next_byte(self) -> bytes | None:
        """What it writes next to its descriptor; empty: it has ended; None: too late."""
        readable, _, _ = select.select([self._ready], [], [], _MOST_S)
        return os.read(self._ready, 1) if readable else None

    def output(self) -> str:
        """What it has printed."""
        return self._text(self._out) + self._text(self._err)

    def cpu_s(self) -> float:
        return time.clock_gettime(self._clock)

    def wait_until_cpu_s(self, target_s: float) -> None:
        """Returns once the process has computed that long, or does nothing more."""
        end = time.monotonic() + _MOST_S
        while self._state() != "Z" and self.cpu_s() < target_s and time.monotonic() < end:
            time.sleep(_LOOK_S)

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def interrupt_until_it_says(self) -> tuple[bytes | None, float]:
        """What it writes next, and its processor time since the interruption that led to it.

        Python ignores exceptions in callbacks of weak references, and says so: then the process is
        interrupted again.
        """
        end = time.monotonic() + _MOST_S
        ignored, before_s = self._ignored(), self.cpu_s()
        self.interrupt()
        while time.monotonic() < end:
            if select.select([self._ready], [], [], _LOOK_S)[0]:
                return os.read(self._ready, 1), self.cpu_s() - before_s
            if self._ignored() > ignored:
                return self.interrupt_until_it_says()
        return None, self.cpu_s() - before_s

    def interrupt_at(self, cpu_s: float) -> Ended:
        """Interrupts it after some processor time since its beginning, and waits for its end."""
        self.wait_until_cpu_s(self.began_s + cpu_s)
        os.kill(self.pid, signal.SIGSTOP)
        while self._state() not in "TZ":
            time.sleep(_LOOK_S)
        was_settled = self._state() == "Z" or self._ignores_interruptions()
        before_s = self.cpu_s()
        self.interrupt()
        os.kill(self.pid, signal.SIGCONT)
        return self.ended(before_s, was_settled=was_settled)

    def ended(self, before_s: float | None = None, *, was_settled: bool = False) -> Ended:
        before_s = self.began_s if before_s is None else before_s
        end = time.monotonic() + _MOST_S
        while True:
            ended, status, usage = os.wait4(self.pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > end:
                self._process.kill()
                raise AssertionError(f"it has not ended after {_MOST_S:g} s")
            time.sleep(_LOOK_S)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        cpu_s = usage.ru_utime + usage.ru_stime - before_s
        return Ended(
            self._process.returncode, self._text(self._out), self._text(self._err), cpu_s,
            was_settled,
        )  # fmt: skip

    def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        self._out.close()
        self._err.close()
        os.close(self._ready)

    def _state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def _ignores_interruptions(self) -> bool:
        mask = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{self.pid}/status").read_text())
        assert mask is not None
        return bool(int(mask[1], 16) & 1 << (signal.SIGINT - 1))

    def _ignored(self) -> int:
        return self._text(self._err).count("Exception ignored in")

    @staticmethod
    def _text(file: BinaryIO) -> str:
        # Through another description: the child's position in the file stays.
        return Path(file.name).read_text()


@contextlib.contextmanager
def child(script: str, arguments: Sequence[str], folder: Path) -> Iterator[Child]:
    """A process that has begun; it is killed at the end if it still runs."""
    started = Child(script, arguments, folder)
    try:
        started.wait_until_it_begins()
        yield started
    finally:
        started.close()
