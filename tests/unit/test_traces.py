"""Traces from files and from arrays."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spillway import _core
from spillway.interop.traces import FORMATS, TraceError, read_trace, trace

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED_TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"

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
    columns = found._columns()
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in columns.items()
    }


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
                "tenant,request_id,arrival_s,slo_class,input_tokens,extra,output_tokens,"
                "prefix_group,prefix_tokens",
                "gold,a,1,critical,50,?,1,sys,32",
                ",b,1,,60,?,2,,",
                'gold,"c,d",2.25,batch,70,?,3,doc,70',
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
    assert message.startswith(f"{path} line 5, {column} = {value!r}: ")
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
    assert columns_of(read_trace(path, format="columns"))["input_tokens"] == [5]
    assert columns_of(read_trace(path, format="azure"))["input_tokens"] == [7]
    with pytest.raises(TraceError, match=r"lacks request_id, tenant_id, .* not of the format blis"):
        read_trace(path, format="blis")
    with pytest.raises(
        TraceError, match="format = 'azur': must be one of azure, blis, columns, reference"
    ):
        read_trace(path, format="azur")


def test_an_unknown_header_shows_itself_and_the_known_ones(write: Callable[..., Path]) -> None:
    path = write("time,prompt", "0,5")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert f"{path}: the header row is of no known format: time,prompt" in message
    for name, description in FORMATS.items():
        assert f"{name}: {description}" in message
    jsonl = write('{"timestamp": 0, "input_length": 6955, "hash_ids": [1, 2]}', '{"timestamp": 1}')
    with pytest.raises(TraceError, match="of no known format"):
        read_trace(jsonl)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\r\n \n", "is empty"),
        (COLUMNS.encode(), "holds no requests"),
        (COLUMNS.encode() + b"\n\n\n", "holds no requests"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is no text file"),
        (COLUMNS.encode() + b"\n0,5,1\n1,5,\xff\n", "is no text file"),
        ("\ufeff".join((COLUMNS, "0,5,1")).encode("utf-16"), "is no text file"),
        (COLUMNS.encode() + b"\n0,5,1\n1,5\n", "line 3: holds 2 fields; the header row names 3"),
        (COLUMNS.encode() + b"\n0,5,1\n1,5,1,7\n", "line 3: holds 4 fields; the header row"),
        (COLUMNS.encode() + b',tenant\n0,5,1,"' + b"x" * 200_000, "is no CSV: field larger"),
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


def test_azure_public_traces() -> None:
    if not SHARED_TRACES.is_dir():
        pytest.skip(f"{SHARED_TRACES} is missing: the public traces are not part of the repository")
    sums = {"conv": (19_366, 22_361_870, 4_088_665), "code": (8_819, 18_059_974, 245_896)}
    last_ns = {"conv": 3_501_721_937_000, "code": 3_435_948_056_000}
    for name, (rows, input_tokens, output_tokens) in sums.items():
        path = SHARED_TRACES / f"azure_llm_2023_{name}.csv"
        start_s = time.process_time()
        found = read_trace(path)
        assert time.process_time() - start_s < 0.5
        assert found.rows == rows
        columns = columns_of(found)
        assert sum(columns["input_tokens"]) == input_tokens
        assert sum(columns["output_tokens"]) == output_tokens
        assert columns["arrival_ns"][0] == 0
        assert columns["arrival_ns"][-1] == last_ns[name]
        assert found == read_trace(path, sort=True)  # the public files are sorted


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
        (
            {"prefix_group": ["g", "g"], "prefix_tokens": [1, 9]},
            r"prefix_tokens\[1\] = 9: must be <= input_tokens\[1\] \(6\)",
        ),
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
        ({"prefix_group": [0, 1], "prefix_tokens": [1, 1]}, r"prefix_group\[0\] must be a str"),
    ],
)
def test_wrong_types_in_arrays(changes: dict[str, Any], message: str) -> None:
    arguments = {"arrival_s": [0, 1], "input_tokens": [5, 6], "output_tokens": [1, 1]} | changes
    with pytest.raises(TypeError, match=message):
        trace(**arguments)
