"""Configuration of all tests."""

import gc
import os
import signal
import sys

# Tests run side by side: threads of matrix products would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from support import effort

effort.load_profile()

# Shells start jobs in the background with this signal ignored, which their processes inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Lets the garbage collector seldom visit what lives long: what was collected or imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_teardown() -> None:
    """Closes the figures of the test: Matplotlib warns of many open ones."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
