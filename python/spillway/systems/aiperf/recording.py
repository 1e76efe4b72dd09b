"""Per-request records of AIPerf, profile_export.jsonl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.data.recording import ServerFacts
from spillway.files.recordings.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Rows, Time, recording
from spillway.files.recordings.source import digest, parsed
from spillway.files.recordings.units import PER_SECOND
from spillway.files.traces.error import TraceError

if TYPE_CHECKING:
    from spillway.data.recording import Recording
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


_UNITS = {"sec": "s", "seconds": "s"} | {unit: unit for unit in PER_SECOND}

# Length as AIPerf counts it → as the server does, which includes its chat template.
_LENGTHS = {
    "input_sequence_length": "usage_prompt_tokens",
    "output_sequence_length": "usage_completion_tokens",
}


def _detect(source: Source) -> bool:
    metadata = source.first_object.get("metadata")
    return isinstance(metadata, dict) and "request_start_ns" in metadata


def _read(source: Source, settings: Settings) -> list[Recording]:
    send: list[float | None] = []
    ttft_ms: list[float | None] = []
    e2e_ms: list[float | None] = []
    gaps_ms: list[list[float]] = []
    prompt: list[int] = []
    output: list[int] = []
    failed: list[bool] = []
    places: list[str] = []
    for record in _records(source):
        metadata, metrics = record.object("metadata"), record.object("metrics")
        if (metadata.text("benchmark_phase") or "profiling") != "profiling":
            continue
        is_failed = bool(record.values.get("error")) or bool(metadata.values.get("was_cancelled"))
        start_ns, end_ns = metadata.whole("request_start_ns"), metadata.whole("request_end_ns")
        if start_ns is None:
            source.refuse_missing(metadata.at("request_start_ns"))
        latency_ms = _time_ms(metrics, "request_latency")
        if latency_ms is None and end_ns is not None:
            latency_ms = (end_ns - start_ns) / 1e6
        lengths = {}
        for name, counted in _LENGTHS.items():
            found = metrics.object(counted).whole("value")
            if found is None:
                found = metrics.object(name).whole("value")
            if found is None and not is_failed:
                source.refuse_missing(metrics.at(name))
            lengths[name] = found or 0
        if is_failed and lengths["input_sequence_length"] == 0:
            lengths["input_sequence_length"] = metrics.object("error_isl").whole("value") or 0
        send.append(start_ns)
        ttft_ms.append(_time_ms(metrics, "time_to_first_token"))
        e2e_ms.append(latency_ms)
        gaps_ms.append(_gaps_ms(metrics))
        prompt.append(lengths["input_sequence_length"])
        output.append(lengths["output_sequence_length"])
        failed.append(is_failed)
        places.append(record.place)
    has_gaps = any(gaps_ms)
    rows = Rows(
        name=source.path.stem,
        send=Time("request_start_ns", "ns", send),
        input_tokens=prompt,
        output_tokens=output,
        ttft=Time("time_to_first_token", "ms", ttft_ms),
        e2e=Time("request_latency", "ms", e2e_ms),
        failed=failed,
        places=places,
        server=ServerFacts(),
        token_gaps=gaps_ms if has_gaps else None,
        gap_field="inter_chunk_latency",
        gap_unit="ms",
    )
    return [recording(source.path, rows, settings, FORMAT.name, digest(source))]


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
    kind="recordings",
    detect=_detect,
    read=_read,
    notes=(
        "Only the phase `profiling` counts. Lengths are those that the server reports, else those "
        "of AIPerf's tokenizer. The gaps are those between streamed chunks."
    ),
)
