"""Reports of GuideLLM, benchmarks.json: the requests of each benchmark."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from spillway.config.messages import note
from spillway.data.recording import RequestCounts
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings import streams
from spillway.files.recordings.contradictions import Contradictions
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Request, RequestList, parsed_requests, rows_of
from spillway.systems.guidellm.report import Report, gives_points, is_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source
    from spillway.systems.guidellm.report import Benchmark


_REQUESTS = ("benchmarks", streams.ANY, "requests", streams.ANY)
"""Where a report lists requests."""

# Status → whether the request failed. Incomplete ones are cut off by the end of the run.
_STATUSES = {"successful": False, "errored": True, "incomplete": True}

_KEEP = (
    "measure again without a limit on the listed requests: without `--sample-requests` (0.4 to "
    "0.6), `--output-sampling` (0.3), or `sample_size` of `metrics` (since 0.7)"
)

# Figure of the kit → the tool's, and how many of its units are one of the kit's.
_MEANS = {
    "mean_ttft_s": ("time_to_first_token_ms", 1e3),
    "mean_e2e_s": ("request_latency", 1.0),
    "mean_input_tokens": ("prompt_token_count", 1.0),
    "mean_output_tokens": ("output_token_count", 1.0),
}


def _read(source: Source, settings: Settings) -> list[Rows]:
    """The requests that the tool's own figures count.

    Warm-up and cool-down are left out by the tool's own rule: a request counts that overlaps the
    time of measurement. Incomplete requests, cut off by the end of a run, count as failed. The
    client's limit is that of a strategy with a number of streams, or of `throughput`; the limit
    that the tool sets itself beside a rate is not one.
    """
    whole = streams.without_items(source.items(*_REQUESTS), _REQUESTS)
    runs = [_Run(benchmark) for benchmark in Report(source, whole).benchmarks]
    listed = (found for found in source.items(*_REQUESTS) if len(found[0]) == len(_REQUESTS) + 1)
    for at, found in itertools.groupby(listed, lambda found: found[0][1]):
        runs[int(at)].read(found, settings)
    empty = [run for run in runs if not run.requests]
    if len(empty) < len(runs):
        for run in empty:
            note(f"{run.benchmark.place}: no run: {run.why_empty}")
        return [run.rows() for run in runs if run.requests]
    if any(run.benchmark.counted for run in runs):
        raise TraceError(f"{source.path}: {runs[0].why_empty}; {_KEEP}")
    raise TraceError(f"{source.path}: holds no requests")


class _Run:
    """The requests of a benchmark, and how many are left out."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self.requests = RequestList()
        self.skipped = 0
        self.contradictions = Contradictions()
        self.warm_up = self.cut_off = self.never_sent = 0
        self.first_tokens: list[tuple[float, bool]] = []  # TTFT, whether it was measured
        timing = benchmark.values.object("scheduler_metrics")
        begin_s, end_s = timing.number("measure_start_time"), timing.number("measure_end_time")
        self.measured_s = (
            -math.inf if begin_s is None else begin_s,
            math.inf if end_s is None else end_s,
        )

    def read(self, found: Iterable[tuple[streams.Place, Any]], settings: Settings) -> None:
        """Read the requests, which are in the file at these places."""
        self.requests, self.skipped = parsed_requests(self._listed(found), self._parse, settings)

    @property
    def why_empty(self) -> str:
        """Say why there are no requests."""
        counted = f"the report counts {self.benchmark.counted:,} requests and lists none"
        left = {"warm-up": self.warm_up, "never sent": self.never_sent, "malformed": self.skipped}
        others = ", ".join(f"{number:,} {name}" for name, number in left.items() if number)
        return f"{counted} that was measured ({others})" if others else counted

    def rows(self) -> Rows:
        """Return the requests as rows."""
        benchmark, requests, skipped = self.benchmark, self.requests, self.skipped
        self.contradictions.tell(benchmark.values.source.path, len(requests))
        before = "start_time" in benchmark.first and "request_start_time" not in benchmark.first
        self._note(len(requests))
        unlisted = benchmark.counted - len(requests) - self.never_sent - skipped
        return rows_of(
            benchmark.values.source,
            _with_sessions(requests),
            {
                "send": ("start_time" if before else "request_start_time", "s"),
                "ttft": ("time_to_first_token_ms", "ms"),
                "e2e": ("request_latency", "s"),
            },
            is_stated=True,
            name=benchmark.name,
            server=benchmark.server,
            client_max_in_flight=benchmark.max_in_flight,
            counts=RequestCounts(
                warm_up=self.warm_up,
                cut_off=self.cut_off,
                never_sent=self.never_sent,
                unlisted=max(0, unlisted),
                skipped=skipped,
            ),
            reported=self._reported(unlisted),
        )

    def _listed(self, found: Iterable[tuple[streams.Place, Any]]) -> Iterator[tuple[str, Object]]:
        source = self.benchmark.values.source
        for (_, benchmark, _, status, at), request in found:
            place = f"benchmarks[{benchmark}].requests.{status}[{at}]"
            if status in _STATUSES:
                if not isinstance(request, dict):
                    source.refuse(place, request, "must be an object")
                yield str(status), Object(source, place, request)

    def _parse(self, listed: tuple[str, Object]) -> Request | None:
        status, request = listed
        failed = _STATUSES[status]
        begin_s = _either(request, "request_start_time", "start_time")
        end_s = _either(request, "request_end_time", "end_time")
        if begin_s is None and not failed:
            request.refuse_missing("request_start_time")
        if not self._is_measured(begin_s, end_s):
            self.warm_up += 1
            return None
        if begin_s is None:
            self.never_sent += 1
            return None
        latency_s = request.number("request_latency")
        if latency_s is None and end_s is not None:
            latency_s = end_s - begin_s
        prompt, cached = _prompt(request)
        output = request.whole("output_tokens")
        if output is None:
            output = request.object("output_metrics").whole("total_tokens")
        if None in (prompt, output) and not failed:
            request.refuse_missing("prompt_tokens" if prompt is None else "output_tokens")
        ttft_ms = request.number("time_to_first_token_ms")
        if begin_s is not None and end_s is not None:
            self._check(request, end_s - begin_s, (prompt, output))
        info = request.object("info")
        self.cut_off += status == "incomplete"
        from_s, to_s = self.measured_s
        if ttft_ms is not None and not failed:
            self.first_tokens.append((ttft_ms, from_s <= begin_s + ttft_ms / 1e3 <= to_s))
        return Request(
            request.place,
            begin_s,
            ttft_ms,
            latency_s,
            prompt,
            output,
            failed,
            cached_tokens=cached,
            session=info.text("conversation_id") or "",
        )

    def _check(self, request: Object, lasted_s: float, lengths: tuple[int | None, ...]) -> None:
        """Check that the times and lengths of a request agree."""
        place, check = request.place, self.contradictions.check
        check(lasted_s >= 0, place, "the request ends before it starts")
        latency_s = request.number("request_latency")
        if latency_s is not None and lasted_s >= 0:
            holds = abs(latency_s - lasted_s) <= 0.05 * lasted_s + 0.01
            check(holds, place, "request_latency is not the time from start to end")
        total, known = request.number("total_tokens"), [n for n in lengths if n is not None]
        if total is not None and len(known) == len(lengths):
            check(total == sum(known), place, "total_tokens is not the sum of prompt and output")
        ttft_ms, itl_ms = (
            request.number(name) for name in ("time_to_first_token_ms", "inter_token_latency_ms")
        )
        if None not in (ttft_ms, itl_ms, latency_s) and (lengths[1] or 0) > 1:
            here_s = ((ttft_ms or 0) + (itl_ms or 0) * ((lengths[1] or 0) - 1)) / 1e3
            holds = abs(here_s - (latency_s or 0)) <= 0.2 * (latency_s or 0) + 0.05
            check(holds, place, "TTFT and the times between tokens do not add up to the latency")

    def _is_measured(self, begin_s: float | None, end_s: float | None) -> bool:
        from_s, to_s = self.measured_s
        known = [time_s for time_s in (begin_s, end_s) if time_s is not None]
        return not known or (known[-1] >= from_s and known[0] <= to_s)

    def _note(self, listed: int) -> None:
        benchmark = self.benchmark
        if self.warm_up:
            note(
                f"{benchmark.place}: {self.warm_up:,} requests of its warm-up and cool-down are "
                "left out, as in the tool's own figures"
            )
        # Until 0.3 the report lists none of them.
        made = benchmark.values.object("run_stats").object("requests_made").whole("total")
        if made is not None and made > benchmark.counted >= listed:
            note(
                f"{benchmark.place}: {made - benchmark.counted:,} requests of its warm-up and "
                "cool-down are not in the file"
            )

    def _reported(self, unlisted: int) -> Mapping[str, float]:
        benchmark = self.benchmark
        found: dict[str, float] = {}
        totals = [benchmark.totals.whole(status) for status in _STATUSES]
        if None not in totals and not self.skipped:
            completed, *failed = (total or 0 for total in totals)
            # Requests never sent are counted where the totals are those of all listed requests.
            unsent = self.never_sent if unlisted >= 0 else 0
            found = {"completed": completed, "failed": sum(failed) - unsent}
        for key, (name, scale) in _MEANS.items():
            mean = benchmark.mean(name)
            if mean is not None:
                found[key] = mean / scale
        # Since 0.7 the mean TTFT is that of first tokens within the time of measurement, which need
        # not be those of the requests that count.
        within_ms = [ttft_ms for ttft_ms, measured in self.first_tokens if measured]
        if "mean_ttft_s" in found and 0 < len(within_ms) < len(self.first_tokens):
            mean_ms = math.fsum(within_ms) / len(within_ms)
            if math.isclose(mean_ms, found["mean_ttft_s"] * 1e3, rel_tol=1e-6):
                del found["mean_ttft_s"]
        rate = benchmark.mean("requests_per_second")
        # Requests that overlap the ends of the time of measurement make it longer here.
        if rate is not None and not self.warm_up:
            found["requests_per_s"] = rate
        return found


def _with_sessions(requests: Sequence[Request]) -> list[Request]:
    """Return requests whose session is "" unless it has several turns."""
    turns = Counter(request.session for request in requests)
    return [r if turns[r.session] > 1 else r._replace(session="") for r in requests]


def _either(request: Object, name: str, until_0_3: str) -> float | None:
    found = request.number(name)
    return request.number(until_0_3) if found is None else found


def _prompt(request: Object) -> tuple[int | None, int | None]:
    """Return the length of a prompt, and its cached tokens."""
    prompt, cached = request.whole("prompt_tokens"), request.whole("cached_tokens")
    if prompt is not None and cached is not None:
        return prompt, cached
    metrics = request.object("input_metrics")
    return (
        metrics.whole("total_tokens") if prompt is None else prompt,
        metrics.whole("cached_tokens") if cached is None else cached,
    )


FORMAT = Format(
    name="guidellm",
    doc="benchmarks.json of GuideLLM (0.3 or later), a run per benchmark with its "
    "requests by status",
    gives=("recordings",),
    detect=lambda source: is_report(source) and not gives_points(source),
    read=_read,
)
