"""Requests of `sglang.bench_serving --output-file --output-details`."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from spillway.config.messages import note
from spillway.files.format import Format
from spillway.files.recordings.rows import Request, rows_of
from spillway.systems.sglang.lines import DETAILS, lines_of, lists_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source
    from spillway.systems.sglang.lines import Line


_FIELDS = {
    "send": ("times of sending, by ttfts and itls", "s"),
    "ttft": ("ttfts", "s"),
    "e2e": ("itls", "s"),
    "gaps": ("itls", "s"),
}

# Figure of the kit → the tool's, and how many of its units are one of the kit's.
_FIGURES = {
    "completed": ("completed", 1.0),
    "mean_ttft_s": ("mean_ttft_ms", 1e3),
    "median_ttft_s": ("median_ttft_ms", 1e3),
    "mean_gap_s": ("mean_itl_ms", 1e3),
    "requests_per_s": ("request_throughput", 1.0),
    "duration_s": ("duration", 1.0),
}


def _read(source: Source, settings: Settings) -> list[Rows]:
    """The times of sending are not in the file, but follow from the order and the latencies.

    The client begins with `max_concurrency` requests, and sends the next of the list when one ends.
    At a request rate they do not follow; such lines are left out. E2E is the TTFT plus the
    inter-token latencies.
    """
    found = []
    for line in lines_of(source, skip_bad=settings.skip_bad):
        if why := line.why_not_replayed:
            note(f"{line.place}: left out: {why}")
        else:
            found.append(_rows(source, line))
    return found


def _rows(source: Source, line: Line) -> Rows:
    values = line.values
    lists = {name: values.items(name) for name in DETAILS}
    count = len(lists["ttfts"])
    for name, items in lists.items():
        if len(items) != count:
            allowed = f"must hold {count} values, as ttfts does"
            source.refuse(values.at(name), f"{len(items)} values", allowed)
    ttft_s, gaps_s = values.numbers("ttfts"), values.lists_of_numbers("itls")
    prompts, outputs = values.wholes("input_lens"), values.wholes("output_lens")
    # Some errors have no text, and an answer of an error no token.
    failed = [
        bool(error) or (output == 0 and not first)
        for error, output, first in zip(lists["errors"], outputs, ttft_s, strict=True)
    ]
    lasted_s = [
        0.0 if bad else first + sum(gaps)
        for bad, first, gaps in zip(failed, ttft_s, gaps_s, strict=True)
    ]
    limit = line.max_concurrency
    _note(line, limit, failed, prompts)
    requests = [
        Request(
            f"{values.place}, request {at}",
            send_s,
            None if failed[at] else ttft_s[at],
            None if failed[at] else lasted_s[at],
            prompts[at],
            outputs[at],
            failed[at],
            () if failed[at] else gaps_s[at],
        )
        for at, send_s in enumerate(_sending_s(lasted_s, limit))
    ]
    return rows_of(
        source,
        requests,
        _FIELDS,
        is_stated=True,
        name=line.name,
        server=line.server,
        client_max_in_flight=limit,
        reported=_reported(line),
    )


def _sending_s(lasted_s: Sequence[float], limit: int | None) -> list[float]:
    """Return when a client that begins all at once, but for its limit, sends each request."""
    running: list[float] = []  # their ends
    send_s = []
    for lasted in lasted_s:
        begin = heapq.heappop(running) if limit is not None and len(running) >= limit else 0.0
        send_s.append(begin)
        heapq.heappush(running, begin + lasted)
    return send_s


def _note(line: Line, limit: int | None, failed: Sequence[bool], prompts: Sequence[int]) -> None:
    what = "all at once" if limit is None else f"{limit:,} at once, the next when one ends"
    bad = sum(failed)
    also = f"; that of {bad:,} failed requests is taken as none" if bad else ""
    note(
        f"{line.place}: times of sending are not in the file; they follow from the order and the "
        f"duration of requests: {what}{also}"
    )
    here = sum(prompt for prompt, bad in zip(prompts, failed, strict=True) if not bad)
    total = line.values.whole("total_input_tokens")
    if total is not None and total != here:
        note(
            f"{line.place}: prompts have the lengths in input_lens, {here:,} tokens in all; "
            f"total_input_tokens, {total:,}, is that of the dataset"
        )


def _reported(line: Line) -> dict[str, float]:
    values = line.values
    found = {
        key: value / scale
        for key, (name, scale) in _FIGURES.items()
        if (value := values.number(name)) is not None
    }
    tokens = values.whole("total_output_tokens")
    if tokens is not None and found.get("completed"):
        found["mean_output_tokens"] = tokens / found["completed"]
    return found


FORMAT = Format(
    name="sglang",
    doc="JSON lines of `sglang.bench_serving --output-file --output-details`, a run per line, "
    "without a request rate",
    gives=("recordings",),
    layout="jsonl",
    detect=lists_runs,
    read=_read,
)
