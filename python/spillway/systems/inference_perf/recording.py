"""Per-request reports of inference-perf."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Request, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source


# Length as inference-perf's tokenizer counts it → as the server does. The tokens of an output, put
# together as text, may be fewer.
_LENGTHS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}

_FIELDS = {
    "send": ("start_time", "s"),
    "ttft": ("output_token_times", "s"),
    "e2e": ("end_time", "s"),
    "gaps": ("output_token_times", "s"),
}


def _detect(source: Source) -> bool:
    found = source.json
    return (
        isinstance(found, list)
        and bool(found)
        and isinstance(found[0], dict)
        and {"start_time", "end_time", "info", "error"} <= set(found[0])
    )


def _read(source: Source, _settings: Settings) -> list[Rows]:
    """TTFT and gaps are those of the streamed chunks, E2E that of the end of the response.

    Lengths are those that the server reports, else those of inference-perf's tokenizer.
    """
    return [rows_of(source, _requests(source), _FIELDS)]


def _requests(source: Source) -> Iterator[Request]:
    for request in Object(source, "", {"requests": source.json}).objects("requests"):
        info = request.object("info")
        response = info.object("response_metrics")
        failed = bool(request.values.get("error"))
        times_s = info.numbers("output_token_times") or response.numbers("output_token_times")
        usage = response.object("server_usage")
        lengths = {}
        for key, counted in _LENGTHS.items():
            known = (usage.whole(counted), info.whole(key), response.whole(key))
            lengths[key] = next((length for length in known if length is not None), None)
            if lengths[key] is None and not failed:
                info.refuse_missing(key)
        begin_s, end_s = request.number("start_time"), request.number("end_time")
        if begin_s is None:
            request.refuse_missing("start_time")
        yield Request(
            request.place,
            begin_s,
            times_s[0] - begin_s if times_s else None,
            None if end_s is None else end_s - begin_s,
            lengths["input_tokens"],
            lengths["output_tokens"],
            failed,
            [late - early for early, late in itertools.pairwise(times_s)],
        )


FORMAT = Format(
    name="inference_perf",
    doc="per_request_lifecycle_metrics.json of inference-perf",
    gives=("recordings",),
    detect=_detect,
    read=_read,
)
