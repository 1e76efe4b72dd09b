"""Lines that PyArrow reads at once give what reading them row by row gives, errors included."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples
from support.trace_reading import alike

from spillway import read_trace
from spillway.config.limits import LONGEST_SPAN_S
from spillway.files.traces import TraceError, arrow, csv_table, jsonl_table, lines
from spillway.files.traces.csv_table import decimal_to_ns
from spillway.files.traces.table import Skipped
from spillway.files.traces.timestamps import timestamp_to_ns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER = "arrival_s,input_tokens,output_tokens"


def outcome(path: Path, **options: Any) -> str:
    """What reading a file gives in both ways: the digest of the trace, or the error."""
    try:
        return alike(lambda: read_trace(path, **options).sha256)
    except TraceError as error:
        return str(error)


# --- values ---------------------------------------------------------------------------------------

DIGITS = st.integers(0, 10**22).map(str)
NUMBERS = st.one_of(
    DIGITS,
    st.builds(
        "{}.{}{}".format, st.integers(0, 9999), DIGITS, st.sampled_from(["", "49", "5", "500001"])
    ),
    st.builds("{}.{}".format, st.sampled_from(["", "0", "007"]), st.sampled_from(["", "5", "25"])),
)
ODD = ["", " 5", "5 ", "+5", "-5", "-0", "1e3", "1E-3", "1_0", "٣", "nan", "0x1F", "1.2.3", "."]
ODD += ["#", "9" * 30, "9" * 39, "9" * 70, f"1.{'0' * 30}", "\t5", "5\v", "5\xa0", "\ufeff5"]
CELLS = st.one_of(NUMBERS, st.sampled_from(ODD))
DATES = st.builds(
    "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
    st.sampled_from([1, 1969, 1970, 2023, 2069, 2070, 2099, 2500, 12023]),
    st.sampled_from([0, 1, 2, 12, 13]),
    st.sampled_from([0, 1, 29, 30, 31]),
    st.sampled_from(["T", " ", "t", ""]),
    st.sampled_from([0, 23, 24]),
    st.sampled_from([0, 59, 60]),
    st.sampled_from([0, 59, 60]),
    st.sampled_from(["", ".", ".5", ".123456789", ".1234567890"]),
    st.sampled_from(["", "Z", "+01:00", "-05", " "]),
)
INSTANTS = st.one_of(
    DATES, st.sampled_from(["2023-11-16", "2023-11-16 18:15", "2023-11-16 18:15:"])
)


def every(parse: Callable[[str], int], texts: list[str]) -> list[int] | None:
    try:
        return list(map(parse, texts))
    except ValueError:
        return None


@examples(600)
@given(st.lists(CELLS, min_size=1, max_size=3), st.sampled_from([0, 3, 6, 9]))
def test_numbers_are_exact(texts: list[str], places: int) -> None:
    found = arrow.decimals(pa.array(texts), places)
    if found is not None:
        assert found.tolist() == every(lambda text: decimal_to_ns(text, places), texts)
    whole = arrow.whole(pa.array(texts))
    stems = [re.sub(r"(?<=[0-9])\.0+$", "", text) for text in texts]
    is_plain = all(stem.isascii() and stem.isdigit() and int(stem) < 2**63 for stem in stems)
    assert (whole is not None) == is_plain
    if whole is not None:
        assert whole.tolist() == list(map(int, stems))


@examples(600)
@given(st.lists(INSTANTS, min_size=1, max_size=2))
def test_instants_are_exact(texts: list[str]) -> None:
    found = arrow.instants(pa.array(texts))
    if found is not None:
        assert found.tolist() == every(timestamp_to_ns, texts)


def test_plain_values_are_read_at_once() -> None:
    times = arrow.decimals(pa.array(["0", "3199999999", "12.5", ".5", "5."]), 9)
    assert times is not None
    assert times.tolist() == [0, 3_199_999_999 * 10**9, 12_500_000_000, 500_000_000, 5 * 10**9]
    rounded = arrow.decimals(pa.array(["0.0000000005", "0.0000000015", "7.123456789012345678"]), 9)
    assert rounded is not None
    assert rounded.tolist() == [0, 2, 7_123_456_789]
    instants = arrow.instants(pa.array(["2023-11-16 18:15:46.6805900", "1970-01-01T00:00:00"]))
    assert instants is not None
    assert instants.tolist() == [1_700_158_546_680_590_000, 0]
    filled = arrow.whole(pa.array(["", "12"]), "0")
    assert filled is not None
    assert filled.tolist() == [0, 12]


# --- CSV ------------------------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(CELLS, CELLS, st.sampled_from(["", "a", "é", " a", '"', "a,b", "a\nb", "a;b", '""'])),
    min_size=1,
    max_size=4,
)

ENDS = st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n", "\n ", ",\n"])
QUOTING = st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC, None])


@examples(600)
@given(ROWS, st.sampled_from([",", ";", "\t"]), ENDS, QUOTING)
def test_csv_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    delimiter: str,
    end: str,
    quoting: Any,
) -> None:
    path = tmp_path_factory.getbasetemp() / "batches.csv"
    header = ("arrival_s", "input_tokens", "tenant", "output_tokens")
    table = [header, ("0", "1", "b", "1"), *((a, t, name, t) for a, t, name in rows)]
    if quoting is None:
        text = end.join(delimiter.join(row) for row in table)
    else:
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter=delimiter, lineterminator=end, quoting=quoting)
        writer.writerows(table)
        text = stream.getvalue()
    path.write_text(text, encoding="utf-8", newline="")
    columns = {name: name for name in header}
    for options in (
        {},
        {"skip_bad": True},
        {"columns": columns},
        {"columns": columns, "sort": True},
    ):
        outcome(path, **options)


PLAIN = [
    "a,b\n1,x\n2,y",
    "a,b\r\n1,x\r\n2,\r\n",
    'a,b\n"1","x"\n2,""\n',
    '"a","b"\n1,"x y"\n',
    "a;b\n1;x,y\n",
    "a\tb\n1\tx y\n",
    "a,a\n1,2\n",
    "a,\n1,2\n",
    "a\n1\n",
    "a,b\n1,é\n",
    "a,b\n1,\ufeff\n",
    f"a,b\n{'é' * 100_000},2\n",
]
OTHER = [
    'a,b\n1,"x,y"\n',
    'a,b\n1,"x\ny"\n',
    'a,b\n1,"x""y"\n',
    'a,b\n1," x"\n',
    'a,b\n1,"x\ry"\n',
    'a,b\n1,x"y\n',
    'a,b\n1,"x"y\n',
    'a,b\n"1,"2",3"\n',
    'a,b\n"1\n"2"\n",3\n',
    "a,b\n1, x\n",
    "a,b\n 1,x\n",
    "a,b\n1,2\n\n3,4\n",
    "a,b\n1,2\n  \n3,4\n",
    "a,b\n1,2\r3,4\n",
    "a,b\n1,\0\n",
    "a\n1\n\n2\n",
    "a\n\n\n",
    "a,b\n\ufeff1,2\n",
    f"a,b\n{'1' * 140_000},2\n",
    "a,b\n# a comment\n1,2\n",
    "a,b\n1\n",
    "a,b\n1,2,3\n",
    'a,"b\n1,2\n',
]


def csv_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The number of the line and the cells of each row."""
    found = []
    with contextlib.closing(csv_table.csv_tables(path)) as tables:
        for table in tables:
            rows = zip(*map(table.texts, table.columns), strict=True)
            cells = [dict(zip(table.columns, row, strict=True)) for row in rows]
            found += zip(table.lines, cells, strict=True)
    return found


