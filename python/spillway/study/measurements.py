"""Measurements of configurations, and a file in which they outlive an interrupted sweep."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

from spillway.analysis import stationarity
from spillway.config import interruption
from spillway.config.files import fingerprint
from spillway.config.randomness import note_on_copies
from spillway.data.figures import is_share, is_signed, usual_skewness
from spillway.data.intervals import Interval, fewest, interval
from spillway.study.json_lines import JsonLines
from spillway.study.objective import identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway.study.objective import Metric


INTERRUPTED = "interrupted before all its runs were over"
_WHAT = "a measurement of a sweep"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurements of one configuration: per metric a value per seed, or a failure.

    `is_replicated`: whether the runs differ; if not, the values of one run are repeated for each
    seed. `num_blocks`: how many blocks the trace holds if the seeds are resamples of one, or None.
    `caveats`: per metric, why its interval over resamples is doubtful, or nothing. `trends`: that
    of each run, if all have one. `error`: the exception that is the failure, if a metric raised it.
    """

    values: tuple[tuple[float, ...], ...] = ()
    failure: str | None = None
    error: Exception | None = dataclasses.field(default=None, compare=False)
    is_replicated: bool = True
    num_blocks: float | None = None
    caveats: tuple[str, ...] = ()
    trends: tuple[stationarity.Trend, ...] = ()

    @property
    def distinct(self) -> tuple[tuple[float, ...], ...]:
        """The values of the different runs: only of the first, if all are identical."""
        return self.values if self.is_replicated else tuple(row[:1] for row in self.values)

    @property
    def is_whole(self) -> bool:
        """Whether neither Ctrl-C nor an exception of a metric ended the measurement."""
        return self.failure != INTERRUPTED and self.error is None

    @property
    def growth(self) -> stationarity.Growth | None:
        """The growth of the number of requests in the system; None if unknown."""
        return stationarity.growth(trend.whole for trend in self._distinct_trends)

    @property
    def saturation(self) -> stationarity.Verdict | None:
        """Whether the system keeps up, judged from all runs together; None if it is not known.

        Streaming runs keep no requests, and a run of fewer than 300 shows nothing.
        """
        growth, verdict = stationarity.of_trends(self._distinct_trends)
        return None if growth is None else verdict

    @property
    def _distinct_trends(self) -> tuple[stationarity.Trend, ...]:
        return self.trends if self.is_replicated else self.trends[:1]

    def followed_by(self, other: Measured) -> Measured:
        """The measurements extended by further seeds."""
        if self.failure is not None or other.failure is not None:
            return self if self.failure is not None else other
        pairs = zip(self.values, other.values, strict=True)
        rows = tuple(row + further for row, further in pairs)
        caveats = zip(self.caveats, other.caveats, strict=True)
        differ = self.is_replicated or other.is_replicated or any(len(set(row)) > 1 for row in rows)
        return Measured(
            rows,
            is_replicated=differ,
            num_blocks=self.num_blocks,
            caveats=tuple(early or late for early, late in caveats),
            trends=(*self.trends, *other.trends) if self.trends and other.trends else (),
        )


def interval_of(
    values: Sequence[float], confidence: float, figure: str, column: int, *measured: Measured
) -> Interval:
    """The interval of a figure, the metric in this column, or of its difference between two."""
    return interval(
        values,
        confidence,
        is_replicated=any(known.is_replicated for known in measured),
        is_share=is_share(figure),
        is_signed=is_signed(figure),
        is_difference=len(measured) > 1,
        num_blocks=fewest(known.num_blocks for known in measured),
        skewness=usual_skewness(figure) if len(measured) == 1 else 0.0,
        caveat=next(
            filter(None, (known.caveats[column] for known in measured if known.caveats)), ""
        ),
    )


def notes_on_copies(copied: Sequence[Simulation], total: int, what: str) -> list[str]:
    """A remark on configurations of which seeds change nothing; none if there are none.

    `total`: how many ran; `what`: what there are several of, e.g. trials.
    """
    if not copied:
        return []
    note = note_on_copies(copied)
    return [note if len(copied) == total else f"{len(copied)} of {total} {what}: {note}"]


class Measurements:
    """Finished measurements in a file, one JSON object per line.

    A measurement is found again by configuration, version of Spillway, seeds and metrics, so a
    changed sweep uses those that it still needs. The file appears with the first measurement.

    Raises ConfigError if the file cannot be read or written, with the line if one is unreadable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = self._lines.read() if path.exists() else ()
        self._known = dict(self._entry(number, line) for number, line in lines)

    def __len__(self) -> int:
        return len(self._known)

    @staticmethod
    def key(simulation: Simulation, seeds: Sequence[int], metrics: Iterable[Metric]) -> str:
        """What identifies a measurement.

        Raises ConfigError for a metric that is a function: whether it has changed is not known.
        """
        parts = [fingerprint(simulation), list(seeds), [identity(metric) for metric in metrics]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def find(self, key: str) -> Measured | None:
        """The measurement of this key; None if there is none."""
        return self._known.get(key)

    def add(self, measured: Mapping[str, Measured]) -> None:
        """Stores measurements by their keys, all or none."""
        if measured:
            with interruption.deferred():
                self._lines.append(
                    {"key": key, "measured": _encoded(measurement)}
                    for key, measurement in measured.items()
                )
                self._known |= measured

    def _entry(self, number: int, line: dict[str, Any]) -> tuple[str, Measured]:
        try:
            return str(line["key"]), _decoded(line["measured"])
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise self._lines.unreadable(number) from error

    @functools.cached_property
    def _lines(self) -> JsonLines:
        return JsonLines(self.path, "key", _WHAT)


def _encoded(measured: Measured) -> dict[str, Any]:
    found = dataclasses.asdict(measured)
    del found["error"]
    return found


def _decoded(stored: dict[str, Any]) -> Measured:
    more = {
        "values": tuple(map(_numbers, stored["values"])),
        "caveats": tuple(map(str, stored["caveats"])),
        "trends": tuple(map(_trend, stored["trends"])),
    }
    return Measured(**stored | more)


def _trend(stored: dict[str, Any]) -> stationarity.Trend:
    growths = {name: _numbers(stored[name]) for name in ("whole", "late")}
    return stationarity.Trend(**stored | growths)


def _numbers(stored: Iterable[float]) -> tuple[float, ...]:
    # The same NaN as of a measurement in this process, so that the two are equal.
    return tuple(math.nan if math.isnan(value) else float(value) for value in stored)
