"""The registry of trace formats: what holds for each, and that a new one works everywhere."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.traces import files_of_tools, malformed_lines, refusal, requests_of

import spillway
from spillway import cli, read_trace
from spillway.files.formats import detected, options_by_name
from spillway.files.head import Head
from spillway.files.options import READING, Option
from spillway.files.traces import FORMATS, Format, TraceError, format_of
from spillway.files.traces.rows import Rows, since_first

if TYPE_CHECKING:
    from spillway.files.traces.csv_table import CsvTable
    from spillway.files.traces.jsonl_table import JsonlTable

# --- what holds for each format -------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_format_agrees_with_itself(form: Format) -> None:
    assert FORMATS[form.name] is form
    assert "\n" not in form.doc
    found = {form.arrival, form.arrival.partition(".")[0]} & set(form.required)
    assert found or form.expand is not None or form.joined
    assert not set(form.required) & set(form.optional or ())
    reserved = inspect.signature(read_trace).parameters
    assert {option.name for option in READING} <= reserved.keys()
    for option in form.options:
        assert option.checked(option.default) == option.default
        assert option.name not in reserved
    line = (
        ",".join(form.required)
        if form.layout == "csv"
        else json.dumps(dict.fromkeys(form.required))
    )
    assert detected(Head(Path("x"), line), "trace") is form


@pytest.mark.parametrize("name", options_by_name())
def test_formats_share_an_option_of_one_type(name: str) -> None:
    by_format = options_by_name()[name].values()
    assert len({(option.type, option.choices) for option in by_format}) == 1


def test_the_documentation_names_every_format_and_option() -> None:
    text = inspect.getdoc(read_trace)
    assert text is not None
    for form in FORMATS.values():
        assert f"- `{form.name}`: " in text
        for option in form.options:
            assert f"- `{option.name}` ({'{' if option.choices else option.type.__name__}" in text


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        (Option("n", int, 1, "", at_least=1, at_most=3), 3, 3),
        (Option("n", int, 1, "", at_least=1, at_most=3), np.int64(2), 2),
        (Option("x", float, 0, ""), 2, 2.0),
        (Option("x", float, 0, ""), np.float32(0.5), 0.5),
        (Option("s", str, "", ""), "any", "any"),
    ],
)
def test_a_valid_value_becomes_the_type_of_its_option(
    option: Option, value: object, expected: object
) -> None:
    found = option.checked(value)
    assert (found, type(found)) == (expected, option.type)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (Option("n", int, 1, ""), 1.0, "n = 1.0: must be a whole number"),
        (Option("n", int, 1, ""), True, "n = True: must be a whole number"),
        (Option("n", int, 1, "", at_least=1), 0, "n = 0: must be >= 1"),
        (Option("x", float, 0, ""), "3", "x = '3': must be a number"),
        (
            Option("x", float, 0, "", at_least=0, at_most=1),
            float("nan"),
            "x = nan: must be >= 0 and <= 1",
        ),
        (Option("s", str, "", ""), 3, "s = 3: must be text"),
        (Option("s", str, "a", "", choices=("a", "b")), "c", "s = 'c': must be a or b"),
    ],
)
def test_an_invalid_value_is_named(option: Option, value: object, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        option.checked(value)
    assert str(caught.value) == message


# --- the files of the tools -----------------------------------------------------------------------


@pytest.mark.parametrize("name", files_of_tools())
def test_a_file_is_detected_and_read(name: str, tmp_path: Path) -> None:
    lines, requests = files_of_tools()[name]
    assert requests_of(tmp_path, name, *lines) == requests


@pytest.mark.parametrize(("name", "line", "message"), list(malformed_lines()))
def test_a_malformed_line_gives_one_clear_error(
    name: str, line: Any, message: str, tmp_path: Path
) -> None:
    assert refusal(tmp_path, *files_of_tools()[name][0], line).startswith(message)


# --- recognition ----------------------------------------------------------------------------------


def test_the_columns_count_more_than_the_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n\narrival_s,input_tokens,output_tokens\n0,5,1\n")
    assert format_of(path).name == "columns"
    path.write_text('{"chat": 0, "timestamp": 0, "input_length": 9}\n')
    with pytest.raises(
        TraceError, match=r"unknown format: (.*\n)*Closest: mooncake_lengths, without"
    ):
        read_trace(path)


def test_an_option_of_no_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n')
    with pytest.raises(TraceError) as caught:
        read_trace(path, tick_s=1)
    assert str(caught.value) == (
        f"{path}, tick_s = 1: unknown option of the format mooncake; one of unit, "
        "block_size_tokens, spread_s, seed"
    )


# --- a new format ---------------------------------------------------------------------------------


def _ticks(table: CsvTable, *, tick_s: float, clock: str) -> Rows:
    ticks = table.whole("tick")
    return Rows(
        arrival_ns=(ticks * (tick_s * 1e9)).astype(np.int64) + (clock == "late"),
        input_tokens=table.whole("words", at_least=1) * 2,
        output_tokens=table.whole("answer"),
        tenant=table.texts("user"),
    )


TOY = Format(
    name="toy",
    doc="Toy traces: tick,words,answer",
    layout="csv",
    required=("tick", "words", "answer"),
    optional=("user",),
    arrival="tick",
    rows=_ticks,
    options=(
        Option("tick_s", float, 1, "seconds per tick", at_least=0),
        Option("clock", str, "exact", "kind of clock, 100% of it", choices=("exact", "late")),
    ),
)


def _pairs(table: JsonlTable) -> Rows:
    pairs = np.array(table.values("tokens"), dtype=np.int64)
    return Rows(table.times_ns("at", "s"), pairs[:, 0], pairs[:, 1])


TOY_JSONL = Format(
    name="pairs",
    doc="Toy objects: at,tokens",
    layout="jsonl",
    required=("at", "tokens"),
    arrival="at",
    rows=_pairs,
)

TRACE = "tick,words,answer,user\n0,5,1,a\n2,6,2,\n3,7,3,a\n"


@pytest.fixture
def _toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Registers two formats and writes a trace of the first."""
    monkeypatch.setitem(FORMATS, "toy", TOY)
    monkeypatch.setitem(FORMATS, "pairs", TOY_JSONL)
    monkeypatch.chdir(tmp_path)
    Path("toy.csv").write_text(TRACE)


