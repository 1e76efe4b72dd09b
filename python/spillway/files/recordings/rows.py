"""The requests of one run as a format reads them, and the recording made of them."""

from __future__ import annotations

import array
import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar

import numpy as np

from spillway.config.formatting import counted
from spillway.config.limits import MAX_TOKENS
from spillway.config.messages import note
from spillway.data.recording import Recording, RequestCounts, ServerFacts, TokenGaps
from spillway.files.error import TraceError
from spillway.files.recordings.columns import Lists, Numbers, Places, as_array, where
from spillway.files.recordings.oddities import note_oddities
from spillway.files.recordings.reconciliation import reconcile
from spillway.files.recordings.server import merged, replaced
from spillway.files.recordings.source import digest
from spillway.files.recordings.units import PER_SECOND, check_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from spillway.data.arrays import Booleans, Floats, Ints
    from spillway.files.recordings.columns import Column
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
    num_replicas : int, optional
        The replicas of the server, if the file does not state them.
    check_units : bool
        Whether to refuse times that probably have another unit.
    skip_bad : bool
        Whether to leave out malformed requests, and count them, instead of refusing the file.

    """

    columns: Mapping[str, str] | None = None
    units: Mapping[str, str] | None = None
    server: ServerFacts | Mapping[str, Any] | None = None
    client_max_in_flight: int | None = None
    num_replicas: int | None = None
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
    values : sequence of int or float, or array
        The numbers; NaN is None. Whole ones may exceed the precision of a float.
    is_stated : bool
        Whether the file itself states the unit beside the value, or the caller does; otherwise the
        name of the field does. The size of values does not refuse a stated unit.

    """

    field: str
    unit: str
    values: Column
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
    input_tokens, output_tokens : sequence of int, or array
        Lengths in tokens.
    ttft, e2e : Time, optional
        Latencies since sending. For a failed request, `e2e` is the time until the failure.
    failed : sequence of bool, or array
        Whether the request failed.
    places : sequence of str
        The place of each request in the file, for errors: "line 3" or "requests[1]".
    server : ServerFacts
        The statements of the file about its server.
    tenant : sequence of str, or array of texts, optional
        The tenant of each request.
    token_gaps : Gaps, optional
        The gaps between tokens.
    client_max_in_flight : int, optional
        The client's limit on requests in flight.
    num_replicas : int, optional
        The replicas of the server that shared the requests.
    cached_tokens : sequence of int or None, or array, optional
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
    input_tokens: Column
    output_tokens: Column
    failed: Column
    places: Sequence[str]
    ttft: Time | None = None
    e2e: Time | None = None
    server: ServerFacts = field(default_factory=ServerFacts)
    tenant: Column | None = None
    token_gaps: Gaps | None = None
    client_max_in_flight: int | None = None
    num_replicas: int | None = None
    cached_tokens: Column | None = None
    session: Column | None = None
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


class RequestList(Sequence[Request]):
    """Requests in the columns of arrays, which take a tenth of the memory of a list."""

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self.places = Places()
        self._numbers = {name: Numbers() for name in _NUMBERS}
        self._session: list[str] = []
        self._names: dict[str, str] = {}
        self._gaps, self._offsets = array.array("d"), array.array("q", [0])
        for request in requests:
            self.append(request)

    def append(self, request: Request) -> None:
        """Add a request at the end."""
        self.places.append(request.place)
        for name, numbers in self._numbers.items():
            numbers.append(getattr(request, name))
        self._session.append(self._names.setdefault(request.session, request.session))
        self._gaps.extend(request.gaps)
        self._offsets.append(len(self._gaps))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return list(self)[row]
        at = range(len(self))[row]
        return next(itertools.islice(self, at, None))

    def __iter__(self) -> Iterator[Request]:
        columns = [
            itertools.chain.from_iterable(map(_or_none, self._numbers[name].parts()))
            for name in _NUMBERS
        ]
        begins = itertools.pairwise(self._offsets)
        rows = zip(self.places, self._session, begins, *columns, strict=True)
        for place, session, (begin, end), *numbers in rows:
            known = dict(zip(_NUMBERS, numbers, strict=True))
            yield Request(place, **known, gaps=self._gaps[begin:end], session=session)

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        """The numbers of a field of the requests; NaN is None."""
        return self._numbers[name].array()

    @property
    def gaps(self) -> Lists:
        """The gaps of each request."""
        if not self._gaps:
            return Lists(np.zeros(0), np.zeros(len(self) + 1, np.int64))
        return Lists(np.frombuffer(self._gaps), np.frombuffer(self._offsets, np.int64))

    @property
    def session(self) -> list[str]:
        """The session of each request."""
        return self._session


