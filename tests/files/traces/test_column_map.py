"""Traces of any columns, compressed, from standard input, and with malformed rows."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import zstandard
from support.traces import prompts_of

from spillway import cli, read_trace
from spillway.files.options import unit_in
from spillway.files.recordings import read_recordings
from spillway.files.traces import TraceError

COLUMNS = {"arrival_s": "at_s", "input_tokens": "prompt", "output_tokens": "answer"}
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


ASSUMED = {
    "s": "the times in 'ts' are read as seconds; --trace-time-unit (time_unit in Python) states",
    "zone": "times without a time zone, such as '2026-03-02 10:00:00', are read as UTC; --trace-ti",
}


@pytest.mark.parametrize(
    ("times", "unit", "ns", "note"),
    [
        (("5", "6.5"), "auto", 1_500_000_000, "s"),
        (("1760000000", "1760000000.000000001"), "auto", 1, ""),
        (("1760000000000", "1760000000000.5"), "auto", 500_000, ""),
        (("1760000000000000", "1760000000000003"), "auto", 3_000, ""),
        (("1760000000000000000", "1760000000000000007"), "auto", 7, ""),
        (("2026-03-02T10:00:00.25Z", "2026-03-02T11:00:01.25+01:00"), "auto", 1_000_000_000, ""),
        (("2026-03-02 10:00:00", "2026-03-02 10:00:00.000000001"), "iso", 1, "zone"),
        (("5", "6.5"), "s", 1_500_000_000, ""),
        (("5", "6.5"), "ms", 1_500_000, ""),
        (("5", "8"), "us", 3_000, ""),
        (("5", "8"), "ns", 3, ""),
    ],
)
def test_times_of_any_unit_count_from_the_first(
    times: tuple[str, str], unit: str, ns: int, note: str
) -> None:
    first, second = times
    columns = COLUMNS | {"arrival_s": "ts"}
    expects = pytest.warns(UserWarning, match=re.escape(ASSUMED[note])) if note else nullcontext()
    path = written("ts,prompt,answer", f"{first},5,1", f"{second},6,2")
    expected = [(0, 5, 1, "default"), (ns, 6, 2, "default")]
    with expects:
        assert rows_of(path, columns=columns, time_unit=unit) == expected
    path = written(
        *(json.dumps({"ts": at, "prompt": 5, "answer": 1}) for at in times), name="trace.jsonl"
    )
    with pytest.warns(UserWarning, match=re.escape(ASSUMED[note])) if note else nullcontext():
        assert [row[0] for row in rows_of(path, columns=columns, time_unit=unit)] == [0, ns]


UNITS = {
    10**9: ["sent_s", "offsetSeconds", "time (s)", "seconds_since_start", "t.offset_sec"],
    10**6: ["sent_ms", "offset_millis", "offsetMs", "ts (ms)", "unix_ms_timestamp", "Time [ms]"],
    1000: ["sent_us", "tsMicros", "elapsed_usec", "time_\N{MICRO SIGN}s"],
    1: ["sent_ns", "startTimeUnixNano", "nanos_since_epoch", "TIME_NS"],
}


@pytest.mark.parametrize(
    ("ns", "name"), [(ns, name) for ns, names in UNITS.items() for name in names]
)
def test_the_name_of_a_column_states_its_unit(name: str, ns: int) -> None:
    path = written(f"{name},prompt,answer", "5,5,1", "6,6,2")
    found = rows_of(path, columns=COLUMNS | {"arrival_s": name})
    assert [row[0] for row in found] == [0, ns]


@pytest.mark.parametrize("name", ["ts", "s", "users", "statistics", "time", "begin", "ts_time"])
def test_other_names_state_no_unit(name: str) -> None:
    assert unit_in(name) is None


NINE = "2026-03-02T09:00:00Z"
INSTANTS = [
    ("02/Mar/2026:10:00:00 +0100", NINE),  # NGINX and Apache
    ("[02/Mar/2026:10:00:00 +0100]", NINE),
    ("02/Mar/2026:09:00:00.000 +0000", NINE),
    ("2026-03-02 09:00:00.000+00", NINE),  # PostgreSQL
    ("2026-03-02 14:30:00+05:30", NINE),
    ("2026-03-02T14:30:00+0530", NINE),
    ("2026-03-02T04:00:00-05", NINE),
    ("2026-03-02 09:00:00 UTC", NINE),  # BigQuery
    ("2026-03-02T09:00:00.000z", NINE),
    ("2026-03-02T09:00Z", NINE),
    ("2026-03-02 09:00:00,000", NINE),  # Python's logging
    ("2026-03-02 09:00:00.000000000", NINE),  # pandas
]


@pytest.mark.filterwarnings("ignore:.*times without a time zone")
@pytest.mark.parametrize(("text", "instant"), INSTANTS)
def test_instants_are_read_as_logs_write_them(text: str, instant: str) -> None:
    path = written("at;prompt;answer", f"{text};5;1", f"{instant};5;1", f"{text};5;1")
    found = rows_of(path, columns=COLUMNS | {"arrival_s": "at"})
    assert [row[0] for row in found] == [0, 0, 0]


@pytest.mark.parametrize(
    ("zone", "hours"),
    [("UTC", 9), ("+01", 10), ("+05:30", 14.5), ("-0500", 4), ("Europe/Berlin", 10)],
)
def test_a_time_zone_is_that_of_times_without_one(zone: str, hours: float) -> None:
    at = f"2026-03-02 {int(hours):02}:{round(hours % 1 * 60):02}:00"
    path = written("at,prompt,answer", f"{at},5,1", f"{NINE},5,1")
    found = rows_of(path, columns=COLUMNS | {"arrival_s": "at"}, time_zone=zone)
    assert [row[0] for row in found] == [0, 0]
    with pytest.raises(TraceError, match="time_zone = 'Mars': must be the name of a time zone"):
        rows_of(path, columns=COLUMNS | {"arrival_s": "at"}, time_zone="Mars")


@pytest.mark.parametrize(
    "text", ["noon", "02/Foo/2026:10:00:00 +0000", "2026-03-02 10:00:00+05:99"]
)
def test_no_instant_is_an_error_that_shows_one(text: str) -> None:
    path = written("at,prompt,answer", f"{text},5,1")
    with pytest.raises(TraceError, match=r"line 2, at = .*: must be .* such as 2023-11-16 18:15"):
        rows_of(path, columns=COLUMNS | {"arrival_s": "at"})


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl"])
def test_whole_numbers_may_be_written_as_floats(name: str) -> None:
    lines = ["at_s,prompt,answer", "0,21073.0,5.0", "1,7.00,0.0"]
    if name == "trace.jsonl":
        lines = [
            '{"at_s": 0, "prompt": 21073.0, "answer": 5.0}',
            '{"at_s": 1, "prompt": 7, "answer": 0.0}',
        ]
    path = written(*lines, name=name)
    assert [row[1:3] for row in rows_of(path, columns=COLUMNS)] == [(21073, 5), (7, 0)]
    path.write_text(path.read_text().replace("21073.0", "21073.5"))
    with pytest.raises(TraceError, match=r"prompt = '21073\.5': must be a whole number"):
        rows_of(path, columns=COLUMNS)


# --- failed calls ---------------------------------------------------------------------------------

STATES = [
    ("success", "True", "False"),
    ("is_success", "1", "0"),
    ("success", "1.0", "0.0"),
    ("failed", "false", "true"),
    ("error", "", "Connection reset"),
    ("error_message", "None", "timeout"),
    ("status", "ok", "error"),
    ("status", "success", "Timeout"),
    ("status", "200", "503"),
    ("status", "200.0", "429.0"),
    ("http_code", "200", "0"),
    ("statusCode", "200 OK", "500 Internal Server Error"),
    ("outcome", "completed", "rejected by gateway"),
    ("outcome", "succeeded", "cancelled"),
]


@pytest.mark.parametrize(("column", "well", "badly"), STATES)
def test_failed_calls_are_requests_without_output(column: str, well: str, badly: str) -> None:
    path = written(
        f"at_s,prompt,answer,{column}",
        f"0,5,3,{well}",
        f"1,6,3,{badly}",
        f"2,7,,{badly}",
        f"3,,,{badly}",
    )
    expected = [(0, 5, 3), (1, 6, 0), (2, 7, 0), (3, 1, 0)]
    text = rf"3 calls failed by {column}: they are requests without output"
    opposite = column in ("success", "is_success")
    for columns in (COLUMNS, COLUMNS | {"completed" if opposite else "failed": column}):
        with (
            pytest.warns(UserWarning, match=text),
            pytest.warns(UserWarning, match="1 failed calls have no recorded prompt, and are read"),
        ):
            found = rows_of(path, columns=columns)
        assert [(at // 10**9, prompt, answer) for at, prompt, answer, _ in found] == expected


def test_failed_calls_of_spillways_own_columns() -> None:
    path = written("arrival_s,input_tokens,output_tokens,success", "0,5,3,true", "1,6,3,false")
    with pytest.warns(UserWarning, match="1 calls failed by success"):
        assert [row[:3] for row in rows_of(path)] == [(0, 5, 3), (10**9, 6, 0)]


def test_a_state_that_says_neither_is_noted_or_refused() -> None:
    path = written("at_s,prompt,answer,status", "0,5,3,ok", "1,6,3,partial {}")
    text = r"status = 'partial \{\}' is understood neither as failed nor as completed"
    with pytest.warns(UserWarning, match=text):
        assert [row[2] for row in rows_of(path, columns=COLUMNS)] == [3, 3]
    with pytest.raises(TraceError, match=r"line 3, status = 'partial \{\}': must say whether"):
        rows_of(path, columns=COLUMNS | {"failed": "status"})


def test_a_column_of_the_opposite_name_is_refused() -> None:
    path = written("at_s,prompt,answer,success,error", "0,5,3,1,", "1,6,3,0,x")
    for meaning, column, right in (
        ("failed", "success", "completed"),
        ("completed", "error", "failed"),
    ):
        message = f"columns, {meaning} = '{column}': the name says the opposite; write --columns "
        with pytest.raises(TraceError, match=f"{message}{right}={column}"):
            rows_of(path, columns=COLUMNS | {meaning: column})


def test_traces_and_recordings_say_the_same_of_a_state(tmp_path: Path) -> None:
    """Of every value that both understand, they say the same."""
    values = ["ok", "Timeout", "200", "503 Service Unavailable", "cancelled", "length", "true"]
    for column in ("status", "error", "http_code", "success", "failed"):
        for value in values:
            own = tmp_path / "run.csv"
            own.write_text(
                f"send_s,input_tokens,output_tokens,ttft_ms,e2e_ms,{column}\n"
                f"0,5,3,50,100,{value}\n1,5,3,50,100,{value}\n"
            )
            path = written(f"at_s,prompt,answer,{column}", f"0,5,3,{value}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                (row,) = rows_of(path, columns=COLUMNS)
                try:
                    (run,) = read_recordings(own)
                except TraceError:
                    continue
            assert (row[2] == 0) is bool(run.failed[0]), (column, value)


def test_a_completed_call_needs_a_prompt() -> None:
    path = written("at_s,prompt,answer,success", "0,5,3,1", "1,0,0,0", "2,0,3,1")
    with pytest.raises(TraceError, match="line 4, prompt = '0': must be >= 1"):
        rows_of(path, columns=COLUMNS)


# --- cached tokens --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl"])
def test_cached_tokens_are_shared_beginnings(name: str) -> None:
    lines = ["at_s,prompt,answer,cached", "0,10,1,0", "1,10,1,8", "2,20,1,12"]
    if name == "trace.jsonl":
        rows = [(0, 10, 1, 0), (1, 10, 1, 8), (2, 20, 1, 12)]
        lines = [json.dumps(dict(zip(lines[0].split(","), row, strict=True))) for row in rows]
    path = written(*lines, name=name)
    columns = COLUMNS | {"cached_tokens": "cached"}
    with pytest.warns(UserWarning, match="50% of the prompt tokens were in the cache of the recor"):
        found = prompts_of(read_trace(path, columns=columns))
    assert found == [[], [(0, 8)], [(0, 8), (0, 4)]]
    path = written("at_s,prompt,answer,cached", "0,10,1,11")
    with pytest.raises(TraceError, match=r"cached = '11': must be <= input_tokens \(10\)"):
        read_trace(path, columns=columns)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_commas_semicolons_and_tabs_separate(delimiter: str, quote: str) -> None:
    rows = (("at_s", "prompt", "answer", "user"), ("0", "5", "1", f"{quote}a{quote}"))
    path = written(*(delimiter.join(row) for row in rows))
    assert rows_of(path, columns=USERS) == [(0, 5, 1, "a")]


def test_a_dot_leads_into_an_object() -> None:
    columns = {
        "arrival_s": "created_s",
        "input_tokens": "usage.prompt_tokens",
        "output_tokens": "usage.completion_tokens",
        "tenant": "key.name",
    }
    lines = [
        {
            "created_s": at,
            "usage": {"prompt_tokens": at, "completion_tokens": 2},
            "key": {"name": 7},
        }
        for at in (3, 4)
    ]
    path = written(*map(json.dumps, lines), name="log.jsonl")
    assert rows_of(path, columns=columns) == [(0, 3, 2, "7"), (10**9, 4, 2, "7")]
    with pytest.warns(UserWarning, match=r"no object of the first 2 has key\.hash; they have crea"):
        rows_of(path, columns=columns | {"tenant": "key.hash"})
    with pytest.raises(TraceError, match=r"log\.jsonl line 1, usage\.input = '': must be a whole"):
        read_trace(path, columns=columns | {"input_tokens": "usage.input"}, time_unit="s")


USAGE = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2}


@pytest.mark.parametrize(
    "attributes",
    [
        USAGE,
        {"gen_ai": {"usage": {"input_tokens": 7, "output_tokens": 2}}},
        {"gen_ai.usage": {"input_tokens": 7, "output_tokens": 2}},
        [{"key": key, "value": {"intValue": str(value)}} for key, value in USAGE.items()],
    ],
)
def test_keys_may_hold_dots(attributes: Any) -> None:
    path = written(json.dumps({"at_s": 1, "attributes": attributes}), name="log.jsonl")
    columns = {
        "arrival_s": "at_s",
        "input_tokens": "attributes.gen_ai.usage.input_tokens",
        "output_tokens": "attributes.gen_ai.usage.output_tokens",
    }
    assert rows_of(path, columns=columns) == [(0, 7, 2, "default")]


def test_quoted_fields_may_hold_ends_of_lines_far_down() -> None:
    rows = [f"{at},5,1,u" for at in range(20_000)]
    path = written("at_s,prompt,answer,user", *rows, '20000,6,2,"a\nb"', "20001,x,2,u")
    with pytest.raises(TraceError, match="line 20004, prompt = 'x'"):
        read_trace(path, columns=USERS)
    path = written("at_s,prompt,answer,user", *rows, '20000,6,2,"a\nb"')
    assert rows_of(path, columns=USERS)[-1] == (20_000 * 10**9, 6, 2, "a\nb")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"arrival": "ts"}, {}, "columns, arrival = 'ts': unknown meaning; must be one of arr"),
        (
            {"arrival_s": "ts"},
            {},
            "trace.csv: not of the format columns: input_tokens, output_tokens, ts missing",
        ),
        (
            COLUMNS | {"prefix_group": "g", "prefix_tokens": "g", "cached_tokens": "c"},
            {},
            "columns: giv",
        ),
        (COLUMNS | {"tenant": ""}, {}, "columns, tenant = '': must be the name of a column"),
        (COLUMNS | {"prefix_group": "g"}, {}, "columns: prefix_group and prefix_tokens belong tog"),
        (COLUMNS, {"time_unit": "min"}, "time_unit = 'min': must be one of auto, s, ms, us, ns, i"),
        (COLUMNS, {"format": "azure"}, "format = 'azure': not together with columns"),
        (None, {"time_unit": "ms"}, "time_unit = 'ms': only with columns"),
        (COLUMNS | {"tenant": "usr"}, {}, "trace.csv: not of the format columns: usr missing"),
    ],
)
def test_an_invalid_map_is_named(columns: Any, options: Any, message: str) -> None:
    path = written("at_s,prompt,answer,user", "0,5,1,a")
    with pytest.raises(TraceError) as caught:
        read_trace(path, columns=columns, **options)
    assert str(caught.value).startswith(message)


def test_what_is_not_named_has_its_own_name() -> None:
    path = written("at_s,input_tokens,output_tokens", "0,5,1", "2,6,3")
    assert rows_of(path, columns={"arrival_s": "at_s"}) == [
        (0, 5, 1, "default"),
        (2 * 10**9, 6, 3, "default"),
    ]


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
    assert capsys.readouterr().err.startswith(f"spillway: --columns = {text!r}: must ")


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
    with pytest.warns(UserWarning, match=r": 1 malformed row skipped; the first: .* line 702"):
        assert read_trace(path, skip_bad=True).rows == 1000


@pytest.mark.parametrize("bad", BAD_LINES)
def test_one_malformed_line_is_an_error_or_skipped(bad: str) -> None:
    good = '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}'
    path = written(*[good] * 3, bad, good, name="trace.jsonl")
    with pytest.raises(TraceError, match="line 4"):
        read_trace(path)
    with pytest.warns(UserWarning, match=r": 1 malformed row skipped; the first: .* line 4"):
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
