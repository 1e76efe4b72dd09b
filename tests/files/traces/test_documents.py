"""Traces in JSON documents: arrays, objects over several lines, lists within objects."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spillway
from spillway import read_trace
from spillway.files.traces import TraceError, documents, format_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = [{"arrival_s": at, "input_tokens": 5 + at, "output_tokens": 2} for at in range(3)]
LOG = [{"begin_ms": 1000 * at, "use": {"in": 5 + at, "out": 2}, "team": "a"} for at in range(3)]
COLUMNS = {"arrival_s": "begin_ms", "input_tokens": "use.in", "output_tokens": "use.out"}
SPELLED: dict[str, Callable[[list[Any]], str]] = {
    "lines": lambda rows: "\n".join(map(json.dumps, rows)),
    "array": json.dumps,
    "array over lines": lambda rows: json.dumps(rows, indent=2),
    "object per line in an array": lambda rows: "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n",
    "objects over lines": lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows),
    "data": lambda rows: json.dumps({"object": "list", "data": rows, "meta": {"page": 1}}),
    "data over lines": lambda rows: json.dumps({"meta": [{}], "data": rows}, indent=1),
    "list of any name": lambda rows: json.dumps({"spend": rows}),
    "pages": lambda rows: "\n".join(json.dumps({"data": [row]}) for row in rows),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def numbers_of(path: str, **options: Any) -> list[tuple[int, int, int]]:
    columns = read_trace(path, **options)._columns()
    names = ("arrival_ns", "input_tokens", "output_tokens")
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_same_requests_are_in_all(spelled: str, pack: Callable[[bytes], bytes]) -> None:
    expected = [(at * 10**9, 5 + at, 2) for at in range(3)]
    Path("t.json").write_bytes(pack(SPELLED[spelled](ROWS).encode()))
    assert format_of("t.json").name == "columns"
    assert numbers_of("t.json") == numbers_of("t.json", format="columns") == expected
    Path("log.json").write_bytes(pack(SPELLED[spelled](LOG).encode()))
    assert numbers_of("log.json", columns=COLUMNS) == expected
    if pack is bytes:
        assert spillway.read("t.json").offers == ("trace",)


@pytest.mark.parametrize("characters", [1, 7, 30, 1000])
def test_pieces_of_a_document_meet(characters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_CHARACTERS", characters)
    rows = [
        ROWS[0] | {"text": 'a "{[\\u00e9 ]}', "n": [1.5e-3, None, True], "arrival_s": at}
        for at in range(40)
    ]
    for name in ("array", "array over lines", "objects over lines"):
        Path("t.json").write_text(SPELLED[name](rows))
        with pytest.warns(UserWarning, match="unused columns: text, n"):
            assert len(numbers_of("t.json")) == 40


BAD_ITEM = "t.json item 2, input_tokens = '0': must be a whole number >= 1"
BROKEN = [
    (json.dumps([*ROWS[:1], ROWS[1] | {"input_tokens": 0}]), BAD_ITEM),
    (json.dumps([*ROWS[:1], 7]), "t.json item 2: must be a JSON object, not 7"),
    (json.dumps([*ROWS[:1], {"arrival_s": 1}]), "t.json item 2: not of the format columns: input_"),
    (json.dumps(ROWS)[:-1], "t.json item 4: not valid JSON: the array is cut off"),
    (json.dumps(ROWS)[:-9], "t.json item 3: not valid JSON: "),
    (json.dumps(ROWS) + "x", "t.json: not valid JSON: more text after the end of the array"),
    (
        json.dumps(ROWS[:1])[:-1] + ', {"arrival_s": 1, "arrival_s": 2}]',
        "t.json item 2: not valid J",
    ),
    (
        json.dumps(ROWS[:1])[:-1] + ", oops, 1]" + " " * 99,
        "t.json item 2: not valid JSON: Expecting",
    ),
    (
        json.dumps([*ROWS[::-1]]),
        "t.json item 2, arrival_s = '1': is earlier than '2' on item 1; --so",
    ),
    ("[" * 100_000, "t.json item 1: not valid JSON: nested too deeply"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=range(len(BROKEN)))
def test_errors_name_the_item(text: str, message: str) -> None:
    Path("t.json").write_text(text)
    with pytest.raises(TraceError) as caught:
        read_trace("t.json")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_malformed_items_may_be_skipped() -> None:
    Path("t.json").write_text(
        json.dumps([*ROWS[:2], 7, {}, ROWS[2] | {"output_tokens": -1}, ROWS[2]])
    )
    with pytest.warns(UserWarning, match="3 malformed rows skipped; the first: t.json item 3"):
        assert len(numbers_of("t.json", skip_bad=True)) == 3


def test_an_unknown_document_is_described() -> None:
    for text, words in (
        (
            json.dumps([{"created": 1, "size": 7}]),
            "It holds objects of a JSON document, with creat",
        ),
        (
            json.dumps({"created": 1, "size": 7}),
            "It holds a JSON object per line, with created, size",
        ),
        (
            json.dumps({"a": 1, "input_tokens": 7}),
            "Closest: columns, without arrival_s, output_toke",
        ),
    ):
        Path("t.json").write_text(text)
        with pytest.raises(TraceError, match=words) as caught:
            read_trace("t.json")
        assert str(caught.value).startswith("t.json: unknown format: ")
        assert "Or name the columns: --columns arrival_s=…" in str(caught.value)


def test_mooncake_may_be_an_array() -> None:
    rows = [
        {"timestamp": at, "input_length": 9, "output_length": 1, "hash_ids": [1]} for at in (0, 5)
    ]
    Path("t.json").write_text(json.dumps(rows, indent=4))
    assert numbers_of("t.json") == [(0, 9, 1), (5_000_000, 9, 1)]
