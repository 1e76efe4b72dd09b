"""Batches of lines read at once give what reading them line by line gives, errors included."""

from __future__ import annotations

import decimal
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway import read_trace
from spillway.config.limits import LONGEST_SPAN_S
from spillway.files.traces import TraceError, csv_table, jsonl_table
from spillway.files.traces.decimals import decimals, spans_of, whole_numbers
from spillway.files.traces.uniform_lines import uniform

if TYPE_CHECKING:
    from pathlib import Path

DIGITS = st.integers(0, 10**19).map(str)
NUMBERS = st.one_of(
    DIGITS,
    st.builds(
        "{}.{}{}".format, st.integers(0, 9999), DIGITS, st.sampled_from(["", "49", "5", "500001"])
    ),
    st.builds("{}.{}".format, st.sampled_from(["", "0", "007"]), st.sampled_from(["", "5", "25"])),
)
CELLS = st.one_of(NUMBERS, st.sampled_from(["", " 5", "5 ", "+5", "-5", "1e3", "1_0", "٣", "nan"]))


@given(st.lists(CELLS, min_size=1, max_size=5), st.sampled_from([0, 3, 6, 9]))
def test_decimals_are_exact(texts: list[str], places: int) -> None:
    spans = spans_of(texts)
    assert spans is not None
    found = decimals(*spans, places)
    if found is not None:
        exact = [decimal.Decimal(text).scaleb(places) for text in texts]
        assert found.tolist() == [int(one.to_integral_value()) for one in exact]
    whole = whole_numbers(*spans)
    is_plain = all(text.isascii() and text.isdigit() and len(text) <= 18 for text in texts)
    assert (whole is not None) == is_plain
    if whole is not None:
        assert whole.tolist() == [int(text) for text in texts]


def test_plain_numbers_are_read_at_once() -> None:
    texts = ["0", "3200000000", "12.5", "0.0000000005", "0.0000000015", "7.123456789012345678"]
    spans = spans_of(texts)
    assert spans is not None
    found = decimals(*spans, 9)
    assert found is not None
    assert found.tolist() == [0, 3_200_000_000 * 10**9, 12_500_000_000, 0, 2, 7_123_456_789]
    assert spans_of(["1\n", "2"]) is None


def outcome(path: Path, **options: Any) -> Any:
    """What reading a file gives: the digest of the trace, or the error."""
    try:
        return read_trace(path, **options).sha256
    except TraceError as error:
        return str(error)


ROWS = st.lists(st.tuples(CELLS, CELLS, st.sampled_from(["", "a", "é"])), min_size=1, max_size=4)


@pytest.mark.filterwarnings("ignore")
@given(
    ROWS,
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\n "]),
    st.booleans(),
)
def test_csv_batches(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    delimiter: str,
    end: str,
    skip_bad: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "batches.csv"
    header = ("arrival_s", "input_tokens", "tenant", "output_tokens")
    table = [header, ("0", "1", "b", "1"), *((a, t, name, t) for a, t, name in rows)]
    path.write_bytes(end.join(delimiter.join(row) for row in table).encode())
    found = outcome(path, skip_bad=skip_bad)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_table, "_split", lambda *_: None)
        patch.setattr(csv_table, "spans_of", lambda *_: None)
        assert found == outcome(path, skip_bad=skip_bad)


VALUES = st.one_of(
    CELLS.filter(bool), st.sampled_from(["[]", "[1, 2]", "[01]", '"a"', "null", '"\\u0041"', "{}"])
)


