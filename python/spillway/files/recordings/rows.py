"""The requests of one run as a format reads them, and the recording made of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from spillway.config.limits import MAX_TOKENS
from spillway.config.messages import note
from spillway.data.recording import Recording, RequestCounts, ServerFacts, TokenGaps
from spillway.files.error import TraceError
from spillway.files.recordings.reconciliation import reconcile
from spillway.files.recordings.server import merged
from spillway.files.recordings.source import digest
from spillway.files.recordings.units import PER_SECOND, check_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.data.arrays import Floats, Ints
    from spillway.files.recordings.source import Source


@dataclass(frozen=True)
class Settings:
    """The arguments of the caller.

    Attributes
    ----------
    columns, units : mapping of str, optional
        Attribute → column of a CSV file, and column → unit of its times.
    server : ServerFacts or mapping, optional
        Facts that complete or replace those of the file.
    client_max_in_flight : int, optional
        The client's limit, if the file does not state it.
    check_units : bool
        Whether to refuse times that probably have another unit.
    skip_bad : bool
        Whether to leave out malformed requests, and count them, instead of refusing the file.

    """

    columns: Mapping[str, str] | None = None
    units: Mapping[str, str] | None = None
    server: ServerFacts | Mapping[str, Any] | None = None
    client_max_in_flight: int | None = None
    check_units: bool = True
    skip_bad: bool = False


@dataclass(frozen=True)
class Time:
    """Times of all requests, as numbers in the unit of the file; None where there is none.

    Attributes
    ----------
    field : str
        The name of the field in the file, for errors.
    unit : str
        A key of `PER_SECOND`.
    values : sequence of int or float
        The numbers. Whole ones may exceed the precision of a float.
    is_stated : bool
        Whether the file itself states the unit beside the value, or the caller does; otherwise the
        name of the field does. The size of values does not refuse a stated unit.

    """

    field: str
    unit: str
    values: Sequence[float | None]
    is_stated: bool = False


class Gaps(NamedTuple):
    """The gaps between the tokens of each request, in a unit of `PER_SECOND`."""

    field: str
    unit: str
    values: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Rows:
    """The requests of one run in the order of the file.

    Attributes
    ----------
    source : Source
        The file.
    send : Time
        Times of sending, from any origin.
    input_tokens, output_tokens : sequence of int
        Lengths in tokens.
    ttft, e2e : Time, optional
        Latencies since sending. For a failed request, `e2e` is the time until the failure.
    failed : sequence of bool
        Whether the request failed.
    places : sequence of str
        The place of each request in the file, for errors: "line 3" or "requests[1]".
    server : ServerFacts
        The statements of the file about its server.
    tenant : sequence of str, optional
        The tenant of each request.
    token_gaps : Gaps, optional
        The gaps between tokens.
    client_max_in_flight : int, optional
        The client's limit on requests in flight.
    cached_tokens : sequence of int or None, optional
        Tokens of each prompt that the server found in its cache; None where the file does not say.
    session : sequence of str, optional
        The conversation of each request; "" is none.
    counts : RequestCounts
        Requests of the file that are not among these.
    reported : mapping of float
        The tool's own figures of the run, under the keys of `reconciliation.FIGURES`.
    name : str
        The name of the run; "" is that of the file.
    beside : sequence of Source
        Other files that were read.

    """

    source: Source
    send: Time
    input_tokens: Sequence[int]
    output_tokens: Sequence[int]
    failed: Sequence[bool]
    places: Sequence[str]
    ttft: Time | None = None
    e2e: Time | None = None
    server: ServerFacts = field(default_factory=ServerFacts)
    tenant: Sequence[str] | None = None
    token_gaps: Gaps | None = None
    client_max_in_flight: int | None = None
    cached_tokens: Sequence[int | None] | None = None
    session: Sequence[str] | None = None
    counts: RequestCounts = field(default_factory=RequestCounts)
    reported: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    beside: Sequence[Source] = ()


class Request(NamedTuple):
    """A request as a file states it; None where it states nothing."""

    place: str
    send: float | None
    ttft: float | None
    e2e: float | None
    input_tokens: int | None
    output_tokens: int | None
    failed: bool
    gaps: Sequence[float] = ()
    cached_tokens: int | None = None
    session: str = ""


T = TypeVar("T")


def parsed_requests(
    entries: Iterable[T], parse: Callable[[T], Request | None], settings: Settings
) -> tuple[list[Request], int]:
    """Return the requests of a file's entries, and how many malformed entries were left out.

    `parse` returns None for an entry that is no request, and raises TraceError for a malformed one,
    which is an error unless `skip_bad`.
    """
    requests: list[Request] = []
    skipped = 0
    for entry in entries:
        try:
            request = parse(entry)
        except TraceError:  # noqa: PERF203
            if not settings.skip_bad:
                raise
            skipped += 1
        else:
            if request is not None:
                requests.append(request)
    return requests, skipped


def rows_of(
    source: Source,
    requests: Iterable[Request],
    fields: Mapping[str, tuple[str, str]],
    *,
    is_stated: bool = False,
    **others: Any,
) -> Rows:
    """Return requests as rows.

    `fields`: the name of `send`, `ttft`, `e2e` and `gaps` in the file, and the unit. `is_stated`:
    see `Time`.
    """

    def time(name: str, values: Sequence[float | None]) -> Time:
        return Time(*fields[name], values, is_stated)

    requests = list(requests)
    gaps = [request.gaps for request in requests]
    cached = [request.cached_tokens for request in requests]
    sessions = [request.session for request in requests]
    return Rows(
        source,
        send=time("send", [request.send for request in requests]),
        ttft=time("ttft", [r.ttft for r in requests]) if "ttft" in fields else None,
        e2e=time("e2e", [r.e2e for r in requests]) if "e2e" in fields else None,
        input_tokens=[request.input_tokens or 0 for request in requests],
        output_tokens=[request.output_tokens or 0 for request in requests],
        failed=[request.failed for request in requests],
        places=[request.place for request in requests],
        token_gaps=Gaps(*fields["gaps"], gaps) if any(gaps) else None,
        cached_tokens=cached if any(tokens is not None for tokens in cached) else None,
        session=sessions if any(sessions) else None,
        **others,
    )


def recording(rows: Rows, settings: Settings, form: str) -> Recording:
    """Return the run, sorted by time of sending.

    Raises TraceError if it has no requests, a value is invalid, or times probably have another
    unit. Warns of latencies below 0, of requests that are not listed, and of figures that the tool
    reports otherwise.
    """
    path = rows.source.path
    if not rows.places:
        raise TraceError(f"{path}: holds no requests")
    if settings.skip_bad:
        rows = _well_formed(rows)
    failed = np.array(rows.failed, dtype=bool)
    send_s = _sending_s(rows)
    order = np.argsort(send_s, kind="stable")
    ttft_s = _latencies_s(rows, rows.ttft)
    end_s = _latencies_s(rows, rows.e2e)
    ttft_s[failed] = np.nan
    e2e_s, failure_s = end_s.copy(), end_s
    e2e_s[failed] = np.nan
    failure_s[~failed] = np.nan
    limit = settings.client_max_in_flight
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise TraceError(f"client_max_in_flight = {limit!r:.40}: must be a whole number >= 1")
    times = [time for time in (rows.send, rows.ttft, rows.e2e, rows.token_gaps) if time]
    run = Recording(
        name=rows.name or path.stem,
        server=merged(rows.server, settings.server, path),
        send_s=send_s[order],
        input_tokens=_lengths(rows, "input_tokens")[order],
        output_tokens=_lengths(rows, "output_tokens")[order],
        ttft_s=ttft_s[order],
        e2e_s=e2e_s[order],
        failed=failed[order],
        failure_s=failure_s[order],
        token_gaps=_gaps(rows, order),
        tenant=_in_order(rows.tenant, order),
        client_max_in_flight=rows.client_max_in_flight if limit is None else limit,
        cached_tokens=_cached(rows, order),
        session=_in_order(rows.session, order),
        counts=rows.counts,
        units={time.field: time.unit for time in times},
        source=str(path),
        format=form,
        sha256=digest(rows.source, *rows.beside),
    )
    if settings.check_units:
        times = (rows.send, rows.ttft, rows.e2e, rows.token_gaps)
        fields = {
            name: (time.field, time.unit) if time else ("", "s")
            for name, time in zip(("send_s", "ttft_s", "e2e_s", "token_gaps"), times, strict=True)
        }
        stated = columns.items()
        fields = {name: (time.field, time.unit) if time else ("", "s") for name, time in stated}
        is_stated = all(time is None or time.is_stated for time in (rows.ttft, rows.e2e))
        check_units(run, path, fields, is_stated=is_stated)
    return _reconciled(run, rows)


def _reconciled(run: Recording, rows: Rows) -> Recording:
    """Return the run with the tool's own figures; warns where they differ."""
    reported = reconcile(run, rows.reported)
    counts = run.counts
    listed = run.num_requests + counts.warm_up + counts.skipped
    sent = sum(rows.reported.get(key, 0.0) for key in ("completed", "failed"))
    if sent > listed and not counts.unlisted:
        counts = dataclasses.replace(counts, unlisted=round(sent) - listed)
    run = dataclasses.replace(run, reported=reported, counts=counts)
    place = f"{rows.source.path}{f', {rows.name}' if rows.name else ''}"
    if counts.unlisted:
        note(
            f"{place}: a sample: the file lists {listed:,} of {listed + counts.unlisted:,} requests"
        )
    elif run.mismatches:
        note(f"{place}: the tool reports other figures: {'; '.join(map(str, run.mismatches))}")
    return run


