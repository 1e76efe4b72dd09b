"""Spend logs of LiteLLM's proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from spillway.files.traces.csv_table import CsvTable


def _rows(table: CsvTable) -> Rows:
    """`startTime` is a date with a time, in UTC without a time zone; times count from the first.

    The tenant is `team_id`. Requests are sorted. A call whose `status` is a failure has no output.
    Calls that LiteLLM answered from its own cache (`cache_hit`) never reached a server, and are
    left out.
    """
    from spillway.files.traces.column_map import Clock, Named, rows_of

    names = {
        "arrival_s": "startTime",
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "tenant": "team_id",
    }
    cells = {meaning: table.cells_of(name) for meaning, name in names.items()}
    cells["status"] = table.cells_of("status")
    named = Named(table.path, tuple(cells), table.lines, cells, names, unit=table.unit)
    return rows_of(named, Clock(), "UTC")


def _reached_a_server(table: CsvTable) -> list[bool]:
    return [text.strip().lower() not in ("true", "t", "1") for text in table.texts("cache_hit")]


FORMAT = Format(
    name="litellm",
    doc="Spend logs of LiteLLM: startTime,prompt_tokens,completion_tokens, and status, team_id, "
    "cache_hit",
    layout="csv",
    required=("startTime", "prompt_tokens", "completion_tokens"),
    optional=None,
    arrival="startTime",
    sorts=True,
    select=_reached_a_server,
    left_out="calls that LiteLLM answered from its own cache",
    rows=_rows,
    retime=since_first,
)
