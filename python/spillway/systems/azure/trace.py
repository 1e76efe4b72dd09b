"""Azure LLM inference traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.options import TIME_ZONE
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from spillway.files.traces.csv_table import CsvTable


def _rows(table: CsvTable, *, time_zone: str) -> Rows:
    """Times count from the first request; a timestamp without a time zone is UTC.

    You may add the columns `tenant` and `slo_class`.
    """
    return Rows(
        arrival_ns=table.timestamps_ns("TIMESTAMP", time_zone),
        input_tokens=table.whole("ContextTokens", at_least=1),
        output_tokens=table.whole("GeneratedTokens"),
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
    )


FORMAT = Format(
    name="azure",
    doc="Azure LLM inference traces: TIMESTAMP,ContextTokens,GeneratedTokens",
    layout="csv",
    required=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    optional=("tenant", "slo_class"),
    arrival="TIMESTAMP",
    rows=_rows,
    retime=since_first,
    options=(TIME_ZONE,),
)
