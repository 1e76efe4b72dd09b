"""Per-request records of AIPerf, profile_export.jsonl, and the summary beside."""

from __future__ import annotations

import collections
import itertools
import math
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.config.messages import note
from spillway.data.recording import RequestCounts
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.contradictions import Contradictions
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Request, parsed_requests, rows_of
from spillway.files.recordings.server import facts
from spillway.files.recordings.source import Source, parsed
from spillway.files.recordings.units import PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from spillway.files.recordings.rows import Rows, Settings


_LINE = re.compile(r"([^\n]*)(?:\n|\Z)")

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

# Figure of `reconciliation.FIGURES` → metric and statistic of the summary.
_TIMES = {
    "mean_ttft_s": ("time_to_first_token", "avg"),
    "median_ttft_s": ("time_to_first_token", "p50"),
    "mean_tpot_s": ("inter_token_latency", "avg"),
    "mean_gap_s": ("inter_chunk_latency", "avg"),
    "mean_e2e_s": ("request_latency", "avg"),
    "median_e2e_s": ("request_latency", "p50"),
    "duration_s": ("benchmark_duration", "avg"),
}
_NUMBERS = {
    "completed": "request_count",
    "failed": "error_request_count",
    "requests_per_s": "request_throughput",
}


@dataclass
class _Found:
    """What the records say apart from their requests."""

    warm_up: int = 0
    unnamed: int = 0  # requests without a phase
    counters: dict[str, set[str]] = field(default_factory=lambda: collections.defaultdict(set))
    """Length as AIPerf counts it → the metrics with which the requests count it."""
    conversations: dict[str, set[str]] = field(default_factory=lambda: collections.defaultdict(set))
    """Conversation of the data set → its users."""
    has_turns: bool = False
    contradictions: Contradictions = field(default_factory=Contradictions)


def _read(source: Source, settings: Settings) -> list[Rows]:
    """Only the phase `profiling` counts; the turns of a conversation are a session.

    Lengths are those that the server reports, else those of AIPerf's tokenizer. The gaps are those
    between streamed chunks. The client's limit, the model and the tool's own figures are in the
    summary beside, `profile_export_aiperf.json` of a `profile_export.jsonl`.
    """
    found = _Found()
    requests, skipped = parsed_requests(source.lines(), partial(_request, source, found), settings)
    found.contradictions.tell(source.path, len(requests))
    if found.unnamed:
        note(
            f"{source.path}: {found.unnamed:,} records do not state their benchmark_phase; if they "
            "are of a warm-up, they count all the same"
        )
    named = (
        _named(request, found) if found.has_turns else request._replace(session="")
        for request in requests
    )
    others: dict[str, Any] = {"counts": RequestCounts(warm_up=found.warm_up, skipped=skipped)}
    summary = _summary(source.path)
    if summary is None:
        note(
            f"{source.path}: without its summary {_beside(source.path).name} beside, the client's "
            "limit on requests in flight is not known, nor are the tool's own figures"
        )
    else:
        others |= {
            "beside": [summary.source],
            "client_max_in_flight": limit(summary),
            "reported": dict(_reported(summary, found)),
            "server": facts(str(summary.source.path), {"model": model(summary)}),
        }
    return [rows_of(source, named, _FIELDS, is_stated=True, **others)]


