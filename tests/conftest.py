"""Configuration of all tests."""

import os
import sys
from collections.abc import Iterator

import pytest

# Tests run side by side: threads of matrix products would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from support import effort

effort.load_profile()


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    """Matplotlib warns of many open figures."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
