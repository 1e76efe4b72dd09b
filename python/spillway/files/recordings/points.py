"""Mean latencies of servers: the points of a file, grouped by what they have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.limits import MAX_TOKENS
from spillway.config.messages import note
from spillway.data.recording import LatencyPoints, ServerFacts
from spillway.files.error import TraceError
from spillway.files.recordings.units import ESCAPE, MEDIAN_ITL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


@dataclass(frozen=True)
class Point:
    """A measured mean, as a file states it.

    Attributes
    ----------
    place : str
        The place in the file, for errors.
    input_tokens, output_tokens : float
        Lengths in tokens: nominal ones, or means.
    concurrency : int, optional
        Requests that the client keeps in flight.
    requests_per_s : float, optional
        The rate at which it sends, infinite for all at once.
    ttft_s, itl_s : float, optional
        Mean latencies.
    server : ServerFacts
        The statements about the server.
    group : mapping of str
        What else the points of one group have in common.

    """

    place: str
    input_tokens: float
    output_tokens: float
    concurrency: int | None = None
    requests_per_s: float | None = None
    ttft_s: float | None = None
    itl_s: float | None = None
    server: ServerFacts = field(default_factory=ServerFacts)
    group: Mapping[str, str] = field(default_factory=dict)


_SAME_LENGTH = 0.05
"""Mean lengths of one group differ by at most this share: every run draws them anew."""


def points_of(source: Source, points: Sequence[Point], settings: Settings) -> list[LatencyPoints]:
    """Return the points of each server and kind of requests, by concurrency, then by rate.

    Points without a latency or a load are left out. Raises TraceError if none remain, or the time
    between tokens probably has another unit. Warns of what is left out and of what is not known.
    """
    path = source.path
    for point in points:
        for name in ("input_tokens", "output_tokens", "concurrency"):
            value = getattr(point, name)
            if value is not None and value > MAX_TOKENS:
                allowed = f"must be <= {MAX_TOKENS}"
                raise TraceError(f"{path}, {point.place}: {name} = {value:g}: {allowed}")
    for why, is_wrong in _LEFT_OUT.items():
        wrong = [point for point in points if is_wrong(point)]
        points = [point for point in points if not is_wrong(point)]
        if wrong:
            note(f"{path}: {len(wrong)} points are left out: {why} ({wrong[0].place})")
    if not points:
        raise TraceError(f"{path}: holds no points with a load and a mean latency")
    itl_s = [point.itl_s for point in points if point.itl_s is not None]
    low, high = MEDIAN_ITL_S
    if settings.check_units and itl_s and not low <= float(np.median(itl_s)) <= high:
        raise TraceError(
            f"{path}: the time per token is {np.median(itl_s):.4g} s (median of the points): "
            f"probably another unit; must be >= {low:g} s and <= {high:g} s{ESCAPE}"
        )
    if rates := [point for point in points if point.concurrency is None]:
        note(
            f"{path}: {len(rates)} points state the rate of requests and no limit in flight "
            f"({rates[0].place}): how many requests share a step follows from rate and latency, "
            "and below saturation nothing is known of the capacity"
        )
    for name in ("ttft_s", "itl_s"):
        if missing := [point for point in points if getattr(point, name) is None]:
            note(f"{path}: {len(missing)} points have no {name} ({missing[0].place})")
    return [_group(same) for same in _groups(points)]


def _has_no_latency(point: Point) -> bool:
    return point.ttft_s is None and point.itl_s is None


def _has_no_load(point: Point) -> bool:
    return point.concurrency is None and point.requests_per_s is None


_LEFT_OUT: Mapping[str, Callable[[Point], bool]] = {
    "they have no latency": _has_no_latency,
    "they state no load that is read": _has_no_load,
}


def _groups(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the points of one server, group and pair of lengths."""
    by_server: dict[Any, list[list[Point]]] = {}
    for point in sorted(points, key=lambda point: (point.input_tokens, point.output_tokens)):
        groups = by_server.setdefault((point.server, *sorted(point.group.items())), [])
        for group in groups:
            if _is_near(group[0].input_tokens, point.input_tokens) and _is_near(
                group[0].output_tokens, point.output_tokens
            ):
                group.append(point)
                break
        else:
            groups.append([point])
    for groups in by_server.values():
        yield from groups


def _is_near(first: float, second: float) -> bool:
    return abs(first - second) <= _SAME_LENGTH * first


def _group(points: list[Point]) -> LatencyPoints:
    def rate(point: Point) -> float:
        return math.inf if point.requests_per_s is None else point.requests_per_s

    def known(values: Iterator[float | None]) -> list[float]:
        return [math.nan if value is None else value for value in values]

    points.sort(key=lambda point: (point.concurrency or 0, rate(point)))
    rates = [rate(point) for point in points]
    states_rates = not all(map(math.isinf, rates)) or any(not p.concurrency for p in points)
    return LatencyPoints(
        server=points[0].server,
        group=points[0].group,
        input_tokens=round(sum(point.input_tokens for point in points) / len(points)),
        output_tokens=round(sum(point.output_tokens for point in points) / len(points)),
        concurrency=np.array([point.concurrency or 0 for point in points]),
        ttft_s=np.array(known(point.ttft_s for point in points)),
        itl_s=np.array(known(point.itl_s for point in points)),
        requests_per_s=np.array(rates) if states_rates else None,
    )