def _request(source: Source, found: _Found, line: tuple[int, str]) -> Request | None:
    """Return the request of a line; None of the warm-up."""
    place = f"line {line[0]}"
    values = parsed(line[1])
    if values is None:
        raise TraceError(f"{source.path} {place}: not valid JSON")
    if not isinstance(values, dict):
        raise TraceError(f"{source.path} {place}: must be a JSON object")
    record = Object(source, place, values)
    metadata, metrics = record.object("metadata"), record.object("metrics")
    phase = metadata.text("benchmark_phase")
    if phase not in (None, "profiling"):
        found.warm_up += 1
        return None
    found.unnamed += phase is None
    failed = bool(record.values.get("error")) or bool(metadata.values.get("was_cancelled"))
    is_whole = metrics.object("request_latency").values.get("value") is not None
    found.contradictions.check(
        not (is_whole and metadata.values.get("was_cancelled")),
        place,
        "was_cancelled, and has a request_latency",
    )
    start_ns, end_ns = metadata.whole("request_start_ns"), metadata.whole("request_end_ns")
    if start_ns is None:
        metadata.refuse_missing("request_start_ns")
    latency_ms = _time_ms(metrics, "request_latency")
    if latency_ms is None and end_ns is not None:
        latency_ms = (end_ns - start_ns) / 1e6
    _check_times(found.contradictions, place, metadata, latency_ms)
    lengths = {}
    for name, counted in _LENGTHS.items():
        key = name if metrics.object(counted).whole("value") is None else counted
        lengths[name] = metrics.object(key).whole("value")
        if lengths[name] is None and not failed:
            metrics.refuse_missing(name)
        if not failed:
            found.counters[name].add(key)
    prompt = lengths["input_sequence_length"]
    return Request(
        place,
        start_ns,
        _time_ms(metrics, "time_to_first_token"),
        latency_ms,
        metrics.object("error_isl").whole("value") if failed and not prompt else prompt,
        lengths["output_sequence_length"],
        failed,
        _gaps_ms(metrics),
        metrics.object("usage_prompt_cache_read_tokens").whole("value"),
        _session(metadata, found),
    )


_IN_ORDER = ("credit_issued_ns", "request_start_ns", "request_ack_ns", "request_end_ns")


def _check_times(
    found: Contradictions, place: str, metadata: Object, latency_ms: float | None
) -> None:
    """Check the order of the times of a request, and that its latency is between them."""
    known = [(name, at) for name in _IN_ORDER if (at := metadata.whole(name)) is not None]
    for (early, begin_ns), (late, end_ns) in itertools.pairwise(known):
        found.check(begin_ns <= end_ns, place, f"{early} is after {late}")
    times = dict(known)
    if latency_ms is not None and "request_end_ns" in times:
        span_ms = (times["request_end_ns"] - times["request_start_ns"]) / 1e6
        holds = span_ms <= 0 or latency_ms <= 1.05 * span_ms + 5
        found.check(holds, place, "request_latency exceeds the time from start to end")


def _session(metadata: Object, found: _Found) -> str:
    """Return conversation and user of a request, which `_named` makes one name."""
    conversation = metadata.text("conversation_id") or ""
    user = metadata.text("x_correlation_id") or ""
    found.has_turns |= bool(metadata.whole("turn_index"))
    found.conversations[conversation].add(user)
    return f"{conversation}\n{user}" if conversation or user else ""


def _named(request: Request, found: _Found) -> Request:
    """Return the request with its session: a conversation, or that of a user if several share it.

    Versions before 0.13 do not name the conversation.
    """
    conversation, _, user = request.session.partition("\n")
    is_alone = bool(conversation) and len(found.conversations[conversation]) == 1
    parts = (conversation,) if is_alone else (conversation, user)
    return request._replace(session="/".join(part for part in parts if part))


def _time_ms(metrics: Object, name: str) -> float | None:
    """Return a metric with a time in milliseconds, whatever its unit."""
    metric = metrics.object(name)
    value = metric.number("value")
    return None if value is None else value * per_ms(metric)


def _gaps_ms(metrics: Object) -> list[float]:
    metric = metrics.object("inter_chunk_latency")
    scale = per_ms(metric) if metric.values.get("value") is not None else 1.0
    return [gap * scale for gap in metric.numbers("value")]


def per_ms(metric: Object) -> float:
    """Return the milliseconds of the unit that a metric states."""
    unit = metric.text("unit") or ""
    if unit not in _UNITS:
        metric.source.refuse(metric.at("unit"), unit, f"must be one of {', '.join(_UNITS)}")
    return 1_000 / PER_SECOND[_UNITS[unit]]


