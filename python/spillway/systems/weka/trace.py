"""Weka traces of coding agents: conversations with their requests, one per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.format import Format
from spillway.files.options import Option
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.files.traces.jsonl_table import JsonlTable
    from spillway.files.traces.table import Int64s


_BLOCK_SIZE_TOKENS = 64  # of all published traces
_HIGHEST_ID = 2**31 - 1
_UNSHARED = 2**31
_REQUESTS = ("n", "s")  # whole and streamed responses
_COLUMNS = ("t", "in", "out", "hash_ids", "block_size", "position", "spawned_s")


def _expand(table: JsonlTable) -> JsonlTable:
    """Return the requests of conversations, those of subagents included."""
    lines, found = [], []
    for row, conversation in enumerate(table.objects):
        if conversation.get("hash_id_scope", "local") != "local":
            table.refuse(row, "hash_id_scope", "must be 'local'")
        size = conversation.get("block_size", _BLOCK_SIZE_TOKENS)
        for position, (request, spawned_s) in enumerate(_requests(table, row, conversation)):
            extra = {"block_size": size, "position": position, "spawned_s": spawned_s}
            found.append({key: request.get(key, "") for key in _COLUMNS} | extra)
            lines.append(table.lines[row])
    return type(table)(table.path, _COLUMNS, lines, found)


def _requests(
    table: JsonlTable, row: int, holder: dict[str, Any], spawned_s: Any = 0, depth: int = 0
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield each request, and the time of the subagent to which it belongs; 0 for the agent."""
    requests = holder.get("requests")
    if not isinstance(requests, list):
        table.refuse(row, "requests", "must be a list", shown=f"{requests!r:.40}")
    for request in requests:
        kind = request.get("type", "n") if isinstance(request, dict) else None
        if kind in _REQUESTS:
            yield request, spawned_s
        elif kind == "subagent" and depth == 0:
            yield from _requests(table, row, request, request.get("t", ""), depth + 1)
        else:
            allowed = f"must be an object of type {', '.join(_REQUESTS)}" + (
                " or subagent" if depth == 0 else ""
            )
            table.refuse(row, "requests", allowed, shown=f"{request!r:.40}")


def _rows(
    table: JsonlTable, *, subagent_times: str, conversation_interval_s: float, **_: object
) -> Rows:
    """`t` is in seconds since the start of the conversation; by default all start together.

    Files of one object each become lines by `jq -c . trace_*.json`. Requests arrive at the recorded
    times, whatever the simulated latency. Conversations share no blocks; the agent and its
    subagents do. Blocks that a prompt has beyond its `hash_ids` are not shared. The published
    traces of SemiAnalysis have absolute times of subagents, those of kv-cache-tester relative ones.
    """
    import numpy as np

    arrival_ns = table.times_ns("t", "s")
    spawned_ns = table.times_ns("spawned_s", "s")
    if subagent_times == "relative":
        arrival_ns = arrival_ns + spawned_ns
    elif (early := arrival_ns < spawned_ns).any():
        table.refuse(
            int(early.argmax()),
            "t",
            "must be >= t of the subagent; --trace-subagent-times relative (subagent_times in "
            "Python) reads times that count from there",
        )
    starts_ns = (np.array(table.lines, dtype=np.int64) - 1) * round(conversation_interval_s * 1e9)
    size = table.whole("block_size", at_least=1)
    if (differs := size != size[0]).any():
        table.refuse(int(differs.argmax()), "block_size", f"must be {size[0]}, as before")
    prompt = table.whole("in", at_least=1)
    return Rows(
        arrival_ns=arrival_ns + starts_ns,
        input_tokens=prompt,
        output_tokens=table.whole("out"),
        hash_ids=_content(table, prompt, int(size[0])),
        block_size_tokens=int(size[0]),
    )


def _content(table: JsonlTable, prompt: Int64s, size: int) -> list[list[int]]:
    """Return an id per block that is unique among all conversations."""
    needed = (-(-prompt // size)).tolist()  # rounded up
    positions = table.whole("position")
    found = []
    given = [[] if ids == "" else ids for ids in table.values("hash_ids")]
    for row, (ids, count) in enumerate(zip(given, needed, strict=True)):
        if len(table.checked_ids(row, "hash_ids", ids, _HIGHEST_ID)) > count:
            allowed = f"must be at most {count}, one per {size} tokens of in ({prompt[row]})"
            table.refuse(row, "hash_ids", allowed, shown=f"{len(ids)} ids")
        first = table.lines[row] << 32
        own = first + _UNSHARED + int(positions[row])
        found.append([first + block for block in ids] + [own] * (count - len(ids)))
    return found


CONVERSATION_INTERVAL = Option(
    "conversation_interval_s",
    float,
    0,
    "seconds between the starts of conversations on consecutive lines",
    at_least=0,
    at_most=LONGEST_SPAN_S / MAX_TOKENS,
)

FORMAT = Format(
    name="weka",
    doc="Weka agentic JSONL, a conversation per line: id,requests with t, in, out and hash_ids",
    layout="jsonl",
    required=("id", "requests"),
    optional=None,
    arrival="t",
    sorts=True,
    expand=_expand,
    rows=_rows,
    retime=since_first,
    options=(
        Option(
            "subagent_times",
            str,
            "absolute",
            "from where times of subagents count: the start of the conversation or of the subagent",
            choices=("absolute", "relative"),
        ),
        CONVERSATION_INTERVAL,
    ),
)
