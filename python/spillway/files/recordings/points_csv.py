"""Tables of mean latencies whose columns the caller names."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, NoReturn

from spillway.config.messages import note
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.column_map import mapped, units_of
from spillway.files.recordings.points import Point, points_of
from spillway.files.recordings.server import FACT_NAMES, fact_of, facts
from spillway.files.recordings.units import PER_SECOND
from spillway.files.traces.csv_table import csv_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spillway.data.recording import LatencyPoints
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


LOADS = frozenset({"concurrency", "requests_per_s"})
"""The meanings of columns that only tables of points have."""

_TIMES = ("ttft_s", "itl_s")
_LENGTHS = ("input_tokens", "output_tokens")
_FACTS = ("model", "gpu", "engine", "engine_version", "tensor_parallel_size", "data_parallel_size")
_MEANINGS = ("concurrency", "requests_per_s", *_TIMES, *_LENGTHS, "load_kind", *_FACTS)

# The load of a row, by what its `load_kind` says.
_KINDS = {
    **dict.fromkeys(("concurrency", "max_concurrency", "in_flight", "users"), "concurrency"),
    **dict.fromkeys(("requests_per_s", "request_rate", "rate", "qps", "rps"), "requests_per_s"),
}
_OTHER_THAN_MEAN = re.compile(r"(?:^|_)(p[0-9]{1,3}|median|min|max)(?:_|$)", re.IGNORECASE)


def _read(source: Source, settings: Settings) -> list[LatencyPoints]:
    """`columns` maps meanings to columns of the file, a row of which is a point.

    They are `concurrency` or `requests_per_s`, `ttft_s`, `itl_s`, `input_tokens` and
    `output_tokens` (a column, or a number that holds for all rows), `load_kind` (a column that says
    which of the two loads a row states; one of this name is found), and facts of the server:
    `model`, `gpu`, `engine`, `engine_version`, `tensor_parallel_size`, `data_parallel_size`.
    A column of times has the unit in which its name ends, or that in `units`. Rows with other texts
    in the other columns are another group.
    """
    names = _names(settings)
    with contextlib.closing(csv_tables(source.path)) as tables:
        header = list(next(tables).columns)
        rows = [
            (f"line {table.lines[row]}", {name: table.cell(row, name) for name in header})
            for table in tables
            for row in range(len(table))
        ]
    if not rows:
        raise TraceError(f"{source.path}: holds no points, only a header row")
    table = _Table(source, _present(source, names, header), settings)
    return points_of(source, list(table.points(rows)), settings)


def _names(settings: Settings) -> Mapping[str, str]:
    names = mapped(settings, _MEANINGS, ("concurrency", "users"))
    if missing := [meaning for meaning in _LENGTHS if meaning not in names]:
        raise TraceError(
            f"columns: {', '.join(missing)} missing; must name columns, or state the length of all "
            f"rows, e.g. {missing[0]}=512"
        )
    for several, what in ((sorted(LOADS), "a load"), (_TIMES, "a latency")):
        if not set(several) & set(names):
            raise TraceError(f"columns: must name {what}: {' or '.join(several)}")
    return names


def _present(source: Source, names: Mapping[str, str], header: Sequence[str]) -> dict[str, str]:
    """Return the columns by meaning, all of which the file has."""
    found = dict(names)
    if "load_kind" not in found and "load_kind" in header:
        found["load_kind"] = "load_kind"
    for meaning, column in found.items():
        is_length = meaning in _LENGTHS and column.isdecimal() and column not in header
        if not is_length and header.count(column) != 1:
            problem = "the header row has no such column" if column not in header else "twice"
            raise TraceError(f"{source.path}, {meaning} = {column!r}: {problem}; it has {header!r}")
    return found


class _Table:
    """The rows of a table as points."""

    def __init__(self, source: Source, names: Mapping[str, str], settings: Settings) -> None:
        self.source = source
        self.names = names
        self.units = units_of(names, _TIMES, settings)
        for meaning in _TIMES:
            column = names.get(meaning, "")
            if found := _OTHER_THAN_MEAN.search(column):
                note(f"{source.path}, {column}: the {found[1]} of each run is taken as its mean")

    def points(self, rows: Sequence[tuple[str, dict[str, str]]]) -> Iterator[Point]:
        mapped = set(self.names.values())
        others = [name for name in rows[0][1] if name and name not in mapped]
        texts = [
            name
            for name in others
            if name in FACT_NAMES or any(_number(cells[name]) is None for _, cells in rows)
        ]
        if unused := [name for name in others if name not in texts]:
            note(f"{self.source.path}: unused columns: {', '.join(unused)}")
        for place, cells in rows:
            yield self._point(place, cells, {name: cells[name] for name in texts if cells[name]})

    def _point(self, place: str, cells: Mapping[str, str], group: dict[str, str]) -> Point:
        named = {name: cells[self.names[name]] for name in _FACTS if name in self.names}
        group |= {name: text for name, text in named.items() if text}
        known = {name: fact_of(name, text) for name, text in group.items() if name in FACT_NAMES}
        loads = {name: self._load(place, cells, name) for name in LOADS}
        concurrency = loads["concurrency"]
        return Point(
            place,
            input_tokens=self._length(place, cells, "input_tokens"),
            output_tokens=self._length(place, cells, "output_tokens"),
            concurrency=None if concurrency is None else int(concurrency),
            requests_per_s=loads["requests_per_s"],
            ttft_s=self._time_s(place, cells, "ttft_s"),
            itl_s=self._time_s(place, cells, "itl_s"),
            server=facts(f"{self.source.path} {place}", known),
            group=group,
        )

    def _load(self, place: str, cells: Mapping[str, str], name: str) -> float | None:
        """Return the load of a row; None where the row states the other one."""
        if name not in self.names:
            return None
        if kind := self.names.get("load_kind"):
            said = cells[kind].strip().lower()
            if said not in _KINDS:
                self._refuse(place, kind, said, f"must be one of {', '.join(_KINDS)}")
            if _KINDS[said] != name:
                return None
        text = cells[self.names[name]]
        if not text.strip():
            return None
        number = _number(text)
        if name == "requests_per_s" and number is None and text.strip().lower() == "inf":
            return math.inf
        is_valid = number is not None and number > 0
        if name == "concurrency":
            is_valid = is_valid and number is not None and number < 2**31 and not number % 1
        if not is_valid:
            whole = "a whole number >= 1" if name == "concurrency" else "a number > 0"
            self._refuse(place, self.names[name], text, f"must be {whole}")
        return number

    def _length(self, place: str, cells: Mapping[str, str], name: str) -> float:
        column = self.names[name]
        text = cells.get(column, column)
        number = _number(text)
        if number is None or not 1 <= number < 2**31:
            self._refuse(place, column, text, "must be a number of tokens >= 1")
        return number

    def _time_s(self, place: str, cells: Mapping[str, str], name: str) -> float | None:
        column = self.names.get(name)
        if column is None or not cells[column].strip():
            return None
        number = _number(cells[column])
        if number is None or number < 0:
            self._refuse(place, column, cells[column], "must be a number >= 0 or empty")
        return number / PER_SECOND[self.units[column]]

    def _refuse(self, place: str, column: str, text: str, allowed: str) -> NoReturn:
        raise TraceError(f"{self.source.path} {place}, {column} = {text!r:.40}: {allowed}")


def _number(text: str) -> float | None:
    """Return the finite number that a cell holds, 0 if it is empty; None of a text."""
    if not text.strip():
        return 0.0
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


FORMAT = Format(
    name="points",
    doc='CSV with a mean per row and any names: columns={"concurrency": "users", …}',
    gives=("points",),  # chosen by the argument `columns`
    read=_read,
)
