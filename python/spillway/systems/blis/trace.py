"""BLIS TraceV2, whose versions have different columns: a trace, and what a server did with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.format import Format
from spillway.files.traces.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.files.recordings.rows import Rows as MeasuredRows
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source
    from spillway.files.traces.csv_table import CsvTable
    from spillway.systems.blis.header import Header

_OFFERED = (
    "request_id",
    "tenant_id",
    "slo_class",
    "prefix_group",
    "input_tokens",
    "output_tokens",
    "arrival_time_us",
)


def rows(table: CsvTable) -> Rows:
    """A trace has the times of arrival; `send_time_us` is ignored.

    A header, the YAML file of the same name, may say that sessions accumulate: then prompts begin
    with the conversation before, and `input_tokens` are what a turn adds. Its warm-up requests are
    left out. A request whose `status` is an error has no output.
    """
    from spillway.files import states
    from spillway.systems.blis.header import header_of
    from spillway.systems.blis.recording import prompts

    header = header_of(table.path)
    failed = states.failed_in(("status",), table.texts, len(table))
    notes = states.notes_of(failed)
    sessions = _sessions(table, header, notes)
    arrival_us = table.whole("arrival_time_us", at_most=LONGEST_SPAN_S * 1_000_000)
    prompt = prompts(table, counted=not header.accumulates)
    if (wrong := (prompt < 1) | (prompt > MAX_TOKENS)).any():
        allowed = f"the prompt must have >= 1 and <= {MAX_TOKENS} tokens"
        table.refuse(int(wrong.argmax()), "input_tokens", allowed)
    return Rows(
        arrival_ns=arrival_us * 1000,
        input_tokens=prompt,
        output_tokens=table.whole("output_tokens") * ~failed.rows,
        tenant=table.texts("tenant_id"),
        slo_class=table.texts("slo_class"),
        request_id=table.ids("request_id"),
        prefix_group=table.texts("prefix_group"),
        prefix_tokens=table.shared_tokens("prefix_group", "prefix_length"),
        session=sessions,
        adds_to_session=bool(sessions),
        notes=notes,
    )


def _sessions(table: CsvTable, header: Header, notes: dict[str, int]) -> Sequence[str]:
    """Return the session of each request whose prompts accumulate; nothing without such."""
    if header.accumulates:
        return table.texts("session_id")
    if not header.is_there and any(text not in ("", "0") for text in table.texts("round_index")):
        notes[
            "it has sessions, and no header beside that says whether their prompts accumulate "
            "(session_context_growth); input_tokens are read as whole prompts that share nothing"
        ] = 1
    return ()


def _is_measured(table: CsvTable) -> list[bool]:
    from spillway.systems.blis.header import is_measured

    return is_measured(table)


def _read(source: Source, settings: Settings) -> list[MeasuredRows]:
    """Measured latencies run from `send_time_us`, or from `arrival_time_us` where that is 0.

    The header, a YAML file of the same name, states the server, how many requests are warm-up,
    which are left out, and whether the prompts of sessions accumulate.
    """
    from spillway.systems.blis import recording

    return [recording.read(source, settings)]


FORMAT = Format(
    name="blis",
    doc="BLIS TraceV2: request_id,client_id,tenant_id,…,arrival_time_us,send_time_us,"
    "first_chunk_time_us,last_chunk_time_us,…,status",
    layout="csv",
    required=(*_OFFERED, "send_time_us"),
    gives=("trace", "recordings"),
    optional=None,
    arrival="arrival_time_us",
    rows=rows,
    select=_is_measured,
    left_out="warm-up requests, which its header counts,",
    read=_read,
    measured=("first_chunk_time_us", "last_chunk_time_us", "status"),
)

REFERENCE = Format(
    name="reference",
    doc="BLIS reference runs: request_id,client_id,tenant_id,slo_class,prefix_group,prefix_length,"
    "input_tokens,output_tokens,arrival_time_us",
    layout="csv",
    required=(*_OFFERED, "prefix_length"),
    optional=None,
    arrival="arrival_time_us",
    rows=rows,
)
