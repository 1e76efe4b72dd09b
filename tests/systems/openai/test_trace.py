"""Logs of the OpenAI API."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from support.traces import columns_of, written

from spillway import read_trace
from spillway.files.traces import format_of

if TYPE_CHECKING:
    from pathlib import Path

OPENAI = {"id": "a", "created": 1760000001, "usage": {"prompt_tokens": 8, "completion_tokens": 3}}
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "openai": ([OPENAI, OPENAI | {"created": 1760000000, "user": "u"}], [(0, 8, 3), (10**9, 8, 3)])
}
USER = OPENAI | {"user": 3}
MALFORMED = [
    (OPENAI | {"usage": None}, "line 3, usage.prompt_tokens = '': must be a whole"),
    (OPENAI | {"usage": {"prompt_tokens": 8}}, "line 3, usage.completion_tokens = ''"),
    (OPENAI | {"created": "now"}, "line 3, created = 'now': must be a number"),
    (USER, "line 3, user = 3: must be text"),
]

RESPONSE = {
    "id": "r",
    "object": "response",
    "status": "completed",
    "error": None,
    "created_at": 1760000001,
    "usage": {"input_tokens": 8, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 0}},
}
BATCH = {
    "id": "b",
    "custom_id": "1",
    "response": {"status_code": 200, "request_id": "q", "body": OPENAI},
    "error": None,
}
FILES["openai_responses"] = (
    [RESPONSE, RESPONSE | {"created_at": 1760000000.5, "user": "u"}],
    [(0, 8, 3), (500_000_000, 8, 3)],
)
FILES["openai_batch"] = ([BATCH, BATCH], [(0, 8, 3), (0, 8, 3)])
MALFORMED += [
    (RESPONSE | {"usage": None}, "line 3, usage.input_tokens = '': must be", "openai_responses"),
    (
        RESPONSE | {"created_at": "x"},
        "line 3, created_at = 'x': must be a deci",
        "openai_responses",
    ),
    (BATCH | {"response": {}}, "line 3, response.body.created = ''", "openai_batch"),
    (
        BATCH | {"response": {"body": {"created": 1760000000, "usage": "x"}}},
        "line 3, response.body.usage.prompt_tokens = '': must be",
        "openai_batch",
    ),
]


@pytest.mark.parametrize(
    ("usage", "prompt", "cached"),
    [
        ({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 6}}, 10, 6),
        ({"input_tokens": 10, "input_tokens_details": None}, 10, 0),
        # Anthropic counts apart what was read from the cache, and written to it.
        ({"input_tokens": 2, "cache_read_input_tokens": 6}, 8, 6),
        (
            {"input_tokens": 2, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 4},
            12,
            6,
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 6}}, 10, 6),
    ],
)
@pytest.mark.parametrize("at", [1760000000, "2026-03-02T10:00:00Z"])
def test_usage_of_several_apis(
    tmp_path: Path, usage: dict[str, Any], prompt: int, cached: int, at: Any
) -> None:
    row = {"id": "m", "created_at": at, "usage": usage | {"output_tokens": 3}}
    path = written(tmp_path, row, row)
    assert format_of(path).name == "openai_responses"
    share = rf"{cached / prompt:.0%} of the prompt tokens were in the cache"
    with pytest.warns(UserWarning, match=share) if cached else nullcontext():
        found = read_trace(path)
    assert columns_of(found)["input_tokens"] == [prompt, prompt]
    assert columns_of(found)["prefix_tokens"] == ([cached, cached] if cached else [])


def test_chat_completions_have_cached_tokens(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 2048, "completion_tokens": 80}
    hit = OPENAI | {"usage": usage | {"prompt_tokens_details": {"cached_tokens": 1920}}}
    miss = OPENAI | {"created": 1760000000, "usage": usage | {"prompt_tokens_details": None}}
    path = written(tmp_path, hit, miss, hit)
    with pytest.warns(
        UserWarning, match="62% of the prompt tokens were in the cache of the record"
    ):
        found = columns_of(read_trace(path))
    assert found["prefix_tokens"] == [0, 1920, 1920]
    assert columns_of(read_trace(written(tmp_path, miss, miss)))["prefix_tokens"] == []


def test_responses_that_failed_have_no_output(tmp_path: Path) -> None:
    error = {"status": "failed", "error": {"code": "server_error"}, "usage": None}
    path = written(tmp_path, RESPONSE, RESPONSE | error, RESPONSE | {"status": "incomplete"})
    with (
        pytest.warns(
            UserWarning, match="1 calls failed by status, error: they are requests without"
        ),
        pytest.warns(UserWarning, match="1 failed calls have no recorded prompt"),
    ):
        found = columns_of(read_trace(path))
    assert found["output_tokens"] == [3, 0, 3]


def test_results_of_batches_that_failed_have_no_output(tmp_path: Path) -> None:
    body = {"error": {"message": "too long"}}
    refused = BATCH | {"response": {"status_code": 400, "body": body}}
    expired = BATCH | {"response": None, "error": {"code": "batch_expired"}}
    later = {"status_code": 200, "body": RESPONSE | {"created_at": 1760000009}}
    path = written(tmp_path, refused, BATCH, expired, BATCH | {"response": later})
    with (
        pytest.warns(UserWarning, match="2 calls failed by status_code, error: they are requests"),
        pytest.warns(UserWarning, match="2 failed calls have no recorded prompt"),
    ):
        found = columns_of(read_trace(path))
    assert found["output_tokens"] == [0, 3, 0, 3]
    assert found["arrival_ns"] == [0, 0, 0, 8 * 10**9]
