"""AIPerf's Mooncake traces with sessions, whose turns wait for the answer of the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.format import Format
from spillway.files.options import Option
from spillway.files.traces.rows import HIGHEST_ID, Rows
from spillway.systems.mooncake import trace as mooncake
from spillway.systems.weka import trace as weka

if TYPE_CHECKING:
    from spillway.files.traces.jsonl_table import JsonlTable


@dataclass
class _Session:
    """A conversation up to its latest turn."""

    turns: int = 0
    tokens: int = 0  # of its prompts and answers
    arrival_ns: int = 0
    answered_ns: int = 0


def _rows(
    table: JsonlTable,
    *,
    block_size_tokens: int,
    answer_s: float,
    answer_s_per_token: float,
    conversation_interval_s: float,
) -> Rows:
    """Times are in milliseconds.

    AIPerf sends a turn when the previous one of its `session_id` is answered and `delay` has
    passed; its prompt is the whole conversation, to which `input_length` is what the turn adds. A
    trace has fixed arrivals: that of a turn without `timestamp` is the previous one, an assumed
    time for its answer, and `delay`. Sessions whose first turn has no `timestamp` start at
    `conversation_interval_s`. The `hash_ids` of first turns say what sessions share; later turns
    begin with the session's own answers. Turns with texts instead of lengths (`text_input`,
    `messages`, `turns`) need a tokenizer and are not read.
    """
    import numpy as np

    from spillway.config.messages import note

    prompt, output = table.whole("input_length", at_least=1), table.whole("output_length")
    sent_ns, delay_ns = _times_ns(table, "timestamp"), _times_ns(table, "delay")
    sessions: dict[str, _Session] = {}
    arrival_ns: list[int] = []
    whole: list[int] = []
    content: list[list[int]] = []
    waits = False
    names = table.texts("session_id")
    for row, name in enumerate(names):
        session = sessions.setdefault(name, _Session())
        at_ns = sent_ns[row]
        if session.turns == 0 and at_ns is None:
            at_ns = round((len(sessions) - 1) * conversation_interval_s * 1e9)
        elif session.turns > 0 and at_ns is None:
            at_ns = session.answered_ns + (delay_ns[row] or 0)
            waits = True
        elif session.turns > 0 and delay_ns[row] is not None:
            table.refuse(row, "delay", "not together with timestamp")
        if at_ns is None or at_ns < session.arrival_ns:
            table.refuse(row, "timestamp", "is earlier than the previous turn of the session")
        tokens = session.tokens + int(prompt[row])
        if tokens > MAX_TOKENS:
            table.refuse(row, "input_length", f"makes a conversation of more than {MAX_TOKENS}")
        content.append(
            _blocks(table, row, turn=session.turns, tokens=tokens, size=block_size_tokens)
        )
        arrival_ns.append(at_ns)
        whole.append(tokens)
        session.turns += 1
        session.tokens = tokens + int(output[row])
        session.arrival_ns = at_ns
        answer = answer_s + answer_s_per_token * int(output[row])
        session.answered_ns = at_ns + round(answer * 1e9)
    if waits:
        note(
            f"{table.path}: turns of its sessions wait for answers; in this trace they arrive as "
            f"if every answer took {answer_s:g} s and {answer_s_per_token:g} s per token "
            "(--trace-answer-s, --trace-answer-s-per-token; answer_s, answer_s_per_token in "
            "Python). traffic.fit_sessions makes users of it that wait"
        )
    return Rows(
        arrival_ns=np.array(arrival_ns, dtype=np.int64),
        input_tokens=np.array(whole, dtype=np.int64),
        output_tokens=output,
        session=names,
        hash_ids=content if any(content) else (),
        block_size_tokens=block_size_tokens,
    )


def _times_ns(table: JsonlTable, key: str) -> list[int | None]:
    """Return the times of a key in ms as nanoseconds; None where there is none."""
    is_given = [value not in ("", None) for value in table.values(key)]
    if not any(is_given):
        return [None] * len(is_given)
    times = iter(table.where(is_given).times_ns(key, "ms").tolist())
    return [next(times) if has_time else None for has_time in is_given]


def _blocks(table: JsonlTable, row: int, *, turn: int, tokens: int, size: int) -> list[int]:
    """Return the ids of the blocks of a first turn."""
    given = table.cell(row, "hash_ids")
    if given in ("", None):
        return []
    ids = table.checked_ids(row, "hash_ids", given, HIGHEST_ID)
    if turn > 0:
        return []
    if len(ids) != (needed := -(-tokens // size)):  # rounded up
        allowed = f"must be {needed}, one per {size} tokens of input_length"
        table.refuse(row, "hash_ids", allowed, shown=f"{len(ids)} ids")
    return ids


FORMAT = Format(
    name="aiperf",
    doc="AIPerf's Mooncake JSONL with sessions: session_id,input_length,output_length, and "
    "timestamp, delay, hash_ids",
    layout="jsonl",
    required=("session_id", "input_length", "output_length"),
    precedence=1,  # a conversation may have the columns of Mooncake, too
    optional=None,
    arrival="timestamp",
    joined=True,
    sorts=True,
    rows=_rows,
    options=(
        mooncake.BLOCK_SIZE,
        Option(
            "answer_s",
            float,
            0,
            "assumed seconds from a turn to its answer, apart from those of its tokens",
            at_least=0,
            at_most=LONGEST_SPAN_S / MAX_TOKENS,
        ),
        Option(
            "answer_s_per_token",
            float,
            0,
            "assumed seconds per token of an answer",
            at_least=0,
            at_most=1000,
        ),
        weka.CONVERSATION_INTERVAL,
    ),
)
