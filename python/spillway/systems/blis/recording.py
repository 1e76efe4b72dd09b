"""BLIS TraceV2 files, recorded with a real server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.sim import ConfigError
from spillway.config import yaml
from spillway.config.limits import LONGEST_SPAN_S
from spillway.config.messages import note
from spillway.data.recording import RequestCounts, ServerFacts
from spillway.files.error import TraceError
from spillway.files.recordings.contradictions import Contradictions
from spillway.files.recordings.rows import Request, RequestList, Rows, rows_of
from spillway.files.recordings.server import facts
from spillway.files.recordings.source import Source
from spillway.files.traces.csv_table import csv_tables
from spillway.files.traces.table import Skipped, parsed
from spillway.systems.blis.header import header_of, is_measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.files.recordings.rows import Settings
    from spillway.files.traces.csv_table import CsvTable
    from spillway.files.traces.table import Int64s


_LATEST_US = LONGEST_SPAN_S * 1_000_000
_FIELDS = {
    "send": ("send_time_us", "us"),
    "ttft": ("first_chunk_time_us", "us"),
    "e2e": ("last_chunk_time_us", "us"),
}


def read(source: Source, settings: Settings) -> Rows:
    """Return the measured requests of a file."""
    header = header_of(source.path)
    requests = RequestList()
    tenant: list[str] = []
    before: dict[str, int] = {}  # tokens of a session so far
    warm_up = 0
    skipped = Skipped(allowed=settings.skip_bad)
    contradictions = Contradictions()
    with contextlib.closing(csv_tables(source.path, skipped)) as tables:
        next(tables)
        for whole in tables:
            is_wanted = is_measured(whole)
            warm_up += len(whole) - sum(is_wanted)
            table = whole if all(is_wanted) else whole.where(is_wanted)
            if not len(table):
                continue
            for good, found in parsed(table, _requests, skipped):
                for request in _accumulated(good, found, before) if header.accumulates else found:
                    requests.append(request)
                _check_parts(contradictions, good)
                tenant += [name or "default" for name in good.texts("tenant_id")]
    contradictions.tell(source.path, len(requests))
    server, beside = _server(source)
    counts = RequestCounts(warm_up=warm_up, skipped=skipped.rows)
    if warm_up:
        note(f"{source.path}: {warm_up:,} warm-up requests, which its header counts, are left out")
    return rows_of(
        source, requests, _FIELDS, server=server, tenant=tenant, beside=beside, counts=counts
    )


_WHOLE = ("stop", "length")
_PARTS = ("text_tokens", "image_tokens", "audio_tokens", "video_tokens")


def _check_parts(found: Contradictions, table: CsvTable) -> None:
    """Check what the columns say of each other: lengths, sessions and states."""
    columns = map(table.texts, ("session_id", "round_index", "status", "finish_reason"))
    for line, session, turn, status, reason in zip(table.lines, *columns, strict=True):
        place = f"line {line}"
        found.check(bool(session) or turn in ("", "0"), place, "round_index is that of no session")
        is_ok = status.strip().lower() == "ok"
        found.check(
            is_ok or reason not in _WHOLE, place, "status is a failure, finish_reason is not"
        )
    whole = table.whole("input_tokens").tolist()
    parts = sum(table.whole(name, empty="0") for name in _PARTS)
    for line, tokens, known in zip(table.lines, whole, np.asarray(parts).tolist(), strict=True):
        found.check(
            known in (0, tokens), f"line {line}", "input_tokens is not the sum of its parts"
        )


def _requests(table: CsvTable) -> list[Request]:
    arrival_us = table.whole("arrival_time_us", at_most=_LATEST_US).tolist()
    sent_us, first_us, last_us = (
        table.whole(f"{name}_time_us", at_most=_LATEST_US, empty="0").tolist()
        for name in ("send", "first_chunk", "last_chunk")
    )
    prompt, output = prompts(table).tolist(), table.whole("output_tokens").tolist()
    found = []
    for row, status in enumerate(table.texts("status")):
        begin_us = sent_us[row] or arrival_us[row]
        request = Request(
            f"line {table.lines[row]}",
            begin_us,
            # 0 stands for no chunk.
            first_us[row] - begin_us if first_us[row] else None,
            last_us[row] - begin_us if last_us[row] else None,
            prompt[row],
            output[row],
            failed=status.strip().lower() != "ok",
        )
        found.append(request)
    return found


def _accumulated(
    table: CsvTable, requests: Sequence[Request], before: dict[str, int]
) -> list[Request]:
    """Return requests with their sessions, whose prompts begin with what was before."""
    added = prompts(table, counted=False).tolist()
    by_server = table.whole("server_input_tokens", empty="0").tolist()
    found = []
    for request, name, own, whole in zip(
        requests, table.texts("session_id"), added, by_server, strict=True
    ):
        tokens = before.get(name, 0) + own if name else own
        before[name] = (whole or tokens) + (request.output_tokens or 0)
        found.append(request._replace(input_tokens=whole or tokens, session=name))
    return found


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
