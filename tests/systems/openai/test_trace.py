"""Logs of the OpenAI API."""

from __future__ import annotations

from typing import Any

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
