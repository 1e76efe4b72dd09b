"""Traces from files and from arrays."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pickle
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import SHARED

import spillway
from spillway import ConfigError, Simulation, UsageError, _core, instance, simulate, workload
from spillway.interop.traces import FORMATS, TraceError, read_trace, trace, write_mooncake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHARED_TRACES = SHARED / "data" / "traces"

COLUMNS = "arrival_s,input_tokens,output_tokens"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
REFERENCE = (
    "request_id,client_id,tenant_id,slo_class,prefix_group,prefix_length,"
    "input_tokens,output_tokens,arrival_time_us"
)
BLIS_27 = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,"
    "streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,"
    "reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,"
    "first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason"
)
BLIS_22 = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,streaming,"
    "input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,"
    "arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,"
    "error_message"
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes lines as a file and returns its path."""

    def write_lines(*lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
        path = tmp_path / "trace.csv"
        path.write_bytes("".join(line + end for line in lines).encode(encoding))
        return path

    return write_lines


def columns_of(found: _core.workload.Trace) -> dict[str, Any]:
    """The columns as lists; for prompts of at most one segment also its group and length."""
    columns = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in found._columns().items()
    }
    begin, content, tokens = (columns[f"segment_{name}"] for name in ("begin", "content", "tokens"))
    if all(later - first <= 1 for first, later in itertools.pairwise(begin)):
        spans = list(itertools.pairwise(begin))
        columns["prefix_group"] = [content[a] if b > a else -1 for a, b in spans]
        columns["prefix_tokens"] = [tokens[a] if b > a else 0 for a, b in spans]
    return columns


def blis_row(header: str, **cells: object) -> str:
    defaults = {"tenant_id": "t0", "slo_class": "critical", "input_tokens": 10, "output_tokens": 2}
    values = defaults | cells
    return ",".join(
        str(values.get(name, "0" if name == "num_chunks" else "")) for name in header.split(",")
    )


# --- columns --------------------------------------------------------------------------------------


def test_columns_need_three_and_take_eight(write: Callable[..., Path]) -> None:
    plain = columns_of(read_trace(write(COLUMNS, "0,5,1", "0.5,6,0")))
    assert plain["arrival_ns"] == [0, 500_000_000]
    assert plain["input_tokens"] == [5, 6]
    assert plain["output_tokens"] == [1, 0]
    assert (plain["tenants"], plain["tenant"]) == (["default"], [0, 0])
    assert (plain["slo_classes"], plain["slo_class"]) == (["standard"], [0, 0])
    assert plain["request_id"] == []
    assert plain["prefix_group"] == []

    full = columns_of(
        read_trace(
            write(
                "tenant,request_id,arrival_s,slo_class,input_tokens,output_tokens,"
                "prefix_group,prefix_tokens",
                "gold,a,1,critical,50,1,sys,32",
                ",b,1,,60,2,,",
                'gold,"c,d",2.25,batch,70,3,doc,70',
            )
        )
    )
    assert [full["tenants"][i] for i in full["tenant"]] == ["gold", "default", "gold"]
    assert [full["slo_classes"][i] for i in full["slo_class"]] == ["critical", "standard", "batch"]
    assert full["request_id"] == ["a", "b", "c,d"]
    assert full["prefix_group"] == [0, -1, 1]
    assert full["prefix_tokens"] == [32, 0, 70]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("0.000000001", 1),
        # As doubles, these are a nanosecond off or more.
        ("123456789.123456789", 123_456_789_123_456_789),
        ("3199999999.999999999", 3_199_999_999_999_999_999),
        ("16777217.000000003", 16_777_217_000_000_003),
        ("3200000000", 3_200_000_000_000_000_000),
        # What programs write for small and for inexact doubles.
        ("1e-05", 10_000),
        ("1.5E+2", 150_000_000_000),
        ("0.30000000000000004", 300_000_000),
        (".5", 500_000_000),
        ("7.", 7_000_000_000),
        (" 1.5 ", 1_500_000_000),
    ],
)
def test_seconds_are_taken_as_written(write: Callable[..., Path], text: str, ns: int) -> None:
    assert columns_of(read_trace(write(COLUMNS, f"{text},5,1")))["arrival_ns"] == [ns]


def test_random_nanoseconds_survive(write: Callable[..., Path]) -> None:
    ns = np.sort(np.random.default_rng(7).integers(0, 3_200_000_000 * 10**9, 500))
    rows = [f"{value // 10**9}.{value % 10**9:09d},5,1" for value in ns.tolist()]
    assert columns_of(read_trace(write(COLUMNS, *rows)))["arrival_ns"] == ns.tolist()


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        ("arrival_s", "abc", "seconds >= 0"),
        ("arrival_s", "", "seconds >= 0"),
        ("arrival_s", ".", "seconds >= 0"),
        ("arrival_s", "-0.1", "seconds >= 0"),
        ("arrival_s", "nan", "seconds >= 0"),
        ("arrival_s", "inf", "seconds >= 0"),
        ("arrival_s", "1_0", "seconds >= 0"),
        ("arrival_s", "1e999", "<= 3200000000"),
        ("arrival_s", "3200000000.1", "<= 3200000000"),
        ("input_tokens", "x", "whole number >= 1"),
        ("input_tokens", "", "whole number >= 1"),
        ("input_tokens", "0", "whole number >= 1"),
        ("input_tokens", "-3", "whole number >= 1"),
        ("input_tokens", "1.5", "whole number >= 1"),
        ("input_tokens", "nan", "whole number >= 1"),
        ("input_tokens", "1_000", "whole number >= 1"),
        ("input_tokens", "\N{ARABIC-INDIC DIGIT ONE}", "whole number >= 1"),
        ("input_tokens", "100000001", "<= 100000000"),
        ("input_tokens", "9" * 5000, "<= 100000000"),
        ("output_tokens", "-1", "whole number >= 0"),
        ("output_tokens", "inf", "whole number >= 0"),
    ],
)
def test_a_bad_value_is_named_with_its_place(
    write: Callable[..., Path], column: str, value: str, allowed: str
) -> None:
    row = dict(zip(COLUMNS.split(","), ["2", "5", "1"], strict=True)) | {column: value}
    path = write(COLUMNS, "0,5,1", "", "1,5,1", ",".join(row.values()), "3,5,1")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    shown = f"{value[:40]!r}" + "…" * (len(value) > 40)
    assert message.startswith(f"{path} line 5, {column} = {shown}: ")
    assert allowed in message


