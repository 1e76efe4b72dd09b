"""Access logs of proxies in text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spillway
from spillway import TraceError
from spillway.files.traces import access_log

if TYPE_CHECKING:
    from pathlib import Path

ENVOY = (
    '[2026-03-02T10:00:0{at}.{at}00Z] "POST /v1/chat/completions HTTP/1.1" {code} - 1500 900 '
    '{ms} {ms} "-" "python-requests/2.31" "6f0{at}" "llm.example" "10.0.0.1" {prompt} {answer}\n'
)
NGINX = (
    '10.0.0.{at} - team-a [02/Mar/2026:10:00:0{at} +0000] "POST /v1/chat HTTP/1.1" {code} 900 '
    '"-" "curl/8.0" {prompt} {answer}\n'
)
LOGS = {
    "Envoy": (
        ENVOY,
        {"arrival_s": "1", "input_tokens": "14", "output_tokens": "15", "failed": "3"},
    ),
    "NGINX": (
        NGINX,
        {
            "arrival_s": "4",
            "input_tokens": "10",
            "output_tokens": "11",
            "failed": "6",
            "tenant": "3",
        },
    ),
}


def log(path: Path, line: str) -> Path:
    calls = [(200, 812, 64), (200, 95, 310), (503, "-", "-"), (200, 640, 72)]
    path.write_text(
        "".join(
            line.format(at=at, code=code, ms=250 + at, prompt=prompt, answer=answer)
            for at, (code, prompt, answer) in enumerate(calls)
        )
    )
    return path


@pytest.mark.parametrize("name", LOGS)
def test_fields_have_numbers(name: str, tmp_path: Path) -> None:
    line, columns = LOGS[name]
    path = log(tmp_path / "access.log", line)
    with (
        pytest.warns(UserWarning, match=r"1 calls failed by \d"),
        pytest.warns(UserWarning, match="1 failed calls have no recorded prompt"),
    ):
        trace = spillway.read_trace(path, columns=columns)
    found = trace._columns()
    assert found["input_tokens"].tolist() == [812, 95, 1, 640]
    assert found["output_tokens"].tolist() == [64, 310, 0, 72]
    step = 1.1 if name == "Envoy" else 1.0
    assert found["arrival_ns"].tolist() == [round(at * step * 1e9) for at in range(4)]
    assert found["tenants"] == (["team-a"] if name == "NGINX" else ["default"])


def test_a_recording_of_an_access_log(tmp_path: Path) -> None:
    path = log(tmp_path / "access.log", ENVOY)
    columns = {
        "send_s": "1",
        "e2e_s": "7",
        "input_tokens": "14",
        "output_tokens": "15",
        "failed": "3",
    }
    with pytest.warns(UserWarning, match="unused columns"):
        (run,) = spillway.read_recordings(path, columns=columns, units={"7": "ms"})
    assert run.failed.tolist() == [False, False, True, False]
    assert run.e2e_s[0] == 0.25


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_nobody_explains_says_its_fields(name: str, tmp_path: Path) -> None:
    path = log(tmp_path / "access.log", LOGS[name][0])
    arrival = LOGS[name][1]["arrival_s"]
    of = f"It is an access log, whose fields have numbers: --columns arrival_s={arrival},input_tok"
    with pytest.raises(TraceError, match=of):
        spillway.read(path)
    cut = path.read_text().rsplit(" ", 1)[0]
    path.write_text(cut + "\n")
    with pytest.raises(TraceError, match=r"access\.log line 4: holds \d+ fields; the header row"):
        spillway.read_trace(path, columns=LOGS[name][1])


def test_a_log_whose_times_are_unknown_says_which_are_read(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text('10.0.0.1 [02-03-2026 10:00:00] "POST /v1/chat HTTP/1.1" 200 812 64\n')
    with pytest.raises(TraceError, match=r"arrival_s=….*no field is a time, which must be an inst"):
        spillway.read(path)


@pytest.mark.parametrize(
    "line",
    [
        '[{"a": 1}]',
        "[1, 2]",
        '["2026-03-02T10:00:00Z"]',
        'time,"[2026-03-02T10:00:00Z]","x"',
        "arrival_s,input_tokens",
        "INFO [2026-03-02 10:00:00] done",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert not access_log.is_line(line)
