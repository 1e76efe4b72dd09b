"""Traces: recorded requests from files of several formats or from arrays.

`read_trace` reads a file of one of the `FORMATS`, `trace` takes arrays, `write_csv` and
`write_mooncake` write files. Modules that need NumPy are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from spillway.interop.traces.error import TraceError
from spillway.interop.traces.format import Format, Option, Rows
from spillway.interop.traces.formats import FORMATS, options_by_name

if TYPE_CHECKING:
    from spillway.interop.traces.arrays import trace
    from spillway.interop.traces.reading import format_of, read_columns, read_trace
    from spillway.interop.traces.write import write_csv, write_mooncake

__all__ = [
    "FORMATS",
    "Format",
    "Option",
    "Rows",
    "TraceError",
    "format_of",
    "options_by_name",
    "read_columns",
    "read_trace",
    "trace",
    "write_csv",
    "write_mooncake",
]

_HOMES = {
    "format_of": "reading",
    "read_columns": "reading",
    "read_trace": "reading",
    "trace": "arrays",
    "write_csv": "write",
    "write_mooncake": "write",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # or a type checker would take any name for one of the package's

    def __getattr__(name: str) -> object:
        """Imports a name of `_HOMES` when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