def test_prefixes_must_fit(write: Callable[..., Path]) -> None:
    with pytest.raises(
        TraceError, match=r"line 3, prefix_tokens = '6': must be <= input_tokens \(5\)"
    ):
        read_trace(write(COLUMNS + ",prefix_group,prefix_tokens", "0,5,1,g,5", "1,5,1,g,6"))
    with pytest.raises(
        TraceError, match="line 3, prefix_group = 'g': needs a column prefix_tokens"
    ):
        read_trace(write(COLUMNS + ",prefix_group", "0,5,1,", "1,5,1,g"))
    lonely = read_trace(write(COLUMNS + ",prefix_group", "0,5,1,", "1,5,1,"))
    assert columns_of(lonely)["prefix_group"] == []


def test_an_empty_request_id_is_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(TraceError, match="line 3, request_id = '': must not be empty"):
        read_trace(write(COLUMNS + ",request_id", "0,5,1,a", "1,5,1,"))


@pytest.mark.parametrize("apart", [0, 5000])
def test_a_request_id_given_twice_names_both_lines(write: Callable[..., Path], apart: int) -> None:
    rows = [f"{i},5,1,r{i}" for i in range(apart)]
    path = write(COLUMNS + ",request_id", "0,5,1,a", *rows, f"{apart},5,1,a")
    words = rf"line {apart + 3}, request_id = 'a': must be unique; it is also on line 2"
    for sort in (False, True):
        with pytest.raises(TraceError, match=words):
            read_trace(path, sort=sort)


def test_more_tenants_than_the_core_can_index(write: Callable[..., Path]) -> None:
    rows = [f"0,5,1,t{i}" for i in range(65536)]
    assert read_trace(write(COLUMNS + ",tenant", *rows[:-1])).rows == 65535
    with pytest.raises(TraceError, match="tenant has more than 65535 different values"):
        read_trace(write(COLUMNS + ",tenant", *rows))


# --- order ----------------------------------------------------------------------------------------


def test_an_unsorted_row_names_both_times_and_the_way_out(write: Callable[..., Path]) -> None:
    path = write(COLUMNS, "0,5,1", "2.5,5,1", "1.75,5,1")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert f"{path} line 4, arrival_s = '1.75'" in message
    assert "'2.5' on line 3" in message
    assert "--sort" in message
    assert "sort=True" in message


@pytest.mark.parametrize("rows_before", [1, 4095, 4096, 4097])
def test_order_is_checked_across_pieces_of_the_file(
    write: Callable[..., Path], rows_before: int
) -> None:
    path = write(COLUMNS, *["3,5,1"] * rows_before, "2,5,1", "3,5,1")
    with pytest.raises(
        TraceError, match=rf"line {rows_before + 2}, .*'3' on line {rows_before + 1};"
    ):
        read_trace(path)


def test_sorting_is_stable_and_moves_whole_rows(write: Callable[..., Path]) -> None:
    header = COLUMNS + ",tenant,request_id,prefix_group,prefix_tokens"
    path = write(
        header, "2,7,1,x,a,,", "1,8,2,y,b,g,3", "2,9,3,x,c,h,4", "1,6,4,z,d,,", "0,5,5,x,e,,"
    )
    found = columns_of(read_trace(path, sort=True))
    assert found["arrival_ns"] == [0, 10**9, 10**9, 2 * 10**9, 2 * 10**9]
    assert found["request_id"] == ["e", "b", "d", "a", "c"]
    assert found["input_tokens"] == [5, 8, 6, 7, 9]
    assert found["output_tokens"] == [5, 2, 4, 1, 3]
    assert [found["tenants"][i] for i in found["tenant"]] == ["x", "y", "z", "x", "x"]
    assert found["prefix_group"] == [-1, 0, -1, -1, 1]
    assert found["prefix_tokens"] == [0, 3, 0, 0, 4]
    # The digest depends on this order.
    early = read_trace(write(header, "1,7,1,x,a,,", "0,8,2,y,b,g,3"), sort=True)
    assert columns_of(early)["tenants"] == ["x", "y"]


# --- azure ----------------------------------------------------------------------------------------


