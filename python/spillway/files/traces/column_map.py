"""Files of any columns, which the caller names."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from spillway.config.limits import LONGEST_SPAN_S
from spillway.config.messages import note
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.options import AUTO, ISO, TIME_UNIT, UNITS
from spillway.files.traces import spillway_csv
from spillway.files.traces.csv_table import CsvTable, decimal_to_ns
from spillway.files.traces.jsonl_table import DECIMAL, JsonlTable, at_path
from spillway.files.traces.rows import Rows, since_first
from spillway.files.traces.timestamps import timestamp_to_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.files.head import Layout
    from spillway.files.traces.arrow import Cells
    from spillway.files.traces.table import Int64s


_PLACES = dict(zip(UNITS, (9, 6, 3, 0), strict=True))  # decimal places of a nanosecond

_REQUIRED = spillway_csv.FORMAT.required
_AS_WRITTEN = ("string", "int64")  # types of arrays whose texts are those in the file
_MEANINGS = (*_REQUIRED, *(spillway_csv.FORMAT.optional or ()))


def mapped(columns: Mapping[str, str], time_unit: str, layout: Layout) -> Format:
    """Return the format of files whose columns have these names by their meaning.

    Raises TraceError for an unknown meaning or unit, or if a required meaning is missing.
    """
    for meaning, column in columns.items():
        if meaning not in _MEANINGS:
            raise TraceError(
                f"columns[{meaning!r}] = {column!r:.40}: unknown meaning; must be one of "
                f"{', '.join(_MEANINGS)}"
            )
        if not isinstance(column, str) or not column:
            raise TraceError(f"columns[{meaning!r}] = {column!r:.40}: must be the name of a column")
    if missing := [meaning for meaning in _REQUIRED if meaning not in columns]:
        raise TraceError(f"columns: {', '.join(missing)} missing")
    if ("prefix_group" in columns) != ("prefix_tokens" in columns):
        raise TraceError("columns: prefix_group and prefix_tokens belong together")
    if time_unit not in TIME_UNIT.choices:
        allowed = ", ".join(TIME_UNIT.choices)
        raise TraceError(f"time_unit = {time_unit!r:.40}: must be one of {allowed}")
    arrival = columns["arrival_s"]
    if time_unit == AUTO:
        ending = arrival.rpartition("_")[2]
        time_unit = ending if "_" in arrival and ending in _PLACES else AUTO
    clock = _Clock(time_unit)

    def rows(table: CsvTable | JsonlTable) -> Rows:
        named = _Renamed(table.path, tuple(columns), table.lines, {}, table, columns)
        if isinstance(table, JsonlTable) and not clock.is_set:
            _note_empty(table, named)
        return spillway_csv.rows(named, clock.times_ns(named, "arrival_s"))

    return Format(
        name="columns",
        doc=", ".join(f"{meaning}={column}" for meaning, column in columns.items()),
        layout=layout,
        required=tuple(columns.values()) if layout == "csv" else (),
        optional=None,
        arrival=arrival,
        rows=rows,
        retime=since_first,
    )


@dataclass(frozen=True)
class _Renamed(CsvTable):
    """A table whose columns have the names of their meanings; errors give those of the file."""

    table: CsvTable | JsonlTable
    names: Mapping[str, str]

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
            return [_text(at_path(row, name)) for row in self.table.objects]
        return array if str(array.type) == DECIMAL else array.cast("string")

    def texts(self, column: str) -> Sequence[str]:
        name = self.names.get(column, "")
        if isinstance(self.table, JsonlTable) and self.table.array(name, DECIMAL) is not None:
            return [_text(at_path(row, name)) for row in self.table.objects]
        return super().texts(column)

    def refuse(self, row: int, column: str, allowed: str, *, shown: str = "") -> NoReturn:
        shown = shown or self.shown(row, column)
        super().refuse(row, self.names.get(column, column), allowed, shown=shown)


class _Clock:
    """Times as text in nanoseconds; the first one decides the unit unless it is stated."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Whether times have been read."""
        return self._is_set

    def times_ns(self, table: CsvTable, column: str) -> Int64s:
        unit = self._unit
        if unit == AUTO:
            try:
                unit = _unit_of(table.cell(0, column))
            except ValueError:
                table.refuse(0, column, "must be a number, or a date with a time")
        if unit == ISO:
            found = table.timestamps_ns(column)
        elif unit == "s":
            found = table.seconds_ns(column)
        else:
            places = _PLACES[unit]
            highest = LONGEST_SPAN_S * 10 ** (9 - places)
            allowed = f"must be a number >= 0 and <= {highest} ({unit})"
            found = table.decimals_ns(column, places, allowed)
        self._unit = unit
        self._is_set = True
        return found


def _unit_of(text: str) -> str:
    """Return the unit of a time. Raises ValueError if it is none."""
    for unit, places in _PLACES.items():
        try:
            decimal_to_ns(text, places)
        except ValueError:
            continue
        return unit
    timestamp_to_ns(text)
    return ISO


def _note_empty(table: JsonlTable, named: _Renamed) -> None:
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


def _text(value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value if isinstance(value, str) else "" if value is None else repr(value)
