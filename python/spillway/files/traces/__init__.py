"""Traces: recorded requests from files of several formats or from arrays.

`read_trace` reads a file of one of the `FORMATS`, `trace` takes arrays, `write_csv` writes files
(`spillway.traffic.write` those of other formats, too). Modules that need NumPy or those of systems
are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._lazy import lazy_names
from spillway.files.error import TraceError
from spillway.files.format import Format

if TYPE_CHECKING:
    from spillway.files.traces.arrays import trace
    from spillway.files.traces.reading import FORMATS, format_of, read_trace
    from spillway.files.traces.write import write_csv

__all__ = ["FORMATS", "Format", "TraceError", "format_of", "read_trace", "trace", "write_csv"]

_HOMES = {
    "FORMATS": "reading",
    "format_of": "reading",
    "read_trace": "reading",
    "trace": "arrays",
    "write_csv": "write",
}

if not TYPE_CHECKING:  # or a type checker would take any name for one of the package's
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
