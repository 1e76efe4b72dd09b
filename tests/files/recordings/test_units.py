"""Suspected units."""

from __future__ import annotations

import csv
import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.recordings import FILES, run_of

from spillway.files.recordings import TraceError, read_recordings, units

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(tokens of the prompt per second|lists requests twice|without its summary)"
)


def table(path: Path, **columns: Any) -> Path:
    """A file of 200 requests, one per second, TTFT 60 ms, ITL 12 ms; columns replace these."""
    content: dict[str, Any] = {
        "send_s": np.arange(200.0),
        "input_tokens": np.full(200, 1000),
        "output_tokens": np.full(200, 101),
        "ttft_s": np.full(200, 0.06),
        "e2e_s": np.full(200, 1.26),
    }
    content |= {name: np.asarray(values) for name, values in columns.items()}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(content)
        writer.writerows(zip(*(column.tolist() for column in content.values()), strict=True))
    return path


# Each rule just inside of its threshold, and just outside with what the message says.
ONES = np.ones(200)
SENDS = np.arange(200.0)
RULES = {
    "ttft too long": (
        {"ttft_s": ONES * 600, "e2e_s": ONES * 700},
        {"ttft_s": ONES * 601, "e2e_s": ONES * 700},
        r"ttft_s = 601 s \(median TTFT\): looks like milliseconds, read as seconds; must be >= 0",
    ),
    "ttft too short": (
        {"ttft_s": ONES * 1e-4, "e2e_s": ONES * 0.1001},
        {"ttft_s": ONES * 0.9e-4, "e2e_s": ONES * 0.1001},
        r"ttft_s = 9e-05 s \(median TTFT\): read as seconds, which it probably is not; must be",
    ),
    "itl too long": (
        {"ttft_s": ONES, "e2e_s": ONES * 200.99},
        {"ttft_s": ONES, "e2e_s": ONES * 201.01},
        r"e2e_s = 2 s \(median time between tokens\): looks like milliseconds, read as seconds",
    ),
    "itl too short": (
        {"e2e_s": ONES * 0.0801},
        {"e2e_s": ONES * 0.0799},
        r"e2e_s = 0.000199 s \(median .*\): .*; or the answers are not streamed; must be >= 0.0002",
    ),
    "ttft above e2e": (
        {"ttft_s": np.where(SENDS < 2, 5, 0.06)},
        {"ttft_s": np.where(SENDS < 3, 5, 0.06)},
        r"ttft_s = 0.06 s \(median\): exceeds e2e_s \(1.26 s, median\) in 3 of 200 requests",
    ),
    "ttft below a step": (
        {"ttft_s": ONES * 0.00061, "e2e_s": ONES * 1.20061},
        {"ttft_s": ONES * 0.00059, "e2e_s": ONES * 1.20059},
        r"ttft_s = 0.00059 s \(median TTFT\): read as seconds, which it probably is not; must be",
    ),
    "span too long": (
        {"send_s": SENDS / 199 * 2_678_400, "e2e_s": ONES * 100, "ttft_s": ONES * 70},
        {"send_s": SENDS / 199 * 2_678_401, "e2e_s": ONES * 100, "ttft_s": ONES * 70},
        r"send_s = 2.678e\+06 s \(span of all requests\): looks like milliseconds, read as seconds",
    ),
    "mostly idle": (
        {"send_s": SENDS / 199 * 100_000, "e2e_s": ONES * 2.501},
        {"send_s": SENDS / 199 * 100_000, "e2e_s": ONES * 2.499},
        r"send_s = 1e\+05 s \(span of all requests\): looks like milliseconds, read as seconds",
    ),
    "sent too fast": (
        {"send_s": SENDS / 199 * 0.0020001},
        {"send_s": SENDS / 199 * 0.0019999},
        r"send_s = 0.002 s \(span of all requests\): read as seconds, which it probably is not",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_suspected_units(rule: str, tmp_path: Path) -> None:
    accepted, refused, message = RULES[rule]
    assert run_of(table(tmp_path / "accepted.csv", **accepted)).num_requests == 200
    path = table(tmp_path / "refused.csv", **refused)
    with pytest.raises(TraceError, match=message) as caught:
        read_recordings(path)
    assert str(caught.value).startswith(f"{path}, ")
    assert str(caught.value).endswith("; --no-check-units (check_units=False in Python) accepts it")
    assert run_of(path, check_units=False).num_requests == 200


OVERLOAD = {"ttft_s": ONES * 803, "e2e_s": ONES * 810}


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_overload_is_read_on_request(unit: str, tmp_path: Path) -> None:
    """A TTFT of 13 minutes is suspicious where no tool states the unit beside it."""
    scale = units.PER_SECOND[unit]
    path = table(tmp_path / "run.csv", **{name: scale * of for name, of in OVERLOAD.items()})
    columns = {"send_s": "t0", "input_tokens": "input_tokens", "output_tokens": "output_tokens",
               "ttft_s": "first", "e2e_s": "last"}  # fmt: skip
    text = path.read_text()
    for name, own in (("send_s", "t0"), ("ttft_s", "first"), ("e2e_s", "last")):
        text = text.replace(name, own, 1)
    path.write_text(text)
    options: dict[str, Any] = {
        "columns": columns,
        "units": {"t0": "s", "first": unit, "last": unit},
    }
    with pytest.raises(TraceError, match=r"first = 803 s \(median TTFT\): .*--no-check-units"):
        read_recordings(path, **options)
    (run,) = read_recordings(path, check_units=False, **options)
    assert run.ttft_s == pytest.approx(803)


def test_overload_of_tools_that_state_units_is_read(tmp_path: Path) -> None:
    """Of inference-perf, whose times are on one clock in seconds."""
    requests = [
        {"start_time": 20.0 * at, "end_time": 20.0 * at + 810, "error": None,
         "info": {"input_tokens": 9, "output_tokens": 3,
                  "output_token_times": [20 * at + 803.0, 20 * at + 806.0, 20 * at + 809.0]}}
        for at in range(6)
    ]  # fmt: skip
    path = tmp_path / "per_request_lifecycle_metrics.json"
    path.write_text(json.dumps(requests))
    with (
        pytest.warns(UserWarning, match="median TTFT 803 s, which is unusual"),
        pytest.warns(UserWarning, match="median time between tokens 3.5 s, which is unusual"),
        pytest.warns(UserWarning, match="without the report's summary"),
        pytest.warns(UserWarning, match="without the files of its stages"),
    ):
        (run,) = read_recordings(path)
    assert run.ttft_s == pytest.approx(803)


def test_times_since_1970(tmp_path: Path) -> None:
    absolute = SENDS + 1_764_000_000
    assert run_of(table(tmp_path / "all.csv", send_s=absolute)).send_s[-1] == 199
    path = table(tmp_path / "some.csv", send_s=np.where(SENDS < 5, SENDS, absolute))
    with pytest.raises(TraceError, match="or some times count from 1970 and others from the start"):
        read_recordings(path)


def test_small_runs_may_be_idle(tmp_path: Path) -> None:
    content = {name: column[:19] for name, column in RULES["mostly idle"][1].items()}
    short = {"input_tokens": [9] * 19, "output_tokens": [101] * 19, "ttft_s": [0.06] * 19}
    assert run_of(table(tmp_path / "few.csv", **short, **content)).num_requests == 19
    with pytest.warns(UserWarning, match="all 200 requests are sent at the same instant"):
        assert run_of(table(tmp_path / "burst.csv", send_s=ONES * 5)).in_flight() == 200


def test_more_in_flight_than_the_client_allows(tmp_path: Path) -> None:
    path = table(tmp_path / "run.csv", send_s=SENDS / 10)  # 13 in flight
    assert run_of(path).in_flight() == 13
    assert run_of(path, client_max_in_flight=11).num_requests == 200  # 11 · 1.1 + 1
    with pytest.raises(
        TraceError,
        match=r"run\.csv, send_s: 13 requests are in flight at once, but the client limits them to "
        r"10; the unit of the times of sending \(seconds\) or of the latencies \(seconds\) is",
    ):
        run_of(path, client_max_in_flight=10)


@pytest.mark.parametrize(
    ("factor", "accepted"), [(0.51, True), (0.49, False), (1.99, True), (2.01, False)]
)
def test_gaps_are_compared_with_the_decode_time(
    factor: float, accepted: bool, tmp_path: Path
) -> None:
    lines = (FILES / "profile_export.jsonl").read_text().splitlines()
    record = json.loads(lines[1])
    gaps = record["metrics"]["inter_chunk_latency"]
    gaps["value"] = [gap * factor for gap in gaps["value"]]
    path = tmp_path / "profile_export.jsonl"
    path.write_text(json.dumps(record))
    if accepted:
        assert run_of(path).num_requests == 1
    else:
        with pytest.raises(
            TraceError, match=r"inter_chunk_latency = .* of E2E - TTFT .*must be >= 0"
        ):
            run_of(path)


@pytest.mark.parametrize(("unit", "real"), list(itertools.permutations(("s", "ms", "us"), 2)))
def test_latencies_in_another_unit_are_refused(unit: str, real: str, tmp_path: Path) -> None:
    """A plausible run, all of whose latencies have another unit than their name says."""
    scale = units.PER_SECOND[real] / units.PER_SECOND[unit]
    path = table(tmp_path / "run.csv")
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    names = [
        name.replace("ttft_s", f"ttft_{unit}").replace("e2e_s", f"e2e_{unit}") for name in header
    ]
    as_written = [
        [*row[:3], *(str(float(cell) * units.PER_SECOND[real]) for cell in row[3:])] for row in rows
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *as_written])
    words = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
    with pytest.raises(TraceError, match=f"looks like {words[real]}, read as {words[unit]}"):
        run_of(path)
    assert run_of(path, check_units=False).e2e_s[0] == pytest.approx(1.26 * scale)
