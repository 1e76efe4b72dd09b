"""Spend logs of LiteLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.traces import columns_of, written

from spillway import read_trace
from spillway.files.traces import format_of

if TYPE_CHECKING:
    from pathlib import Path

LOG = {
    "request_id": "a",
    "startTime": "2026-08-06T14:30:01.250Z",
    "endTime": "2026-08-06T14:31:00Z",
    "prompt_tokens": 7,
    "completion_tokens": 17,
    "team_id": "team-a",
    "cache_hit": "False",
}
FIRST = LOG | {"startTime": "2026-08-06T14:30:00+00:00", "team_id": None, "status": "success"}
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "litellm": ([LOG, FIRST], [(0, 7, 17), (1_250_000_000, 7, 17)])
}
MALFORMED = [
    (LOG | {"startTime": "now"}, "line 3, startTime = 'now': must be an instant"),
    (LOG | {"prompt_tokens": 7.5}, "line 3, prompt_tokens = '7.5': must be a whole number"),
    (LOG | {"prompt_tokens": 0}, "line 3, prompt_tokens = '0': must be a whole number >= 1"),
    ({"startTime": LOG["startTime"]}, "line 3: not of the format litellm: prompt_tokens, comple"),
]


COPIED = """request_id,startTime,prompt_tokens,completion_tokens,team_id
1,2026-08-06 14:30:01.25+00,7,17,team-a
2,2026-08-06 14:30:00+00,7,17,
"""
QUOTED = """"startTime","prompt_tokens","completion_tokens","team_id"
"2026-08-06 14:30:01.250",7,17,"team-a"
"2026-08-06 14:30:00",7,17,""
"""


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([LOG, FIRST]),
        json.dumps({"data": [LOG, FIRST], "total": 2}, indent=2),
        COPIED,
        QUOTED,
    ],
    ids=["array", "pages", "copied", "quoted"],
)
def test_answers_of_the_proxy_and_tables_are_read(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert format_of(path).name == "litellm"
    found = columns_of(read_trace(path))
    assert found["arrival_ns"] == [0, 1_250_000_000]
    assert [found["tenants"][code] for code in found["tenant"]] == ["default", "team-a"]


def test_failures_and_hits_of_its_cache(tmp_path: Path) -> None:
    failure = {"status": "failure", "prompt_tokens": 0, "completion_tokens": 0}
    path = written(tmp_path, json.dumps([LOG, LOG | failure, LOG | {"cache_hit": "True"}, FIRST]))
    with (
        pytest.warns(
            UserWarning, match="1 calls that LiteLLM answered from its own cache are left"
        ),
        pytest.warns(UserWarning, match="1 calls failed by status: they are requests without outp"),
        pytest.warns(UserWarning, match="1 failed calls have no recorded prompt"),
    ):
        found = columns_of(read_trace(path))
    assert found["input_tokens"] == [7, 7, 1]
    assert found["output_tokens"] == [17, 17, 0]
