"""Configuration of all tests."""

import os

# Tests run side by side: threads of matrix products would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from support import effort

effort.load_profile()
