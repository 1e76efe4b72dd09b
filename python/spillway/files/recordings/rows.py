"""The requests of one run as a format reads them, and the recording made of them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from spillway.config.limits import MAX_TOKENS
from spillway.data.recording import Recording, ServerFacts, TokenGaps
from spillway.files.error import TraceError
from spillway.files.recordings.server import merged
from spillway.files.recordings.source import digest
from spillway.files.recordings.units import PER_SECOND, check_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

    """

    columns: Mapping[str, str] | None = None
    units: Mapping[str, str] | None = None
    server: ServerFacts | Mapping[str, Any] | None = None
    client_max_in_flight: int | None = None
    check_units: bool = True


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

    """

    field: str
    unit: str
    values: Sequence[float | None]


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


def rows_of(
    source: Source,
    requests: Iterable[Request],
    fields: Mapping[str, tuple[str, str]],
    **others: Any,
) -> Rows:
    """Return requests as rows.

    `fields`: the name of `send`, `ttft`, `e2e` and `gaps` in the file, and the unit.
    """
    requests = list(requests)
    gaps = [request.gaps for request in requests]
    return Rows(
        source,
        send=Time(*fields["send"], [request.send for request in requests]),
        ttft=Time(*fields["ttft"], [r.ttft for r in requests]) if "ttft" in fields else None,
        e2e=Time(*fields["e2e"], [r.e2e for r in requests]) if "e2e" in fields else None,
        input_tokens=[request.input_tokens or 0 for request in requests],
        output_tokens=[request.output_tokens or 0 for request in requests],
        failed=[request.failed for request in requests],
        places=[request.place for request in requests],
        token_gaps=Gaps(*fields["gaps"], gaps) if any(gaps) else None,
        **others,
    )


def recording(rows: Rows, settings: Settings, form: str) -> Recording:
    """Return the run, sorted by time of sending.

    Raises TraceError if it has no requests, a value is invalid, or times probably have another
    unit.
    """
    path = rows.source.path
    if not rows.places:
        raise TraceError(f"{path}: holds no requests")
    failed = np.array(rows.failed, dtype=bool)
    send_s = _sending_s(rows)
    order = np.argsort(send_s, kind="stable")
    ttft_s = _latencies_s(rows, rows.ttft)
    end_s = _latencies_s(rows, rows.e2e)
    ttft_s[failed] = np.nan
    e2e_s, failure_s = end_s.copy(), end_s
    e2e_s[failed] = np.nan
    failure_s[~failed] = np.nan
    lengths = {}
    for name, values in (
        ("input_tokens", rows.input_tokens),
        ("output_tokens", rows.output_tokens),
    ):
        for row, value in enumerate(values):
            least = 1 if name == "input_tokens" and not failed[row] else 0
            if not least <= value <= MAX_TOKENS:
                _refuse(rows, row, name, value, f"must be >= {least} and <= {MAX_TOKENS}")
        lengths[name] = np.array(values, dtype=np.int64)[order]
    limit = settings.client_max_in_flight
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise TraceError(f"client_max_in_flight = {limit!r:.40}: must be a whole number >= 1")
    run = Recording(
        name=rows.name or path.stem,
        server=merged(rows.server, settings.server, path),
        send_s=send_s[order],
        input_tokens=lengths["input_tokens"],
        output_tokens=lengths["output_tokens"],
        ttft_s=ttft_s[order],
        e2e_s=e2e_s[order],
        failed=failed[order],
        failure_s=failure_s[order],
        token_gaps=_gaps(rows, order),
        tenant=None if rows.tenant is None else tuple(rows.tenant[row] for row in order),
        client_max_in_flight=rows.client_max_in_flight if limit is None else limit,
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
        check_units(run, path, fields)
    return run


def _sending_s(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
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


def _latencies_s(rows: Rows, time: Time | None) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if time is None:
        return np.full(len(rows.places), np.nan)
    for row, value in enumerate(time.values):
        if value is not None and not 0 <= value < math.inf and not rows.failed[row]:
            _refuse(rows, row, time.field, value, "the latency must be a number >= 0")
    known = [
        math.nan if value is None or not 0 <= value < math.inf else value for value in time.values
    ]
    return np.array(known, np.float64) / PER_SECOND[time.unit]


def _gaps(rows: Rows, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> TokenGaps | None:
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
