"""Per-request reports of inference-perf."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spillway.config.messages import note
from spillway.data.recording import RequestCounts
from spillway.files.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Request, parsed_requests, rows_of
from spillway.files.recordings.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spillway.files.recordings.rows import Rows, Settings


# Length as inference-perf's tokenizer counts it → as the server does. The tokens of an output, put
# together as text, may be fewer or more.
_LENGTHS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}

_FIELDS = {
    "send": ("start_time", "s"),
    "ttft": ("output_token_times", "s"),
    "e2e": ("end_time", "s"),
    "gaps": ("output_token_times", "s"),
}

_RESPONSES = ("response_metrics", "response_info")  # since 0.6, in 0.5; before, in `info` itself

_MOST_STAGES = 100  # whose files are looked for

# Figure of the kit → where the summary states its mean.
_MEANS = {
    "mean_ttft_s": ("latency", "time_to_first_token"),
    "mean_gap_s": ("latency", "inter_token_latency"),
    "mean_e2e_s": ("latency", "request_latency"),
    "mean_input_tokens": ("prompt_tokens",),  # since 0.7; before, of the tool's tokenizer
    "mean_output_tokens": ("output_tokens",),
}


def _detect(source: Source) -> bool:
    keys = {"start_time", "end_time", "info", "error"}
    return isinstance(source.outline, list) and keys <= set(source.first_keys)


def _read(source: Source, settings: Settings) -> list[Rows]:
    """TTFT and gaps are those of the streamed chunks, E2E that of the end of the response.

    Lengths are those that the server reports, else those of inference-perf's tokenizer. Files of
    the same report beside it, `summary_lifecycle_metrics.json` and those of its stages, state the
    tool's own figures and the number of concurrent requests.
    """
    counts = {key: _Count() for key in _LENGTHS}
    requests, skipped = parsed_requests(_listed(source), partial(_request, counts), settings)
    summary = _beside(source, "summary")
    stages = [_beside(source, f"stage_{at}") for at in range(_MOST_STAGES)]
    _note_lacking(source, summary, stages)
    beside = [found for found in (summary, *stages) if found is not None]
    counted = _counted(source, counts)
    return [
        rows_of(
            source,
            _with_sessions(requests),
            _FIELDS,
            is_stated=True,
            client_max_in_flight=_max_in_flight(source, [stage for stage in stages if stage]),
            counts=RequestCounts(skipped=skipped),
            reported=_reported(summary, counted) if summary else {},
            beside=[found.source for found in beside],
        )
    ]


def _listed(source: Source) -> Iterator[Object]:
    """Yield the requests, of which only one is in memory."""
    for place, item in source.items():
        if place:
            if not isinstance(item, dict):
                source.refuse(f"requests[{place[0]}]", item, "must be an object")
            yield Object(source, f"requests[{place[0]}]", item)


@dataclass
class _Count:
    """The tokens of the completed requests, as they are read here and as the tool counts them."""

    here: int = 0
    tool: int = 0
    is_known: bool = True


def _request(counts: Mapping[str, _Count], request: Object) -> Request:
    info = request.object("info")
    response = _response(info)
    failed = bool(request.values.get("error"))
    times_s = response.numbers("output_token_times") or response.numbers("chunk_times")
    usage = response.object("server_usage")
    counted = _of_tool(info)
    lengths = {}
    for key, name in _LENGTHS.items():
        of_server = usage.whole(name)
        lengths[key] = counted[key] if of_server is None else of_server
        if lengths[key] is None and not failed:
            info.refuse_missing(key)
        if not failed:
            counts[key].here += lengths[key] or 0
            counts[key].tool += counted[key] or 0
            counts[key].is_known &= counted[key] is not None
    begin_s, end_s = request.number("start_time"), request.number("end_time")
    if begin_s is None:
        request.refuse_missing("start_time")
    return Request(
        request.place,
        begin_s,
        times_s[0] - begin_s if times_s else None,
        None if end_s is None else end_s - begin_s,
        lengths["input_tokens"],
        lengths["output_tokens"],
        failed,
        [late - early for early, late in itertools.pairwise(times_s)],
        usage.object("prompt_tokens_details").whole("cached_tokens"),
        info.object("extra_info").text("user_session") or "",
    )


def _response(info: Object) -> Object:
    """Return where a request states its response."""
    return next((info.object(key) for key in _RESPONSES if info.values.get(key)), info)


def _of_tool(info: Object) -> Mapping[str, int | None]:
    """Return the lengths as the tool's tokenizer counts them."""
    prompt = info.whole("input_tokens")
    if prompt is None:
        prompt = info.object("request_metrics").object("text").whole("input_tokens")
    output = _response(info).whole("output_tokens")
    return {
        "input_tokens": prompt,
        "output_tokens": info.whole("output_tokens") if output is None else output,
    }


