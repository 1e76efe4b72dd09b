"""Spillway's own columns, and the order of requests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.traces import columns_in, columns_of, refusal, written

from spillway.files.traces import read_trace

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "arrival_s,input_tokens,output_tokens"
ARABIC = "\N{ARABIC-INDIC DIGIT ONE}"


def test_columns_need_three_and_take_eight(tmp_path: Path) -> None:
    plain = columns_in(tmp_path, COLUMNS, "0,5,1", "0.5,6,0")
    assert plain["arrival_ns"] == [0, 500_000_000]
    assert plain["input_tokens"] == [5, 6]
    assert plain["output_tokens"] == [1, 0]
    assert (plain["tenants"], plain["tenant"]) == (["default"], [0, 0])
    assert (plain["slo_classes"], plain["slo_class"]) == (["standard"], [0, 0])
    assert plain["request_id"] == []
    assert plain["prefix_group"] == []

    full = columns_in(
        tmp_path,
        "tenant,request_id,arrival_s,slo_class,input_tokens,output_tokens,"
        "prefix_group,prefix_tokens",
        "gold,a,1,critical,50,1,sys,32",
        ",b,1,,60,2,,",
        'gold,"c,d",2.25,batch,70,3,doc,70',
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
def test_seconds_are_taken_as_written(tmp_path: Path, text: str, ns: int) -> None:
    assert columns_in(tmp_path, COLUMNS, f"{text},5,1")["arrival_ns"] == [ns]


def test_random_nanoseconds_survive(tmp_path: Path) -> None:
    ns = np.sort(np.random.default_rng(7).integers(0, 3_200_000_000 * 10**9, 500))
    rows = [f"{value // 10**9}.{value % 10**9:09d},5,1" for value in ns.tolist()]
    assert columns_in(tmp_path, COLUMNS, *rows)["arrival_ns"] == ns.tolist()


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        (column, value, allowed)
        for column, allowed, values in (
            ("arrival_s", "seconds >= 0", ("abc", "", ".", "-0.1", "nan", "inf", "1_0")),
            ("arrival_s", "<= 3200000000", ("1e999", "3200000000.1")),
            (
                "input_tokens",
                "whole number >= 1",
                ("x", "", "0", "-3", "1.5", "nan", "1_000", ARABIC),
            ),
            ("input_tokens", "<= 100000000", ("100000001", "9" * 5000)),
            ("output_tokens", "whole number >= 0", ("-1", "inf")),
        )
        for value in values
    ],
)
def test_a_bad_value_is_named_with_its_place(
    tmp_path: Path, column: str, value: str, allowed: str
) -> None:
    row = dict(zip(COLUMNS.split(","), ["2", "5", "1"], strict=True)) | {column: value}
    message = refusal(tmp_path, COLUMNS, "0,5,1", "", "1,5,1", ",".join(row.values()), "3,5,1")
    shown = f"{value[:40]!r}" + "…" * (len(value) > 40)
    assert message.startswith(f"line 5, {column} = {shown}: ")
    assert allowed in message


def test_prefixes_must_fit(tmp_path: Path) -> None:
    header = COLUMNS + ",prefix_group"
    message = refusal(tmp_path, header + ",prefix_tokens", "0,5,1,g,5", "1,5,1,g,6")
    assert message.startswith("line 3, prefix_tokens = '6': must be <= input_tokens (5)")
    message = refusal(tmp_path, header, "0,5,1,", "1,5,1,g")
    assert message.startswith("line 3, prefix_group = 'g': needs a column prefix_tokens")
    lonely = read_trace(written(tmp_path, COLUMNS + ",prefix_group", "0,5,1,", "1,5,1,"))
    assert columns_of(lonely)["prefix_group"] == []


def test_an_empty_request_id_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, COLUMNS + ",request_id", "0,5,1,a", "1,5,1,")
    assert message.startswith("line 3, request_id = '': must not be empty")


@pytest.mark.parametrize("apart", [0, 5000])
def test_a_request_id_given_twice_names_both_lines(tmp_path: Path, apart: int) -> None:
    rows = [f"{i},5,1,r{i}" for i in range(apart)]
    lines = (COLUMNS + ",request_id", "0,5,1,a", *rows, f"{apart},5,1,a")
    words = f"line {apart + 3}, request_id = 'a': must be unique; it is also on line 2"
    for sort in (False, True):
        assert refusal(tmp_path, *lines, sort=sort).startswith(words)


def test_more_tenants_than_the_core_can_index(tmp_path: Path) -> None:
    rows = [f"0,5,1,t{i}" for i in range(65536)]
    assert read_trace(written(tmp_path, COLUMNS + ",tenant", *rows[:-1])).rows == 65535
    message = refusal(tmp_path, COLUMNS + ",tenant", *rows)
    assert "tenant has more than 65535 different values" in message


def test_an_unsorted_row_names_both_times_and_the_way_out(tmp_path: Path) -> None:
    message = refusal(tmp_path, COLUMNS, "0,5,1", "2.5,5,1", "1.75,5,1")
    assert message.startswith("line 4, arrival_s = '1.75'")
    assert all(part in message for part in ("'2.5' on line 3", "--sort", "sort=True"))


@pytest.mark.parametrize("rows_before", [1, 4095, 4096, 4097])
def test_order_is_checked_across_pieces_of_the_file(tmp_path: Path, rows_before: int) -> None:
    message = refusal(tmp_path, COLUMNS, *["3,5,1"] * rows_before, "2,5,1", "3,5,1")
    assert re.match(rf"line {rows_before + 2}, .*'3' on line {rows_before + 1};", message)


def test_sorting_is_stable_and_moves_whole_rows(tmp_path: Path) -> None:
    header = COLUMNS + ",tenant,request_id,prefix_group,prefix_tokens"
    path = written(
        tmp_path,
        header,
        "2,7,1,x,a,,",
        "1,8,2,y,b,g,3",
        "2,9,3,x,c,h,4",
        "1,6,4,z,d,,",
        "0,5,5,x,e,,",
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
    early = read_trace(written(tmp_path, header, "1,7,1,x,a,,", "0,8,2,y,b,g,3"), sort=True)
    assert columns_of(early)["tenants"] == ["x", "y"]
