"""Azure LLM inference traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.traces import (
    SHARED_TRACES,
    columns_in,
    columns_of,
    counting_calls,
    refusal,
    written,
)

from spillway import read_trace

if TYPE_CHECKING:
    from pathlib import Path

FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "azure": (  # as in 2024: six digits and a time zone
        [
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            "2024-05-10 00:00:00.009930+00:00,2162,5",
            "2024-05-10 00:00:00.017335+00:00,2399,6",
        ],
        [(0, 2162, 5), (7_405_000, 2399, 6)],
    )
}
MALFORMED = [
    ("2024-05-10,5,1", "line 4, TIMESTAMP = '2024-05-10': must be an instant"),
    ("2024-13-10 00:00:00,5,1", "line 4, TIMESTAMP"),
    ("2024-05-10 00:00:00.1,0,1", "line 4, ContextTokens = '0': must be a whole"),
    ("2024-05-10 00:00:00.1,5,", "line 4, GeneratedTokens = ''"),
    ("2024-05-09 00:00:00,5,1", "line 4, TIMESTAMP = '2024-05-09 00:00:00': is earlier"),
    ("2024-05-10 00:00:00.1;5;1", "line 4: holds 1 fields; the header row names 3"),
]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_azure_times_count_from_the_first_row_in_steps_of_100_ns(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        AZURE,
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:46.6805901,396,109",
        "2023-11-17 00:00:00.0000000,1,0",
        end="\r\n",
    )
    found = columns_of(read_trace(path))
    day_rest_ns = (5 * 3600 + 44 * 60 + 13) * 10**9 + 319_410_000
    assert found["arrival_ns"] == [0, 100, day_rest_ns]
    assert found["input_tokens"] == [374, 396, 1]
    assert found["output_tokens"] == [44, 109, 0]
    assert found["request_id"] == []


@pytest.mark.parametrize(
    ("first", "second", "ns"),
    [
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01+00:00", 990_070_000),
        ("2024-05-10T00:00:00Z", "2024-05-10T00:00:00.123456789Z", 123_456_789),
        ("2024-05-10 02:00:00+02:00", "2024-05-10 00:00:00.5", 500_000_000),
        ("2024-02-28 23:59:59-0530", "2024-02-29 05:30:00", 10**9),
    ],
)
def test_azure_time_zones(tmp_path: Path, first: str, second: str, ns: int) -> None:
    path = written(tmp_path, AZURE, f"{first},1,1", f"{second},1,1")
    assert columns_of(read_trace(path))["arrival_ns"] == [0, ns]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "12.5",
        "18:15:46",
        "2023-13-01 00:00:00",
        "2023-02-29 00:00:00",
        "2023-01-01 24:00:00",
        "1969-12-31 23:59:59",
        "2100-01-01 00:00:00",
        "2560-01-01 00:00:00",
        "2023-01-01 00:00:00.1234567890",
        "2023-01-01 00:00:00 CET",
    ],
)
def test_azure_bad_timestamps(tmp_path: Path, value: str) -> None:
    message = refusal(tmp_path, AZURE, "2023-01-01 00:00:00,1,1", f"{value},1,1")
    assert message.startswith(f"line 3, TIMESTAMP = {value!r}: must be an instant")


def test_azure_sorted_on_reading_starts_at_the_earliest(tmp_path: Path) -> None:
    lines = (AZURE, "2023-01-01 00:00:02,2,1", "2023-01-01 00:00:00,1,1")
    words = "line 3, TIMESTAMP = '2023-01-01 00:00:00': is earlier than"
    assert refusal(tmp_path, *lines).startswith(words)
    found = columns_in(tmp_path, *lines, sort=True)
    assert found["arrival_ns"] == [0, 2 * 10**9]
    assert found["input_tokens"] == [1, 2]


def test_azure_public_traces() -> None:
    if not SHARED_TRACES.is_dir():
        pytest.skip(f"{SHARED_TRACES} is missing: the public traces are not part of the repository")
    sums = {"conv": (19_366, 22_361_870, 4_088_665), "code": (8_819, 18_059_974, 245_896)}
    last_ns = {"conv": 3_501_721_937_000, "code": 3_435_948_056_000}
    for name, (rows, input_tokens, output_tokens) in sums.items():
        path = SHARED_TRACES / f"azure_llm_2023_{name}.csv"
        found, calls = counting_calls(lambda path=path: read_trace(path))
        assert found.rows == rows
        assert calls < 30 * rows
        columns = columns_of(found)
        assert sum(columns["input_tokens"]) == input_tokens
        assert sum(columns["output_tokens"]) == output_tokens
        assert columns["arrival_ns"][0] == 0
        assert columns["arrival_ns"][-1] == last_ns[name]
        assert found == read_trace(path, sort=True)  # the public files are sorted
