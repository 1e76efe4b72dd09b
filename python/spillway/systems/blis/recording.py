"""BLIS TraceV2 files, recorded with a real server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError
from spillway.config import yaml
from spillway.config.limits import LONGEST_SPAN_S
from spillway.data.recording import ServerFacts
from spillway.files.recordings.format import Format
from spillway.files.recordings.rows import Rows, Time, recording
from spillway.files.recordings.server import facts
from spillway.files.recordings.source import Source, digest
from spillway.files.traces.csv_table import csv_tables
from spillway.files.traces.error import TraceError

if TYPE_CHECKING:
    from spillway.data.recording import Recording
    from spillway.files.recordings.rows import Settings
    from spillway.files.traces.csv_table import CsvTable


_REQUIRED = (
    "request_id",
    "tenant_id",
    "input_tokens",
    "output_tokens",
    "arrival_time_us",
    "send_time_us",
    "first_chunk_time_us",
    "last_chunk_time_us",
    "status",
)
_LATEST_US = LONGEST_SPAN_S * 1_000_000


def _detect(source: Source) -> bool:
    return set(_REQUIRED) <= source.columns


def _read(source: Source, settings: Settings) -> list[Recording]:
    if not _detect(source):
        missing = ", ".join(name for name in _REQUIRED if name not in source.columns)
        raise TraceError(f"{source.path}: not of the format blis: {missing} missing ({FORMAT.doc})")
    send: list[int] = []
    first: list[int | None] = []
    last: list[int | None] = []
    prompt: list[int] = []
    output: list[int] = []
    failed: list[bool] = []
    tenant: list[str] = []
    places: list[str] = []
    with contextlib.closing(csv_tables(source.path)) as tables:
        next(tables)
        for table in tables:
            arrival_us = table.whole("arrival_time_us", at_most=_LATEST_US).tolist()
            sent_us = table.whole("send_time_us", at_most=_LATEST_US, empty="0").tolist()
            begin_us = [sent or arrival for sent, arrival in zip(sent_us, arrival_us, strict=True)]
            send += begin_us
            first += _instants(table, "first_chunk_time_us")
            last += _instants(table, "last_chunk_time_us")
            prompt += _prompts(table)
            output += table.whole("output_tokens").tolist()
            failed += [status.strip().lower() != "ok" for status in table.texts("status")]
            tenant += [name or "default" for name in table.texts("tenant_id")]
            places += [f"line {line}" for line in table.lines]
    sending = Time("send_time_us", "us", send)
    server, header = _server(source)
    rows = Rows(
        name=source.path.stem,
        send=sending,
        input_tokens=prompt,
        output_tokens=output,
        ttft=Time("first_chunk_time_us", "us", first).minus(sending),
        e2e=Time("last_chunk_time_us", "us", last).minus(sending),
        failed=failed,
        places=places,
        server=server,
        tenant=tenant,
    )
    return [recording(source.path, rows, settings, FORMAT.name, digest(source, *header))]


def _instants(table: CsvTable, column: str) -> list[int | None]:
    """Return instants; None for 0 and empty cells, which stand for no chunk."""
    return [
        instant or None for instant in table.whole(column, at_most=_LATEST_US, empty="0").tolist()
    ]


def _prompts(table: CsvTable) -> list[int]:
    """Return the lengths of the whole prompts, as the traces do."""
    shared = table.shared_tokens("prefix_group", "prefix_length")
    prompt = table.whole("input_tokens") + shared
    server = table.whole("server_input_tokens", empty="0")
    counted = ~table.filled("prefix_group") & (server > 0)
    prompt[counted] = server[counted]
    lengths: list[int] = prompt.tolist()
    return lengths


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


FORMAT = Format(
    name="blis",
    doc="BLIS TraceV2: CSV with send_time_us, first_chunk_time_us, last_chunk_time_us, status",
    kind="recordings",
    detect=_detect,
    read=_read,
    notes=(
        "Latencies run from `send_time_us`, or from `arrival_time_us` where that is 0. The header, "
        "a YAML file of the same name, states the server."
    ),
)
