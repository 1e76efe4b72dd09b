"""Spans of OpenTelemetry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.traces import columns_of, prompts_of, written

from spillway import read_trace
from spillway.files.traces import format_of

if TYPE_CHECKING:
    from pathlib import Path

BEGIN_NS = 1_780_201_402_551_591_636
USAGE = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 5}
SPAN = {"startTimeUnixNano": str(BEGIN_NS), "attributes": USAGE}
PAIRS = [{"key": key, "value": {"intValue": str(value)}} for key, value in USAGE.items()]
OTLP = {
    "resourceSpans": [
        {
            "resource": {"attributes": []},
            "scopeSpans": [
                {
                    "spans": [
                        {"startTimeUnixNano": str(BEGIN_NS + 7), "attributes": PAIRS},
                        {"startTimeUnixNano": str(BEGIN_NS), "attributes": PAIRS},
                    ]
                }
            ],
        }
    ]
}
SDK = {
    "name": "chat",
    "context": {},
    "start_time": "2026-05-31T04:23:22.551591Z",
    "end_time": "2026-05-31T04:23:23.551591Z",
    "status": {"status_code": "UNSET"},
    "attributes": USAGE,
}
FLAT = {"Timestamp": "2026-05-31 04:23:22.551591636Z", **USAGE}
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "opentelemetry": (
        [SPAN, SPAN | {"startTimeUnixNano": BEGIN_NS + 10**9}],
        [(0, 100, 5), (10**9, 100, 5)],
    ),
    "opentelemetry_otlp": ([OTLP], [(0, 100, 5), (7, 100, 5)]),
    "opentelemetry_sdk": ([SDK], [(0, 100, 5)]),
    "opentelemetry_flat": ([FLAT], [(0, 100, 5)]),
}
MALFORMED = [
    (SPAN | {"startTimeUnixNano": "x"}, "line 3, startTimeUnixNano = 'x': must be a number"),
    (
        SPAN | {"attributes": USAGE | {"gen_ai.usage.input_tokens": 0}},
        "line 3, gen_ai.usage.input_to",
    ),
]


@pytest.mark.parametrize(
    "attributes",
    [
        USAGE,
        PAIRS,
        {"gen_ai": {"usage": {"input_tokens": 100, "output_tokens": 5}}},
        {"gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 5},
        {"llm.token_count.prompt": 100, "llm.token_count.completion": 5},
        {"llm.usage.prompt_tokens": 100, "llm.usage.completion_tokens": 5},
    ],
)
def test_attributes_of_all_spellings(tmp_path: Path, attributes: Any) -> None:
    path = written(tmp_path, json.dumps([SPAN | {"attributes": attributes}]))
    assert format_of(path).name == "opentelemetry"
    found = columns_of(read_trace(path))
    assert (found["input_tokens"], found["output_tokens"]) == ([100], [5])


def test_agents_tools_and_errors(tmp_path: Path) -> None:
    operation = "gen_ai.operation.name"
    spans = [
        {"attributes": USAGE | {operation: "invoke_agent"}},
        {"attributes": {operation: "execute_tool"}},
        {"attributes": {"http.method": "GET"}},
        {"attributes": {operation: "chat", "error.type": "timeout"}},
        {"attributes": USAGE | {operation: "chat"}, "status": {"code": 2}},
        {"attributes": USAGE | {"gen_ai.usage.cache_read.input_tokens": 64}},
    ]
    path = written(tmp_path, *(SPAN | span for span in spans))
    with (
        pytest.warns(
            UserWarning, match="3 spans that are no calls of a model with tokens are left"
        ),
        pytest.warns(UserWarning, match="2 calls failed by error.type: they are requests without"),
        pytest.warns(UserWarning, match="1 failed calls have no recorded prompt"),
        pytest.warns(UserWarning, match="32% of the prompt tokens were in the cache"),
    ):
        found = read_trace(path)
    assert columns_of(found)["input_tokens"] == [1, 100, 100]
    assert columns_of(found)["output_tokens"] == [0, 0, 5]
    assert prompts_of(found)[2] == [(0, 64)]
