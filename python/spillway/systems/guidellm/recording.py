"""Reports of GuideLLM, benchmarks.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.recordings.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Rows, Time, recording
from spillway.files.recordings.server import facts
from spillway.files.recordings.source import digest
from spillway.files.traces.error import TraceError

if TYPE_CHECKING:
    from spillway.data.recording import Recording
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


# Status → whether the request failed. Incomplete ones are cut off by the end of the run.
_STATUSES = {"successful": False, "errored": True, "incomplete": True}


def _detect(source: Source) -> bool:
    if "benchmarks" not in source.keys:
        return False
    benchmarks = source.json["benchmarks"]
    return (
        isinstance(benchmarks, list)
        and bool(benchmarks)
        and all(
            isinstance(benchmark, dict) and isinstance(benchmark.get("requests"), dict)
            for benchmark in benchmarks
        )
    )


def _read(source: Source, settings: Settings) -> list[Recording]:
    if not _detect(source):
        allowed = "must hold benchmarks, each with its requests by status"
        raise TraceError(f"{source.path}: not of the format guidellm: {allowed} ({FORMAT.doc})")
    report = Object(source, "", source.json)
    found = report.objects("benchmarks")
    # A report of one benchmark has the name of its file.
    names = [source.path.stem + (f"[{at}]" if len(found) > 1 else "") for at in range(len(found))]
    return [
        recording(
            source.path, _rows(report, benchmark, name), settings, FORMAT.name, digest(source)
        )
        for name, benchmark in zip(names, found, strict=True)
    ]


def _rows(report: Object, benchmark: Object, name: str) -> Rows:
    source = benchmark.source
    requests = benchmark.object("requests")
    send: list[float | None] = []
    ttft_ms: list[float | None] = []
    e2e_s: list[float | None] = []
    prompt: list[int] = []
    output: list[int] = []
    failed: list[bool] = []
    places: list[str] = []
    for status, is_failed in _STATUSES.items():
        for request in requests.objects(status):
            begin_s = request.number("request_start_time")
            if begin_s is None and is_failed:
                continue  # never sent
            if begin_s is None:
                source.refuse_missing(request.at("request_start_time"))
            end_s = request.number("request_end_time")
            latency_s = request.number("request_latency")
            if latency_s is None and end_s is not None:
                latency_s = end_s - begin_s
            lengths = [request.whole("prompt_tokens"), request.whole("output_tokens")]
            for key, value in zip(("prompt_tokens", "output_tokens"), lengths, strict=True):
                if value is None and not is_failed:
                    source.refuse_missing(request.at(key))
            send.append(begin_s)
            ttft_ms.append(request.number("time_to_first_token_ms"))
            e2e_s.append(latency_s)
            prompt.append(lengths[0] or 0)
            output.append(lengths[1] or 0)
            failed.append(is_failed)
            places.append(request.place)
    # Since version 2 of the report the arguments are in `config`.
    arguments = report.object("args")
    backend = report.object("config").object("spec").object("backend")
    return Rows(
        name=name,
        send=Time("request_start_time", "s", send),
        input_tokens=prompt,
        output_tokens=output,
        ttft=Time("time_to_first_token_ms", "ms", ttft_ms),
        e2e=Time("request_latency", "s", e2e_s),
        failed=failed,
        places=places,
        server=facts(str(source.path), {"model": _model(arguments) or _model(backend)}),
    )


def _model(arguments: Object) -> str | None:
    """Return the model; None if it is the server's default, or described otherwise."""
    found = arguments.values.get("model")
    return found if isinstance(found, str) and found else None


FORMAT = Format(
    name="guidellm",
    doc="benchmarks.json of GuideLLM (0.3 or later), a run per benchmark",
    kind="recordings",
    detect=_detect,
    read=_read,
    notes="Incomplete requests, cut off by the end of a run, count as failed.",
)