def columns_of(path: str, **options: Any) -> dict[str, Any]:
    columns = read_trace(path, **options)._columns()
    return {name: columns[name].tolist() for name in ("arrival_ns", "input_tokens", "tenant")} | {
        "tenants": columns["tenants"]
    }


@pytest.mark.usefixtures("_toys")
def test_a_new_format_is_read() -> None:
    expected = {
        "arrival_ns": [0, 2 * 10**9, 3 * 10**9],
        "input_tokens": [10, 12, 14],
        "tenant": [0, 1, 0],
        "tenants": ["a", "default"],
    }
    assert columns_of("toy.csv") == columns_of("toy.csv", format="toy") == expected
    assert columns_of("toy.csv", tick_s=0.5, clock="late")["arrival_ns"] == [
        1,
        10**9 + 1,
        15 * 10**8 + 1,
    ]
    Path("toy.csv").write_text(TRACE.replace("0,5", "9,5"))
    with pytest.raises(TraceError, match=r"line 3, tick = '2': is earlier than '9' on line 2"):
        read_trace("toy.csv")
    assert columns_of("toy.csv", sort=True)["input_tokens"] == [12, 14, 10]
    with pytest.raises(TraceError, match=r"tick_s = -1: must be >= 0"):
        read_trace("toy.csv", tick_s=-1)
    with pytest.raises(TraceError, match=r"unit = 's': unknown option of .* toy; one of tick_s"):
        read_trace("toy.csv", unit="s")
    Path("toy.csv").write_text(TRACE.replace("user", "usr"))
    with pytest.warns(UserWarning, match=r"unused columns: usr \(did you mean user\?\)") as caught:
        read_trace("toy.csv")
    assert caught[0].filename == __file__


@pytest.mark.usefixtures("_toys")
def test_a_new_format_of_objects_is_read() -> None:
    lines = [json.dumps({"at": at, "tokens": [5 + at, 1]}) for at in range(5000)]
    Path("pairs.jsonl").write_text("\n".join(lines))
    found = columns_of("pairs.jsonl")
    assert format_of("pairs.jsonl") is TOY_JSONL
    assert found["arrival_ns"] == [at * 10**9 for at in range(5000)]
    assert found["input_tokens"] == list(range(5, 5005))
    Path("pairs.jsonl").write_text("oops\n")
    with pytest.raises(TraceError, match=r"unknown format: oops\nFormats tried:\n(.*\n)*.*weka"):
        read_trace("pairs.jsonl")