def _well_formed(rows: Rows) -> Rows:
    """Return the rows without those of invalid values, which are counted as skipped."""
    kept = [row for row in range(len(rows.places)) if _is_well_formed(rows, row)]
    skipped = len(rows.places) - len(kept)
    if not skipped:
        return rows
    if not kept:
        raise TraceError(f"{rows.source.path}: holds no requests that are not malformed")

    def of(values: Any) -> Any:
        return None if values is None else [values[row] for row in kept]

    def time(column: Time | None) -> Time | None:
        return column and dataclasses.replace(column, values=of(column.values))

    gaps = rows.token_gaps
    return dataclasses.replace(
        rows,
        send=dataclasses.replace(rows.send, values=of(rows.send.values)),
        ttft=time(rows.ttft),
        e2e=time(rows.e2e),
        token_gaps=gaps and gaps._replace(values=of(gaps.values)),
        counts=dataclasses.replace(rows.counts, skipped=rows.counts.skipped + skipped),
        **{name: of(getattr(rows, name)) for name in _PLAIN},
    )


_PLAIN = (
    "input_tokens",
    "output_tokens",
    "failed",
    "places",
    "tenant",
    "cached_tokens",
    "session",
)  # the columns that are plain sequences


def _is_well_formed(rows: Rows, row: int) -> bool:
    send, failed = rows.send.values[row], rows.failed[row]
    if send is None or not math.isfinite(send):
        return False
    for time in (rows.ttft, rows.e2e):
        value = None if time is None else time.values[row]
        if value is not None and not 0 <= value < math.inf and not failed:
            return False
    least = 0 if failed else 1
    if not least <= rows.input_tokens[row] <= MAX_TOKENS:
        return False
    return 0 <= rows.output_tokens[row] <= MAX_TOKENS


