"""Recordings of real servers: requests with their latencies."""

from spillway._lazy import lazy_modules
from spillway.interop.recordings.reading import read_recordings
from spillway.interop.recordings.vllm_iterations import read_step_log

__all__ = [
    "csv_runs",
    "read_recordings",
    "read_step_log",
    "reading",
    "repeats",
    "units",
    "vllm_bench",
]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
