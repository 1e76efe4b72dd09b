"""Logs of responses of the OpenAI API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from spillway.files.traces.jsonl_table import JsonlTable


def _rows(table: JsonlTable) -> Rows:
    """A line is a response of chat completions or completions.

    `created` is in seconds since 1970. A key `user` is the tenant. Requests are sorted, and times
    count from the first.
    """
    return Rows(
        arrival_ns=table.times_ns("created", "s"),
        input_tokens=table.whole("usage.prompt_tokens", at_least=1),
        output_tokens=table.whole("usage.completion_tokens"),
        tenant=table.texts("user"),
    )


FORMAT = Format(
    name="openai",
    doc="Logs of OpenAI responses as JSONL: created,usage with prompt_tokens and completion_tokens",
    layout="jsonl",
    required=("created", "usage"),
    optional=None,
    arrival="created",
    sorts=True,
    rows=_rows,
    retime=since_first,
)
