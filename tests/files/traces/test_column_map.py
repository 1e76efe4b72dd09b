"""Traces of any columns, compressed, from standard input, and with malformed rows."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from spillway import cli, read_trace
from spillway.files.traces import TraceError

COLUMNS = {"arrival_s": "ts", "input_tokens": "prompt", "output_tokens": "answer"}
USERS = COLUMNS | {"tenant": "user"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(*lines: str, name: str = "trace.csv") -> Path:
    path = Path(name)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def rows_of(path: Path | str, **options: Any) -> list[tuple[int, int, int, str]]:
    """Arrival in nanoseconds, tokens and tenant of each request."""
    columns = read_trace(path, **options)._columns()
    tenants = [columns["tenants"][code] for code in columns["tenant"]]
    numbers = (columns[name].tolist() for name in ("arrival_ns", "input_tokens", "output_tokens"))
    return list(zip(*numbers, tenants, strict=True))


@pytest.mark.parametrize(
    ("times", "unit", "ns"),
    [
        (("5", "6.5"), "auto", 1_500_000_000),
        (("1760000000", "1760000000.000000001"), "auto", 1),
        (("1760000000000", "1760000000000.5"), "auto", 500_000),
        (("1760000000000000", "1760000000000003"), "auto", 3_000),
        (("1760000000000000000", "1760000000000000007"), "auto", 7),
        (("2026-03-02T10:00:00.25Z", "2026-03-02T11:00:01.25+01:00"), "auto", 1_000_000_000),
        (("2026-03-02 10:00:00", "2026-03-02 10:00:00.000000001"), "iso", 1),
        (("5", "6.5"), "ms", 1_500_000),
        (("5", "8"), "us", 3_000),
        (("5", "8"), "ns", 3),
    ],
)
def test_times_of_any_unit_count_from_the_first(times: tuple[str, str], unit: str, ns: int) -> None:
    first, second = times
    path = written("ts,prompt,answer", f"{first},5,1", f"{second},6,2")
    expected = [(0, 5, 1, "default"), (ns, 6, 2, "default")]
    assert rows_of(path, columns=COLUMNS, time_unit=unit) == expected
    path = written(
        *(json.dumps({"ts": at, "prompt": 5, "answer": 1}) for at in times), name="trace.jsonl"
    )
    assert [row[0] for row in rows_of(path, columns=COLUMNS, time_unit=unit)] == [0, ns]


@pytest.mark.parametrize(
    ("ending", "ns"), [("_s", 10**9), ("_ms", 10**6), ("_us", 1000), ("_ns", 1)]
)
def test_the_name_of_a_column_states_its_unit(ending: str, ns: int) -> None:
    path = written(f"sent{ending},prompt,answer", "5,5,1", "6,6,2")
    found = rows_of(path, columns=COLUMNS | {"arrival_s": f"sent{ending}"})
    assert [row[0] for row in found] == [0, ns]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_commas_semicolons_and_tabs_separate(delimiter: str, quote: str) -> None:
    rows = (("ts", "prompt", "answer", "user"), ("0", "5", "1", f"{quote}a{quote}"))
    path = written(*(delimiter.join(row) for row in rows))
    assert rows_of(path, columns=USERS) == [(0, 5, 1, "a")]


def test_a_dot_leads_into_an_object() -> None:
    columns = {
        "arrival_s": "created",
        "input_tokens": "usage.prompt_tokens",
        "output_tokens": "usage.completion_tokens",
        "tenant": "key.name",
    }
    lines = [
        {"created": at, "usage": {"prompt_tokens": at, "completion_tokens": 2}, "key": {"name": 7}}
        for at in (3, 4)
    ]
    path = written(*map(json.dumps, lines), name="log.jsonl")
    assert rows_of(path, columns=columns) == [(0, 3, 2, "7"), (10**9, 4, 2, "7")]
    with pytest.warns(UserWarning, match=r"no object of the first 2 has key\.hash; they have crea"):
        rows_of(path, columns=columns | {"tenant": "key.hash"})
    with pytest.raises(TraceError, match=r"log\.jsonl line 1, usage\.input = '': must be a whole"):
        read_trace(path, columns=columns | {"input_tokens": "usage.input"})


def test_quoted_fields_may_hold_ends_of_lines_far_down() -> None:
    rows = [f"{at},5,1,u" for at in range(20_000)]
    path = written("ts,prompt,answer,user", *rows, '20000,6,2,"a\nb"', "20001,x,2,u")
    with pytest.raises(TraceError, match="line 20004, prompt = 'x'"):
        read_trace(path, columns=USERS)
    path = written("ts,prompt,answer,user", *rows, '20000,6,2,"a\nb"')
    assert rows_of(path, columns=USERS)[-1] == (20_000 * 10**9, 6, 2, "a\nb")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"arrival": "ts"}, {}, "columns['arrival'] = 'ts': unknown meaning; must be one of arr"),
        ({"arrival_s": "ts"}, {}, "columns: input_tokens, output_tokens missing"),
        (COLUMNS | {"tenant": ""}, {}, "columns['tenant'] = '': must be the name of a column"),
        (COLUMNS | {"prefix_group": "g"}, {}, "columns: prefix_group and prefix_tokens belong tog"),
        (COLUMNS, {"time_unit": "min"}, "time_unit = 'min': must be one of auto, s, ms, us, ns, i"),
        (COLUMNS, {"format": "azure"}, "format = 'azure': not together with columns"),
        (None, {"time_unit": "ms"}, "time_unit = 'ms': only with columns"),
        (COLUMNS | {"tenant": "usr"}, {}, "trace.csv: not of the format columns: usr missing"),
    ],
)
def test_an_invalid_map_is_named(columns: Any, options: Any, message: str) -> None:
    path = written("ts,prompt,answer,user", "0,5,1,a")
    with pytest.raises(TraceError) as caught:
        read_trace(path, columns=columns, **options)
    assert str(caught.value).startswith(message)


# --- compressed files and standard input ----------------------------------------------------------


def test_gzip_is_recognized_by_its_content() -> None:
    plain = written("arrival_s,input_tokens,output_tokens", "0,5,1", "1,6,2")
    for name in ("trace.csv.gz", "renamed"):
        Path(name).write_bytes(gzip.compress(plain.read_bytes()))
        assert rows_of(name) == rows_of(plain)
    Path("cut.gz").write_bytes(gzip.compress(plain.read_bytes())[:-12])
    with pytest.raises(TraceError, match=r"cut\.gz: damaged gzip file: "):
        read_trace("cut.gz")


def test_zstandard_is_recognized_by_its_content() -> None:
    pack = zstandard.ZstdCompressor(write_checksum=True).compress
    plain = written("arrival_s,input_tokens,output_tokens", "0,5,1", "1,6,2")
    head, rest = plain.read_bytes()[:30], plain.read_bytes()[30:]
    packed = pack(head) + pack(b"") + pack(rest)  # the frames of a file follow each other
    for name in ("trace.csv.zst", "renamed"):
        Path(name).write_bytes(packed)
        assert rows_of(name) == rows_of(plain)
        assert read_trace(name, stream=True) == read_trace(plain)
    for name, damaged, words in (
        ("cut.zst", packed[:-6], "it is cut off"),
        ("start.zst", b"\x28\xb5\x2f\xfd", "it is cut off"),
        ("more.zst", packed + b"1,6,2\n", ".+"),
        ("flip.zst", packed[:-1] + bytes([packed[-1] ^ 1]), ".+"),
    ):
        Path(name).write_bytes(damaged)
        with pytest.raises(TraceError, match=rf"^{name}: damaged Zstandard file: {words}"):
            read_trace(name)


def test_zstandard_of_many_pieces_is_read() -> None:
    rows = [f"{row}.{row:09d},{row % 977 + 1},{row % 13}" for row in range(100_000)]
    plain = written("arrival_s,input_tokens,output_tokens", *rows)
    Path("t.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    assert read_trace("t.zst")._columns()["arrival_ns"].tolist() == [
        row * 1_000_000_001 for row in range(100_000)
    ]


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.zst").write_bytes(zstandard.compress(b"arrival_s,input_tokens,output_tokens\n0,5,1\n"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    message = (
        "t.zst: compressed with Zstandard: this needs zstandard; "
        "install it with: pip install 'spillway-sim[zstd]'"
    )
    with pytest.raises(TraceError) as caught:
        read_trace("t.zst")
    assert str(caught.value) == message
    Path("config.yaml").write_text("schema: 1\n")
    assert cli.main(["check", "config.yaml", "--trace", "t.zst"]) == 2
    assert message in capsys.readouterr().err


class Pipe(io.BytesIO):
    """Standard input."""

    @property
    def buffer(self) -> Pipe:
        return self


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_a_trace_comes_from_standard_input(
    pack: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b"when_ms;prompt;answer;user\n0;5;1;default\n1500;6;2;default\n"
    monkeypatch.setattr(sys, "stdin", Pipe(pack(text)))
    Path("config.yaml").write_text("schema: 1\n")
    names = "arrival_s=when_ms,input_tokens=prompt,output_tokens=answer,tenant=user"
    assert cli.main(["check", "config.yaml", "--trace", "-", "--trace-columns", names]) == 0
    err = capsys.readouterr().err
    assert err == "spillway: -: 2 requests in 1.500 s, 11 input tokens, 3 output tokens\n"
    assert not sys.stdin.closed


@pytest.mark.parametrize("text", ["ts", "ts=", "=ts", "arrival_s=a,arrival_s=b", ""])
def test_an_invalid_map_on_the_command_line_is_named(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("config.yaml").write_text("schema: 1\n")
    command = ["check", "config.yaml", "--trace", "x.csv", "--trace-columns", text]
    assert cli.main(command) == cli.BAD_INPUT
    assert capsys.readouterr().err.startswith(f"spillway: --trace-columns = {text!r}: must ")


# --- malformed rows -------------------------------------------------------------------------------

BAD_ROWS = ["x,5,1", "1,0,1", "1,5", "1,5,1,7", "1,5,-1", "nan,5,1"]
BAD_LINES = [
    "{",
    "[]",
    "oops",
    '{"timestamp": 1}',
    '{"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": [1]}',
    '{"timestamp": 1, "timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}',
    '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]} {}',
]


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_one_malformed_row_is_an_error_or_skipped(bad: str) -> None:
    good = [f"{at},5,1" for at in range(1000)]
    path = written("arrival_s,input_tokens,output_tokens", *good[:700], bad, *good[700:])
    with pytest.raises(TraceError, match="line 702"):
        read_trace(path)
    with pytest.warns(UserWarning, match=r": 1 malformed rows skipped; the first: .* line 702"):
        assert read_trace(path, skip_bad=True).rows == 1000


@pytest.mark.parametrize("bad", BAD_LINES)
def test_one_malformed_line_is_an_error_or_skipped(bad: str) -> None:
    good = '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}'
    path = written(*[good] * 3, bad, good, name="trace.jsonl")
    with pytest.raises(TraceError, match="line 4"):
        read_trace(path)
    with pytest.warns(UserWarning, match=r": 1 malformed rows skipped; the first: .* line 4"):
        assert read_trace(path, skip_bad=True).rows == 4


def test_all_malformed_rows_are_counted() -> None:
    good = [f"{at},5,1" for at in range(600)]
    path = written("arrival_s,input_tokens,output_tokens", *BAD_ROWS, *good, *BAD_ROWS)
    with pytest.warns(UserWarning, match=f": {2 * len(BAD_ROWS)} malformed rows skipped"):
        assert read_trace(path, skip_bad=True).rows == 600
    path = written("arrival_s,input_tokens,output_tokens", *BAD_ROWS)
    with (
        pytest.warns(UserWarning, match=f": {len(BAD_ROWS)} malformed rows skipped"),
        pytest.raises(TraceError, match="holds no requests"),
    ):
        read_trace(path, skip_bad=True)
