"""Means of an AIPerf run: its summary, profile_export_aiperf.json."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spillway.config.messages import note
from spillway.files.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.points import Point, points_of
from spillway.files.recordings.server import facts
from spillway.systems.aiperf import recording

if TYPE_CHECKING:
    from spillway.data.recording import LatencyPoints
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


def _detect(source: Source) -> bool:
    summary = source.outline
    return (
        isinstance(summary, dict)
        and "input_config" in summary
        and isinstance(summary.get("request_latency"), dict)
        and "avg" in summary["request_latency"]
    )


def _read(source: Source, settings: Settings) -> list[LatencyPoints]:
    """The run is a point, at `--concurrency` or else at `--request-rate`.

    Lengths are means, those that the server reports if it does. For requests read the records
    beside, `profile_export.jsonl`.
    """
    summary = Object(source, "", source.whole())
    if failures := summary.object("error_request_count").number("avg"):
        note(f"{source.path}: {failures:g} failed requests are in none of the means")
    point = Point(
        source.path.name,
        _tokens(summary, "usage_prompt_tokens", "input_sequence_length"),
        _tokens(summary, "usage_completion_tokens", "output_sequence_length"),
        recording.limit(summary),
        recording.rate(summary),
        _mean_s(summary, "time_to_first_token"),
        _mean_s(summary, "inter_token_latency"),
        facts(str(source.path), {"model": recording.model(summary)}),
    )
    return points_of(source, [point], settings)


def _tokens(summary: Object, *names: str) -> float:
    for name in names:
        mean = summary.object(name).number("avg")
        if mean is not None and 0 < mean < math.inf:
            return mean
    return summary.source.refuse(f"{names[-1]}.avg", mean, "must be a number > 0")


def _mean_s(summary: Object, name: str) -> float | None:
    metric = summary.object(name)
    mean = metric.number("avg")
    if mean is None:
        return None
    if not 0 <= mean < math.inf:
        summary.source.refuse(f"{name}.avg", mean, "must be a number >= 0")
    return mean * recording.per_ms(metric) / 1e3


FORMAT = Format(
    name="aiperf_points",
    doc="profile_export_aiperf.json of AIPerf: the means of a run",
    gives=("points",),
    detect=_detect,
    read=_read,
    requests_of=recording.requests_of,
)
