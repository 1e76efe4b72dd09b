"""Logs of responses of the OpenAI API, and of APIs like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.files.format import Format
from spillway.files.options import TIME_ZONE
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.files.traces.jsonl_table import JsonlTable
    from spillway.files.traces.table import Int64s


def _rows(table: JsonlTable) -> Rows:
    """A line is a response of chat completions or completions.

    `created` is in seconds since 1970. A key `user` is the tenant. Requests are sorted, and times
    count from the first. Prompts of which the server had `cached_tokens` begin alike.
    """
    import numpy as np

    prompt = table.whole("usage.prompt_tokens", at_least=1)
    output = table.whole("usage.completion_tokens")
    usages = list(map(_object, table.values("usage")))
    found = [_cached(usage) or 0 for usage in usages]
    cached = table.checked_whole(found, "usage.prompt_tokens_details.cached_tokens")
    return Rows(
        arrival_ns=table.times_ns("created", "s"),
        input_tokens=prompt,
        output_tokens=output,
        tenant=table.texts("user"),
        cached_tokens=np.minimum(cached, prompt),
        notes=_contradictions(usages, prompt, output, cached),
    )


def _contradictions(
    usages: Iterable[Mapping[str, Any]], prompt: Int64s, output: Int64s, cached: Int64s
) -> dict[str, int]:
    """Return notes on lengths that contradict each other."""
    sums = (prompt + output).tolist()
    totals = [usage.get("total_tokens") for usage in usages]
    wrong = sum(type(t) is int and t != s for t, s in zip(totals, sums, strict=True))
    found = {_WRONG_SUM: wrong, _CACHED_MORE: int((cached > prompt).sum())}
    return {text: number for text, number in found.items() if number}


_WRONG_SUM = (
    "in {n} responses total_tokens is not the sum of prompt_tokens and completion_tokens, which "
    "are read: one of the three holds something else"
)
_CACHED_MORE = (
    "in {n} responses more tokens were cached than the prompt has; all of the prompt is read as "
    "cached"
)


def _response_rows(table: JsonlTable, *, time_zone: str) -> Rows:
    """A line is a response of the Responses API, or of Anthropic with the time `created_at`.

    Times are seconds since 1970 or dates. A key `user` is the tenant. Requests are sorted, and
    times count from the first. Prompts of which the server had cached tokens begin alike; of
    Anthropic's usage, the prompt is the sum of `input_tokens` and of what was read from the cache
    and written to it. A response that failed has no output.
    """
    from spillway.files.traces.column_map import Clock, named_cells, rows_of

    usages = list(map(_object, table.values("usage")))
    cells = {
        "arrival_s": table.values("created_at"),
        "input_tokens": [_prompt(usage) for usage in usages],
        "output_tokens": [_first(usage, "output_tokens", "completion_tokens") for usage in usages],
        "cached_tokens": list(map(_cached, usages)),
        "tenant": table.values("user"),
        "status": [_state(status) for status in table.values("status")],
        "error": table.values("error"),
    }
    names = {
        "arrival_s": "created_at",
        "input_tokens": "usage.input_tokens",
        "output_tokens": "usage.output_tokens",
        "cached_tokens": "usage.input_tokens_details.cached_tokens",
        "tenant": "user",
    }
    return rows_of(named_cells(table, names, cells), Clock(), time_zone)


def _batch_rows(table: JsonlTable) -> Rows:
    """A line is the result of a request of the Batch API, as vLLM's run-batch writes it, too.

    The time is when the response was made, in seconds since 1970; requests are sorted, and times
    count from the first. A request that failed has no output; without a time, it arrives with the
    one on the line before.
    """
    from spillway.files.traces.column_map import Clock, named_cells, rows_of
    from spillway.files.traces.jsonl_table import at_path

    bodies = [_object(at_path(row, "response.body")) for row in table.objects]
    usages = list(map(_object, (body.get("usage") for body in bodies)))
    errors = [
        row.get("error") or body.get("error")
        for row, body in zip(table.objects, bodies, strict=True)
    ]
    made = [_first(body, "created", "created_at") for body in bodies]
    known = [at for at in made if at != ""]
    last, times = (known[0] if known else ""), []
    for at, error in zip(made, errors, strict=True):
        last = at if at != "" or not error else last
        times.append(last)
    cells = {
        "arrival_s": times,
        "input_tokens": [_prompt(usage) for usage in usages],
        "output_tokens": [_first(usage, "output_tokens", "completion_tokens") for usage in usages],
        "cached_tokens": list(map(_cached, usages)),
        "status_code": [at_path(row, "response.status_code") or 200 for row in table.objects],
        "error": errors,
    }
    names = {
        "arrival_s": "response.body.created",
        "input_tokens": "response.body.usage.prompt_tokens",
        "output_tokens": "response.body.usage.completion_tokens",
        "cached_tokens": "response.body.usage.prompt_tokens_details.cached_tokens",
    }
    return rows_of(named_cells(table, names, cells), Clock("s"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(found: Mapping[str, Any], *keys: str) -> Any:
    """Return the value of the first key that an object has; "" if it has none."""
    return next((found[key] for key in keys if found.get(key) is not None), "")


def _state(status: Any) -> Any:
    """Return the state of a response; one that its limit of tokens ended is complete."""
    return "completed" if status == "incomplete" else status


_ANTHROPIC = ("cache_read_input_tokens", "cache_creation_input_tokens")


def _prompt(usage: Mapping[str, Any]) -> Any:
    """Return the tokens of the whole prompt. Those of Anthropic leave out what the cache held."""
    prompt = _first(usage, "input_tokens", "prompt_tokens")
    beside = [usage.get(key) or 0 for key in _ANTHROPIC]
    is_whole = "input_tokens" not in usage or not {int} >= set(map(type, [prompt, *beside]))
    return prompt if is_whole else prompt + sum(beside)


def _cached(usage: Mapping[str, Any]) -> Any:
    """Return the tokens of the prompt that the server had in its cache."""
    for key in ("input_tokens_details", "prompt_tokens_details"):
        if isinstance(details := usage.get(key), dict) and details.get("cached_tokens"):
            return details["cached_tokens"]
    return usage.get(_ANTHROPIC[0])


FORMAT = Format(
    name="openai",
    doc="Logs of OpenAI responses as JSONL: created,usage with prompt_tokens and completion_tokens",
    layout="jsonl",
    required=("created", "usage"),
    optional=None,
    arrival="created",
    sorts=True,
    rows=_rows,
    retime=since_first,
)

RESPONSES = Format(
    name="openai_responses",
    doc="Logs of OpenAI's Responses API or of Anthropic as JSONL: created_at,usage with "
    "input_tokens and output_tokens",
    layout="jsonl",
    required=("created_at", "usage"),
    optional=None,
    arrival="created_at",
    sorts=True,
    rows=_response_rows,
    retime=since_first,
    options=(TIME_ZONE,),
)

BATCH = Format(
    name="openai_batch",
    doc="Results of OpenAI's Batch API as JSONL: custom_id,error,response with "
    "status_code and body",
    layout="jsonl",
    required=("custom_id", "response"),
    optional=None,
    arrival="response.body.created",
    sorts=True,
    rows=_batch_rows,
    retime=since_first,
)