@pytest.mark.parametrize("text", [*PLAIN, *OTHER])
def test_cells_are_those_of_csv(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where quotes are removed before lines are split."""
    path = tmp_path / "cells.csv"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        found = alike(lambda: csv_rows(path))
    except TraceError:
        assert text in OTHER
        return
    first = text.split("\n", maxsplit=1)[0]
    delimiter = ";" if ";" in first else "\t" if "\t" in first else ","
    stream = io.StringIO(text, newline="")
    header, *rows = csv.reader(stream, skipinitialspace=True, delimiter=delimiter)
    rows = [row for row in rows if row not in ([], [""])]
    assert [cells for _, cells in found] == [dict(zip(header, row, strict=True)) for row in rows]
    taken = []
    columns = arrow.csv_columns
    monkeypatch.setattr(arrow, "csv_columns", lambda *given: taken.append(columns(*given)))
    csv_rows(path)
    assert (len(taken) == 1 and taken[0] is not None) == (text in PLAIN)


# --- JSONL ----------------------------------------------------------------------------------------

OTHER_VALUES = ["[]", "[1, 2]", "[01]", '"a"', "null", '"\\u0041"', "{}", "true", "NaN", "5.0"]
OTHER_VALUES += ["[1.5]", "[-1]", "[null]", f"[{2**64}]", f"[{2**64 - 1}]", '"5"', '"2023-11-16"']
VALUES = st.one_of(CELLS.filter(bool), st.sampled_from(OTHER_VALUES))


@examples(600)
@given(
    st.lists(st.tuples(VALUES, CELLS, VALUES, VALUES), max_size=4),
    st.sampled_from(["0", "0.5"]),
    st.sampled_from([", ", ",", " ,  "]),
    st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n", " \n", " "]),
)
def test_jsonl_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    first: str,
    comma: str,
    end: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "batches.jsonl"
    objects = []
    for at, tokens, ids, other in [(first, "5", "[7]", "1"), *rows]:
        members = {"timestamp": at, "input_length": tokens, "output_length": "1", "hash_ids": ids}
        pairs = [f'"{key}": {value}' for key, value in [*members.items(), ("x", other)]]
        objects.append(f"{{{comma.join(pairs)}}}")
    path.write_text(end.join(objects), encoding="utf-8", newline="")
    columns = {"arrival_s": "timestamp", "input_tokens": "input_length", "output_tokens": "x"}
    for options in ({}, {"columns": columns}, {"columns": columns | {"tenant": "timestamp"}}):
        for skip_bad in (False, True):
            outcome(path, skip_bad=skip_bad, **options)


ALIKE = [
    '{"a": 1}\n{"a": 22}\n',
    '{"a": 1, "b": "x"}\r\n{"b": "y", "a": 2}',
    '{"a": 1.5}\n{"a": 2}\n{"a": 1e3}\n{"a": 0.123456789012345678}\n',
    '{"a": "x"}\n{"a": "\\n \\u00e9 \\ud83d\\ude00 \\" \\/ é"}\n',
    '{"a": [1]}\n{"a": [18446744073709551615, 2]}\n{"a": []}\n',
    '{"a": "2023-11-16 18:15:46"}\n{"a": "x"}\n',
    '{"a": "}"}\n{"a": "{"}\n',
    '{"\\u0061": 1}\n{"a": 1}\n',
]
UNLIKE = [
    '{"a": 1}\n{"b": 1}\n',
    '{"a": 1}\n{"a": 1, "b": 1}\n',
    '{"a": 1, "b": 1}\n{"a": 1}\n',
    '{"a": 1}\n{"a": null}\n',
    '{"a": 1}\n{"a": 01}\n',
    '{"a": 1}\n{"a": 1.}\n',
    '{"a": 1}\n{"a": .5}\n',
    '{"a": 1}\n{"a": 1.0}\n',
    '{"a": 1}\n{"a": 1e3}\n',
    '{"a": 1}\n{"a": 9223372036854775808}\n',
    '{"a": 1.5}\n{"a": "1.5"}\n',
    '{"a": 1.5}\n{"a": 0.1234567890123456789}\n',
    f'{{"a": 1.5}}\n{{"a": {"9" * 70}}}\n',
    '{"a": 1}\n{"a": "1"}\n',
    '{"a": 1}\n{"a": 1,}\n',
    '{"a": 1}\n{"a": }\n',
    '{"a": 1}\n{"a": 1} {}\n',
    '{"a": 1}\n{"a": 1} {"a": 1}\n{"a":\n1}\n',
    '{"a": 1}\n\n{"a": 1}\n',
    '{"a": 1}\n {"a": 1}\n',
    '{"a": 1}\r{"a": 1}\n',
    '{"a": 1}\n{"a":\r1}\n',
    '{"a": 1, "a": 1}\n{"a": 1, "a": 1}\n',
    '{"a": 1}\n{"a": 1, "\\u0061": 1}\n',
    '{"a": "x"}\n{"a": "x\t"}\n',
    '{"a": "x"}\n{"a": "\\ud800"}\n',
    '{"\\ud800": 1}\n{"\\ud800": 1}\n',
    '{"a": "x"}\n{"a": "x""}\n',
    '{"a": [1]}\n{"a": [1,]}\n',
    '{"a": [1]}\n{"a": [1 2]}\n',
    '{"a": [1]}\n{"a": [1, [2]]}\n',
    '{"a": [1]}\n{"a": [1, 2.0]}\n',
    '{"a": [1]}\n{"a": [1, null]}\n',
    '{"a": [1]}\n{"a": [-1]}\n',
    '{"a": [1]}\n{"a": [1,\n2]}\n',
    '{"a": [1], "b": 1}\n{"a": [1, "b": 1}\n{"a": 1], "b": 1}\n',
    '{"a": {"b": 1}}\n{"a": {"b": 1}}\n',
    '{"a": true}\n{"a": true}\n',
    '{"a": NaN}\n{"a": NaN}\n',
    '{"a": 1}\n{"a": 1}\n{"a',
    '{"a": 1}\n\ufeff{"a": 1}\n',
    '\ufeff{"a": 1}\n{"a": 1}\n',
    '{"a": 1}\n\0\n{"a": 1}\n',
    '{"a": 1}\n// {"a": 1}\n',
    "{}\n{}\n",
    "[1]\n[1]\n",
    "{\n",
]


@pytest.mark.parametrize("text", ALIKE)
def test_lines_of_one_shape_are_read_at_once(tmp_path: Path, text: str) -> None:
    arrays = arrow.jsonl_columns(text)
    assert arrays is not None
    numbers, objects = jsonl_table._objects(tmp_path, 1, lines.split_lines(text), Skipped())
    assert numbers == list(range(1, len(objects) + 1))
    found = zip(*(array.to_pylist() for array in arrays.values()), strict=True)
    assert [dict(zip(arrays, row, strict=True)) for row in found] == objects


@pytest.mark.parametrize("text", UNLIKE)
def test_other_lines_are_not(text: str) -> None:
    assert arrow.jsonl_columns(text) is None
    assert arrow.jsonl_columns(text.replace("\n", "\r\n")) is None


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_batches_meet(
    tmp_path: Path, suffix: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows on both sides of the end of a batch, with line numbers in errors of later ones."""
    monkeypatch.setattr(lines, "_BATCH_CHARACTERS", 300)
    path = tmp_path / f"long.{suffix}"
    rows = [ROW[suffix].format(f"{at / 8:.3f}", at) for at in range(1, 201)]
    path.write_bytes(ending.join([*HEAD[suffix], *rows]).encode())
    alike(lambda: read_trace(path, **MILLISECONDS[suffix]).sha256)
    assert read_trace(path, **MILLISECONDS[suffix])._columns()["input_tokens"].tolist() == list(
        range(1, 201)
    )
    rows[-2] = ROW[suffix].format(200, "x")
    path.write_bytes(ending.join([*HEAD[suffix], *rows]).encode())
    assert f"line {199 + len(HEAD[suffix])}" in outcome(path)


HEAD = {"csv": [HEADER], "jsonl": []}
ROW = {"csv": "{},{},1", "jsonl": '{{"timestamp": {}, "input_length": {}, "output_length": 1}}'}
MILLISECONDS = {"csv": {}, "jsonl": {"unit": "ms"}}
ODD_ROWS = {
    "csv": ['9,"9",1', '9,"9\n",1', "9, 9,1", "9,9", "9,9,1,1", "9,9,", "x,9,1", "1,9,1", "9,0,1"],
    "jsonl": [
        '{"timestamp": 9, "input_length": 9, "output_length": 1.5}',
        '{"timestamp": 9.5, "input_length": 9, "output_length": 1}',
        '{"timestamp": 9, "input_length": 9}',
        '{"timestamp": 9, "input_length": 9, "output_length": 1, "x": 1}',
        '{"timestamp": 1, "input_length": 9, "output_length": 1}',
        "oops",
    ],
}


@examples(300)
@given(st.data(), st.sampled_from(["csv", "jsonl"]), st.sampled_from([60, 300, 1 << 20]))
def test_long_files_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, suffix: str, characters: int
) -> None:
    """With odd rows among many plain ones: the first error, and the number of skipped rows."""
    path = tmp_path_factory.getbasetemp() / f"long.{suffix}"
    rows = [ROW[suffix].format(9, 5)] * 60
    odd = st.tuples(st.integers(0, 59), st.sampled_from(["", *ODD_ROWS[suffix]]))
    for at, text in data.draw(st.lists(odd, max_size=3)):
        rows[at] = text
    path.write_text("\n".join([*HEAD[suffix], *rows]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BATCH_CHARACTERS", characters)
        for options in ({}, {"skip_bad": True}, {"stream": True}, {"sort": True}):
            outcome(path, **options)


def test_the_longest_time_is_read(tmp_path: Path) -> None:
    path = tmp_path / "longest.csv"
    path.write_text(f"{HEADER}\n1,1,1\n{LONGEST_SPAN_S},1,1\n")
    assert read_trace(path)._columns()["arrival_ns"][-1] == LONGEST_SPAN_S * 10**9
    path.write_text(f"{HEADER}\n1,1,1\n{LONGEST_SPAN_S}.0000000001,1,1\n")
    assert "line 3, arrival_s = '3200000000.0000000001': must be" in outcome(path)


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_compressed_files_and_bytes_are_read_alike(tmp_path: Path, quoting: Any) -> None:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=quoting)
    writer.writerows([HEADER.split(","), *([at, 5, 1] for at in range(500))])
    text = stream.getvalue().encode()
    path = tmp_path / "trace"
    found = set()
    for content in (text, b"\xef\xbb\xbf" + text, gzip.compress(text), zstandard.compress(text)):
        path.write_bytes(content)
        found.add(outcome(path))
    assert found == {read_trace(path).sha256}
    path.write_bytes(text + b"\xff,1,1\n")
    assert outcome(path).endswith("not a text file; must be CSV or JSON in UTF-8, or Parquet")


def test_pyarrow_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"{HEADER}\n1,1,1\n")
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    arrow._installed.cache_clear()
    try:
        assert arrow._loaded() is None
        assert read_trace(path).rows == 1
    finally:
        arrow._installed.cache_clear()


IMPORTS = """
import sys
from spillway import read_trace
read_trace("small.csv")
print("pyarrow" in sys.modules)
read_trace("large.csv")
print("pyarrow" in sys.modules, "pandas" in sys.modules)
"""


def test_pyarrow_is_imported_for_long_files_alone(tmp_path: Path) -> None:
    """And without pandas, whose import takes longer."""
    for name, rows in (("small", 10), ("large", 20_000)):
        text = "".join(f"{at},5,1,x\n" for at in range(rows))
        (tmp_path / f"{name}.csv").write_text(f"{HEADER},tenant\n{text}")
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
