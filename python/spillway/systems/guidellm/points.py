"""Reports of GuideLLM, benchmarks.json, that list no requests: the means of each benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.messages import note
from spillway.files.format import Format
from spillway.files.recordings.points import Point, points_of
from spillway.systems.guidellm.report import Report, gives_points

if TYPE_CHECKING:
    from spillway.data.recording import LatencyPoints
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source
    from spillway.systems.guidellm.report import Benchmark


def _read(source: Source, settings: Settings) -> list[LatencyPoints]:
    """A point per benchmark of a strategy with a number of streams; others are left out."""
    benchmarks = Report(source, source.whole()).benchmarks
    kept = [benchmark for benchmark in benchmarks if benchmark.has_point]
    if left := len(benchmarks) - len(kept):
        note(f"{source.path}: {left} benchmarks state no requests in flight, and are no points")
    return points_of(source, list(map(_point, kept)), settings)


def _point(benchmark: Benchmark) -> Point:
    def mean(name: str) -> float:
        found = benchmark.mean(name)
        if found is None or not 0 < found < float("inf"):
            place = f"{benchmark.metrics.at(name)}.successful.mean"
            benchmark.values.source.refuse(place, found, "must be a number > 0")
        return found

    assert benchmark.max_in_flight is not None
    completed = benchmark.totals.whole("successful") or benchmark.max_in_flight
    return Point(
        benchmark.values.place,
        mean("prompt_token_count"),
        mean("output_token_count"),
        min(benchmark.max_in_flight, completed),
        None,
        mean("time_to_first_token_ms") / 1e3,
        mean("inter_token_latency_ms") / 1e3,
        benchmark.server,
    )


FORMAT = Format(
    name="guidellm_points",
    doc="benchmarks.json of GuideLLM without requests, because `--sample-requests` or its like "
    "leaves them out, whose benchmarks state mean latencies at fixed concurrency",
    gives=("points",),
    detect=gives_points,
    read=_read,
)
