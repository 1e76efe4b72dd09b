"""Mooncake JSONL, whose hash ids identify blocks of prompts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.format import Format
from spillway.files.options import Option
from spillway.files.traces.rows import BLOCK_SIZE_TOKENS, HIGHEST_ID, Rows

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.files.traces.jsonl_table import JsonlTable
    from spillway.files.traces.rows import Lists
    from spillway.files.traces.table import Int64s


# A trace is crowded if at least this many requests arrive per instant on average.
_CROWDED = 2
_CROWDED_ROWS = 100

BLOCK_SIZE = Option(
    "block_size_tokens",
    int,
    BLOCK_SIZE_TOKENS,
    "tokens per hash id",
    at_least=1,
    at_most=MAX_TOKENS,
)


def _rows(table: JsonlTable, *, unit: str, block_size_tokens: int, **_: object) -> Rows:
    """Prompts that begin with the same `hash_ids` begin with the same tokens.

    The last block of a prompt may be shorter. You may add the keys `request_id`, `tenant` and
    `slo_class` (text). A file does not state its unit or block size: the published traces have
    milliseconds and blocks of 512 tokens, the documentation of GuideLLM shows seconds, others have
    blocks of 16 or 64. Timestamps are rounded to steps (about 3 s in the published conversation
    trace), so that requests arrive in artificial bursts; a warning says so. With `spread_s` each
    request arrives at a random time in the seconds that follow its timestamp and before the next
    timestamp of the file; the order stays. The same seed gives the same trace.
    """
    prompt = table.whole("input_length", at_least=1)
    return Rows(
        arrival_ns=table.times_ns("timestamp", unit),
        input_tokens=prompt,
        output_tokens=table.whole("output_length"),
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
        request_id=table.texts("request_id"),
        hash_ids=hash_ids(table, prompt, block_size_tokens),
        block_size_tokens=block_size_tokens,
    )


def _rows_without_ids(table: JsonlTable, *, unit: str, **_: object) -> Rows:
    """Prompts share nothing.

    Every line needs a timestamp; `delay` and sessions are not read.
    """
    return Rows(
        arrival_ns=table.times_ns("timestamp", unit),
        input_tokens=table.whole("input_length", at_least=1),
        output_tokens=table.whole("output_length"),
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
        request_id=table.texts("request_id"),
    )


def hash_ids(table: JsonlTable, prompt: Int64s, block_size_tokens: int) -> list[list[int]] | Lists:
    """Return the hash ids of each prompt, one per block."""
    counts = -(-prompt // block_size_tokens)  # rounded up
    lists = table.lists("hash_ids")
    if lists is not None and (lists.counts == counts).all():
        return lists
    found = table.values("hash_ids")
    needed = counts.tolist()
    if set(map(type, found)) == {list} and list(map(len, found)) == needed:
        ids = list(itertools.chain.from_iterable(found))
        if set(map(type, ids)) == {int} and 0 <= min(ids) <= max(ids) <= HIGHEST_ID:
            return found
    for row, (ids, count) in enumerate(zip(found, needed, strict=True)):
        if len(table.checked_ids(row, "hash_ids", ids, HIGHEST_ID)) != count:
            table.refuse(
                row,
                "hash_ids",
                f"must be {count}, one per {block_size_tokens} tokens of input_length "
                f"({prompt[row]}); --trace-block-size-tokens (block_size_tokens in Python) sets "
                "the number of tokens per id",
                shown=f"{len(ids)} ids",
            )
    return found


def _spread(path: Path, arrival_ns: Int64s, *, spread_s: float, seed: int, **_: object) -> Int64s:
    """Spread the requests of each instant, in order, over the time that follows it."""
    import numpy as np

    from spillway.config.messages import note

    instants, at = np.unique(arrival_ns, return_inverse=True)
    spread_ns = round(spread_s * 1e9)
    if spread_ns == 0:
        if len(at) >= max(_CROWDED_ROWS, _CROWDED * len(instants)):
            note(
                f"{path}: its {len(at)} requests arrive at only {len(instants)} instants, as "
                "rounded timestamps do; --trace-spread-s (spread_s in Python) spreads them"
            )
        return arrival_ns
    room = np.minimum(np.diff(instants, append=instants[-1] + spread_ns), spread_ns)[at]
    # NumPy guarantees the numbers of a bit generator across versions, but not its distributions.
    share = (np.random.PCG64(seed).random_raw(len(at)) >> np.uint64(11)) * 2.0**-53
    later = np.minimum((share * room).astype(np.int64), room - 1)
    spread: Int64s = np.sort(arrival_ns + later)
    return spread


FORMAT = Format(
    name="mooncake",
    doc="Mooncake JSONL, an object per line: timestamp,input_length,output_length,hash_ids",
    layout="jsonl",
    required=("timestamp", "input_length", "output_length", "hash_ids"),
    optional=("request_id", "tenant", "slo_class"),
    arrival="timestamp",
    rows=_rows,
    retime=_spread,
    suffixes=(".jsonl",),
    options=(
        Option("unit", str, "ms", "unit of the timestamps", choices=("ms", "s")),
        BLOCK_SIZE,
        Option(
            "spread_s",
            float,
            0,
            "seconds over which the requests of each timestamp arrive",
            at_least=0,
            at_most=LONGEST_SPAN_S,
        ),
        Option("seed", int, 0, "seed of the arrivals within them", at_least=0),
    ),
)

WITHOUT_IDS = Format(
    name="mooncake_lengths",
    doc="Mooncake JSONL without hash_ids: timestamp,input_length,output_length",
    layout="jsonl",
    required=("timestamp", "input_length", "output_length"),
    optional=FORMAT.optional,
    arrival="timestamp",
    rows=_rows_without_ids,
    retime=FORMAT.retime,
    options=tuple(option for option in FORMAT.options if option is not BLOCK_SIZE),
)
