"""Which requests failed, by the columns of one's own files."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from support.recordings import values

import spillway
from spillway.cli import main
from spillway.files.recordings import TraceError, read_recordings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from spillway.data.recording import Recording

MAPPED = {
    "send_s": "ts_s",
    "input_tokens": "prompt",
    "output_tokens": "completion",
    "ttft_s": "first_ms",
    "e2e_s": "total_ms",
}
"""The columns of a file of one's own, without the one that says which requests failed."""


def table(path: Path, columns: Mapping[str, Sequence[str]], *, mapped: bool = False) -> Path:
    """A file of requests whose further columns hold these texts; `x` marks calls without tokens."""
    names = list(columns)
    known = ["send_s", "input_tokens", "output_tokens", "ttft_ms", "e2e_ms"]
    lines = [",".join([*(MAPPED.values() if mapped else known), *names])]
    for row, texts in enumerate(zip(*columns.values(), strict=True)):
        is_empty = texts[0].endswith("x")
        cells = "0,0,0" if is_empty else "50,80,1080"
        lines.append(f"{row}.0,100,{cells},{','.join(text.removesuffix('x') for text in texts)}")
    path.write_text("\n".join([*lines, ""]))
    return path


def run_of(path: Path, **options: Any) -> tuple[Recording, list[str]]:
    """The run of a file, and its notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (run,) = read_recordings(path, **options)
    return run, [str(warning.message) for warning in caught]


SAID = {  # column → what it holds, of which the second failed
    "success": ("True", "False", "True"),
    "Success": ("true", "falsex", "true"),
    "ok": ("1", "0x", "1"),
    "is_success": ("yes", "no", "yes"),
    "completed": ("t", "f", "t"),
    "failed": ("False", "True", "False"),
    "is_error": ("0", "1", ""),
    "timed_out": ("no", "yes", "no"),
    "error": ("", "connection reset", "none"),
    "error_message": ("", "503 Service Unavailable", ""),
    "error_code": ("0", "504", ""),
    "exception": ("null", "TimeoutError()", "null"),
    "status": ("ok", "error", "completed"),
    "status ": ("200", "429", "200"),
    "outcome": ("success", "shed", "success"),
    "state": ("finished", "aborted", "finished"),
    "http_code": ("200", "503x", "201"),
    "status_code": ("200", "0", "200"),
    "http_status": ("200 OK", "-1", "204.0"),
    "httpStatus": ("200", "", "200"),
    "finish_reason": ("stop", "error", "length"),
}


@pytest.mark.parametrize("column", SAID)
def test_a_column_says_which_requests_failed(column: str, tmp_path: Path) -> None:
    run, notes = run_of(table(tmp_path / "runs.csv", {column: SAID[column]}))
    assert values(run.failed) == [False, True, False]
    assert values(run.ttft_s) == [0.08, None, 0.08]
    assert not notes


def test_calls_without_tokens_that_failed_are_no_completions(tmp_path: Path) -> None:
    success = ["Falsex" if row % 3 == 0 else "True" for row in range(24)]
    run, notes = run_of(table(tmp_path / "runs.csv", {"success": success}))
    assert (run.failed.sum(), not notes) == (8, True)
    assert float(run.ttft_s[~run.failed].mean()) == pytest.approx(0.08)
    assert run.to_trace().rows == 16
    run, notes = run_of(table(tmp_path / "runs.csv", {"remark": success}))
    assert run.failed.sum() == 8
    assert "unused columns: remark" in notes[0]
    assert "line 2: a call without output tokens and latency is taken as failed (8 of" in notes[1]


@pytest.mark.parametrize(
    ("meaning", "column", "texts"),
    [
        ("completed", "success", ("True", "False", "True")),
        ("completed", "good", ("yes", "no", "yes")),
        ("completed", "code", ("200", "500", "200")),
        ("completed", "status", ("done", "timeout", "done")),
        ("failed", "code", ("200", "500", "200")),
        ("failed", "http_status", ("200", "", "200")),
        ("failed", "why", ("", "timeout", "ok")),
        ("failed", "bad", ("0", "1", "0")),
        ("failed", "status", ("ok", "cancelled", "success")),
        ("failed", "finish_reason", ("stop", "abort", "stop")),
    ],
)
def test_a_mapped_column_is_read_by_what_it_holds(
    meaning: str, column: str, texts: Sequence[str], tmp_path: Path
) -> None:
    path = table(tmp_path / "runs.csv", {column: texts}, mapped=True)
    run, notes = run_of(path, columns={**MAPPED, meaning: column})
    assert values(run.failed) == [False, True, False]
    assert not notes


@pytest.mark.parametrize(
    ("meaning", "column", "right"),
    [
        ("failed", "success", "completed"),
        ("failed", "is_ok", "completed"),
        ("completed", "error", "failed"),
        ("completed", "timed_out", "failed"),
    ],
)
def test_a_column_of_the_opposite_name_is_refused(
    meaning: str, column: str, right: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "runs.csv", {column: ("True", "False", "True")}, mapped=True)
    message = rf"columns, {meaning} = '{column}': the name says the opposite; write --columns "
    with pytest.raises(TraceError, match=rf"{message}{right}={column}"):
        run_of(path, columns={**MAPPED, meaning: column})
    run, _ = run_of(path, columns={**MAPPED, right: column})
    assert values(run.failed) == [right == "failed", right != "failed", right == "failed"]


@pytest.mark.parametrize(
    ("column", "texts", "shown"),
    [
        ("status", ("1", "0", "1"), "'1', '0'"),
        ("outcome", ("A", "B", "A"), "'A', 'B'"),
        ("success", ("True", "maybe", "True"), "'maybe'"),
        ("ok", ("", "1", "1"), "''"),
        ("http_code", ("200", "unknown", "200"), "'unknown'"),
        ("status", ("ok", "ok", "17"), "'17'"),
    ],
)
def test_an_ambiguous_column_is_refused_by_name(
    column: str, texts: Sequence[str], shown: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "runs.csv", {column: texts})
    message = rf"runs\.csv, {column} = {shown}: not known whether such a request completed"
    with pytest.raises(TraceError, match=rf"{message}.*--columns completed={column} or failed="):
        run_of(path)


def test_columns_that_do_not_say_it_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    table(path, {"result": ("hello", "good bye", ""), "code": ("a", "b", "c")})
    run, notes = run_of(path)
    assert not run.failed.any()
    assert notes == [f"{path}: unused columns: result, code"]
    names = {f"column{number}": ("1",) for number in range(10)}
    _, notes = run_of(table(path, names))
    assert notes[0].endswith("column6, column7, … and 2 more")


def test_what_is_guessed_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    run, notes = run_of(table(path, {"status": ("ok", "kaput", "ok")}))
    assert values(run.failed) == [False, True, False]
    assert notes == [f"{path}, status = 'kaput': taken as failed"]
    columns = {"success": ("True", "True", "False"), "http_code": ("200", "500", "502")}
    run, notes = run_of(table(path, columns))
    assert values(run.failed) == [False, True, True]
    said = "success, http_code disagree on 1 requests, first line 3; they are taken as failed"
    assert notes == [f"{path}: {said}"]


def test_completions_without_tokens_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("send_s,input_tokens,output_tokens,e2e_ms\n0,10,0,30000\n1,10,5,900\n")
    run, notes = run_of(path)
    assert not run.failed.any()
    assert "line 2: completed without output tokens, as 1 of 2 requests are; if they" in notes[0]


def test_the_command_line_names_the_meaning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "runs.csv", {"success": ("True", "False", "True")}, mapped=True)
    columns = ",".join(f"{meaning}={column}" for meaning, column in MAPPED.items())
    assert main(["read", str(path), "--columns", f"{columns},failed=success"]) == 2
    assert "write --columns completed=success" in capsys.readouterr().err
    assert main(["read", str(path), "--columns", f"{columns},completed=success"]) == 0
    assert "requests: 3, 1 failed" in capsys.readouterr().out


# --- malformed rows -------------------------------------------------------------------------------

HEADER = "send_s,input_tokens,output_tokens,ttft_ms,e2e_ms,status\n"
GOOD = [f"{row}.0,100,50,80,1080,ok\n" for row in range(4)]


@pytest.mark.parametrize(
    "bad",
    [
        "9.0,100,50,x,1080,ok\n",
        "9.0,100\n",
        "nine,100,50,80,1080,ok\n",
        "9.0,100,5.5,80,1080,ok\n",
        "9.0,100,,80,1080,ok\n",
        "9.0,0,50,80,1080,ok\n",
        "9.0,100,50,-80,1080,ok\n",
    ],
)
@pytest.mark.parametrize("gzipped", [False, True])
def test_malformed_rows_are_left_out(bad: str, gzipped: bool, tmp_path: Path) -> None:
    import gzip

    content = "".join([HEADER, *GOOD[:2], bad, *GOOD[2:], bad]).encode()
    path = tmp_path / ("runs.csv.gz" if gzipped else "runs.csv")
    path.write_bytes(gzip.compress(content) if gzipped else content)
    with pytest.raises(TraceError, match=r"runs\.csv(\.gz)? line 4"):
        read_recordings(path)
    run, notes = run_of(path, skip_bad=True)
    assert notes[-1].endswith(": 2 malformed requests left out")
    assert (run.name, run.num_requests, run.counts.skipped) == ("runs", 4, 2)
    assert "2 malformed" in spillway.read(path, skip_bad=True).text()


def test_a_file_of_malformed_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(HEADER + "x,x,x,x,x,x\n")
    with pytest.raises(TraceError, match="holds no requests"):
        read_recordings(path, skip_bad=True)
