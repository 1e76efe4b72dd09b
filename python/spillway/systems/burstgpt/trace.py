"""BurstGPT traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.traces.rows import Rows

if TYPE_CHECKING:
    from spillway.files.traces.csv_table import CsvTable


def _rows(table: CsvTable) -> Rows:
    """`Timestamp` is in seconds.

    Failed requests have 0 response tokens; the published files without fails leave them out. For
    tenants by model, name the columns.
    """
    return Rows(
        arrival_ns=table.seconds_ns("Timestamp"),
        input_tokens=table.whole("Request tokens", at_least=1),
        output_tokens=table.whole("Response tokens"),
    )


FORMAT = Format(
    name="burstgpt",
    doc="BurstGPT traces: Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    layout="csv",
    required=("Timestamp", "Model", "Request tokens", "Response tokens", "Log Type"),
    optional=None,
    arrival="Timestamp",
    rows=_rows,
)
