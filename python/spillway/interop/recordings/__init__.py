"""Recordings of real servers: requests with their latencies."""

from spillway._lazy import lazy_modules
from spillway.interop.recordings.reading import read_recordings

__all__ = ["csv_runs", "read_recordings", "reading", "repeats", "units", "vllm_bench"]
__getattr__, __dir__ = lazy_modules(__name__, __all__)
