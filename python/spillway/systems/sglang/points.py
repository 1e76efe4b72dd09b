"""Means of `sglang.bench_serving --output-file`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spillway.config.messages import note
from spillway.files.format import Format
from spillway.files.recordings.points import Point, points_of
from spillway.systems.sglang.lines import is_result, lines_of, lists_runs

if TYPE_CHECKING:
    from spillway.data.recording import LatencyPoints
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source
    from spillway.systems.sglang.lines import Line


_GROUP = (
    "backend",
    "dataset_name",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
    "sharegpt_output_len",
)


def _read(source: Source, settings: Settings) -> list[LatencyPoints]:
    """Lines with the same server and kind of requests are the points of one group.

    The concurrency is `max_concurrency` where all requests are ready at once, else the mean number
    of requests in flight: that of a rate, or of all at once without a limit.
    """
    return points_of(source, list(map(_point, lines_of(source))), settings)


def _point(line: Line) -> Point:
    completed = _number(line, "completed")
    itl = "mean_tpot_ms" if line.values.number("mean_tpot_ms") else "mean_itl_ms"
    return Point(
        line.values.place,
        _number(line, "total_input_tokens") / completed,
        _number(line, "total_output_tokens") / completed,
        _concurrency(line, completed),
        None,
        _number(line, "mean_ttft_ms") / 1e3,
        _number(line, itl) / 1e3,
        line.server,
        {name: str(line.values.values.get(name)) for name in _GROUP},
    )


def _concurrency(line: Line, completed: float) -> int:
    limit = line.max_concurrency
    if limit is not None and line.rate == math.inf:
        return min(limit, int(completed))
    mean = line.values.number("concurrency")
    if mean is None:
        busy_s = completed * _number(line, "mean_e2e_latency_ms") / 1e3
        mean = busy_s / _number(line, "duration")
    rate = line.values.values.get("request_rate")
    note(
        f"{line.place}: a request_rate of {rate!r:.40} keeps no number of requests in flight; the "
        f"point is at their mean, {mean:.4g}"
    )
    return max(1, round(mean))


def _number(line: Line, name: str) -> float:
    found = line.values.number(name)
    if found is None:
        line.values.source.refuse_missing(line.values.at(name), "points are of means")
    if not 0 < found < math.inf:
        line.values.source.refuse(line.values.at(name), found, "must be a number > 0")
    return found


FORMAT = Format(
    name="sglang_points",
    doc="JSON lines of `sglang.bench_serving --output-file` that state no times of sending, "
    "because they lack `--output-details` or have a request rate: a point per line",
    gives=("points",),
    layout="jsonl",
    detect=lambda source: is_result(source) and not lists_runs(source),
    read=_read,
)