def _counted(source: Source, counts: Mapping[str, _Count]) -> set[str]:
    """Return which lengths the tool's tokenizer counts as here; warns of the others."""
    for key, count in counts.items():
        if count.is_known and count.here != count.tool:
            note(
                f"{source.path}: {key} are those that the server reports, {count.here:,} in all; "
                f"the tool's own tokenizer counts {count.tool:,}"
            )
    return {key for key, count in counts.items() if count.here == count.tool or not count.is_known}


def _with_sessions(requests: Sequence[Request]) -> list[Request]:
    """Return requests whose session is "" unless it has several turns."""
    turns = Counter(request.session for request in requests)
    return [r if turns[r.session] > 1 else r._replace(session="") for r in requests]


def _beside(source: Source, part: str) -> Object | None:
    """Return another file of the same report; None if there is none."""
    name = source.path.name
    path = source.path.with_name(name.replace("per_request_", f"{part}_"))
    if "per_request_" not in name or not path.is_file():
        return None
    found = Source(path)
    return Object(found, "", found.json) if isinstance(found.json, dict) else None


def _note_lacking(source: Source, summary: Object | None, stages: Sequence[Object | None]) -> None:
    """Warn of what is not known without the other files of the report."""
    if not any(stages):
        note(
            f"{source.path}: without the files of its stages beside (stage_0_…), the client's "
            "limit on requests in flight is not known"
        )
    if summary is None:
        note(
            f"{source.path}: without the report's summary beside (summary_…), the tool's own "
            "figures are not known"
        )


def _max_in_flight(source: Source, stages: Sequence[Object]) -> int | None:
    """Return the users of a concurrent load; None of a load with a rate."""
    levels = [stage.object("load_summary").whole("concurrency") for stage in stages]
    known = [level for level in levels if level]
    if not known or len(known) < len(levels):
        return None
    if len(set(known)) > 1:
        shown = ", ".join(map(str, known))
        note(f"{source.path}: the stages have {shown} users; the client's limit is the highest")
    return max(known)


def _reported(summary: Object, counted: set[str]) -> dict[str, float]:
    successes = summary.object("successes")
    found = {
        "completed": successes.whole("count"),
        "failed": summary.object("failures").whole("count"),
        "requests_per_s": successes.object("throughput").number("requests_per_sec"),
    }
    for key, path in _MEANS.items():
        found[key] = _mean(successes, *path)
    for key, name in (("input_tokens", "prompt_len"), ("output_tokens", "output_len")):
        if found[f"mean_{key}"] is None and key in counted:
            found[f"mean_{key}"] = _mean(successes, name)
    return {key: value for key, value in found.items() if value is not None}


def _mean(values: Object, *path: str) -> float | None:
    for key in path:
        values = values.object(key)
    return values.number("mean")


FORMAT = Format(
    name="inference_perf",
    doc="per_request_lifecycle_metrics.json of inference-perf",
    gives=("recordings",),
    detect=_detect,
    read=_read,
)