_NUMBERS = ("send", "ttft", "e2e", "input_tokens", "output_tokens", "failed", "cached_tokens")


def _without_nan(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return numbers with 0 for NaN."""
    found: np.ndarray[Any, Any] = np.where(np.isnan(numbers), 0, numbers)
    return found


def _or_none(numbers: np.ndarray[Any, Any]) -> list[Any]:
    """Return numbers as Python's; None for NaN."""
    listed: list[Any] = numbers.tolist()
    if numbers.dtype.kind != "f" or not np.isnan(numbers).any():
        return listed
    return [None if math.isnan(number) else number for number in listed]


T = TypeVar("T")


def parsed_requests(
    entries: Iterable[T], parse: Callable[[T], Request | None], settings: Settings
) -> tuple[RequestList, int]:
    """Return the requests of a file's entries, and how many malformed entries were left out.

    `parse` returns None for an entry that is no request, and raises TraceError for a malformed one,
    which is an error unless `skip_bad`.
    """
    requests = RequestList()
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
    listed = requests if isinstance(requests, RequestList) else RequestList(requests)

    def time(name: str) -> Time | None:
        return Time(*fields[name], listed.numbers(name), is_stated) if name in fields else None

    def tokens(name: str) -> Column:
        return _without_nan(listed.numbers(name))

    cached = listed.numbers("cached_tokens")
    gaps = listed.gaps
    return Rows(
        source,
        send=Time(*fields["send"], listed.numbers("send"), is_stated),
        ttft=time("ttft"),
        e2e=time("e2e"),
        input_tokens=tokens("input_tokens"),
        output_tokens=tokens("output_tokens"),
        failed=listed.numbers("failed"),
        places=listed.places,
        token_gaps=Gaps(*fields["gaps"], gaps) if len(gaps.values) else None,
        cached_tokens=None if np.isnan(cached).all() else cached,
        session=listed.session if any(listed.session) else None,
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
    rows = _in_arrays(rows)
    if settings.skip_bad:
        rows = _well_formed(rows)
    rows = _without_empty_calls(rows)
    failed = np.asarray(rows.failed)
    send_s = _sending_s(rows)
    is_sorted = bool((send_s[1:] >= send_s[:-1]).all())
    order = None if is_sorted else np.argsort(send_s, kind="stable")
    ttft_s = _latencies_s(rows, rows.ttft)
    end_s = _latencies_s(rows, rows.e2e)
    ttft_s[failed] = np.nan
    e2e_s, failure_s = end_s.copy(), end_s
    e2e_s[failed] = np.nan
    failure_s[~failed] = np.nan
    limit, replicas = settings.client_max_in_flight, settings.num_replicas
    counts = {"client_max_in_flight": limit, "num_replicas": replicas}
    for name, number in counts.items():
        if number is not None and (not isinstance(number, int) or number < 1):
            raise TraceError(f"{name} = {number!r:.40}: must be a whole number >= 1")
    replaced(str(path), {name: getattr(rows, name) for name in counts}, counts)
    times = [time for time in (rows.send, rows.ttft, rows.e2e, rows.token_gaps) if time]
    columns: dict[str, Any] = {
        "send_s": send_s,
        "input_tokens": _lengths(rows, "input_tokens"),
        "output_tokens": _lengths(rows, "output_tokens"),
        "ttft_s": ttft_s,
        "e2e_s": e2e_s,
        "failed": failed,
        "failure_s": failure_s,
    }
    for name, values in columns.items():
        columns[name] = values if order is None else values[order]
        columns[name].setflags(write=False)
    run = Recording(
        name=rows.name or _stem(path),
        server=merged(rows.server, settings.server, path),
        **columns,
        token_gaps=_gaps(rows, order),
        tenant=_in_order(rows.tenant, order),
        client_max_in_flight=rows.client_max_in_flight if limit is None else limit,
        num_replicas=rows.num_replicas if replicas is None else replicas,
        cached_tokens=_cached(rows, order),
        session=_in_order(rows.session, order),
        counts=rows.counts,
        units={time.field: time.unit for time in times},
        source=str(path),
        format=form,
        sha256=digest(rows.source, *rows.beside),
    )
    fields = {
        name: (time.field, time.unit) if time else ("", "s")
        for name, time in (
            ("send_s", rows.send),
            ("ttft_s", rows.ttft),
            ("e2e_s", rows.e2e),
            ("token_gaps", rows.token_gaps),
        )
    }
    is_stated = all(time is None or time.is_stated for time in (rows.ttft, rows.e2e))
    place = f"{path}{f', {rows.name}' if rows.name else ''}"
    reported = rows.reported
    del rows, columns, times  # large arrays that the run does not need
    if settings.check_units:
        check_units(run, path, fields, is_stated=is_stated)
    note_oddities(run, place)
    if run.failed.all():
        note(f"{place}: all {run.num_requests:,} requests failed")
    return _reconciled(run, place, reported)


def _reconciled(run: Recording, place: str, figures: Mapping[str, float]) -> Recording:
    """Return the run with the tool's own figures; warns where they differ."""
    reported = reconcile(run, figures)
    counts = run.counts
    listed = run.num_requests + counts.warm_up + counts.skipped
    known = (figures.get(key, 0.0) for key in ("completed", "failed"))
    sent = sum(number for number in known if math.isfinite(number))
    if sent == listed:
        # Where requests are left out here, the tool counts these, too.
        cause = "" if listed > run.num_requests else _OTHER_STATES
        reported = tuple(
            figure._replace(cause=figure.cause and cause) if figure.unit == "requests" else figure
            for figure in reported
        )
    if sent > listed and not counts.unlisted:
        counts = dataclasses.replace(counts, unlisted=round(sent) - listed)
    run = dataclasses.replace(run, reported=reported, counts=counts)
    if counts.skipped:
        note(f"{place}: {counted(counts.skipped, 'malformed request')} left out")
    if counts.unlisted:
        note(
            f"{place}: a sample: the file lists {listed:,} of {listed + counts.unlisted:,} requests"
        )
    elif run.mismatches:
        note(f"{place}: {OTHER_FIGURES}: {'; '.join(map(str, run.mismatches))}")
    return run


_OTHER_STATES = "requests that completed by the tool's figures failed by their rows, or the reverse"
OTHER_FIGURES = "the tool reports other figures"


def _stem(path: Path) -> str:
    """Return the name of a file without its suffixes."""
    return Path(path.stem).stem if path.suffix in (".gz", ".zst") else path.stem


def _in_arrays(rows: Rows) -> Rows:
    """Return the rows with arrays of all numbers."""

    def of(time: Time | None) -> Time | None:
        return time and dataclasses.replace(time, values=as_array(time.values))

    gaps, cached = rows.token_gaps, rows.cached_tokens
    return dataclasses.replace(
        rows,
        send=dataclasses.replace(rows.send, values=as_array(rows.send.values)),
        ttft=of(rows.ttft),
        e2e=of(rows.e2e),
        input_tokens=as_array(rows.input_tokens),
        output_tokens=as_array(rows.output_tokens),
        failed=np.array(rows.failed, dtype=bool),
        token_gaps=gaps and gaps._replace(values=_checked_gaps(rows, gaps)),
        cached_tokens=None if cached is None else as_array(cached),
    )


def _checked_gaps(rows: Rows, gaps: Gaps) -> Lists:
    """Return the gaps of all requests as arrays. Raises TraceError if some are not numbers."""
    if not isinstance(gaps.values, Lists):
        for row, values in enumerate(gaps.values):
            for gap in values:
                if not isinstance(gap, int | float) or isinstance(gap, bool):
                    _refuse(rows, row, gaps.field, gap, _GAP)
    return Lists.of(gaps.values)


_GAP = "a gap must be a number >= 0"


def _well_formed(rows: Rows) -> Rows:
    """Return the rows without those of invalid values, which are counted as skipped."""
    failed = np.asarray(rows.failed)
    good = np.isfinite(rows.send.values)
    for time in (rows.ttft, rows.e2e):
        if time is not None:
            values = np.asarray(time.values)
            good &= failed | ~((values < 0) | np.isinf(values))
    for column, least in ((rows.input_tokens, ~failed), (rows.output_tokens, 0)):
        lengths = np.asarray(column)
        good &= (least <= lengths) & (lengths <= MAX_TOKENS)
    if rows.cached_tokens is not None:
        cached = np.asarray(rows.cached_tokens)
        good &= ~((cached < 0) | (cached > MAX_TOKENS))
    gaps = rows.token_gaps
    if gaps is not None:
        assert isinstance(gaps.values, Lists)
        for value in np.flatnonzero(~_are_gaps(gaps.values)).tolist():
            good[gaps.values.row_of(value)] = False
    return rows if good.all() else kept(rows, good, "skipped")


def kept(rows: Rows, good: Booleans, counted: Literal["skipped", "warm_up"]) -> Rows:
    """Return the rows that are good; the others are counted under that name."""
    if not good.any():
        others = {"skipped": "malformed", "warm_up": "warm-up"}[counted]
        raise TraceError(f"{rows.source.path}: holds no requests that are not {others}")
    gaps = rows.token_gaps

    def time_of(time: Time | None) -> Time | None:
        return time and dataclasses.replace(time, values=where(time.values, good))

    if gaps is not None:
        assert isinstance(gaps.values, Lists)
        gaps = gaps._replace(values=gaps.values.rows(np.flatnonzero(good)))
    return dataclasses.replace(
        rows,
        send=dataclasses.replace(rows.send, values=where(rows.send.values, good)),
        ttft=time_of(rows.ttft),
        e2e=time_of(rows.e2e),
        token_gaps=gaps,
        counts=dataclasses.replace(
            rows.counts, **{counted: getattr(rows.counts, counted) + int((~good).sum())}
        ),
        **{name: where(getattr(rows, name), good) for name in _PLAIN},
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


def _without_empty_calls(rows: Rows) -> Rows:
    """Return the rows in which calls without output tokens and without latency have failed."""
    done = ~np.asarray(rows.failed) & (np.asarray(rows.output_tokens) == 0)
    if not done.any():
        return rows
    took = np.zeros(len(done), dtype=bool)
    for time in (rows.ttft, rows.e2e):
        if time is not None:
            values = np.asarray(time.values)
            took |= (values != 0) & ~np.isnan(values)
    empty, path = done & ~took, rows.source.path
    if empty.any():
        first = rows.places[int(empty.argmax())]
        note(
            f"{path} {first}: a call without output tokens and latency is taken as failed "
            f"({int(empty.sum()):,} of {len(done):,} requests)"
        )
    if other := int((done & took).sum()):
        first = rows.places[int((done & took).argmax())]
        note(
            f"{path} {first}: completed without output tokens, as {other:,} of {len(done):,} "
            "requests are; if they failed, name the column that says so: --columns failed=… or "
            "completed=…"
        )
    return dataclasses.replace(rows, failed=np.asarray(rows.failed) | empty)


def _in_order(values: Column | None, order: Ints | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        return tuple((values if order is None else values[order]).tolist())
    return tuple(values if order is None else map(values.__getitem__, order.tolist()))


def _cached(rows: Rows, order: Ints | None) -> Ints | None:
    """Return the cached tokens of each prompt, at most all of it; 0 where the file is silent."""
    if rows.cached_tokens is None:
        return None
    cached = _without_nan(np.asarray(rows.cached_tokens))
    _check(rows, "cached_tokens", cached, (cached < 0) | (cached > MAX_TOKENS), 0)
    found: Ints = np.minimum(cached.astype(np.int64), rows.input_tokens)
    return found if order is None else found[order]


def _lengths(rows: Rows, name: str) -> Ints:
    lengths = np.asarray(getattr(rows, name))
    least = ~np.asarray(rows.failed) if name == "input_tokens" else np.zeros(len(lengths), bool)
    wrong = ~((least <= lengths) & (lengths <= MAX_TOKENS))
    if wrong.any():
        _check(rows, name, lengths, wrong, int(least[wrong.argmax()]))
    return lengths.astype(np.int64, copy=False)


def _check(rows: Rows, name: str, values: Any, wrong: Any, least: int) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        _refuse(rows, row, name, values[row], f"must be >= {least} and <= {MAX_TOKENS}")


def _sending_s(rows: Rows) -> Floats:
    """Return the times of sending since the first one.

    The difference is taken in the numbers of the file: nanoseconds since 1970 exceed a float.
    """
    values = np.asarray(rows.send.values)
    unknown = ~np.isfinite(values)
    if unknown.any():
        row = int(unknown.argmax())
        _refuse(rows, row, rows.send.field, values[row], "must be a number")
    if values.dtype.kind == "i" and int(values.max()) - int(values.min()) >= 2**63:
        values = values.astype(np.float64)
    since: Floats = (values - values.min()).astype(np.float64)
    return since / PER_SECOND[rows.send.unit]


_FEW_NEGATIVE = 0.01
"""Share of the completed requests, or one of them, whose latency below 0 is taken as unknown."""


def _latencies_s(rows: Rows, time: Time | None) -> Floats:
    """Return latencies in seconds; NaN where there is none.

    A few below 0, which clocks and races in clients give, are unknown; more refuse the file.
    """
    if time is None:
        return np.full(len(rows.places), np.nan)
    values = np.asarray(time.values, dtype=np.float64)
    done = ~np.asarray(rows.failed)
    is_wrong = done & ((values < 0) | np.isinf(values))
    wrong, completed = int(is_wrong.sum()), int(done.sum())
    if wrong:
        first = int(is_wrong.argmax())
        most = max(1.0, _FEW_NEGATIVE * completed) if completed > 1 else 0.0
        if wrong > most or np.isinf(values[is_wrong]).any():
            _refuse(rows, first, time.field, values[first], "the latency must be >= 0")
        note(
            f"{rows.source.path} {rows.places[first]}, {time.field} = {_shown(values[first])}: a "
            f"latency below 0 is taken as unknown ({wrong} of {completed:,} completed requests)"
        )
    is_known = (values >= 0) & (values < math.inf)
    return np.where(is_known, values, np.nan) / PER_SECOND[time.unit]


def _gaps(rows: Rows, order: Ints | None) -> TokenGaps | None:
    if rows.token_gaps is None:
        return None
    field, unit, gaps = rows.token_gaps
    assert isinstance(gaps, Lists)
    if len(gaps.values) and not 0 <= gaps.values.min() <= gaps.values.max() < math.inf:
        value = int((~_are_gaps(gaps)).argmax())
        _refuse(rows, gaps.row_of(value), field, gaps.values[value], _GAP)
    in_order = gaps if order is None else gaps.rows(order)
    np.divide(in_order.values, PER_SECOND[unit], out=in_order.values)  # they are many
    return TokenGaps(in_order.values, in_order.offsets)


def _are_gaps(gaps: Lists) -> Booleans:
    found: Booleans = (gaps.values >= 0) & (gaps.values < math.inf)
    return found


def _refuse(rows: Rows, row: int, name: str, value: Any, allowed: str) -> NoReturn:
    shown = _shown(value)
    raise TraceError(f"{rows.source.path} {rows.places[row]}, {name} = {shown}: {allowed}")


def _shown(value: Any) -> str:
    """Return a value for errors; numbers without a fraction of 0."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return f"{value!r:.40}"