def test_azure_times_count_from_the_first_row_in_steps_of_100_ns(
    write: Callable[..., Path],
) -> None:
    path = write(
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
def test_azure_time_zones(write: Callable[..., Path], first: str, second: str, ns: int) -> None:
    path = write(AZURE, f"{first},1,1", f"{second},1,1")
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
def test_azure_bad_timestamps(write: Callable[..., Path], value: str) -> None:
    path = write(AZURE, "2023-01-01 00:00:00,1,1", f"{value},1,1")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert f"{path} line 3, TIMESTAMP = {value!r}: must be an instant" in str(caught.value)


def test_azure_sorted_on_reading_starts_at_the_earliest(write: Callable[..., Path]) -> None:
    path = write(AZURE, "2023-01-01 00:00:02,2,1", "2023-01-01 00:00:00,1,1")
    with pytest.raises(
        TraceError, match="line 3, TIMESTAMP = '2023-01-01 00:00:00': is earlier than"
    ):
        read_trace(path)
    found = columns_of(read_trace(path, sort=True))
    assert found["arrival_ns"] == [0, 2 * 10**9]
    assert found["input_tokens"] == [1, 2]


# --- blis and reference ---------------------------------------------------------------------------


def test_reference(write: Callable[..., Path]) -> None:
    path = write(
        REFERENCE,
        "7,c,silver,standard,sysB,256,157,139,1729",
        "8,c,gold,,,0,271,0,2670",
        "9,c,,batch,sysA,64,0,1,2670",
        "10,c,,batch,sysB,256,1,1,2671",
    )
    found = columns_of(read_trace(path))
    assert found["arrival_ns"] == [1_729_000, 2_670_000, 2_670_000, 2_671_000]
    assert found["input_tokens"] == [413, 271, 64, 257]
    assert found["output_tokens"] == [139, 0, 1, 1]
    assert found["prefix_group"] == [0, -1, 1, 0]
    assert found["prefix_tokens"] == [256, 0, 64, 256]
    assert found["request_id"] == ["7", "8", "9", "10"]
    assert [found["tenants"][i] for i in found["tenant"]] == [
        "silver",
        "gold",
        "default",
        "default",
    ]
    assert [found["slo_classes"][i] for i in found["slo_class"]][:2] == ["standard", "standard"]


def test_blis_ignores_send_time_and_prefers_the_servers_count(write: Callable[..., Path]) -> None:
    path = write(
        BLIS_27,
        blis_row(BLIS_27, request_id=0, arrival_time_us=5, send_time_us=99),
        blis_row(BLIS_27, request_id=1, arrival_time_us=6, server_input_tokens=14, send_time_us=1),
        blis_row(
            BLIS_27,
            request_id=2,
            arrival_time_us=7,
            server_input_tokens=44,
            prefix_group="g",
            prefix_length=32,
        ),
        blis_row(BLIS_27, request_id=3, arrival_time_us=8, server_input_tokens=0, prefix_length=5),
    )
    found = columns_of(read_trace(path))
    assert found["arrival_ns"] == [5000, 6000, 7000, 8000]
    assert found["input_tokens"] == [10, 14, 42, 10]
    assert found["prefix_group"] == [-1, -1, 0, -1]
    assert found["prefix_tokens"] == [0, 0, 32, 0]
    assert found["slo_classes"] == ["critical"]


def test_blis_of_older_and_newer_versions(write: Callable[..., Path]) -> None:
    found = columns_of(
        read_trace(write(BLIS_22, blis_row(BLIS_22, request_id="request_3", arrival_time_us=1)))
    )
    assert (found["input_tokens"], found["request_id"]) == ([10], ["request_3"])
    with pytest.raises(
        TraceError, match="line 2, prefix_group = 'g': needs a column prefix_length"
    ):
        read_trace(
            write(BLIS_22, blis_row(BLIS_22, request_id=0, arrival_time_us=1, prefix_group="g"))
        )
    newest = BLIS_27.replace("slo_class,", "slo_class,vllm_priority,") + ",x_request_id,adapter"
    assert read_trace(write(newest, blis_row(newest, request_id=0, arrival_time_us=1))).rows == 1


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        ({"input_tokens": 0}, "input_tokens = '0'"),
        ({"input_tokens": -1}, "input_tokens = '-1'"),
        (
            {"input_tokens": 100_000_000, "prefix_group": "g", "prefix_length": 1},
            "input_tokens = '100000000'",
        ),
        ({"prefix_group": "g", "prefix_length": "x"}, "prefix_length = 'x'"),
        ({"server_input_tokens": "-5"}, "server_input_tokens = '-5'"),
        ({"arrival_time_us": "1.5"}, "arrival_time_us = '1.5'"),
        ({"arrival_time_us": ""}, "arrival_time_us = ''"),
    ],
)
def test_blis_bad_values(write: Callable[..., Path], cells: dict[str, object], place: str) -> None:
    good = blis_row(BLIS_27, request_id=0, arrival_time_us=0)
    path = write(
        BLIS_27, good, blis_row(BLIS_27, **({"request_id": 1, "arrival_time_us": 1} | cells))
    )
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert f"{path} line 3, {place}: " in str(caught.value)


# --- files ----------------------------------------------------------------------------------------


def test_byte_order_mark_crlf_and_blank_lines_do_not_matter(write: Callable[..., Path]) -> None:
    lines = (COLUMNS + ",tenant", "0,5,1,ä", "1,6,2,b")
    plain = read_trace(write(*lines)).sha256
    assert read_trace(write(*lines, encoding="utf-8-sig")).sha256 == plain
    assert read_trace(write(*lines, end="\r\n")).sha256 == plain
    assert read_trace(write(*lines, "", "  ", "")).sha256 == plain
    assert read_trace(write(", ".join(lines[0].split(",")), *lines[1:])).sha256 == plain


