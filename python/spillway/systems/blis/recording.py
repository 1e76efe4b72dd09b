"""BLIS TraceV2 files, recorded with a real server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError
from spillway.config import yaml
from spillway.config.limits import LONGEST_SPAN_S
from spillway.data.recording import ServerFacts
from spillway.files.error import TraceError
from spillway.files.recordings.rows import Request, Rows, rows_of
from spillway.files.recordings.server import facts
from spillway.files.recordings.source import Source
from spillway.files.traces.csv_table import csv_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.files.traces.csv_table import CsvTable
    from spillway.files.traces.table import Int64s


_LATEST_US = LONGEST_SPAN_S * 1_000_000
_FIELDS = {
    "send": ("send_time_us", "us"),
    "ttft": ("first_chunk_time_us", "us"),
    "e2e": ("last_chunk_time_us", "us"),
}


def read(source: Source) -> Rows:
    """Return the measured requests of a file."""
    requests: list[Request] = []
    tenant: list[str] = []
    with contextlib.closing(csv_tables(source.path)) as tables:
        next(tables)
        for table in tables:
            requests += _requests(table)
            tenant += [name or "default" for name in table.texts("tenant_id")]
    server, header = _server(source)
    return rows_of(source, requests, _FIELDS, server=server, tenant=tenant, beside=header)


def _requests(table: CsvTable) -> Iterator[Request]:
    arrival_us = table.whole("arrival_time_us", at_most=_LATEST_US).tolist()
    sent_us, first_us, last_us = (
        table.whole(f"{name}_time_us", at_most=_LATEST_US, empty="0").tolist()
        for name in ("send", "first_chunk", "last_chunk")
    )
    prompt, output = prompts(table).tolist(), table.whole("output_tokens").tolist()
    for row, status in enumerate(table.texts("status")):
        begin_us = sent_us[row] or arrival_us[row]
        yield Request(
            f"line {table.lines[row]}",
            begin_us,
            # 0 stands for no chunk.
            first_us[row] - begin_us if first_us[row] else None,
            last_us[row] - begin_us if last_us[row] else None,
            prompt[row],
            output[row],
            failed=status.strip().lower() != "ok",
        )


def prompts(table: CsvTable, *, counted: bool = True) -> Int64s:
    """Return the lengths of the whole prompts.

    In a group, `input_tokens` is the suffix. Without one, the server's own count is more accurate,
    if that is to be `counted`.
    """
    prompt = table.whole("input_tokens") + table.shared_tokens("prefix_group", "prefix_length")
    if not counted:
        return prompt
    server = table.whole("server_input_tokens", empty="0")
    is_better = ~table.filled("prefix_group") & (server > 0)
    prompt[is_better] = server[is_better]
    return prompt


def _server(source: Source) -> tuple[ServerFacts, list[Source]]:
    """Return the server of the header, a YAML file of the same name beside, if there is one."""
    path = source.path.with_suffix(".yaml")
    if not path.is_file():
        return ServerFacts(), []
    header = Source(path)
    try:
        content: Any = yaml.parse(header.text, str(path))
    except ConfigError as error:
        raise TraceError(str(error)) from error
    if not isinstance(content, dict) or "trace_version" not in content:
        return ServerFacts(), []
    reported = content.get("server") or {}
    if not isinstance(reported, dict):
        header.refuse("server", reported, "must be a mapping")
    # `type` is the kind of server; BLIS writes 0 for what it does not know.
    known = {name: value for name, value in reported.items() if value not in (0, "")}
    return facts(f"{path}, server", known | {"engine": known.get("type")}), [header]
