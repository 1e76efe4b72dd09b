"""Files of traces: detected, decoded, refused."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from support.trace_reading import without_pyarrow
from support.traces import columns_of, counting_calls, written

from spillway import Simulation, simulate, workload
from spillway.files.traces import FORMATS, TraceError, read_trace

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "arrival_s,input_tokens,output_tokens"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_byte_order_mark_crlf_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    lines = (COLUMNS + ",tenant", "0,5,1,ä", "1,6,2,b")
    plain = read_trace(written(tmp_path, *lines)).sha256
    assert read_trace(written(tmp_path, *lines, encoding="utf-8-sig")).sha256 == plain
    assert read_trace(written(tmp_path, *lines, end="\r\n")).sha256 == plain
    assert read_trace(written(tmp_path, *lines, "", "  ", "")).sha256 == plain
    assert read_trace(written(tmp_path, ", ".join(lines[0].split(",")), *lines[1:])).sha256 == plain


def test_format_can_be_stated(tmp_path: Path) -> None:
    path = written(tmp_path, COLUMNS + "," + AZURE, "0,5,1,2023-01-01 00:00:00,7,2")
    with pytest.warns(UserWarning, match=f"unused columns: {AZURE.replace(',', ', ')}"):
        assert columns_of(read_trace(path, format="columns"))["input_tokens"] == [5]
    assert columns_of(read_trace(path, format="azure"))["input_tokens"] == [7]
    with pytest.raises(TraceError, match=r"not of the format blis: request_id, tenant_id"):
        read_trace(path, format="blis")
    with pytest.raises(TraceError) as caught:
        read_trace(path, format="azur")
    known = ", ".join(sorted(FORMATS))
    assert str(caught.value) == f"format = 'azur': must be one of {known}; did you mean 'azure'?"


@pytest.mark.parametrize(
    ("header", "note"),
    [
        (COLUMNS + ",user", "unused columns: user; optional columns are request_id, tenant, "),
        (COLUMNS + ",tenat,prefix", "unused columns: tenat (did you mean tenant?), prefix; "),
        (COLUMNS + ",tenant_id", "unused columns: tenant_id (did you mean tenant?); optional"),
        (AZURE + ",prefix_group", "unused columns: prefix_group; optional columns are tenant"),
    ],
)
def test_unused_columns_are_noted(tmp_path: Path, header: str, note: str) -> None:
    row = "0,5,1" if header.startswith(COLUMNS) else "2023-01-01 00:00:00,5,1"
    path = written(tmp_path, header, row + ",x" * (header.count(",") - 2))
    with pytest.warns(UserWarning, match=re.escape(f"{path}: {note}")) as caught:
        read_trace(path)
    assert [warning.filename for warning in caught] == [__file__]


def test_what_a_run_writes_is_a_trace_without_notes(tmp_path: Path) -> None:
    simulate(Simulation(workload=workload.Synthetic(num_requests=5))).write(tmp_path)
    assert read_trace(tmp_path / "requests.csv").rows == 5


def test_an_unknown_header_shows_itself_and_the_known_ones(tmp_path: Path) -> None:
    path = written(tmp_path, "time,prompt", "0,5")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert f"{path}: unknown format: time,prompt\nFormats tried:\n" in message
    for name in FORMATS:
        assert name in message
    jsonl = written(
        tmp_path, '{"timestamp": 0, "input_length": 6955, "hash_ids": [1, 2]}', '{"timestamp": 1}'
    )
    with pytest.raises(
        TraceError, match=r"unknown format(.*\n)*Closest: mooncake, without output_le"
    ):
        read_trace(jsonl)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty; must hold"),
        (b"\n\r\n \n", "empty; must hold"),
        (COLUMNS.encode(), "holds no requests"),
        (COLUMNS.encode() + b"\n\n\n", "holds no requests"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "not a text file"),
        (COLUMNS.encode() + b"\n0,5,1\n1,5,\xff\n", "not a text file"),
        ("\ufeff".join((COLUMNS, "0,5,1")).encode("utf-16"), "not a text file"),
        (COLUMNS.encode() + b"\n0,5,1\n1,5\n", "line 3: holds 2 fields; the header row names 3"),
        (COLUMNS.encode() + b"\n0,5,1\n1,5,1,7\n", "line 3: holds 4 fields; the header row"),
        (COLUMNS.encode() + b',tenant\n0,5,1,"' + b"x" * 200_000, "not valid CSV: field larger"),
        (COLUMNS.encode() + b",input_tokens\n0,5,1,5\n", "names input_tokens more than once"),
    ],
)
def test_an_unusable_file_gives_one_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_no_file_and_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"missing\.csv: cannot be read: No such file"):
        read_trace(tmp_path / "missing.csv")
    with pytest.raises(TraceError, match="holds no file of a known format"):
        read_trace(str(tmp_path))
    for name in ("pipe", "pipe.jsonl"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(TraceError, match=f"{name}: cannot be read: Not a regular file"):
            read_trace(tmp_path / name)
    with pytest.raises(TraceError, match="/dev/zero: cannot be read: Not a regular file"):
        read_trace("/dev/zero")
    with pytest.raises(TraceError, match="cannot be read: not a valid file name"):
        read_trace("a\0b")


def test_reading_takes_the_same_work_for_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pyarrow(monkeypatch)

    def calls_per_row(rows: int) -> float:
        lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
        lines += [
            f"2023-11-16 {i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}.{i % 10}979600,{100 + i},9"
            for i in range(rows)
        ]
        path = tmp_path / f"{rows}.csv"
        path.write_text("\n".join(lines))
        found, calls = counting_calls(lambda: read_trace(path))
        assert found.rows == rows
        return calls / rows

    assert calls_per_row(5000) < 1.1 * calls_per_row(500)


def test_a_file_of_a_quotation_mark_is_empty(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(b'"')
    with pytest.raises(TraceError, match="empty; must hold a header row"):
        read_trace(tmp_path / "trace.csv", format="columns")
