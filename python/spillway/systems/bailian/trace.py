"""Bailian (Qwen) traces, whose hash ids identify blocks of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.limits import MAX_TOKENS
from spillway.files.format import Format
from spillway.files.options import Option
from spillway.files.traces.rows import Rows
from spillway.systems.mooncake import trace as mooncake

if TYPE_CHECKING:
    from spillway.files.traces.jsonl_table import JsonlTable


def _rows(table: JsonlTable, *, block_size_tokens: int) -> Rows:
    """`timestamp` is in seconds.

    A prompt whose `parent_chat_id` is another chat begins with that prompt and its answer, if it
    begins with its blocks; a warning counts both cases. Turns arrive at the recorded times.
    """
    prompt = table.whole("input_length", at_least=1)
    ids, notes = mooncake.hash_ids(table, prompt, block_size_tokens)
    return Rows(
        arrival_ns=table.times_ns("timestamp", "s"),
        input_tokens=prompt,
        output_tokens=table.whole("output_length"),
        hash_ids=ids,
        block_size_tokens=block_size_tokens,
        turn=list(map(str, table.values("chat_id"))),
        follows=list(map(str, table.values("parent_chat_id"))),
        notes=notes,
    )


FORMAT = Format(
    name="bailian",
    doc="Bailian (Qwen) JSONL: chat_id,parent_chat_id,timestamp,input_length,output_length,type,"
    "turn,hash_ids",
    layout="jsonl",
    required=(
        "chat_id",
        "parent_chat_id",
        "timestamp",
        "input_length",
        "output_length",
        "hash_ids",
    ),
    optional=None,
    arrival="timestamp",
    rows=_rows,
    options=(
        Option("block_size_tokens", int, 16, "tokens per hash id", at_least=1, at_most=MAX_TOKENS),
    ),
)
