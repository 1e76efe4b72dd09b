"""Traces of BLIS: TraceV2 and reference runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.traces import columns_in, columns_of, prompts_of, refusal, written

from spillway import read_trace, traffic
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from pathlib import Path

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


def blis_row(header: str, **cells: object) -> str:
    defaults = {"tenant_id": "t0", "slo_class": "critical", "input_tokens": 10, "output_tokens": 2}
    values = defaults | cells
    return ",".join(
        str(values.get(name, "0" if name == "num_chunks" else "")) for name in header.split(",")
    )


def test_reference(tmp_path: Path) -> None:
    path = written(
        tmp_path,
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


def test_blis_ignores_send_time_and_prefers_the_servers_count(tmp_path: Path) -> None:
    path = written(
        tmp_path,
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


def test_blis_of_older_and_newer_versions(tmp_path: Path) -> None:
    found = columns_in(
        tmp_path, BLIS_22, blis_row(BLIS_22, request_id="request_3", arrival_time_us=1)
    )
    assert (found["input_tokens"], found["request_id"]) == ([10], ["request_3"])
    grouped = blis_row(BLIS_22, request_id=0, arrival_time_us=1, prefix_group="g")
    message = refusal(tmp_path, BLIS_22, grouped)
    assert message.startswith("line 2, prefix_group = 'g': needs a column prefix_length")
    newest = BLIS_27.replace("slo_class,", "slo_class,vllm_priority,") + ",x_request_id,adapter"
    assert (
        read_trace(
            written(tmp_path, newest, blis_row(newest, request_id=0, arrival_time_us=1))
        ).rows
        == 1
    )


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
def test_blis_bad_values(tmp_path: Path, cells: dict[str, object], place: str) -> None:
    good = blis_row(BLIS_27, request_id=0, arrival_time_us=0)
    bad = blis_row(BLIS_27, **({"request_id": 1, "arrival_time_us": 1} | cells))
    assert refusal(tmp_path, BLIS_27, good, bad).startswith(f"line 3, {place}: ")


# --- the header -----------------------------------------------------------------------------------


def with_header(folder: Path, header: str, *rows: dict[str, object]) -> Path:
    lines = (
        blis_row(BLIS_27, **{"request_id": at, "arrival_time_us": at, "status": "ok"} | row)
        for at, row in enumerate(rows)
    )
    path = written(folder, BLIS_27, *lines)
    path.with_suffix(".yaml").write_text(f"trace_version: 3\n{header}\n")
    return path


ACCUMULATES = "session_context_growth: accumulate"
FIRST = {"session_id": "s1", "input_tokens": 1000, "output_tokens": 100}
LATER = {"session_id": "s1", "input_tokens": 50, "output_tokens": 100}


def test_prompts_of_sessions_accumulate(tmp_path: Path) -> None:
    alone = {"session_id": "", "input_tokens": 7}
    other = {"session_id": "s2", "input_tokens": 20, "output_tokens": 5}
    path = with_header(tmp_path, ACCUMULATES, FIRST, LATER, alone, other, LATER, other)
    found = read_trace(path)
    assert columns_of(found)["input_tokens"] == [1000, 1150, 7, 20, 1300, 45]
    first, second, none, begun, third, went_on = prompts_of(found)
    assert [tokens for _, tokens in third] == [1000, 100, 50, 100, 50]
    assert third[:3] == second
    assert second[:1] == first
    assert none == []
    assert went_on[:1] == begun
    traffic.write(
        read_trace(with_header(tmp_path, ACCUMULATES, FIRST, LATER, LATER)), tmp_path / "o.csv"
    )
    rows = (tmp_path / "o.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["1000", "1150", "1300"]


def test_sessions_of_a_group_begin_with_its_tokens(tmp_path: Path) -> None:
    group = {"prefix_group": "g", "prefix_length": 64}
    other = FIRST | {"session_id": "s2"}
    path = with_header(tmp_path, ACCUMULATES, *(row | group for row in (FIRST, other, LATER)))
    found = read_trace(path)
    assert columns_of(found)["input_tokens"] == [1064, 1064, 1214]
    first, second, third = prompts_of(found)
    assert first[0] == second[0] == third[0]
    assert first[0][1] == 64
    assert first[1] != second[1]
    assert third[:2] == first


def test_other_sessions_have_whole_prompts(tmp_path: Path) -> None:
    found = columns_of(read_trace(with_header(tmp_path, "", FIRST, LATER)))
    assert found["input_tokens"] == [1000, 50]
    path = with_header(tmp_path, "", FIRST, LATER | {"round_index": 1})
    path.with_suffix(".yaml").unlink()
    with pytest.warns(UserWarning, match="it has sessions, and no header beside that says whether"):
        assert columns_of(read_trace(path))["input_tokens"] == [1000, 50]


def test_warm_up_requests_are_left_out(tmp_path: Path) -> None:
    path = with_header(tmp_path, "warm_up_requests: 2", FIRST, LATER, LATER, FIRST)
    with pytest.warns(
        UserWarning, match="2 warm-up requests, which its header counts, are left out"
    ):
        found = columns_of(read_trace(path))
    assert found["request_id"] == ["2", "3"]


def test_requests_that_failed_have_no_output(tmp_path: Path) -> None:
    path = with_header(tmp_path, "", FIRST, FIRST | {"status": "timeout"})
    with pytest.warns(
        UserWarning, match="1 calls failed by status: they are requests without outp"
    ):
        assert columns_of(read_trace(path))["output_tokens"] == [100, 0]


def test_a_session_must_not_outgrow_prompts(tmp_path: Path) -> None:
    long = FIRST | {"input_tokens": 60_000_000}
    with pytest.raises(TraceError, match="a session grows to prompts of 120,000,100 tokens: must"):
        read_trace(with_header(tmp_path, ACCUMULATES, long, long))
