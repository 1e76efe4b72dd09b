"""Per-request reports of inference-perf."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from spillway.data.recording import ServerFacts
from spillway.files.recordings.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Rows, Time, recording
from spillway.files.recordings.source import digest
from spillway.files.traces.error import TraceError

if TYPE_CHECKING:
    from spillway.data.recording import Recording
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


# Length as inference-perf's tokenizer counts it → as the server does. The tokens of an output, put
# together as text, may be fewer.
_LENGTHS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}


def _detect(source: Source) -> bool:
    found = source.json
    return (
        isinstance(found, list)
        and bool(found)
        and isinstance(found[0], dict)
        and {"start_time", "end_time", "info", "error"} <= set(found[0])
    )


def _read(source: Source, settings: Settings) -> list[Recording]:
    if not _detect(source):
        raise TraceError(f"{source.path}: not of the format inference_perf ({FORMAT.doc})")
    send: list[float | None] = []
    first: list[float | None] = []
    end: list[float | None] = []
    gaps_s: list[list[float]] = []
    prompt: list[int] = []
    output: list[int] = []
    failed: list[bool] = []
    places: list[str] = []
    for request in Object(source, "", {"requests": source.json}).objects("requests"):
        info = request.object("info")
        response = info.object("response_metrics")
        is_failed = bool(request.values.get("error"))
        times_s = info.numbers("output_token_times") or response.numbers("output_token_times")
        usage = response.object("server_usage")
        lengths = {}
        for key, counted in _LENGTHS.items():
            known = (usage.whole(counted), info.whole(key), response.whole(key))
            lengths[key] = next((length for length in known if length is not None), None)
            if lengths[key] is None and not is_failed:
                source.refuse_missing(info.at(key))
        if request.number("start_time") is None:
            source.refuse_missing(request.at("start_time"))
        send.append(request.number("start_time"))
        first.append(times_s[0] if times_s else None)
        end.append(request.number("end_time"))
        gaps_s.append([late - early for early, late in itertools.pairwise(times_s)])
        prompt.append(lengths["input_tokens"] or 0)
        output.append(lengths["output_tokens"] or 0)
        failed.append(is_failed)
        places.append(request.place)
    sending = Time("start_time", "s", send)
    rows = Rows(
        name=source.path.stem,
        send=sending,
        input_tokens=prompt,
        output_tokens=output,
        ttft=Time("output_token_times", "s", first).minus(sending),
        e2e=Time("end_time", "s", end).minus(sending),
        failed=failed,
        places=places,
        server=ServerFacts(),
        token_gaps=gaps_s if any(gaps_s) else None,
        gap_field="output_token_times",
    )
    return [recording(source.path, rows, settings, FORMAT.name, digest(source))]


FORMAT = Format(
    name="inference_perf",
    doc="per_request_lifecycle_metrics.json of inference-perf",
    kind="recordings",
    detect=_detect,
    read=_read,
    notes=(
        "TTFT and gaps are those of the streamed chunks, E2E that of the end of the response. "
        "Lengths are those that the server reports, else those of inference-perf's tokenizer."
    ),
)
