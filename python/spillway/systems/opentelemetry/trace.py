"""Spans of OpenTelemetry, by the semantic conventions for generative AI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.files.format import Format
from spillway.files.options import TIME_ZONE
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.files.traces.jsonl_table import JsonlTable


# Names of attributes, the current one first, then those of older conventions and of OpenInference.
_PROMPT = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.usage.prompt_tokens",
    "llm.token_count.prompt",
)
_OUTPUT = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.usage.completion_tokens",
    "llm.token_count.completion",
)
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
)
_OPERATION = "gen_ai.operation.name"
_NO_CALLS = ("invoke_agent", "create_agent", "execute_tool", "embeddings", "invoke_workflow")
_TIMES = (
    *("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "Timestamp"),
    *("timestamp", "time"),
)
_FAILED = ("error.type", "exception.type")
_BAD_STATUS = ("2", "status_code_error", "error")
_ATTRIBUTES = ("attributes", "SpanAttributes", "span_attributes", "span.attributes")


def _rows(table: JsonlTable, *, time_zone: str) -> Rows:
    """Spans with tokens are requests; those of agents and tools, which hold others, are left out.

    Attributes may be nested, keys with dots, or lists as in OTLP: `gen_ai.usage.input_tokens` and
    `output_tokens`, their older names, and those of OpenInference. Requests are sorted, and times
    count from the first. Prompts of which the server had cached tokens begin alike. A span with an
    error has no output.
    """
    from spillway.files.traces.column_map import Clock, named_cells, rows_of

    cells = {
        "arrival_s": [_of(row, _TIMES) for row in table.objects],
        "input_tokens": [_of(row, _PROMPT) for row in table.objects],
        "output_tokens": [_of(row, _OUTPUT) for row in table.objects],
        "cached_tokens": [_of(row, _CACHED) for row in table.objects],
        "failed": list(map(_failed, table.objects)),
    }
    names = {
        "arrival_s": next((name for name in _TIMES if name in table.columns), _TIMES[0]),
        "input_tokens": _PROMPT[0],
        "output_tokens": _OUTPUT[0],
        "cached_tokens": _CACHED[0],
        "failed": "error.type",
    }
    return rows_of(named_cells(table, names, cells), Clock(), time_zone)


def _of(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Return the value of the first name that a span or its attributes have; "" without one."""
    from spillway.files.traces.jsonl_table import at_path

    places = ("", *(f"{place}." for place in _ATTRIBUTES if place in row))
    found = (at_path(row, f"{place}{name}") for name in names for place in places)
    return next((value for value in found if value not in ("", None)), "")


def _failed(row: dict[str, Any]) -> bool:
    from spillway.files.traces.jsonl_table import at_path

    codes = (at_path(row, "status.code"), at_path(row, "status.status_code"))
    flat = (row.get("StatusCode"), row.get("status_code"))
    is_bad = any(str(code).lower() in _BAD_STATUS for code in (*codes, *flat))
    return is_bad or _of(row, _FAILED) != ""


def _is_call(table: JsonlTable) -> list[bool]:
    """Return which spans are calls of a model."""
    return [
        _of(row, (_OPERATION,)) not in _NO_CALLS
        and (_of(row, _PROMPT) != "" or (_failed(row) and _of(row, (_OPERATION,)) != ""))
        for row in table.objects
    ]


def _spans(table: JsonlTable) -> JsonlTable:
    """Return the spans in messages of OTLP."""
    found = [
        (line, span)
        for line, row in zip(table.lines, table.objects, strict=True)
        for span in _spans_in(row)
    ]
    columns = tuple(dict.fromkeys(key for _, span in found for key in span))
    lines = [line for line, _ in found]
    return type(table)(table.path, columns, lines, [span for _, span in found], unit=table.unit)


def _spans_in(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in _objects(message.get("resourceSpans")):
        for scope in _objects(resource.get("scopeSpans")):
            yield from _objects(scope.get("spans"))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _format(name: str, doc: str, required: tuple[str, ...], **others: Any) -> Format:
    return Format(
        name=name,
        doc=doc,
        layout="jsonl",
        required=required,
        optional=None,
        arrival=required[0],
        sorts=True,
        select=_is_call,
        left_out="spans that are no calls of a model with tokens",
        rows=_rows,
        retime=since_first,
        options=(TIME_ZONE,),
        **others,
    )


FORMAT = _format(
    "opentelemetry",
    "Spans of OpenTelemetry: startTimeUnixNano,attributes with gen_ai.usage.input_tokens …",
    ("startTimeUnixNano", "attributes"),
)

OTLP = _format(
    "opentelemetry_otlp",
    "Messages of OTLP in JSON, as the collector writes them to files: resourceSpans",
    ("resourceSpans",),
    expand=_spans,
)

SDK = _format(
    "opentelemetry_sdk",
    "Spans as exporters of Python's SDK write them: start_time,end_time,attributes,context",
    ("start_time", "end_time", "attributes", "context"),
)

FLAT = _format(
    "opentelemetry_flat",
    "Spans whose keys are attributes: gen_ai.usage.input_tokens,gen_ai.usage.output_tokens",
    (_PROMPT[0], _OUTPUT[0]),
)