def test_format_can_be_stated(write: Callable[..., Path]) -> None:
    path = write(COLUMNS + "," + AZURE, "0,5,1,2023-01-01 00:00:00,7,2")
    with pytest.warns(UserWarning, match=f"unused columns: {AZURE.replace(',', ', ')}"):
        assert columns_of(read_trace(path, format="columns"))["input_tokens"] == [5]
    assert columns_of(read_trace(path, format="azure"))["input_tokens"] == [7]
    with pytest.raises(TraceError, match=r"not of the format blis: request_id, tenant_id"):
        read_trace(path, format="blis")
    with pytest.raises(TraceError) as caught:
        read_trace(path, format="azur")
    assert str(caught.value) == f"format = 'azur': must be one of {', '.join(sorted(FORMATS))}"


@pytest.mark.parametrize(
    ("header", "note"),
    [
        (COLUMNS + ",user", "unused columns: user; optional columns are request_id, tenant, "),
        (
            COLUMNS + ",tenat,prefix",
            "unused columns: tenat (did you mean tenant?), prefix; ",
        ),
        (COLUMNS + ",tenant_id", "unused columns: tenant_id (did you mean tenant?); optional"),
        (
            AZURE + ",prefix_group",
            "unused columns: prefix_group; optional columns are tenant",
        ),
    ],
)
def test_unused_columns_are_noted(write: Callable[..., Path], header: str, note: str) -> None:
    row = "0,5,1" if header.startswith(COLUMNS) else "2023-01-01 00:00:00,5,1"
    path = write(header, row + ",x" * (header.count(",") - 2))
    with pytest.warns(UserWarning, match=re.escape(f"{path}: {note}")) as caught:
        read_trace(path)
    assert [one.filename for one in caught] == [__file__]


def test_unused_keys_are_noted(write: Callable[..., Path]) -> None:
    path = write(
        mooncake(0, 512, [5], 3, tenant="a"), mooncake(1, 512, [5], 3, tennant="a", session_id=7)
    )
    with pytest.warns(
        UserWarning, match=r"unused columns: tennant \(did you mean tenant\?\), session_id;"
    ):
        read_trace(path)


def test_what_a_run_writes_is_a_trace_without_notes(tmp_path: Path) -> None:
    simulate(Simulation(workload=workload.Synthetic(num_requests=5))).write(tmp_path)
    assert read_trace(tmp_path / "requests.csv").rows == 5


