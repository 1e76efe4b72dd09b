"""CSV files whose columns the caller names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.csv_columns import (
    MEANINGS,
    STATES,
    TIMES,
    CsvColumns,
    request_rows,
    unit_of,
)
from spillway.files.recordings.states import kind_of
from spillway.files.recordings.units import PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.files.recordings.rows import Rows, Settings
    from spillway.files.recordings.source import Source
    from spillway.files.recordings.states import Kind


_REQUIRED = ("send_s", "input_tokens", "output_tokens")


def _read(source: Source, settings: Settings) -> list[Rows]:
    """`columns` maps meanings to columns of the file.

    They are `send_s`, `input_tokens`, `output_tokens`, `ttft_s`, `e2e_s`, `first_token_s`,
    `last_token_s` (instants on the clock of `send_s`), `failed` (which is true, or holds an error,
    for requests that failed), `completed` (the opposite) and `tenant`; both of `failed` and
    `completed` may be states or codes of HTTP. A column of times has the unit in which its name
    ends, or that in `units`: s, ms, us or ns.
    """
    return [request_rows(source, _columns(source, settings), settings)]


def _columns(source: Source, settings: Settings) -> CsvColumns:
    names = mapped(settings, MEANINGS, '"send_s": "t0_ms"')
    if missing := [meaning for meaning in _REQUIRED if meaning not in names]:
        raise TraceError(f"columns: {', '.join(missing)} missing")
    if not {"ttft_s", "e2e_s", "first_token_s", "last_token_s"} & set(names):
        raise TraceError("columns: must name a latency: ttft_s, e2e_s, first_token_s, last_token_s")
    kinds = {
        names[meaning]: _kind(meaning, names[meaning]) for meaning in STATES if meaning in names
    }
    if not kinds:  # columns of states are recognized, as without a map
        others = [name for name in source.columns["csv"] if name not in names.values()]
        kinds = {name: kind for name in others if (kind := kind_of(name)) is not None}
    return CsvColumns(names, units_of(names, TIMES, settings), kinds)


def mapped(settings: Settings, meanings: Sequence[str], example: str) -> Mapping[str, str]:
    """Return the columns that the caller names, by meaning; `example`: an entry, for the error.

    Raises TraceError without any, or for a meaning that is none of these.
    """
    names = settings.columns
    if not names:
        raise TraceError(f"columns: missing; e.g. columns={{{example}, …}}")
    for meaning, column in names.items():
        if meaning not in meanings:
            raise TraceError(
                f"columns[{meaning!r}] = {column!r:.40}: not a meaning; must be one of "
                f"{', '.join(meanings)}"
            )
        if not isinstance(column, str):
            raise TraceError(f"columns[{meaning!r}] = {column!r:.40}: must be the name of a column")
    return names


def units_of(names: Mapping[str, str], times: Sequence[str], settings: Settings) -> dict[str, str]:
    """Return the unit of each column of times, which its name or the caller states.

    `names`: meaning → column, `times`: the meanings of times. Raises TraceError without a unit.
    """
    columns = {names[meaning]: meaning for meaning in times if meaning in names}
    given = settings.units or {}
    for column, unit in given.items():
        if column not in columns:
            allowed = f"not a column of times; must be one of {', '.join(columns)}"
            raise TraceError(f"units[{column!r}] = {unit!r:.40}: {allowed}")
        if unit not in PER_SECOND:
            allowed = f"must be one of {', '.join(PER_SECOND)}"
            raise TraceError(f"units[{column!r}] = {unit!r:.40}: {allowed}")
    units: dict[str, str] = {}
    for column, meaning in columns.items():
        found = given.get(column) or unit_of(column)
        if found is None:
            raise TraceError(
                f"columns[{meaning!r}] = {column!r}: the name does not end in a unit; state it, "
                f'e.g. units={{{column!r}: "ms"}}'
            )
        units[column] = found
    return units


def _kind(meaning: str, column: str) -> Kind:
    """Return what a column with this meaning says. Raises TraceError if its name says otherwise."""
    opposite, others = ("failed", _FAILURES) if meaning == "completed" else ("completed", _DONE)
    kind = kind_of(column)
    if kind in others:
        raise TraceError(
            f"columns[{meaning!r}] = {column!r}: the name says the opposite; write "
            f"--columns {opposite}={column} (columns={{{opposite!r}: {column!r}, …}} in Python)"
        )
    return kind or ("completed" if meaning == "completed" else "failed")


_DONE: tuple[Kind, ...] = ("completed",)
_FAILURES: tuple[Kind, ...] = ("failed", "error")


FORMAT = Format(
    name="columns",
    doc='CSV with any names: columns={"send_s": "t0_ms", …}, units={"t0_ms": "ms"}',
    gives=("recordings",),  # chosen by the argument `columns`
    read=_read,
)
