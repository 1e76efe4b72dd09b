"""Ctrl-C and what must happen as a whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Lets Ctrl-C within the block take effect at its end; for steps of less than a second.

    What has arrived before the block takes effect before it. In threads other than the main one
    nothing is interrupted anyway.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []
    # Either call lets the handler that is still in place see what has arrived.
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if arrived:
            before(*arrived[0])
