"""CSV with the names of columns that are known, or stated."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recordings import GATEWAY, check_refused, run_of, values

import spillway
from spillway.files.recordings import TraceError, units

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def test_csv_with_known_names() -> None:
    run = run_of("requests.csv")
    assert values(run.send_s) == [0, 0.1, 1]
    assert values(run.failed) == [False, True, False]
    assert values(run.ttft_s) == [0.05, None, 0.07]
    assert values(run.e2e_s) == [0.25, None, 0.67]
    assert values(run.itl_s) == [pytest.approx(0.02), None, pytest.approx(0.02)]
    assert run.tenant == ("a", "b", "a")


def test_csv_with_any_names() -> None:
    run = run_of("gateway.csv", **GATEWAY)
    assert values(run.send_s) == [0, 0.5]
    assert values(run.ttft_s) == [0.05, None]
    assert values(run.e2e_s) == [0.25, None]
    assert values(run.failed) == [False, True]
    assert run.tenant == ("a", "b")
    columns = {**GATEWAY["columns"], "arrival_s": GATEWAY["columns"]["send_s"]}
    columns.pop("send_s")
    assert values(run_of("gateway.csv", **{**GATEWAY, "columns": columns}).send_s) == [0, 0.5]
    with pytest.raises(TraceError, match="unknown format: t0,prompt,answer"):
        run_of("gateway.csv")


@pytest.mark.parametrize("names", [("session", "cached_tokens"), ("chat", "hit")])
def test_conversations_and_cached_tokens(names: tuple[str, str], tmp_path: Path) -> None:
    session, cached = names
    path = tmp_path / "log.csv"
    path.write_text(
        f"send_s,input_tokens,output_tokens,e2e_s,{session},{cached}\n"
        "0,100,20,1,u,64\n3,150,20,1,u,120\n1,80,20,1,,\n2,90,20,1,v,999\n"
    )
    known = {name: name for name in ("send_s", "input_tokens", "output_tokens", "e2e_s")}
    columns = known | {"session": session, "cached_tokens": cached}
    (run,) = spillway.read_recordings(path, columns=None if session == "session" else columns)
    assert run.session == ("u", "", "v", "u")
    assert run.cached_tokens is not None
    assert run.cached_tokens.tolist() == [64, 0, 90, 120]
    assert run.to_trace()._columns()["warm_tokens"].tolist() == [64, 0, 90, 0]
    path.write_text(path.read_text().replace("120", "-3"))
    with pytest.raises(TraceError, match=f"line 3, {cached} = '?-3'?: must be a whole"):
        spillway.read_recordings(path, columns=columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": {}}, "columns: missing"),
        ({"columns": {"at": "t0"}}, "columns, at = 't0': not a meaning; must be one of send_"),
        ({"columns": {"send_s": 1}}, "columns, send_s = 1: must be the name of a column"),
        ({"columns": {"send_s": "t0"}}, "columns: input_tokens, output_tokens missing"),
        (
            {"columns": {"send_s": "t0", "input_tokens": "prompt", "output_tokens": "answer"}},
            "columns: must name a latency: ttft_s",
        ),
        (
            {"columns": GATEWAY["columns"] | {"send_s": "t1"}, "units": {"t1": "s"}},
            r"gateway\.csv, send_s = 't1': there is no such column",
        ),
        (
            {"units": {}},
            "columns, send_s = 't0': the name states no unit; state it, e.g. --uni",
        ),
        ({"units": {"t0": "min"}}, "units, t0 = 'min': must be one of s, ms, us, ns"),
        ({"units": {"key": "s"}}, "units, key = 's': not a column of times; must be one of t"),
        ({"format": "csv"}, "columns: only for files of the format columns, not of csv"),
        ({"columns": None, "format": None}, "units: only for files of the format columns$"),
    ],
)
def test_invalid_maps_of_columns(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        run_of("gateway.csv", **(GATEWAY | change))


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 10**9),  # time of sending in µs
        st.integers(1, 10**6),
        st.integers(1, 10**5),
        st.integers(0, 10**8),  # TTFT in µs
        st.integers(0, 10**9),  # decode in µs
        st.booleans(),
        st.sampled_from(["a", "b", "ä,\n"]),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.filterwarnings("ignore:.*(lists requests twice|requests failed|less than 1 ms)")
@given(
    requests=REQUESTS,
    unit=st.sampled_from(list(units.PER_SECOND)),
    origin_us=st.sampled_from([0, -5_000, 1_764_000_000_000_000]),
    instants=st.booleans(),
)
def test_a_written_file_is_read_back(
    requests: Sequence[tuple[Any, ...]],
    unit: str,
    origin_us: int,
    instants: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("written") / "requests.csv"

    def written(time_us: int) -> str:
        """A time in the unit, exactly."""
        sign, digits = "-" if time_us < 0 else "", str(abs(time_us)).rjust(7, "0")
        if unit == "ns":
            return f"{sign}{int(digits) * 1000}"
        point = {"us": 0, "ms": 3, "s": 6}[unit]
        return sign + (f"{digits[:-point]}.{digits[-point:]}" if point else str(int(digits)))

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "n", "m", "at", "first", "end", "why"])
        for send, prompt, output, ttft, decode, failed, tenant in requests:
            begin = origin_us + send
            first, end = (
                (begin + ttft, begin + ttft + decode) if instants else (ttft, ttft + decode)
            )
            latencies = ("", "") if failed else (written(first), written(end))
            row = [tenant, prompt, output, written(begin), *latencies, "timeout" if failed else ""]
            writer.writerow(row)
    first_name, end_name = ("first_token_s", "last_token_s") if instants else ("ttft_s", "e2e_s")
    run = run_of(
        path,
        columns={
            "tenant": "key",
            "input_tokens": "n",
            "output_tokens": "m",
            "send_s": "at",
            first_name: "first",
            end_name: "end",
            "failed": "why",
        },
        units=dict.fromkeys(("at", "first", "end"), unit),
        check_units=False,
    )
    expected = sorted(requests, key=lambda request: request[0])
    begin_us = expected[0][0]
    # Seconds since 1970 have a resolution of a quarter of a microsecond as a float.
    near = {"rel": 1e-9, "abs": 1e-6 if origin_us > 0 else 1e-9}
    assert values(run.send_s) == pytest.approx([(r[0] - begin_us) / 1e6 for r in expected], **near)
    assert values(run.input_tokens) == [request[1] for request in expected]
    assert values(run.output_tokens) == [request[2] for request in expected]
    assert values(run.failed) == [request[5] for request in expected]
    assert run.tenant == tuple(request[6] for request in expected)
    done = [request for request in expected if not request[5]]
    assert run.ttft_s[~run.failed].tolist() == pytest.approx([r[3] / 1e6 for r in done], **near)
    e2e_s = [(r[3] + r[4]) / 1e6 for r in done]
    assert run.e2e_s[~run.failed].tolist() == pytest.approx(e2e_s, **near)
    assert np.isnan(run.ttft_s[run.failed]).all()


def test_a_simulated_run_is_a_recording(tmp_path: Path) -> None:
    simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 50})
    result = spillway.simulate(simulation)
    result.write(tmp_path)
    run = run_of(tmp_path / "requests.csv", check_units=False)
    assert run.num_requests == 50
    assert run.ttft_s[~run.failed].tolist() == pytest.approx(
        result.requests["ttft_s"][~run.failed].tolist(), abs=1e-9
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("100,11", "x,11", r"line 2, input_tokens = 'x': must be a whole number"),
        ("100,11", "0,11", r"line 2, input_tokens = 0: must be >= 1"),
        (",50,250", ",5O,250", r"line 2, ttft_ms = '5O': must be a number or empty"),
        (",50,250", ",1e400,250", "ttft_ms = '1e400': must be a finite number"),
        (",50,250", ",1e309,250", "ttft_ms = '1e309': must be a finite number"),
        ("1764000000000.5", "", r"line 2, send_ms = '': must be a number"),
        ("a,1764000001000.5,300,31,70,670,completed", "a", "line 4: holds 1 fields"),
        *(
            (*replaced, message)
            for digits in (400, 5000)
            for replaced, message in (
                (("1764000000000.5", "9" * digits), "send_ms = .*must be a finite number"),
                ((",100,11,", f",{'9' * digits},11,"), "input_tokens = .*must be a whole number"),
            )
        ),
    ],
)
def test_invalid_values_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    check_refused("requests.csv", (old, new), message, tmp_path)


# --- JSON, dates ----------------------------------------------------------------------------------

OBJECTS = [
    {
        "t": f"2026-03-02T10:00:{at:02d}.5Z",
        "usage": {"prompt": 100 + at, "completion": 11.0},
        "ttft_ms": 50,
        "total": {"ms": 250.5},
        "ok": at != 2,
        "note": "x",
    }
    for at in range(4)
]
NAMES = {
    "send_s": "t",
    "input_tokens": "usage.prompt",
    "output_tokens": "usage.completion",
    "ttft_s": "ttft_ms",
    "e2e_s": "total.ms",
}


@pytest.mark.parametrize(
    "text",
    [
        "".join(json.dumps(row) + "\n" for row in OBJECTS),
        json.dumps(OBJECTS),
        json.dumps(OBJECTS, indent=1),
        json.dumps({"count": 4, "data": OBJECTS}),
    ],
    ids=["lines", "array", "spread", "list in an object"],
)
def test_json_of_ones_own(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.warns(UserWarning, match=r"log\.json: unused columns: note$"):
        run = run_of(path, columns=NAMES, units={"total.ms": "ms"})
    assert values(run.send_s) == [0, 1, 2, 3]
    assert values(run.input_tokens) == [100, 101, 102, 103]
    assert values(run.e2e_s) == [0.2505, 0.2505, None, 0.2505]
    assert values(run.failed) == [False, False, True, False]
    with pytest.raises(TraceError, match=r"input_tokens = 'usage\.prmpt': there is no such column"):
        run_of(path, columns=NAMES | {"input_tokens": "usage.prmpt"}, units={"total.ms": "ms"})


@pytest.mark.filterwarnings("ignore:.*unused columns. note")
def test_malformed_objects_are_named_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [*OBJECTS[:2], OBJECTS[3] | {"ttft_ms": "fast"}, OBJECTS[3]]
    path.write_text("".join(json.dumps(row | {"note": 1}) + "\n" for row in rows) + "[1]\n")
    settings: dict[str, Any] = {"columns": NAMES, "units": {"total.ms": "ms"}}
    with pytest.raises(TraceError, match=r"log\.jsonl line [35]"):
        run_of(path, **settings)
    with pytest.warns(UserWarning, match="2 malformed requests left out"):
        assert run_of(path, **settings, skip_bad=True).num_requests == 3


DATES = {
    "instants": ("2026-03-02 10:00:00.050", "2026-03-02 10:00:00.250"),
    "a zone": ("2026-03-02T10:00:00.050+00:00", "2026-03-02T10:00:00.250Z"),
    "a log of NGINX": ("02/Mar/2026:10:00:00.050 +0000", "02/Mar/2026:10:00:00.250 +0000"),
}


@pytest.mark.parametrize("name", DATES)
def test_instants_may_be_dates(name: str, tmp_path: Path) -> None:
    first, last = DATES[name]
    send = first.replace(".050", ".000")
    path = tmp_path / "log.csv"
    path.write_text(
        "begin,first,last,input_tokens,output_tokens,error\n"
        f"{send},{first},{last},10,5,\n"
        f"{send},,,10,0,timeout\n"
    )
    columns = {
        "send_s": "begin",
        "first_token_s": "first",
        "last_token_s": "last",
        "input_tokens": "input_tokens",
        "output_tokens": "output_tokens",
    }
    run = run_of(path, columns=columns)
    assert values(run.ttft_s) == pytest.approx([0.05, None])
    assert values(run.e2e_s) == pytest.approx([0.25, None])
    assert set(run.units.values()) == {"ns"}
    with pytest.raises(TraceError, match="units, begin = 's': must not be stated: the column"):
        run_of(path, columns=columns, units={"begin": "s"})


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("2026-03-02 10:00:00.050", "must all state a time zone, or none"),
        ("50.5", r"first = '50\.5': must be a date with a time, as begin is"),
    ],
)
def test_instants_on_another_clock_are_refused(first: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        f"begin,first,input_tokens,output_tokens\n2026-03-02 10:00:00+01,{first},10,5\n"
    )
    names = {"send_s": "begin", "first_token_s": "first"}
    tokens = {name: name for name in ("input_tokens", "output_tokens")}
    with pytest.raises(TraceError, match=message):
        run_of(path, columns=names | tokens, units={"first": "ms"} if "." in first[:3] else None)
