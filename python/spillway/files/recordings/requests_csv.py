"""CSV files with a row per request and known names of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.recordings import folder
from spillway.files.recordings.csv_columns import recognized, request_rows

if TYPE_CHECKING:
    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source


def _read(source: Source, settings: Settings) -> list[Rows]:
    """A column of times ends in its unit: _s, _ms, _us or _ns.

    Times of sending are `send_time_…`, `send_…`, `arrival_time_…` or `arrival_…`; latencies are
    `ttft_…` and `e2e_…`, or `first_token_…` and `last_token_…` on the clock of the times of
    sending. Which requests failed is in columns such as `success`, `failed`, `error`, `status`,
    `outcome`, `http_status` or `finish_reason`, by what they hold: true or false, codes of HTTP,
    states and errors. The requests.csv of a simulated run is of this format. Of a file that
    runs.json beside describes, the run is the one described there.
    """
    described = folder.run_of(source, settings)
    if described is not None:
        return [described]
    columns = recognized(source.columns["csv"])
    assert columns is not None
    return [request_rows(source, columns, settings)]


FORMAT = Format(
    name="csv",
    doc="CSV: send_time_us, input_tokens, output_tokens, ttft_us, e2e_us, optionally status, "
    "tenant_id",
    gives=("recordings",),
    detect=lambda source: recognized(source.columns["csv"]) is not None,
    read=_read,
)
