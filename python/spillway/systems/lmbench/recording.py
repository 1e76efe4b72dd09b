"""Per-request records of LMBench: a CSV file per rate."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.recordings.contradictions import Contradictions
from spillway.files.recordings.csv_columns import CsvColumns, request_rows
from spillway.files.traces.csv_table import csv_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source


_NAMES = {
    "send_s": "launch_time",
    "input_tokens": "prompt_tokens",
    "output_tokens": "generation_tokens",
    "ttft_s": "ttft",
    "last_token_s": "finish_time",
}
_OTHERS = ("generation_time", "user_id", "question_id")
_TIMES = ("launch_time", "ttft", "finish_time")


def _read(source: Source, settings: Settings) -> list[Rows]:
    """Times are seconds. A `user_id` is a session, whose questions follow each other.

    The most users at once is the limit of the client, as each of them waits for its answer before
    its next question. Without `user_id` requests are sent at a rate, without a limit.
    """
    columns = CsvColumns(_NAMES, dict.fromkeys(_TIMES, "s"), {})
    # The column of users is as long as the file, so that no row can be left out.
    rows = request_rows(source, columns, dataclasses.replace(settings, skip_bad=False), _OTHERS)
    users: list[str] = []
    generation_s: list[str] = []
    with contextlib.closing(csv_tables(source.path)) as tables:
        for table in tables:
            users += table.texts("user_id")
            generation_s += table.texts("generation_time")
    _check(rows, generation_s)
    if "user_id" not in source.columns["csv"]:
        return [rows]
    return [dataclasses.replace(rows, session=users, client_max_in_flight=_most(rows, users))]


def _check(rows: Rows, generation_s: Sequence[str]) -> None:
    """Warn if TTFT and generation do not add up to the time from launch to finish."""
    assert rows.ttft is not None
    assert rows.e2e is not None
    found = Contradictions()
    for place, ttft, text, e2e in zip(
        rows.places, rows.ttft.values, generation_s, rows.e2e.values, strict=True
    ):
        with contextlib.suppress(ValueError):
            sum_s = ttft + float(text)  # NaN compares as false
            differs = abs(sum_s - e2e) > _AGREEMENT * e2e + _CLOCK_S
            wrong = "ttft and generation_time do not add up to finish_time - launch_time"
            found.check(not differs, place, wrong)
    found.tell(rows.source.path, len(rows.places))


_AGREEMENT, _CLOCK_S = 0.05, 0.05


def _most(rows: Rows, users: list[str]) -> int | None:
    """Return the most users at once; None if one has several requests in flight."""
    assert rows.e2e is not None
    spans: dict[str, list[tuple[float, float]]] = {}
    for user, send, e2e in zip(users, rows.send.values, rows.e2e.values, strict=True):
        if math.isnan(send) or math.isnan(e2e):
            return None
        spans.setdefault(user, []).append((send, send + e2e))
    events: list[tuple[float, int]] = []
    for requests in spans.values():
        requests.sort()
        if any(end > begin for (_, end), (begin, _) in itertools.pairwise(requests)):
            return None
        events += [(requests[0][0], 1), (requests[-1][1], -1)]
    present = most = 0
    for _, change in sorted(events):
        present += change
        most = max(most, present)
    return most


FORMAT = Format(
    name="lmbench",
    doc="CSV of LMBench: prompt_tokens, generation_tokens, ttft, generation_time, launch_time, "
    "finish_time, optionally user_id and question_id",
    gives=("recordings",),
    layout="csv",
    required=(
        "prompt_tokens",
        "generation_tokens",
        "ttft",
        "generation_time",
        "launch_time",
        "finish_time",
    ),
    read=_read,
)