def _in_order(values: Sequence[str] | None, order: Ints) -> tuple[str, ...] | None:
    return None if values is None else tuple(values[row] for row in order.tolist())


def _cached(rows: Rows, order: Ints) -> Ints | None:
    """Return the cached tokens of each prompt, at most all of it; 0 where the file is silent."""
    if rows.cached_tokens is None:
        return None
    for row, tokens in enumerate(rows.cached_tokens):
        if tokens is not None and not 0 <= tokens <= MAX_TOKENS:
            _refuse(rows, row, "cached_tokens", tokens, f"must be >= 0 and <= {MAX_TOKENS}")
    cached = np.array([tokens or 0 for tokens in rows.cached_tokens], np.int64)
    return np.minimum(cached, np.array(rows.input_tokens, np.int64))[order]


def _lengths(rows: Rows, name: str) -> Ints:
    lengths: Sequence[int] = getattr(rows, name)
    for row, value in enumerate(lengths):
        least = 1 if name == "input_tokens" and not rows.failed[row] else 0
        if not least <= value <= MAX_TOKENS:
            _refuse(rows, row, name, value, f"must be >= {least} and <= {MAX_TOKENS}")
    return np.array(lengths, dtype=np.int64)


def _sending_s(rows: Rows) -> Floats:
    """Return the times of sending since the first one.

    The difference is taken in the numbers of the file: nanoseconds since 1970 exceed a float.
    """
    known: list[float] = []
    for row, value in enumerate(rows.send.values):
        if value is None or not math.isfinite(value):
            _refuse(rows, row, rows.send.field, value, "must be a number")
        known.append(value)
    first = min(known)
    return np.array([value - first for value in known], np.float64) / PER_SECOND[rows.send.unit]


