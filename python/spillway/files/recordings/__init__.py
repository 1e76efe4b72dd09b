"""Recordings: measurements of real servers from files of several formats.

`read_recordings` reads requests with their latencies, `read_step_logs` the steps of engines,
`read_histograms` the metrics of engines, `read_points` mean latencies at fixed concurrency. Modules
that need NumPy are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._lazy import lazy_names
from spillway.files.error import TraceError
from spillway.files.format import Format

if TYPE_CHECKING:
    from spillway.files.recordings.reading import (
        FORMATS,
        format_of,
        read_histograms,
        read_points,
        read_recordings,
        read_step_logs,
    )

__all__ = [
    "FORMATS",
    "Format",
    "TraceError",
    "format_of",
    "read_histograms",
    "read_points",
    "read_recordings",
    "read_step_logs",
]

_HOMES = {name: "reading" for name in __all__ if name not in ("Format", "TraceError")}

if not TYPE_CHECKING:  # or a type checker would take any name for one of the package's
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
