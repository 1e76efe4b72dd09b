"""Traces in Parquet."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.traces import columns_of, prompts_of

import spillway
from spillway import read_trace
from spillway.files.traces import TraceError, format_of

PLAIN = {"arrival_s": [0.0, 1.25], "input_tokens": [10, 12], "output_tokens": [5, 6]}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def packed(columns: dict[str, Any], name: str = "t.parquet") -> str:
    parquet.write_table(pa.table(columns), name)
    return name


def numbers_of(path: str, **options: Any) -> list[tuple[int, int, int]]:
    columns = read_trace(path, **options)._columns()
    names = ("arrival_ns", "input_tokens", "output_tokens")
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


def test_columns_of_any_type_are_read() -> None:
    expected = [(0, 10, 5), (1_250_000_000, 12, 6)]
    assert format_of(packed(PLAIN)).name == "columns"
    assert numbers_of("t.parquet") == expected
    assert spillway.read("t.parquet").offers == ("trace",)
    floats = PLAIN | {
        "input_tokens": [10.0, 12.0],
        "tenant": pa.array(["a", None]).dictionary_encode(),
    }
    assert columns_of(read_trace(packed(floats)))["tenants"] == ["a", "default"]
    assert numbers_of("t.parquet", format="columns") == expected


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_instants_of_pandas_are_read(unit: str) -> None:
    times = pa.array([0, {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]], pa.timestamp(unit, "UTC"))
    columns = {"begin": times, "prompt": [5, 6], "answer": [1, 2]}
    names = {"arrival_s": "begin", "input_tokens": "prompt", "output_tokens": "answer"}
    assert numbers_of(packed(columns), columns=names) == [(0, 5, 1), (1_000_000, 6, 2)]


def test_lists_and_objects_are_read() -> None:
    mooncake = {
        "timestamp": [0, 7],
        "input_length": [600, 512],
        "output_length": [1, 1],
        "hash_ids": [[1, 2], [1]],
    }
    assert prompts_of(read_trace(packed(mooncake))) == [[(1, 512), (2, 88)], [(1, 512)]]
    usage = {"prompt_tokens": 8, "completion_tokens": 3}
    openai = {"created": [1760000000, 1760000001], "usage": [usage, usage]}
    assert numbers_of(packed(openai)) == [(0, 8, 3), (10**9, 8, 3)]


def test_many_rows_are_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 40_000
    whole = {"arrival_s": range(rows), "input_tokens": [7] * rows, "output_tokens": [1] * rows}
    path = Path(packed({name: list(column) for name, column in whole.items()}))

    class Pipe:
        buffer = io.BytesIO(path.read_bytes())

    expected = read_trace(path)
    assert expected.rows == rows
    monkeypatch.setattr(sys, "stdin", Pipe)
    assert read_trace("-", format="columns")._columns()["arrival_ns"].tolist() == [
        at * 10**9 for at in range(rows)
    ]


def test_errors_name_the_row_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(PLAIN | {"output_tokens": [5, -6]})
    with pytest.raises(
        TraceError, match=r"t\.parquet item 2, output_tokens = '-6': must be a whole"
    ):
        read_trace(path)
    path = packed({"begin": [0], "input_tokens": [1]})
    with pytest.raises(
        TraceError, match=r"unknown format: (.*\n)It holds Parquet, with begin, input_"
    ):
        read_trace(path)
    Path("cut.parquet").write_bytes(Path(path).read_bytes()[:-20])
    with pytest.raises(TraceError, match=r"cut\.parquet: damaged Parquet file: "):
        read_trace("cut.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    words = r"t\.parquet: a Parquet file: this needs pyarrow.*spillway-sim\[frames\]"
    with pytest.raises(TraceError, match=words):
        read_trace(path)
