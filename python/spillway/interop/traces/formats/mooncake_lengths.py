"""Mooncake JSONL without hash ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.interop.traces.format import Format, Rows
from spillway.interop.traces.formats import mooncake

if TYPE_CHECKING:
    from spillway.interop.traces.jsonl_table import JsonlTable


__all__ = ["FORMAT"]


def __dir__() -> list[str]:
    return __all__


def _rows(table: JsonlTable, *, unit: str, **_: object) -> Rows:
    return Rows(
        arrival_ns=table.times_ns("timestamp", unit),
        input_tokens=table.whole("input_length", at_least=1),
        output_tokens=table.whole("output_length"),
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
        request_id=table.texts("request_id"),
    )


FORMAT = Format(
    name="mooncake_lengths",
    doc="Mooncake JSONL without hash_ids: timestamp,input_length,output_length",
    layout="jsonl",
    required=("timestamp", "input_length", "output_length"),
    optional=mooncake.FORMAT.optional,
    arrival="timestamp",
    rows=_rows,
    retime=mooncake.FORMAT.retime,
    options=tuple(one for one in mooncake.FORMAT.options if one is not mooncake.BLOCK_SIZE),
    notes="Prompts share nothing. Every line needs a timestamp; `delay` and sessions are not read.",
)
