"""Files of any columns, which the caller names or a format knows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from spillway.config.formatting import quoted
from spillway.config.limits import LONGEST_SPAN_S
from spillway.config.messages import note
from spillway.files import states
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.options import AUTO, ISO, TIME_UNIT, TIME_ZONE, UNITS, unit_in
from spillway.files.traces import spillway_csv
from spillway.files.traces.csv_table import CsvTable, decimal_to_ns
from spillway.files.traces.jsonl_table import DECIMAL, JsonlTable, text_of
from spillway.files.traces.rows import ATTRIBUTE, Rows, since_first
from spillway.files.traces.timestamps import ALLOWED, has_zone, timestamp_to_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.files.head import Layout
    from spillway.files.traces.arrow import Cells
    from spillway.files.traces.table import Int64s


_PLACES = dict(zip(UNITS, (9, 6, 3, 0), strict=True))  # decimal places of a nanosecond
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_EARLIEST_DATE_NS = 10**9 * 10**9  # smaller numbers count from the start of a run, not from 1970

_REQUIRED = spillway_csv.FORMAT.required
_STATES = ("failed", "completed")
_AS_WRITTEN = ("string", "int64")  # types of arrays whose texts are those in the file
_MEANINGS = (*_REQUIRED, *(spillway_csv.FORMAT.optional or ()), *_STATES, "cached_tokens")


_TURNS = (
    "{n} requests are turns of sessions: their prompts are read as the whole conversation, which "
    "begins with the prompt and the answer before"
)


def mapped(columns: Mapping[str, str], time_unit: str, layout: Layout) -> Format:
    """Return the format of files whose columns have these names by their meaning.

    What every request needs is by default in columns of the same names. Raises TraceError for an
    unknown meaning or unit.
    """
    for meaning, column in columns.items():
        if meaning not in _MEANINGS and not meaning.startswith(ATTRIBUTE):
            raise TraceError(
                f"columns, {meaning} = {column!r:.40}: unknown meaning; must be one of "
                f"{', '.join(_MEANINGS)}, {ATTRIBUTE}…"
            )
        if not isinstance(column, str) or not column or not column.isprintable():
            raise TraceError(f"columns, {meaning} = {column!r:.40}: must be the name of a column")
    columns = {meaning: meaning for meaning in _REQUIRED if meaning not in columns} | dict(columns)
    if ("prefix_group" in columns) != ("prefix_tokens" in columns):
        raise TraceError("columns: prefix_group and prefix_tokens belong together")
    if "prefix_group" in columns and "cached_tokens" in columns:
        raise TraceError("columns: give prefix_group or cached_tokens, not both")
    if time_unit not in TIME_UNIT.choices:
        allowed = ", ".join(TIME_UNIT.choices)
        raise TraceError(f"time_unit = {time_unit!r:.40}: must be one of {allowed}")
    clock = Clock(time_unit)

    def rows(table: CsvTable | JsonlTable, *, time_zone: str) -> Rows:
        named = _Mapped(
            table.path, tuple(columns), table.lines, {}, columns, table, unit=table.unit
        )
        if isinstance(table, JsonlTable) and not clock.is_set:
            _note_empty(table, named)
        return rows_of(named, clock, time_zone)

    return Format(
        name="columns",
        doc=", ".join(f"{meaning}={column}" for meaning, column in columns.items()),
        layout=layout,
        required=tuple(columns.values()) if layout == "csv" else (),
        optional=None,
        arrival=columns["arrival_s"],
        rows=rows,
        retime=since_first,
        options=(TIME_ZONE,),
    )


@dataclass(frozen=True)
class Named(CsvTable):
    """A table whose columns have the names of their meanings; errors give those of the file."""

    names: Mapping[str, str]

    def refuse(self, row: int, column: str, allowed: str, *, shown: str = "") -> NoReturn:
        """Raise the same under the name in the file."""
        shown = shown or self.shown(row, column)
        super().refuse(row, self.names.get(column, column), allowed, shown=shown)

    def others(self) -> tuple[Sequence[str], Callable[[str], Sequence[str]]]:
        """Return the further columns of the file that say which calls failed, and their texts."""
        return states.columns_among(self.columns, _MEANINGS), self.texts


def named_cells(
    table: JsonlTable, names: Mapping[str, str], cells: Mapping[str, Sequence[Any]]
) -> Named:
    """Return values of JSON, by their meaning, as a table; errors give them under their `names`."""
    texts = {meaning: list(map(text_of, values)) for meaning, values in cells.items()}
    return Named(table.path, tuple(texts), table.lines, texts, names, unit=table.unit)


@dataclass(frozen=True)
class _Mapped(Named):
    """A table that has the names from the caller."""

    table: CsvTable | JsonlTable

    def cell(self, row: int, column: str) -> str:
        return self.texts(column)[row]

    def cells_of(self, column: str) -> Cells:
        if column not in self.names:
            return [""] * len(self)
        name = self.names[column]
        if isinstance(self.table, CsvTable):
            return self.table.cells_of(name)
        array = self.table.array(name, *_AS_WRITTEN, DECIMAL)
        if array is None:
            return _texts_at(self.table, name)
        return array if str(array.type) == DECIMAL else array.cast("string")

    def texts(self, column: str) -> Sequence[str]:
        name = self.names.get(column, "")
        if isinstance(self.table, JsonlTable) and self.table.array(name, DECIMAL) is not None:
            return _texts_at(self.table, name)
        return super().texts(column)

    def others(self) -> tuple[Sequence[str], Callable[[str], Sequence[str]]]:
        found = states.columns_among(self.table.columns, self.names.values())
        table = self.table
        return found, table.texts if isinstance(table, CsvTable) else lambda c: _texts_at(table, c)


def rows_of(named: Named, clock: Clock, time_zone: str = AUTO) -> Rows:
    """Return the requests of a table whose columns have the names of their meanings."""
    arrival_ns = clock.times_ns(named, "arrival_s", time_zone)
    found = spillway_csv.rows(named, arrival_ns, _failed(named))
    notes = dict(found.notes)
    if text := clock.note:
        notes[text.replace("{", "{{").replace("}", "}}")] = 1
    cached = None
    if "cached_tokens" in named.columns:
        cached = named.whole("cached_tokens", empty="0")
        if (too_long := cached > found.input_tokens).any():
            row = int(too_long.argmax())
            allowed = f"must be <= input_tokens ({found.input_tokens[row]})"
            named.refuse(row, "cached_tokens", allowed)
    if turns := sum(map(bool, found.session)):
        notes[_TURNS] = turns
    return dataclasses.replace(found, notes=notes, cached_tokens=cached)


def _failed(named: Named) -> states.Failed:
    columns, texts = named.others()
    mapped = [meaning for meaning in _STATES if meaning in named.columns]
    if not mapped:
        return states.failed_in(columns, texts, len(named))
    kinds = {meaning: states.mapped_kind(meaning, named.names[meaning]) for meaning in mapped}
    found = states.failed_in(mapped, named.texts, len(named), kinds)
    if found.unclear:
        row, meaning, _ = found.unclear
        allowed = "must say whether the call failed, e.g. true, an error, or a status such as 200"
        named.refuse(row, meaning, allowed)
    return found._replace(columns=tuple(named.names[meaning] for meaning in mapped))


class Clock:
    """Times as text in nanoseconds; the first one decides the unit unless it is stated."""

    def __init__(self, unit: str = AUTO) -> None:
        self._unit = unit
        self._is_set = False
        self._note = ""

    @property
    def is_set(self) -> bool:
        """Whether times have been read."""
        return self._is_set

    @property
    def note(self) -> str:
        """What was assumed; "" if nothing was."""
        return self._note

    def times_ns(self, table: Named, column: str, time_zone: str = AUTO) -> Int64s:
        """Return the times of a column, whose unit is that of the first table."""
        if not self._is_set:
            self._decide(table, column, time_zone)
        unit = self._unit
        if unit == ISO:
            found = table.timestamps_ns(column, time_zone)
        elif unit == "s":
            found = table.seconds_ns(column)
        else:
            places = _PLACES[unit]
            highest = LONGEST_SPAN_S * 10 ** (9 - places)
            allowed = f"must be a number >= 0 and <= {highest} ({unit})"
            found = table.decimals_ns(column, places, allowed)
        self._is_set = True
        return found

    def _decide(self, table: Named, column: str, time_zone: str) -> None:
        text, name = table.cell(0, column), table.names.get(column, column)
        self._note = ""
        if self._unit == AUTO:
            self._unit = self._unit_of(table, column, text, name)
        if self._unit == ISO and time_zone == AUTO and not has_zone(text):
            self._note = (
                f"times without a time zone, such as {quoted(text)}, are read as UTC; "
                f"{TIME_ZONE.flags[0]} ({TIME_ZONE.name} in Python) states another zone"
            )

    def _unit_of(self, table: Named, column: str, text: str, name: str) -> str:
        """Return the unit of a time: that in the name of its column, or by its size."""
        for unit, places in _PLACES.items():
            try:
                time_ns = decimal_to_ns(text, places)
            except ValueError:
                continue
            known = unit_in(name)
            if known is None and time_ns < _EARLIEST_DATE_NS:
                self._note = (
                    f"the times in {quoted(name)} are read as {_UNIT_NAMES[unit]}; "
                    f"{TIME_UNIT.flags[0]} ({TIME_UNIT.name} in Python) states another unit"
                )
            return known or unit
        try:
            timestamp_to_ns(text)
        except ValueError:
            known = "a number, or a date with a time"
            table.refuse(0, column, f"must be {known}: {ALLOWED.removeprefix('must be ')}")
        return ISO


def _note_empty(table: JsonlTable, named: _Mapped) -> None:
    """Warn of keys that no object has, which may be misspelled."""
    if empty := [
        column
        for meaning, column in named.names.items()
        if meaning not in _REQUIRED and not any(named.texts(meaning))
    ]:
        note(
            f"{table.path}: no object of the first {len(table)} has {', '.join(empty)}; they have "
            f"{', '.join(table.columns[:20])}{', …' if len(table.columns) > 20 else ''}"
        )


def _texts_at(table: JsonlTable, name: str) -> list[str]:
    return list(map(text_of, table.values(name)))
