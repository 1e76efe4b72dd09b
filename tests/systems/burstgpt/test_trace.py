"""BurstGPT traces."""

from __future__ import annotations

from typing import Any

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