def test_an_unknown_header_shows_itself_and_the_known_ones(write: Callable[..., Path]) -> None:
    path = write("time,prompt", "0,5")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert f"{path}: unknown format: time,prompt\nFormats tried:\n" in message
    for name, form in FORMATS.items():
        assert f"{name}: {form.doc}" in message
    jsonl = write('{"timestamp": 0, "input_length": 6955, "hash_ids": [1, 2]}', '{"timestamp": 1}')
    with pytest.raises(TraceError, match=r"unknown format.*\nClosest: mooncake, without output_le"):
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
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_trace(str(tmp_path))
    for name in ("pipe", "pipe.jsonl"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(TraceError, match=f"{name}: cannot be read: Not a regular file"):
            read_trace(tmp_path / name)
    with pytest.raises(TraceError, match="/dev/zero: cannot be read: Not a regular file"):
        read_trace("/dev/zero")
    with pytest.raises(TraceError, match="cannot be read: not a valid file name"):
        read_trace("a\0b")


def counting_calls(action: Callable[[], Any]) -> tuple[Any, int]:
    """What an action returns, and the number of calls it makes: its work on any machine."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return action(), calls
    finally:
        sys.setprofile(before)


def test_reading_takes_the_same_work_for_every_row(tmp_path: Path) -> None:
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


# --- Mooncake JSONL -------------------------------------------------------------------------------


def mooncake(
    timestamp: object, tokens: object, ids: object, output: object = 1, **more: Any
) -> str:
    return json.dumps(
        {"timestamp": timestamp, "input_length": tokens, "output_length": output, "hash_ids": ids}
        | more
    )


def prompts_of(found: _core.workload.Trace) -> list[list[tuple[int, int]]]:
    columns = columns_of(found)
    segments = list(zip(columns["segment_content"], columns["segment_tokens"], strict=True))
    return [segments[a:b] for a, b in itertools.pairwise(columns["segment_begin"])]


def test_a_mooncake_prompt_is_a_segment_per_id(write: Callable[..., Path]) -> None:
    path = write(
        mooncake(0, 1100, [5, 2**64 - 1, 7], 0),
        "",
        mooncake(27, 512, [5], 3),
        mooncake(3000.000001, 513, [5, 6], 4),
    )
    found = read_trace(path)
    columns = columns_of(found)
    assert columns["arrival_ns"] == [0, 27_000_000, 3_000_000_001]
    assert columns["input_tokens"] == [1100, 512, 513]
    assert columns["output_tokens"] == [0, 3, 4]
    assert prompts_of(found) == [
        [(5, 512), (2**64 - 1, 512), (7, 76)],
        [(5, 512)],
        [(5, 512), (6, 1)],
    ]
    assert (columns["tenants"], columns["slo_classes"]) == (["default"], ["standard"])
    assert columns["request_id"] == []
    assert found.file == str(path)
    assert {"kind", "file", "sha256", "rows"} <= found.to_dict().keys()
    assert pickle.loads(pickle.dumps(found))._columns()["segment_tokens"].tolist() == [
        *(512, 512, 76),
        *(512,),
        *(512, 1),
    ]


def test_mooncake_is_recognized_by_its_name_or_its_keys(write: Callable[..., Path]) -> None:
    lines = [mooncake(0, 5, [1]), mooncake(1, 6, [2])]
    by_keys = write(*lines)
    by_name = by_keys.with_suffix(".jsonl")
    by_name.write_bytes(b"\xef\xbb\xbf" + by_keys.read_bytes())
    expected = read_trace(by_keys, format="mooncake")
    assert read_trace(by_keys) == read_trace(by_name) == expected
    with pytest.raises(TraceError, match=r"not of the format columns: arrival_s, .* missing"):
        read_trace(by_name, format="columns")


def test_mooncake_in_seconds_and_other_blocks(write: Callable[..., Path]) -> None:
    path = write(mooncake(0, 33, [1, 2, 3]), mooncake(0.25, 16, [1]), mooncake(2, 17, [1, 2]))
    found = read_trace(path, unit="s", block_size_tokens=16)
    assert columns_of(found)["arrival_ns"] == [0, 250_000_000, 2_000_000_000]
    assert prompts_of(found) == [[(1, 16), (2, 16), (3, 1)], [(1, 16)], [(1, 16), (2, 1)]]


def test_mooncake_with_names_and_sorted(write: Callable[..., Path]) -> None:
    path = write(
        mooncake(5, 600, [1, 2], request_id="a", tenant="gold"),
        mooncake(5, 1, [3], request_id="b", slo_class="batch"),
        mooncake(4, 2, [4], request_id="c", tenant=""),
    )
    with pytest.raises(
        TraceError, match=r"line 3, timestamp = 4: is earlier than 5 on line 2; --sort"
    ):
        read_trace(path)
    found = read_trace(path, sort=True)
    columns = columns_of(found)
    assert columns["request_id"] == ["c", "a", "b"]
    assert [columns["tenants"][i] for i in columns["tenant"]] == ["default", "gold", "default"]
    assert [columns["slo_classes"][i] for i in columns["slo_class"]] == [
        *("standard", "standard", "batch")
    ]
    assert (columns["tenants"], columns["slo_classes"]) == (
        ["default", "gold"],
        ["standard", "batch"],
    )
    assert prompts_of(found) == [[(4, 2)], [(1, 512), (2, 88)], [(3, 1)]]


@pytest.mark.parametrize("line", ["", "\n \n"])
def test_a_request_id_of_mooncake_given_twice(write: Callable[..., Path], line: str) -> None:
    twice = mooncake(0, 5, [1], request_id="a"), line, mooncake(0, 5, [1], request_id="a")
    words = r"request_id = 'a': must be unique; it is also on line 1"
    with pytest.raises(TraceError, match=words):
        read_trace(write(*twice))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (mooncake(0, 600, [1]), "hash_ids = 1 ids: must be 2, one per 512 tokens of input_length"),
        (mooncake(0, 512, [1, 2]), "hash_ids = 2 ids: must be 1"),
        (mooncake(0, 5, [1.5]), "hash_ids = [Decimal('1.5')]: must be a list of whole numbers"),
        (mooncake(0, 5, [-1]), "hash_ids = [-1]: must be a list"),
        (mooncake(0, 5, [2**64]), "hash_ids = [18446744073709551616]: must be a list"),
        (mooncake(0, 5, [True]), "hash_ids = [True]: must be a list"),
        (mooncake(0, 5, 1), "hash_ids = 1: must be a list"),
        (mooncake(-1, 5, [1]), "timestamp = -1: must be a number >= 0 and <= 3200000000000 (ms)"),
        (mooncake("0", 5, [1]), "timestamp = '0': must be a number"),
        (mooncake(None, 5, [1]), "timestamp = None: must be a number"),
        (mooncake(float("nan"), 5, [1]), "timestamp = nan: must be a number"),
        (mooncake(1e300, 5, [1]), "timestamp = 1E+300: must be a number"),
        (mooncake(3_200_000_000_001, 5, [1]), "timestamp = 3200000000001: must be a number"),
        (mooncake(0, 0, []), "input_length = 0: must be a whole number >= 1 and <= 100000000"),
        (mooncake(0, 5.0, [1]), "input_length = 5.0: must be a whole number"),
        (mooncake(0, True, [1]), "input_length = True: must be a whole number"),
        (mooncake(0, 5, [1], -1), "output_length = -1: must be a whole number >= 0"),
        (mooncake(0, 5, [1], tenant=3), "tenant = 3: must be text"),
        (mooncake(0, 5, [1], request_id="a"), "request_id must be on every line or on none"),
        (
            mooncake(0, 5, [1]).replace("{", '{"timestamp": 1, '),
            "not valid JSON: the key 'timestamp' is given twice",
        ),
        (
            mooncake(0, 5, [1]).replace("5", 5000 * "5"),
            "not valid JSON: a number has too many digits",
        ),
        (
            '{"timestamp": 0, "input_length": 5}',
            "not of the format mooncake: output_length, ",
        ),
        ("[1, 2]", "must be a JSON object, not [1, 2]"),
        ('{"timestamp": 0,', "not valid JSON: "),
        ("[" * 100_000, "not valid JSON: "),
        ('{"timestamp": 1e99999999999999999999}', "not valid JSON: "),
    ],
)
def test_a_bad_line_of_mooncake_is_named(write: Callable[..., Path], line: str, words: str) -> None:
    path = write(mooncake(0, 5, [1]), "", line, mooncake(0, 5, [1]))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    place, _, problem = str(caught.value).partition(" line 3")
    assert place == str(path)
    assert problem.lstrip(",: ").startswith(words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unit": "us"}, "unit = 'us': must be ms or s"),
        ({"block_size_tokens": 0}, "block_size_tokens = 0: must be >= 1"),
        ({"spread_s": -1}, "spread_s = -1: must be >= 0"),
        ({"spread_s": float("nan")}, "spread_s = nan: must be >= 0"),
        ({"seed": -1}, "seed = -1: must be >= 0"),
    ],
)
def test_bad_options_of_mooncake(
    write: Callable[..., Path], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(write(mooncake(0, 5, [1])), **options)
    assert str(caught.value).startswith(words)


def test_options_of_mooncake_are_for_mooncake(write: Callable[..., Path]) -> None:
    path = write(COLUMNS, "0,5,1")
    for options, others in (
        ({"unit": "s"}, "mooncake, mooncake_lengths"),
        ({"block_size_tokens": 16}, "bailian, aiperf, mooncake"),
        ({"spread_s": 3}, "mooncake, mooncake_lengths"),
    ):
        ((name, value),) = options.items()
        with pytest.raises(TraceError) as caught:
            read_trace(path, **options)
        assert str(caught.value) == (
            f"{path}, {name} = {value!r}: unknown option of the format columns; it has no options; "
            f"{name} is an option of {others}"
        )


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "holds no requests"), (b"\n\n", "holds no requests"), (b"\xff\n", "not a text file")],
)
def test_unusable_mooncake_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: {words}")
    with pytest.raises(TraceError, match=r"missing\.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "missing.jsonl")


def test_requests_of_an_instant_are_spread_in_order(write: Callable[..., Path]) -> None:
    stamps = [0] * 300 + [2000] + [3000] * 100
    path = write(*(mooncake(stamp, 1 + i, [i]) for i, stamp in enumerate(stamps)))
    with pytest.warns(UserWarning, match="401 requests arrive at only 3 instants") as caught:
        as_it_is = read_trace(path)
    assert caught[0].filename == __file__
    spread = read_trace(path, spread_s=3)
    columns = columns_of(spread)
    arrival_s = np.array(columns["arrival_ns"]) / 1e9
    assert columns["input_tokens"] == list(range(1, 402))
    assert (np.diff(arrival_s) >= 0).all()
    # Over three seconds, but not beyond the next timestamp of the file.
    for first, last, begin_s, end_s in ((0, 300, 0, 2), (300, 301, 2, 3), (301, 401, 3, 6)):
        some = arrival_s[first:last]
        assert some.min() >= begin_s
        assert some.max() < end_s
        if last - first > 1:
            assert some.mean() == pytest.approx((begin_s + end_s) / 2, abs=0.3)
    assert read_trace(path, spread_s=3) == spread
    assert read_trace(path, spread_s=3, seed=1) != spread
    assert as_it_is != spread
    assert read_trace(path, spread_s=1e-9) == as_it_is  # there is no room


def test_spread_arrivals_are_the_same_on_every_machine(write: Callable[..., Path]) -> None:
    path = write(*(mooncake(0, 5, [1]) for _ in range(3)))
    found = columns_of(read_trace(path, spread_s=1, seed=7))
    assert found["arrival_ns"] == [625_095_466, 775_685_690, 897_213_800]


def test_a_trace_goes_through_a_mooncake_file(tmp_path: Path) -> None:
    path = tmp_path / "written.jsonl"
    built = trace(
        arrival_s=[0, 0.0000015, 12.3],
        input_tokens=[40, 16, 33],
        output_tokens=[1, 2, 0],
        tenant=["gold", "", "ä"],
        slo_class=["standard", "batch", "standard"],
        request_id=["a", 'b"', "c"],
        hash_ids=[[1, 2, 3], [1], [1, 2, 9]],
        block_size_tokens=16,
    )
    write_mooncake(built, path, block_size_tokens=16)
    assert read_trace(path, block_size_tokens=16) == built
    assert json.loads(path.read_text().splitlines()[1]) == {
        "timestamp": 0.0015,
        "input_length": 16,
        "output_length": 2,
        "hash_ids": [1],
        "request_id": 'b"',
        "slo_class": "batch",
    }
    with pytest.raises(TraceError, match=r"cannot be written: No such file"):
        write_mooncake(built, tmp_path / "missing" / "file.jsonl", block_size_tokens=16)


def test_unshared_parts_of_a_prompt_get_ids_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "written.jsonl"
    built = trace(
        arrival_s=[0, 1, 2],
        input_tokens=[40, 50, 16],
        output_tokens=[1, 2, 0],
        prefix_group=["g", "g", None],
        prefix_tokens=[16, 16, 0],
    )
    write_mooncake(built, path, block_size_tokens=16)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["hash_ids"] for line in lines] == [[0, 1, 2], [0, 3, 4, 5], [6]]
    assert lines[2] == {"timestamp": 2000, "input_length": 16, "output_length": 0, "hash_ids": [6]}
    with pytest.raises(TraceError, match="request 0 shares segments of 16 tokens: must be blocks"):
        write_mooncake(built, path, block_size_tokens=8)
    with pytest.raises(TraceError, match="block_size_tokens = 0: must be >= 1"):
        write_mooncake(built, path, block_size_tokens=0)
    assert len(path.read_text().splitlines()) == 3  # left as it was
    bare = spillway.workload.Trace.from_dict(built.to_dict())
    with pytest.raises(UsageError, match="holds no requests"):
        write_mooncake(bare, path)


def test_a_configuration_file_finds_its_mooncake_trace(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    path = write(mooncake(0, 5, [1]), mooncake(1, 5, [1])).rename(tmp_path / "trace.jsonl")
    config = tmp_path / "config.yaml"
    for options in ({}, {"unit": "s"}):
        simulation = Simulation(workload=read_trace(path, **options))
        spillway.dump(simulation, config)
        if not options:
            assert spillway.load(config) == simulation
    with pytest.raises(ConfigError, match=r"workload\.sha256.*write_mooncake"):
        spillway.load(config)


COEFFICIENTS = [field.name for field in dataclasses.fields(instance.Linear)]


def ideal_hit_rate(path: Path, block: int) -> float:
    """Share of the full KV blocks of all prompts that an earlier prompt began with."""
    seen: set[tuple[int, ...]] = set()
    hits = lookups = 0
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for at in range(len(row["hash_ids"])):
            tokens = min(512, row["input_length"] - 512 * at)
            beginning = (hash(tuple(row["hash_ids"][: at + 1])), tokens)
            lookups += tokens // block
            hits += tokens // block if beginning in seen else 0
            seen.add(beginning)
    return hits / lookups


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "input_tokens", "output_tokens"),
    [("conversation", 12_031, 144_793_823, 4_122_048), ("synthetic", 3_993, 61_194_628, 595_432)],
)
def test_public_mooncake_traces(
    tmp_path: Path, name: str, rows: int, input_tokens: int, output_tokens: int
) -> None:
    path = SHARED_TRACES / f"mooncake_{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is missing: the public traces are not part of the repository")
    found = read_trace(path, spread_s=3)
    columns = found._columns()
    assert found.rows == rows
    assert columns["input_tokens"].sum() == input_tokens
    assert columns["output_tokens"].sum() == output_tokens
    write_mooncake(found, tmp_path / "again.jsonl")
    assert read_trace(tmp_path / "again.jsonl") == found
    if name == "conversation":
        with pytest.warns(UserWarning, match="12031 requests arrive at only 1180 instants"):
            read_trace(path)
    else:
        read_trace(path)

    # Memory for everything and a fleet of one that is never behind: a later request finds the
    # blocks of all earlier ones.
    simulation = Simulation(
        workload=found,
        instances={
            "count": 1,
            "max_num_seqs": 100_000,
            "max_num_batched_tokens": 100_000_000,
            "max_model_len": 0,
            "block_size_tokens": 16,
            "num_kv_blocks": 20_000_000,
            "kv_cache": {"prefix_caching": True},
            "latency": instance.Linear(**dict.fromkeys(COEFFICIENTS, 0) | {"beta0_us": 1}),
        },
    )
    (one,) = simulate(simulation).instances
    ideal = ideal_hit_rate(path, 16)
    rate = one["kv_hits"] / one["kv_lookups"]
    assert 0.3 < rate <= ideal
    assert rate == pytest.approx(ideal, abs=0.01)


# --- arrays ---------------------------------------------------------------------------------------


def test_arrays_and_files_give_the_same_trace(write: Callable[..., Path]) -> None:
    path = write(
        COLUMNS + ",tenant,slo_class,request_id,prefix_group,prefix_tokens",
        "0.1,5,1,gold,batch,a,g,4",
        "0.3,6,0,,,b,,",
    )
    built = trace(
        arrival_s=[0.1, 0.3],
        input_tokens=np.array([5, 6], dtype=np.uint8),
        output_tokens=[1.0, 0.0],
        tenant=["gold", ""],
        slo_class=np.array(["batch", "standard"]),
        request_id=("a", "b"),
        prefix_group=["g", None],
        prefix_tokens=[4, 0],
    )
    assert built.sha256 == read_trace(path).sha256
    assert (built.rows, built.file) == (2, "")


def test_one_tenant_and_class_for_all() -> None:
    arguments: dict[str, Any] = {
        "arrival_s": [0, 1],
        "input_tokens": [1, 1],
        "output_tokens": [0, 0],
    }
    found = columns_of(trace(**arguments, tenant="gold", slo_class="batch"))
    assert (found["tenants"], found["slo_classes"]) == (["gold"], ["batch"])
    assert trace(**arguments) == trace(**arguments, tenant="default", slo_class=["standard"] * 2)
    assert trace(**arguments) != trace(**arguments, tenant="gold")


def test_arrivals_are_rounded_to_the_nanosecond() -> None:
    seconds = np.array([0.1 + 0.2, 1e-9, 1e-10, 12345.000000001])
    found = trace(arrival_s=np.sort(seconds), input_tokens=[1] * 4, output_tokens=[1] * 4)
    assert columns_of(found)["arrival_ns"] == [0, 1, 300_000_000, 12_345_000_000_001]


def test_a_trace_can_be_run_and_pickled() -> None:
    found = trace(arrival_s=[0, 0.5], input_tokens=[100, 200], output_tokens=[3, 4])
    simulation = _core.cluster.Simulation(workload=found)
    assert _core.cluster.run(simulation, 0)["summary"]["completed"] == 2
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_s": [0, float("nan")]}, r"arrival_s\[1\] = nan: must be >= 0"),
        ({"arrival_s": [0, float("inf")]}, r"arrival_s\[1\] = inf: must be >= 0"),
        ({"arrival_s": [-1, 0]}, r"arrival_s\[0\] = -1\.0: must be >= 0"),
        ({"arrival_s": [1, 0.5]}, r"arrival_s\[1\] = 0\.5: must be >= arrival_s\[0\] \(1\.0\)"),
        ({"arrival_s": []}, r"arrival_s = \[\]: must hold at least one request"),
        ({"input_tokens": [1]}, r"input_tokens = 1 values: must be as long as arrival_s \(2"),
        ({"input_tokens": [1, 0]}, r"input_tokens\[1\] = 0: must be whole, >= 1"),
        ({"input_tokens": [1, 2**40]}, r"input_tokens\[1\] = 1099511627776: must be whole"),
        ({"output_tokens": [1, 1.5]}, r"output_tokens\[1\] = 1\.5: must be whole, >= 0"),
        ({"output_tokens": [1, -1]}, r"output_tokens\[1\] = -1: must be whole, >= 0"),
        ({"output_tokens": [1, float("nan")]}, r"output_tokens\[1\] = nan: must be whole, >= 0"),
        ({"tenant": ["a"]}, r"tenant = 1 values: must be as long as arrival_s"),
        ({"request_id": ["a", "b", "c"]}, r"request_id = 3 values: must be as long as arrival_s"),
        ({"request_id": ["a", "a"]}, r"request_id\[1\] = 'a': must be unique; request_id\[0\] is"),
        (
            {"prefix_group": ["g", "g"], "prefix_tokens": [1, 9]},
            r"prefix_tokens\[1\] = 9: must be <= input_tokens\[1\] \(6\)",
        ),
        ({"hash_ids": [[1]]}, r"hash_ids = 1 values: must be as long as arrival_s \(2"),
        ({"hash_ids": [[1], [-1]]}, r"hash_ids\[1\] = \[-1\]: must be >= 0"),
        (
            {"hash_ids": [[1], [1, 2]]},
            r"hash_ids\[1\] = \[1, 2\]: must have 1, one per 512 tokens of input_tokens\[1\]",
        ),
        ({"hash_ids": [[1], [1]], "block_size_tokens": 0}, "block_size_tokens = 0: must be >= 1"),
    ],
)
def test_wrong_values_in_arrays(changes: dict[str, Any], message: str) -> None:
    arguments = {"arrival_s": [0, 1], "input_tokens": [5, 6], "output_tokens": [1, 1]} | changes
    with pytest.raises(_core.sim.ConfigError, match=message) as caught:
        trace(**arguments)
    assert len(caught.value.violations) == 1


def test_all_wrong_arrays_are_named_at_once() -> None:
    with pytest.raises(_core.sim.ConfigError) as caught:
        trace(arrival_s=[0, -1], input_tokens=[0, 1], output_tokens=[1], tenant=["a"])
    assert [path for path, _, _ in caught.value.violations] == [
        "arrival_s[1]",
        "input_tokens[0]",
        "output_tokens",
        "tenant",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_s": 0.5}, "arrival_s must be a one-dimensional sequence of numbers"),
        ({"arrival_s": ["0", "1"]}, "arrival_s must be a one-dimensional sequence of numbers"),
        ({"input_tokens": [[1, 2], [3, 4]]}, "input_tokens must be a one-dimensional sequence"),
        ({"input_tokens": [[1], [2, 3]]}, "input_tokens must be a one-dimensional sequence"),
        ({"output_tokens": [True, False]}, "output_tokens must be a one-dimensional sequence"),
        ({"output_tokens": None}, "output_tokens must be a one-dimensional sequence"),
        ({"tenant": [1, 2]}, r"tenant\[0\] must be a str, not 1"),
        ({"slo_class": ["a", None]}, r"slo_class\[1\] must be a str, not None"),
        ({"request_id": "ab"}, "request_id must be a sequence of str, not one str"),
        ({"prefix_group": ["g", "g"]}, "prefix_group and prefix_tokens belong together"),
        (
            {"prefix_group": ["g", "g"], "prefix_tokens": [1, 1], "hash_ids": [[1], [1]]},
            "give prefix_group or hash_ids, not both",
        ),
        ({"hash_ids": [1, 2]}, "hash_ids must be a sequence of sequences of int"),
        ({"hash_ids": [["a"], ["b"]]}, "hash_ids must be a sequence of sequences of int"),
        ({"prefix_group": [0, 1], "prefix_tokens": [1, 1]}, r"prefix_group\[0\] must be a str"),
    ],
)
def test_wrong_types_in_arrays(changes: dict[str, Any], message: str) -> None:
    arguments = {"arrival_s": [0, 1], "input_tokens": [5, 6], "output_tokens": [1, 1]} | changes
    with pytest.raises(TypeError, match=message):
        trace(**arguments)


def test_a_file_of_a_quotation_mark_is_empty(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(b'"')
    with pytest.raises(TraceError, match="empty; must hold a header row"):
        read_trace(tmp_path / "trace.csv", format="columns")


@pytest.mark.parametrize("name", ["tenant", "slo_class", "request_id"])
def test_text_that_is_no_unicode_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\[1\] = .*: must be valid Unicode"):
        trace(
            arrival_s=[0, 1], input_tokens=[1, 1], output_tokens=[1, 1], **{name: ["a", "\ud800"]}
        )
