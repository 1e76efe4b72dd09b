"""BLIS TraceV2, whose versions have different columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.traces.format import Format, Rows

if TYPE_CHECKING:
    from spillway.files.traces.csv_table import CsvTable


def rows(table: CsvTable) -> Rows:
    """Return the requests of a table; `send_time_us` is ignored."""
    arrival_us = table.whole("arrival_time_us", at_most=LONGEST_SPAN_S * 1_000_000)
    shared = table.shared_tokens("prefix_group", "prefix_length")
    # In a group, input_tokens is the suffix. Without one, the server's own count of the prompt is
    # more accurate.
    prompt = table.whole("input_tokens") + shared
    server = table.whole("server_input_tokens", empty="0")
    counted = ~table.filled("prefix_group") & (server > 0)
    prompt[counted] = server[counted]
    if (wrong := (prompt < 1) | (prompt > MAX_TOKENS)).any():
        allowed = f"the prompt must have >= 1 and <= {MAX_TOKENS} tokens"
        table.refuse(int(wrong.argmax()), "input_tokens", allowed)
    return Rows(
        arrival_ns=arrival_us * 1000,
        input_tokens=prompt,
        output_tokens=table.whole("output_tokens"),
        tenant=table.texts("tenant_id"),
        slo_class=table.texts("slo_class"),
        request_id=table.ids("request_id"),
        prefix_group=table.texts("prefix_group"),
        prefix_tokens=shared,
    )


FORMAT = Format(
    name="blis",
    doc="BLIS TraceV2: request_id,client_id,tenant_id,…,arrival_time_us,send_time_us,…",
    layout="csv",
    required=(
        "request_id",
        "tenant_id",
        "slo_class",
        "prefix_group",
        "input_tokens",
        "output_tokens",
        "arrival_time_us",
        "send_time_us",
    ),
    optional=None,
    arrival="arrival_time_us",
    rows=rows,
    notes="`send_time_us` is ignored.",
)

REFERENCE = Format(
    name="reference",
    doc="BLIS reference runs: request_id,client_id,tenant_id,slo_class,prefix_group,prefix_length,"
    "input_tokens,output_tokens,arrival_time_us",
    layout="csv",
    required=(
        "request_id",
        "tenant_id",
        "slo_class",
        "prefix_group",
        "prefix_length",
        "input_tokens",
        "output_tokens",
        "arrival_time_us",
    ),
    optional=None,
    arrival="arrival_time_us",
    rows=rows,
)
