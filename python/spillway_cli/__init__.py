"""The entry point of the command `spillway`: a separate package that imports nothing at first."""

from __future__ import annotations

import os
import signal
import sys
import time
from _thread import start_new_thread  # `threading` takes longer, and Ctrl-C may come at once

_INTERRUPTED = 130
_PATIENCE_S = 1.5


def main() -> int:
    """Runs the command line; returns the exit status.

    Ctrl-C ends the process within two seconds, with status 130 and one line, whatever it is doing.
    """
    interruption = _Interruption()
    try:
        from spillway import cli

        status = cli.main(interruption=interruption)
    except BaseException as error:
        if not (interruption.has_arrived or isinstance(error, KeyboardInterrupt)):
            raise
        print("spillway: interrupted", file=sys.stderr)
        status = _INTERRUPTED
    if interruption.has_arrived:
        interruption.is_over = True
        return _INTERRUPTED
    return status


class _Interruption:
    """Handles Ctrl-C: raises KeyboardInterrupt once, and ends the process if that is not enough.

    An exception can be lost where Python ignores all (in the callback of a weak reference), be
    turned into another (by an import), or wait for a long call.
    """

    def __init__(self) -> None:
        self.has_arrived = False
        self.is_over = False
        # Shells start jobs in the background with this signal ignored.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)

    def settle(self) -> None:
        """Ignores Ctrl-C from now on; what has arrived raises KeyboardInterrupt."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self.has_arrived:
            raise KeyboardInterrupt

    def _handle(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.has_arrived = True
        sys.unraisablehook = lambda _: None
        start_new_thread(self._end, ())
        raise KeyboardInterrupt

    def _end(self) -> None:
        time.sleep(_PATIENCE_S)
        if filesystem := sys.modules.get("spillway.config.filesystem"):
            filesystem.discard()
        if not self.is_over:
            os.write(2, b"spillway: interrupted\n")
        os._exit(_INTERRUPTED)
