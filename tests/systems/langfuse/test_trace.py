"""Observations of Langfuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.traces import columns_of, prompts_of, written

from spillway import read_trace

if TYPE_CHECKING:
    from pathlib import Path

SEEN = {
    "id": "o1",
    "traceId": "t1",
    "type": "GENERATION",
    "startTime": "2026-08-06T14:30:01.250Z",
    "level": "DEFAULT",
    "usageDetails": {"input": 5, "output": 3, "total": 8},
}
EXPORTED = {
    "trace_id": "t1",
    "type": "GENERATION",
    "start_time": "2026-08-06T14:30:00Z",
    "usage_details": '{"input": 9, "output": 4}',
    "user_id": "u",
}
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "langfuse": (
        [SEEN, SEEN | {"startTime": "2026-08-06T14:30:00Z"}],
        [(0, 5, 3), (1_250_000_000, 5, 3)],
    ),
    "langfuse_export": ([EXPORTED], [(0, 9, 4)]),
    "langfuse_csv": (
        [
            "id,traceId,type,startTime,level,usageDetails,userId",
            'o2,t,GENERATION,2026-08-06T14:30:01.250Z,DEFAULT,"{""input"": 5, ""output"": 3}",u',
            'o1,t,GENERATION,2026-08-06T14:30:00.000Z,DEFAULT,"{""input"": 9, ""output"": 4}",',
        ],
        [(0, 9, 4), (1_250_000_000, 5, 3)],
    ),
    "langfuse_export_csv": (
        [
            "id,trace_id,type,start_time,usage_details",
            'o1,t,GENERATION,2026-08-06 14:30:00.000000Z,"{""input"":9,""output"":4}"',
        ],
        [(0, 9, 4)],
    ),
}
MALFORMED = [
    (SEEN | {"startTime": "x"}, "line 3, startTime = 'x': must be an instant"),
    (SEEN | {"usageDetails": {"input": 5}}, "line 3, usageDetails.output = '': must be a whole"),
    (
        EXPORTED | {"usage_details": {"input": -1}},
        "line 2, usageDetails.input = '-1'",
        "langfuse_export",
    ),
    (
        'o3,t,GENERATION,noon,DEFAULT,"{""input"": 5, ""output"": 3}",u',
        "line 4, startTime = 'noon': must be an instant",
        "langfuse_csv",
    ),
]


@pytest.mark.parametrize(
    "usage",
    [
        {"usageDetails": {"input": 5, "output": 3}},
        {"usage": {"input": 5, "output": 3, "total": 8, "unit": "TOKENS"}},
        {"usageDetails": {}, "promptTokens": 5, "completionTokens": 3},
        {"inputUsage": 5, "outputUsage": 3},
        {"usageDetails": {"prompt_tokens": 5, "completion_tokens": 3}},
    ],
)
def test_usage_of_all_versions(tmp_path: Path, usage: dict[str, Any]) -> None:
    row = {key: value for key, value in SEEN.items() if key != "usageDetails"} | usage
    found = columns_of(read_trace(written(tmp_path, json.dumps({"data": [row], "meta": {}}))))
    assert (found["input_tokens"], found["output_tokens"]) == ([5], [3])


def test_spans_errors_and_cached_tokens(tmp_path: Path) -> None:
    cached = SEEN | {"usageDetails": {"input": 2, "input_cached_tokens": 8, "output": 1}}
    failed = SEEN | {"level": "ERROR", "usageDetails": {}}
    span = SEEN | {"type": "SPAN"}
    path = written(tmp_path, cached, failed, span, cached)
    with (
        pytest.warns(UserWarning, match="1 observations that are no generations with usage are le"),
        pytest.warns(UserWarning, match="1 calls failed by level: they are requests without out"),
        pytest.warns(UserWarning, match="1 failed calls have no recorded prompt"),
        pytest.warns(UserWarning, match="76% of the prompt tokens were in the cache"),
    ):
        found = read_trace(path)
    assert columns_of(found)["input_tokens"] == [10, 1, 10]
    assert columns_of(found)["output_tokens"] == [1, 0, 1]
    assert prompts_of(found) == [[(0, 8)], [], [(0, 8)]]


@pytest.mark.parametrize(
    ("names", "cells"),
    [
        ("usageDetails.input,usageDetails.output", "5,3"),
        ("inputUsage,outputUsage,totalUsage", "5,3,8"),
        ("promptTokens,completionTokens", "5,3"),
    ],
)
def test_usage_in_columns_of_csv(tmp_path: Path, names: str, cells: str) -> None:
    commas = "," * names.count(",")
    path = written(
        tmp_path,
        f"traceId,type,startTime,level,{names}",
        f"t,GENERATION,2026-08-06T14:30:01Z,DEFAULT,{cells}",
        f"t,SPAN,2026-08-06T14:30:02Z,DEFAULT,{commas}",
        f"t,GENERATION,2026-08-06T14:30:03Z,ERROR,{commas}",
    )
    with (
        pytest.warns(UserWarning, match="1 observations that are no generations with usage are le"),
        pytest.warns(UserWarning, match="1 calls failed by level"),
        pytest.warns(UserWarning, match="1 failed calls have no recorded prompt"),
    ):
        found = columns_of(read_trace(path))
    assert found["input_tokens"] == [5, 1]
    assert found["output_tokens"] == [3, 0]
