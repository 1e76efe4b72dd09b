"""`spillway read LOG --write TRACE`: a log with columns of its own becomes a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spillway
from spillway.cli import main

if TYPE_CHECKING:
    from pathlib import Path

LOG = """when,user,prompt,out
2026-11-01T10:00:00.000Z,a,100,20
2026-11-01T10:00:01.500Z,b,200,30
"""
COLUMNS = "arrival_s=when,tenant=user,input_tokens=prompt,output_tokens=out"


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl"])
def test_a_log_is_written_as_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    log, trace = tmp_path / "log.csv", tmp_path / name
    log.write_text(LOG)
    assert main(["read", str(log), "--columns", COLUMNS, "--write", str(trace)]) == 0
    assert f"wrote {trace}: 2 requests" in capsys.readouterr().err
    read = spillway.read_trace(trace)
    names = dict(pair.split("=") for pair in COLUMNS.split(","))
    wanted = spillway.read_trace(log, columns=names)
    for column in ("arrival_ns", "input_tokens", "output_tokens"):
        assert list(read._columns()[column]) == list(wanted._columns()[column])


def test_only_one_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG)
    assert main(["read", str(log), str(log), "--write", str(tmp_path / "out.csv")]) == 2
    assert "--write" in (error := capsys.readouterr().err)
    assert "needs one FILE, not 2" in error
    assert main(["read", str(log), "--columns", COLUMNS, "--write", str(tmp_path / "out.txt")]) == 2
    assert "must end in .csv or .jsonl" in capsys.readouterr().err


def test_times_of_day_in_a_column_of_seconds_are_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    head = "arrival_s,tenant,input_tokens,output_tokens"
    log.write_text(LOG.replace("when,user,prompt,out", head))
    assert main(["read", str(log)]) == 2
    error = capsys.readouterr().err
    names = error.rpartition("--columns ")[2].strip()
    assert "must be seconds; for times of day" in error
    assert main(["read", str(log), "--columns", names]) == 0