_FEW_NEGATIVE = 0.01
"""Share of the completed requests, or one of them, whose latency below 0 is taken as unknown."""


def _latencies_s(rows: Rows, time: Time | None) -> Floats:
    """Return latencies in seconds; NaN where there is none.

    A few below 0, which clocks and races in clients give, are unknown; more refuse the file.
    """
    if time is None:
        return np.full(len(rows.places), np.nan)
    wrong = [
        row
        for row, value in enumerate(time.values)
        if value is not None and not 0 <= value < math.inf and not rows.failed[row]
    ]
    completed = len(rows.places) - sum(rows.failed)
    most = max(1.0, _FEW_NEGATIVE * completed) if completed > 1 else 0.0
    negative = all(-math.inf < (time.values[row] or 0) < 0 for row in wrong)
    if wrong and (len(wrong) > most or not negative):
        _refuse(rows, wrong[0], time.field, time.values[wrong[0]], "the latency must be >= 0")
    if wrong:
        value, place = time.values[wrong[0]], rows.places[wrong[0]]
        note(
            f"{rows.source.path} {place}, {time.field} = {value!r:.40}: a latency below 0 is taken "
            f"as unknown ({len(wrong)} of {completed:,} completed requests)"
        )
    known = [
        math.nan if value is None or not 0 <= value < math.inf else value for value in time.values
    ]
    return np.array(known, np.float64) / PER_SECOND[time.unit]


def _gaps(rows: Rows, order: Ints) -> TokenGaps | None:
    if rows.token_gaps is None:
        return None
    field, unit, gaps_of_rows = rows.token_gaps
    for row, gaps in enumerate(gaps_of_rows):
        for gap in gaps:
            is_number = isinstance(gap, int | float) and not isinstance(gap, bool)
            if not is_number or not 0 <= gap < math.inf:
                _refuse(rows, row, field, gap, "a gap must be a number >= 0")
    in_order = [gaps_of_rows[row] for row in order.tolist()]
    return TokenGaps(
        np.array(list(itertools.chain.from_iterable(in_order)), np.float64) / PER_SECOND[unit],
        np.cumsum([0, *map(len, in_order)]).astype(np.int64),
    )


def _refuse(rows: Rows, row: int, name: str, value: Any, allowed: str) -> NoReturn:
    raise TraceError(f"{rows.source.path} {rows.places[row]}, {name} = {value!r:.40}: {allowed}")
