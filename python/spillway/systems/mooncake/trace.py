"""Mooncake JSONL, whose hash ids identify blocks of prompts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.format import Format
from spillway.files.options import AUTO, Option
from spillway.files.traces.rows import BLOCK_SIZE_TOKENS, HIGHEST_ID, Rows

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.files.traces.jsonl_table import JsonlTable
    from spillway.files.traces.rows import Lists
    from spillway.files.traces.table import Int64s


# A trace is crowded if at least this many requests arrive per instant on average.
_CROWDED = 2
_CROWDED_ROWS = 100

_FULL_BLOCKS = (
    "hash_ids of full blocks only; what a prompt has beyond them is read as shared with no other"
)

# Timestamps in milliseconds are suspicious if requests arrive this fast, or with fractions.
_CRAMMED_PER_S = 500
_FRACTIONS_PER_S = 50
_SHORT_NS = 2_000_000_000
_CRAMMED_ROWS = 10
_TRICKLE_PER_S = 0.01

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

    The last block of a prompt may be shorter. Where only full blocks have ids, the rest of the
    prompt is not shared, and a warning says so. You may add the keys `request_id`, `tenant` and
    `slo_class` (text), and `warm_tokens`: how much of the prompt is in every prefix cache from the
    start. A file does not state its unit or block size: the published traces have
    milliseconds and blocks of 512 tokens, the documentation of GuideLLM shows seconds, others have
    blocks of 16 or 64. Timestamps are rounded to steps (about 3 s in the published conversation
    trace), so that requests arrive in artificial bursts; a warning says so. With `spread_s` each
    request arrives at a random time in the seconds that follow its timestamp and before the next
    timestamp of the file; the order stays. The same seed gives the same trace.
    """
    prompt = table.whole("input_length", at_least=1)
    ids, notes = hash_ids(table, prompt, block_size_tokens)
    return Rows(
        arrival_ns=table.times_ns("timestamp", _unit(unit)),
        input_tokens=prompt,
        output_tokens=table.whole("output_length"),
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
        request_id=table.texts("request_id"),
        hash_ids=ids,
        block_size_tokens=block_size_tokens,
        warm_tokens=_warm(table),
        notes=notes,
    )


def _warm(table: JsonlTable) -> Int64s | None:
    if "warm_tokens" not in table.columns:
        return None
    given = [0 if value == "" else value for value in table.values("warm_tokens")]
    return table.checked_whole(given, "warm_tokens")


def _rows_without_ids(table: JsonlTable, *, unit: str, **_: object) -> Rows:
    """Prompts share nothing.

    Every line needs a timestamp; `delay` and sessions are not read.
    """
    return Rows(
        arrival_ns=table.times_ns("timestamp", _unit(unit)),
        input_tokens=table.whole("input_length", at_least=1),
        output_tokens=table.whole("output_length"),
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
        request_id=table.texts("request_id"),
    )


def _unit(name: str) -> str:
    return "ms" if name == AUTO else name


def hash_ids(
    table: JsonlTable, prompt: Int64s, block_size_tokens: int
) -> tuple[list[list[int]] | Lists, dict[str, int]]:
    """Return the hash ids of each prompt, one per block or per full block, and notes on them."""
    import numpy as np

    counts = -(-prompt // block_size_tokens)  # rounded up
    lists = table.lists("hash_ids")
    if lists is not None and (lists.counts == counts).all():
        return lists, {}
    found: list[list[int]] = table.values("hash_ids")
    if not (
        set(map(type, found)) == {list}
        and set(map(type, ids := list(itertools.chain.from_iterable(found)))) <= {int}
        and 0 <= min(ids, default=0) <= max(ids, default=0) <= HIGHEST_ID
    ):
        for row, value in enumerate(found):
            table.checked_ids(row, "hash_ids", value, HIGHEST_ID)
    given = np.array(list(map(len, found)), dtype=np.int64)
    if (given == counts).all():
        return found, {}
    full = prompt // block_size_tokens
    wrong = given != full
    if wrong.any():
        # The most frequent kind is that of the file.
        is_whole = (given == counts).sum() >= (given == full).sum()
        needed = counts if is_whole else full
        row = int((given != needed).argmax())
        table.refuse(
            row,
            "hash_ids",
            f"must be {needed[row]}, one per {block_size_tokens} tokens of input_length "
            f"({prompt[row]}); --trace-block-size-tokens (block_size_tokens in Python) sets "
            "the number of tokens per id",
            shown=f"{given[row]} ids",
        )
    return found, {_FULL_BLOCKS: 1}


def _retime(
    path: Path, arrival_ns: Int64s, *, unit: str, spread_s: float, seed: int, **_: object
) -> Int64s:
    if unit == AUTO and _look_like_seconds(arrival_ns):
        from spillway.config.messages import note

        span_s = float(arrival_ns[-1] - arrival_ns[0]) / 1e9
        note(
            f"{path}: its timestamps look like seconds, and are read as milliseconds: "
            f"{len(arrival_ns):,} requests in {span_s:g} s; --trace-unit s (unit='s' in Python) "
            "reads seconds, --trace-unit ms states milliseconds"
        )
    elif unit == AUTO and len(arrival_ns) >= _CRAMMED_ROWS:
        _note_trickle(path, arrival_ns)
    return _spread(path, arrival_ns, spread_s, seed)


def _look_like_seconds(arrival_ns: Int64s) -> bool:
    """Whether arrivals read as milliseconds have fractions, or a rate that no client reaches."""
    span_ns = int(arrival_ns[-1] - arrival_ns[0])
    if span_ns == 0:
        return False
    rate_per_s = (len(arrival_ns) - 1) * 1e9 / span_ns
    if (arrival_ns % 1_000_000 > 0).any():
        return span_ns < _SHORT_NS or rate_per_s > _FRACTIONS_PER_S
    return len(arrival_ns) >= _CRAMMED_ROWS and rate_per_s >= _CRAMMED_PER_S


def _note_trickle(path: Path, arrival_ns: Int64s) -> None:
    """Warn of arrivals that are a load only if they are read as microseconds."""
    from spillway.config.messages import note

    span_s = float(arrival_ns[-1] - arrival_ns[0]) / 1e9
    if (len(arrival_ns) - 1) < _TRICKLE_PER_S * span_s:
        note(
            f"{path}: its timestamps are read as milliseconds: {len(arrival_ns):,} requests in "
            f"{span_s:,.0f} s, which is a load only in microseconds; --trace-unit us (unit='us' in "
            "Python) reads these, --trace-unit ms states milliseconds"
        )


def _spread(path: Path, arrival_ns: Int64s, spread_s: float, seed: int) -> Int64s:
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
    optional=("request_id", "tenant", "slo_class", "warm_tokens"),
    arrival="timestamp",
    rows=_rows,
    retime=_retime,
    options=(
        Option("unit", str, AUTO, "unit of the timestamps", choices=(AUTO, "us", "ms", "s")),
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
    optional=("request_id", "tenant", "slo_class"),
    arrival="timestamp",
    rows=_rows_without_ids,
    retime=FORMAT.retime,
    options=tuple(option for option in FORMAT.options if option is not BLOCK_SIZE),
)