DATED = Format(
    name="dated",
    doc="Toy objects with dates: at,n",
    layout="jsonl",
    required=("at", "n"),
    arrival="at.date",
    rows=lambda table: Rows(table.timestamps_ns("at.date"), table.whole("n"), table.whole("n")),
    retime=since_first,
)


@pytest.mark.usefixtures("_toys")
@pytest.mark.parametrize(
    ("dates", "arrival_ns"),
    [
        (["2026-03-01T12:00:00", "2026-03-01T12:00:00.25"], [0, 250_000_000]),
        (["2026-03-01T12:00:00.25Z", "2026-03-01 13:00:02+01:00"], [0, 1_750_000_000]),
        (["2026-03-01T12:00:00", "12:00:00"], "line 2, at.date = '12:00:00': must be an instant"),
        (["2026-03-01T12:00:00", ""], "line 2, at.date = '': must be an instant"),
        (["2026-03-01T12:00:00", 1772366400], "line 2, at.date = 1772366400: must be text"),
    ],
)
def test_dates_of_objects_are_read(
    dates: list[str | int], arrival_ns: list[int] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "dated", DATED)
    lines = [json.dumps({"at": {"date": date}, "n": 5}) for date in dates]
    Path("dated.jsonl").write_text("\n".join(lines))
    if isinstance(arrival_ns, list):
        assert columns_of("dated.jsonl")["arrival_ns"] == arrival_ns
        return
    with pytest.raises(TraceError, match=re.escape(arrival_ns)):
        read_trace("dated.jsonl")


@pytest.mark.usefixtures("_toys")
def test_a_new_format_is_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.yaml").write_text("schema: 1\ntenants: [{name: default}, {name: a}]\n")
    base = spillway.load("config.yaml")
    command = ["check", "config.yaml", "--trace", "toy.csv"]
    for given, options in (
        ([], {}),
        (["--trace-format", "toy", "--trace-clock", "late"], {"clock": "late"}),
        (["--trace-tick-s", "0.5"], {"tick_s": 0.5}),
    ):
        assert cli.main([*command, *given]) == 0
        simulation = base.replace(workload=read_trace("toy.csv", **options))
        assert spillway.fingerprint(simulation)[:12] in capsys.readouterr().out
    assert cli.main([*command, "--trace-unit", "s"]) == cli.BAD_INPUT
    message = capsys.readouterr().err
    assert message == (
        "spillway: toy.csv, unit = 's': unknown option of the format toy; one of tick_s, clock; "
        "unit is an option of mooncake, mooncake_lengths\n"
    )
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert f"format of the file: {', '.join(sorted(FORMATS))} … (default: detected)" in words
    assert "kind of clock, 100% of it (toy traces; default exact)" in words


@pytest.mark.usefixtures("_toys")
def test_a_new_format_is_a_file_of_a_configuration() -> None:
    Path("config.yaml").write_text("schema: 1\nworkload: {kind: trace, file: toy.csv}\n")
    simulation = spillway.load("config.yaml")
    assert simulation.workload == read_trace("toy.csv")
    assert spillway.simulate(simulation).summary()["offered"] == 3
    spillway.dump(simulation.replace(workload=read_trace("toy.csv", tick_s=2)), "other.yaml")
    with pytest.raises(spillway.ConfigError, match=r"other options \(tick_s, clock\) must be writ"):
        spillway.load("other.yaml")


@pytest.mark.usefixtures("_toys")
def test_formats_may_share_an_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Option("tick_s", float, 2, "seconds per beat")
    monkeypatch.setitem(FORMATS, "pairs", Format(**vars(TOY_JSONL) | {"options": (other,)}))
    assert list(options_by_name()["tick_s"]) == ["toy", "pairs"]
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert (
        "--trace-tick-s FLOAT seconds per tick (toy traces; default 1); seconds per beat (pairs "
        "traces; default 2)" in words
    )
