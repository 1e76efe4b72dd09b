"""Per-request records of AIPerf, profile_export.jsonl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Request, rows_of
from spillway.files.recordings.source import parsed
from spillway.files.recordings.units import PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source


_UNITS = {"sec": "s", "seconds": "s"} | {unit: unit for unit in PER_SECOND}

_FIELDS = {
    "send": ("request_start_ns", "ns"),
    "ttft": ("time_to_first_token", "ms"),
    "e2e": ("request_latency", "ms"),
    "gaps": ("inter_chunk_latency", "ms"),
}

# Length as AIPerf counts it → as the server does, which includes its chat template.
_LENGTHS = {
    "input_sequence_length": "usage_prompt_tokens",
    "output_sequence_length": "usage_completion_tokens",
}


def _read(source: Source, _settings: Settings) -> list[Rows]:
    """Only the phase `profiling` counts.

    Lengths are those that the server reports, else those of AIPerf's tokenizer. The gaps are those
    between streamed chunks.
    """
    return [rows_of(source, _requests(source), _FIELDS)]


def _requests(source: Source) -> Iterator[Request]:
    for record in _records(source):
        metadata, metrics = record.object("metadata"), record.object("metrics")
        if (metadata.text("benchmark_phase") or "profiling") != "profiling":
            continue
        failed = bool(record.values.get("error")) or bool(metadata.values.get("was_cancelled"))
        start_ns, end_ns = metadata.whole("request_start_ns"), metadata.whole("request_end_ns")
        if start_ns is None:
            metadata.refuse_missing("request_start_ns")
        latency_ms = _time_ms(metrics, "request_latency")
        if latency_ms is None and end_ns is not None:
            latency_ms = (end_ns - start_ns) / 1e6
        lengths = {}
        for name, counted in _LENGTHS.items():
            lengths[name] = metrics.object(counted).whole("value")
            if lengths[name] is None:
                lengths[name] = metrics.object(name).whole("value")
            if lengths[name] is None and not failed:
                metrics.refuse_missing(name)
        prompt = lengths["input_sequence_length"]
        yield Request(
            record.place,
            start_ns,
            _time_ms(metrics, "time_to_first_token"),
            latency_ms,
            metrics.object("error_isl").whole("value") if failed and not prompt else prompt,
            lengths["output_sequence_length"],
            failed,
            _gaps_ms(metrics),
        )


def _records(source: Source) -> list[Object]:
    records = []
    for number, line in enumerate(source.text.splitlines(), start=1):
        if not line.strip():
            continue
        found = parsed(line)
        if found is None:
            raise TraceError(f"{source.path} line {number}: not valid JSON")
        if not isinstance(found, dict):
            raise TraceError(f"{source.path} line {number}: must be a JSON object")
        records.append(Object(source, f"line {number}", found))
    return records


def _time_ms(metrics: Object, name: str) -> float | None:
    """Return a metric with a time in milliseconds, whatever its unit."""
    metric = metrics.object(name)
    value = metric.number("value")
    return None if value is None else value * _ms(metric)


def _gaps_ms(metrics: Object) -> list[float]:
    metric = metrics.object("inter_chunk_latency")
    scale = _ms(metric) if metric.values.get("value") is not None else 1.0
    return [gap * scale for gap in metric.numbers("value")]


def _ms(metric: Object) -> float:
    unit = metric.text("unit") or ""
    if unit not in _UNITS:
        metric.source.refuse(metric.at("unit"), unit, f"must be one of {', '.join(_UNITS)}")
    return 1_000 / PER_SECOND[_UNITS[unit]]


FORMAT = Format(
    name="aiperf",
    doc="profile_export.jsonl of AIPerf (`--export-level records`)",
    gives=("recordings",),
    detect=lambda source: (
        source.first_line.startswith("{") and '"request_start_ns"' in source.first_line
    ),
    read=_read,
)
