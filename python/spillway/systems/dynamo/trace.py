"""Request traces of Dynamo (dynamo.request.trace.v1)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.traces.rows import HIGHEST_ID, Rows, since_first

if TYPE_CHECKING:
    from spillway.files.traces.jsonl_table import JsonlTable
    from spillway.files.traces.table import Int64s


_SCHEMA = "dynamo.request.trace.v1"


def select(table: JsonlTable, record: str = "") -> list[bool]:
    """Return which lines are requests; `record`: prefix of the keys."""
    for row, schema in enumerate(table.values(f"{record}schema")):
        if schema != _SCHEMA:
            table.refuse(row, f"{record}schema", f"must be {_SCHEMA}")
    return [kind == "request_end" for kind in table.values(f"{record}event_type")]


def rows(table: JsonlTable, record: str = "") -> Rows:  # record: prefix of the keys
    """Records of the type `request_end` are requests.

    They arrive at `request_received_ms` and are sorted; times count from the first. If every
    request has `replay`, prompts that begin with the same hashes begin with the same tokens.
    Sessions of agents are ignored.
    """
    request = f"{record}request"
    has_replay = [isinstance(replay, dict) for replay in table.values(f"{request}.replay")]
    if any(has_replay) and not all(has_replay):
        row = has_replay.index(False)
        table.refuse(row, f"{request}.replay", "must be in every request or in none")
    length = f"{request}.replay.input_length" if all(has_replay) else f"{request}.input_tokens"
    prompt = table.whole(length, at_least=1)
    size = _block_size(table, f"{request}.replay.trace_block_size") if all(has_replay) else 0
    return Rows(
        arrival_ns=table.times_ns(f"{request}.request_received_ms", "ms"),
        input_tokens=prompt,
        output_tokens=table.whole(f"{request}.output_tokens"),
        request_id=table.texts(f"{request}.request_id"),
        hash_ids=_hashes(table, f"{request}.replay.input_sequence_hashes", prompt, size),
        block_size_tokens=size,
    )


def _block_size(table: JsonlTable, key: str) -> int:
    sizes = table.whole(key, at_least=1)
    if (differs := sizes != sizes[0]).any():
        table.refuse(int(differs.argmax()), key, f"must be {sizes[0]}, as before")
    return int(sizes[0])


def _hashes(table: JsonlTable, key: str, prompt: Int64s, size: int) -> list[list[int]]:
    if not size:
        return []
    found = table.values(key)
    for row, (hashes, tokens) in enumerate(zip(found, prompt.tolist(), strict=True)):
        needed = -(-tokens // size)  # rounded up
        if (
            not isinstance(hashes, list)
            or len(hashes) != needed
            or not all(type(block) is int and 0 <= block <= HIGHEST_ID for block in hashes)
        ):
            allowed = f"must be a list of {needed} whole numbers >= 0 and <= {HIGHEST_ID}"
            table.refuse(row, key, allowed)
    return found


def _select_wrapped(table: JsonlTable) -> list[bool]:
    return select(table, "event.")


def _rows_wrapped(table: JsonlTable) -> Rows:
    """Of `event`, the same is read; `timestamp` is ignored."""
    return rows(table, "event.")


FORMAT = Format(
    name="dynamo",
    doc="request traces of Dynamo (dynamo.request.trace.v1): schema,event_type,"
    "event_time_unix_ms,request",
    layout="jsonl",
    required=("schema", "event_type", "event_time_unix_ms"),
    optional=None,
    arrival="event_time_unix_ms",
    sorts=True,
    select=select,
    rows=rows,
    retime=since_first,
)

WRAPPED = dataclasses.replace(
    FORMAT,
    name="dynamo_wrapped",
    doc="the same as written by its file sinks: timestamp,event",
    required=("timestamp", "event"),
    arrival="timestamp",
    select=_select_wrapped,
    rows=_rows_wrapped,
)
