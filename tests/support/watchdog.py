"""A limit of processor time for tests that could hang, independent of the machine's load."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class SlowError(BaseException):
    """Something used up its processor time; passes every `except Exception`."""


@contextlib.contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Raises SlowError once the process has computed for some seconds. In the main thread only."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise SlowError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