def requests_of(path: Path) -> Path:
    """Return where the records of a summary are: `profile_export.jsonl`."""
    return path.with_name(f"{path.name.removesuffix('_aiperf.json')}.jsonl")


def _beside(path: Path) -> Path:
    """Return the path of the summary of a run."""
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    return path.with_name(f"{name.removesuffix('.jsonl')}_aiperf.json")


def _summary(path: Path) -> Object | None:
    """Return the tool's summary of the run in the file beside; None if there is none."""
    beside = _beside(path)
    if not beside.is_file():
        return None
    source = Source(beside)
    if not isinstance(source.json, dict):
        note(f"{beside}: not read, as it is no JSON object")
        return None
    return Object(source, "", source.json)


def limit(summary: Object) -> int | None:
    """Return the most requests in flight: `--concurrency`; None for a rate without a limit."""
    limits = {load.whole("concurrency") for load in _loads(summary)} - {None}
    if len(limits) > 1:
        shown = ", ".join(map(str, sorted(filter(None, limits))))
        note(
            f"{summary.source.path}: the phases have {shown} requests in flight; the limit of the "
            "run is taken as the largest"
        )
    return max(filter(None, limits), default=None)


def rate(summary: Object) -> float | None:
    """Return the rate at which requests are sent; None if there is none."""
    rates = [
        value
        for load in _loads(summary)
        for name in ("rate", "request_rate")
        if (value := load.number(name)) is not None and 0 < value < math.inf
    ]
    return rates[0] if len(set(rates)) == 1 else None


def _loads(summary: Object) -> list[Object]:
    """Return what describes the load that counts: phases, or `loadgen` in versions before 0.13."""
    config = summary.object("input_config")
    phases = [
        phase
        for phase in config.objects("phases")
        if (phase.text("kind") or phase.text("name")) == "profiling"
    ]
    return [*phases, config.object("loadgen")]


def model(summary: Object) -> str | None:
    """Return the only model that the client asked for."""
    config = summary.object("input_config")
    names = {
        *(item.text("name") for item in config.object("models").objects("items")),
        *config.object("endpoint").items("model_names"),
    }
    found = [name for name in names if isinstance(name, str) and name]
    return found[0] if len(found) == 1 else None


def _reported(summary: Object, found: _Found) -> Iterable[tuple[str, float]]:
    """Yield the tool's own figures, as far as they are counted as the requests are."""
    for key, (name, statistic) in _TIMES.items():
        metric = summary.object(name)
        value = metric.number(statistic)
        if value is not None and not (key == "mean_tpot_s" and not _counts_alike(summary, found)):
            yield key, value * per_ms(metric) / 1e3
    for key, name in _NUMBERS.items():
        value = summary.object(name).number("avg")
        if value is not None:
            yield key, value
    if "error_request_count" not in summary.values and "request_count" in summary.values:
        yield "failed", 0.0  # the key is there only if some failed
    for name, key in (
        ("input_sequence_length", "mean_input_tokens"),
        ("output_sequence_length", "mean_output_tokens"),
    ):
        counters = found.counters[name]
        value = summary.object(*counters).number("avg") if len(counters) == 1 else None
        if value is not None:
            yield key, value


def _counts_alike(summary: Object, found: _Found) -> bool:
    """Whether AIPerf, whose ITL takes its own count of tokens, counts them as the requests do."""
    if found.counters["output_sequence_length"] == {"output_sequence_length"}:
        return True
    own, server = (
        summary.object(name).number("sum")
        for name in ("output_sequence_length", "usage_completion_tokens")
    )
    return own is not None and own == server


FORMAT = Format(
    name="aiperf",
    doc="profile_export.jsonl of AIPerf (`--export-level records`)",
    gives=("recordings",),
    detect=lambda source: (
        source.first_line.startswith("{")
        and '"request_start_ns"' in source.first_line
        and '"metrics"' in source.first_line
    ),
    read=_read,
)