@pytest.mark.filterwarnings("ignore")
@given(
    st.lists(st.tuples(VALUES, CELLS, VALUES, VALUES), max_size=4),
    st.sampled_from([", ", ",", " ,  "]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n", " \n"]),
    st.booleans(),
)
def test_jsonl_batches(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    comma: str,
    end: str,
    skip_bad: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "batches.jsonl"
    lines = []
    for at, tokens, ids, other in [("0", "5", "[7]", "-1"), *rows]:
        members = {"timestamp": at, "input_length": tokens, "output_length": "1", "hash_ids": ids}
        lines.append(
            comma.join(f'"{key}": {value}' for key, value in [*members.items(), ("x", other)])
        )
    path.write_bytes(end.join(f"{{{line}}}" for line in lines).encode())
    columns = {"arrival_s": "timestamp", "input_tokens": "input_length", "output_tokens": "x"}
    settings: list[dict[str, Any]] = [{}, {"columns": columns, "time_unit": "ms"}]
    found = [outcome(path, skip_bad=skip_bad, **one) for one in settings]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_table, "uniform", lambda _: None)
        assert found == [outcome(path, skip_bad=skip_bad, **one) for one in settings]


def test_lines_of_one_shape_are_read_at_once() -> None:
    objects = [
        {"timestamp": 2.5, "hash_ids": [1, 22, 10**17], "type": "text", "turn": -1},
        {"timestamp": 10, "hash_ids": [0], "type": "", "turn": 3},
    ]
    alike = uniform("".join(f"{json.dumps(one)}\n" for one in objects))
    assert alike is not None
    times = alike.decimals("timestamp", 3)
    assert times is not None
    assert times.tolist() == [2500, 10_000]
    assert [one.tolist() for one in alike.lists["hash_ids"]] == [[1, 22, 10**17, 0], [3, 1]]
    assert alike.texts("type") == ["text", ""]
    assert alike.texts("timestamp") is None
    assert not alike.whole
    assert alike.written("turn") is None  # -1


UNLIKE = [
    '{"a": 1}\n{"b": 1}\n',
    '{"a": 1}\n{"a": 01}\n',
    '{"a": 1}\n{"a": 1.}\n',
    '{"a": 1}\n{"a": .5}\n',
    '{"a": 1}\n{"a": 1,}\n',
    '{"a": 1}\n{"a": }\n',
    '{"a": 1}\n{"a": 1} {}\n',
    '{"a": 1}\n\n{"a": 1}\n',
    '{"a": 1, "a": 1}\n{"a": 1, "a": 1}\n',
    '{"a": "x"}\n{"a": "x\t"}\n',
    '{"a": "x"}\n{"a": "\\n"}\n',
    '{"a": "x"}\n{"a": "x""}\n',
    '{"a": [1]}\n{"a": [1,]}\n',
    '{"a": [1]}\n{"a": [1 2]}\n',
    '{"a": [1]}\n{"a": [1, [2]]}\n',
    '{"a": [1]}\n{"a": [1,\n2]}\n',
    '{"a": [1], "b": 1}\n{"a": [1, "b": 1}\n{"a": 1], "b": 1}\n',
    '{"a": 1e3}\n{"a": 1e3}\n',
    '{"a": 1}\n{"a": 1}\n{"a',
]


@pytest.mark.parametrize("text", UNLIKE)
def test_other_lines_are_not(text: str) -> None:
    assert uniform(text) is None
    assert uniform(text.replace("\n", "\r\n")) is None


def test_batches_meet(tmp_path: Path) -> None:
    """Rows on both sides of the end of a batch, with line numbers in errors of later ones."""
    rows = 30_000
    for ending in ("\n", "\r\n"):
        lines = [f"{i / 8:.3f},{i + 1},{i}" for i in range(rows)]
        path = tmp_path / "long.csv"
        path.write_bytes(ending.join(["arrival_s,input_tokens,output_tokens", *lines]).encode())
        columns = read_trace(path)._columns()
        assert columns["arrival_ns"].tolist() == [i * 125_000_000 for i in range(rows)]
        assert np.array_equal(columns["input_tokens"], np.arange(1, rows + 1))
        lines[-2] = f"{rows},x,1"
        path.write_bytes(ending.join(["arrival_s,input_tokens,output_tokens", *lines]).encode())
        with pytest.raises(TraceError, match=f"line {rows}, input_tokens = 'x': must be a whole"):
            read_trace(path)


def test_the_longest_time_is_read(tmp_path: Path) -> None:
    path = tmp_path / "longest.csv"
    header = "arrival_s,input_tokens,output_tokens"
    path.write_text(f"{header}\n1,1,1\n{LONGEST_SPAN_S},1,1\n")
    assert read_trace(path)._columns()["arrival_ns"][-1] == LONGEST_SPAN_S * 10**9
    path.write_text(f"{header}\n1,1,1\n{LONGEST_SPAN_S}.0000000001,1,1\n")
    with pytest.raises(TraceError, match=r"line 3, arrival_s = '3200000000\.0000000001': must be"):
        read_trace(path)
