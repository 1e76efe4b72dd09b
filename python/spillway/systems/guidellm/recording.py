"""Reports of GuideLLM, benchmarks.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Request, rows_of
from spillway.files.recordings.server import facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source


# Status → whether the request failed. Incomplete ones are cut off by the end of the run.
_STATUSES = {"successful": False, "errored": True, "incomplete": True}

_FIELDS = {
    "send": ("request_start_time", "s"),
    "ttft": ("time_to_first_token_ms", "ms"),
    "e2e": ("request_latency", "s"),
}


def _detect(source: Source) -> bool:
    benchmarks = source.json.get("benchmarks") if isinstance(source.json, dict) else None
    return (
        isinstance(benchmarks, list)
        and bool(benchmarks)
        and all(
            isinstance(benchmark, dict) and isinstance(benchmark.get("requests"), dict)
            for benchmark in benchmarks
        )
    )


def _read(source: Source, _settings: Settings) -> list[Rows]:
    """Incomplete requests, cut off by the end of a run, count as failed."""
    report = Object(source, "", source.json)
    benchmarks = report.objects("benchmarks")
    # Since version 2 of the report the arguments are in `config`.
    backend = report.object("config").object("spec").object("backend")
    model = _model(report.object("args")) or _model(backend)
    server = facts(str(source.path), {"model": model})
    # A report of one benchmark has the name of its file.
    names = [f"{source.path.stem}[{at}]" if benchmarks[1:] else "" for at in range(len(benchmarks))]
    return [
        rows_of(source, _requests(benchmark.object("requests")), _FIELDS, name=name, server=server)
        for name, benchmark in zip(names, benchmarks, strict=True)
    ]


def _requests(requests: Object) -> Iterator[Request]:
    for status, failed in _STATUSES.items():
        for request in requests.objects(status):
            begin_s = request.number("request_start_time")
            if begin_s is None and failed:
                continue  # never sent
            if begin_s is None:
                request.refuse_missing("request_start_time")
            end_s = request.number("request_end_time")
            latency_s = request.number("request_latency")
            if latency_s is None and end_s is not None:
                latency_s = end_s - begin_s
            ttft_ms = request.number("time_to_first_token_ms")
            prompt, output = request.whole("prompt_tokens"), request.whole("output_tokens")
            if None in (prompt, output) and not failed:
                request.refuse_missing("prompt_tokens" if prompt is None else "output_tokens")
            yield Request(request.place, begin_s, ttft_ms, latency_s, prompt, output, failed)


def _model(arguments: Object) -> str | None:
    """Return the model; None if it is the server's default, or described otherwise."""
    found = arguments.values.get("model")
    return found if isinstance(found, str) and found else None


FORMAT = Format(
    name="guidellm",
    doc="benchmarks.json of GuideLLM (0.3 or later), a run per benchmark with its "
    "requests by status",
    gives=("recordings",),
    detect=_detect,
    read=_read,
)
