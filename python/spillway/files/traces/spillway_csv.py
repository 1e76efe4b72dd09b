"""Spillway's own CSV, which includes the requests.csv of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.traces.rows import Rows

if TYPE_CHECKING:
    from spillway.files.traces.csv_table import CsvTable
    from spillway.files.traces.table import Int64s


def rows(table: CsvTable, arrival_ns: Int64s | None = None) -> Rows:  # instead of `arrival_s`
    """`arrival_s` is in decimal seconds, exact to the nanosecond; further digits are rounded.

    `input_tokens` is the whole prompt. Every `request_id` is unique. The prompts of a
    `prefix_group` begin with the same `prefix_tokens` tokens; two with different numbers share the
    smaller one.
    """
    prompt = table.whole("input_tokens", at_least=1)
    return Rows(
        arrival_ns=table.seconds_ns("arrival_s") if arrival_ns is None else arrival_ns,
        input_tokens=prompt,
        output_tokens=table.whole("output_tokens"),
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
        request_id=table.ids("request_id"),
        prefix_group=table.texts("prefix_group"),
        prefix_tokens=_shared(table, prompt) if "prefix_group" in table.columns else None,
    )


def _shared(table: CsvTable, prompt: Int64s) -> Int64s:
    shared = table.shared_tokens("prefix_group", "prefix_tokens")
    if (too_long := shared > prompt).any():
        row = int(too_long.argmax())
        table.refuse(row, "prefix_tokens", f"must be <= input_tokens ({prompt[row]})")
    return shared


FORMAT = Format(
    name="columns",
    doc="arrival_s,input_tokens,output_tokens and optionally request_id, tenant, slo_class, "
    "prefix_group, prefix_tokens",
    layout="csv",
    required=("arrival_s", "input_tokens", "output_tokens"),
    optional=("request_id", "tenant", "slo_class", "prefix_group", "prefix_tokens"),
    arrival="arrival_s",
    rows=rows,
)
