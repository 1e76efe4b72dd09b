"""Observations that Langfuse exports."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from spillway.files.format import Format
from spillway.files.options import TIME_ZONE
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.files.traces.csv_table import CsvTable
    from spillway.files.traces.jsonl_table import JsonlTable


def _rows(table: JsonlTable, *, time_zone: str) -> Rows:
    """Generations are requests; spans and events are left out, and so are those without usage.

    A prompt is the sum of the usage whose names have `input` in them, as in Langfuse, and prompts
    of which the server had cached tokens begin alike. The tenant is `userId`. Requests are sorted,
    and times count from the first. A generation of the level ERROR has no output.
    """
    from spillway.files.traces.column_map import Clock, named_cells, rows_of

    usages = list(map(_usage, table.objects))
    level = _of_either(table, "level", "level")
    cells = {
        "arrival_s": _of_either(table, "startTime", "start_time"),
        "input_tokens": [_sum(usage, "input", "prompt") for usage in usages],
        "output_tokens": [_sum(usage, "output", "completion") for usage in usages],
        "cached_tokens": [_cached(usage) for usage in usages],
        "tenant": _of_either(table, "userId", "user_id"),
        "failed": [str(text).upper() == "ERROR" for text in level],
    }
    names = {
        "arrival_s": "startTime",
        "input_tokens": "usageDetails.input",
        "output_tokens": "usageDetails.output",
        "cached_tokens": "usageDetails.input_cached_tokens",
        "tenant": "userId",
        "failed": "level",
    }
    return rows_of(named_cells(table, names, cells), Clock(), time_zone)


def _csv_rows(table: CsvTable, *, time_zone: str) -> Rows:
    """The same in CSV.

    Usage is a cell with a JSON object, or columns such as `inputUsage` or `usageDetails.input`.
    """
    return _rows(_as_objects(table), time_zone=time_zone)


def _as_objects(table: CsvTable) -> JsonlTable:
    """Return the rows as objects; a name with a dot leads into one."""
    from spillway.files.traces.jsonl_table import JsonlTable

    columns = {name: table.texts(name) for name in table.columns}
    objects = []
    for row in range(len(table)):
        found: dict[str, Any] = {}
        for name, texts in columns.items():
            text = texts[row].strip()
            outer, dot, inner = name.partition(".")
            value = int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else text
            if not text:
                continue
            if dot:
                found.setdefault(outer, {})[inner] = value
            else:
                found[name] = value
        objects.append(found)
    return JsonlTable(table.path, table.columns, table.lines, objects, unit=table.unit)


_MOST_DIGITS = 18


def _is_generation_in_csv(table: CsvTable) -> list[bool]:
    return _is_generation(_as_objects(table))


def _is_generation(table: JsonlTable) -> list[bool]:
    """Return which observations are calls of a model with known usage, or failed calls."""
    kinds = [str(kind).upper() for kind in table.values("type")]
    levels = [str(level).upper() for level in table.values("level")]
    return [
        kind == "GENERATION" and (level == "ERROR" or _sum(_usage(row), "input", "prompt") != "")
        for kind, level, row in zip(kinds, levels, table.objects, strict=True)
    ]


def _of_either(table: JsonlTable, *keys: str) -> list[Any]:
    """Return the values of the first key that each object has."""
    return [
        next((row[key] for key in keys if row.get(key) is not None), "") for row in table.objects
    ]


def _usage(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tokens of an observation by name; those of newer versions if it has several."""
    for key in ("usageDetails", "usage_details", "usage"):
        found = row.get(key)
        if isinstance(found, str) and found.startswith("{"):
            try:
                found = json.loads(found)
            except ValueError:
                continue
        if isinstance(found, dict) and any(_tokens(found.values())):
            return found
    names = ("promptTokens", "completionTokens", "inputUsage", "outputUsage")
    return {name: row[name] for name in names if row.get(name)}


def _tokens(values: Iterable[Any]) -> list[int]:
    return [value for value in values if type(value) is int]


def _sum(usage: Mapping[str, Any], *words: str) -> int | str:
    """Return the sum of the tokens with one of the words in their names; "" without any."""
    found = _tokens(
        value for name, value in usage.items() if any(word in name.lower() for word in words)
    )
    return sum(found) if found else ""


def _cached(usage: Mapping[str, Any]) -> int:
    """Return the tokens of the prompt that the server had in its cache."""
    return sum(
        _tokens(
            value
            for name, value in usage.items()
            if "input" in name and "cache" in name and "creation" not in name
        )
    )


FORMAT = Format(
    name="langfuse",
    doc="Observations of Langfuse: startTime,traceId,type,usageDetails, and level, userId",
    layout="jsonl",
    required=("startTime", "traceId", "type"),
    optional=None,
    arrival="startTime",
    sorts=True,
    select=_is_generation,
    left_out="observations that are no generations with usage",
    rows=_rows,
    retime=since_first,
    options=(TIME_ZONE,),
)

EXPORT = dataclasses.replace(
    FORMAT,
    name="langfuse_export",
    doc="Observations as Langfuse exports them to files: start_time,trace_id,type,usage_details",
    required=("start_time", "trace_id", "type"),
    arrival="start_time",
)

CSV, EXPORT_CSV = (
    dataclasses.replace(
        form,
        name=f"{form.name}_csv",
        doc=f"{form.doc.partition(':')[0]}, as CSV:{form.doc.partition(':')[2]}",
        layout="csv",
        precedence=-1,  # JSON has the same names
        select=_is_generation_in_csv,
        rows=_csv_rows,
    )
    for form in (FORMAT, EXPORT)
)
