"""BurstGPT traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.traces import refusal, requests_of

if TYPE_CHECKING:
    from pathlib import Path

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "burstgpt": (
        [BURST, "5,ChatGPT,472,18,490,Conversation log", "45,GPT-4,1087,0,1087,API log"],
        [(5 * 10**9, 472, 18), (45 * 10**9, 1087, 0)],
    )
}
MALFORMED = [
    ("-1,m,5,1,6,l", "line 4, Timestamp = '-1': must be a decimal number"),
    ("50,m,,1,6,l", "line 4, Request tokens = ''"),
    ("50,m,5,1.5,6,l", "line 4, Response tokens = '1.5'"),
    ("50,m,5,1", "line 4: holds 4 fields; the header row names 6"),
    ("__import__('os').abort(),m,5,1,6,l", "line 4, Timestamp = "),
]


def test_a_file_is_detected_and_read(tmp_path: Path) -> None:
    lines, requests = FILES["burstgpt"]
    assert requests_of(tmp_path, "burstgpt", *lines) == requests


@pytest.mark.parametrize(("line", "message"), MALFORMED)
def test_a_malformed_line_gives_one_clear_error(line: Any, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, *FILES["burstgpt"][0], line).startswith(message)
