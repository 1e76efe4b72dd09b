"""CSV files with a row per request and known names of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.data.recording import ServerFacts
from spillway.files.recordings.csv_columns import recognized, request_rows
from spillway.files.recordings.format import Format
from spillway.files.recordings.rows import recording
from spillway.files.recordings.source import digest
from spillway.files.traces.error import TraceError

if TYPE_CHECKING:
    from spillway.data.recording import Recording
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


def _detect(source: Source) -> bool:
    return recognized(source.columns) is not None


def _read(source: Source, settings: Settings) -> list[Recording]:
    columns = recognized(source.columns)
    if columns is None:
        raise TraceError(f"{source.path}: not of the format csv ({FORMAT.doc})")
    rows = request_rows(source.path, columns, name=source.path.stem, server=ServerFacts())
    return [recording(source.path, rows, settings, FORMAT.name, digest(source))]


FORMAT = Format(
    name="csv",
    doc="CSV: send_time_us, input_tokens, output_tokens, ttft_us, e2e_us, optionally status, "
    "tenant_id",
    kind="recordings",
    detect=_detect,
    read=_read,
    notes=(
        "A column of times ends in its unit: _s, _ms, _us or _ns. Times of sending are "
        "`send_time_…`, `send_…`, `arrival_time_…` or `arrival_…`; latencies are `ttft_…` and "
        "`e2e_…`, or `first_token_…` and `last_token_…` on the clock of the times of sending. "
        "Failures are in `status`, `error`, `failed` or `outcome`. The requests.csv of a simulated "
        "run is of this format."
    ),
)
