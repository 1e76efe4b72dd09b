"""Request traces of Dynamo as its file sinks write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.interop.traces.format import Format
from spillway.interop.traces.formats import dynamo

if TYPE_CHECKING:
    from spillway.interop.traces.format import Rows
    from spillway.interop.traces.jsonl_table import JsonlTable


__all__ = ["FORMAT"]


def __dir__() -> list[str]:
    return __all__


def _select(table: JsonlTable) -> list[bool]:
    return dynamo.select(table, "event.")


def _rows(table: JsonlTable) -> Rows:
    return dynamo.rows(table, "event.")


FORMAT = Format(
    name="dynamo_wrapped",
    doc="the same as written by its file sinks: timestamp,event",
    layout="jsonl",
    required=("timestamp", "event"),
    optional=None,
    arrival="timestamp",
    sorts=True,
    select=_select,
    rows=_rows,
    retime=dynamo.FORMAT.retime,
    notes="`timestamp` is ignored. " + dynamo.NOTES,
)
