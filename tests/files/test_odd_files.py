"""Files as people have them: damaged, marked, merged, in other spellings; what is read and said."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import DATA

import spillway
from spillway import TraceError
from spillway.calibration.server_measurements import read as measurements_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spillway.data.recording import Recording

Row = dict[str, Any]

BEGIN_MS = 1_772_100_000_000
COUNT = 60


def requests() -> list[Row]:
    """Requests of a load generator, half a second apart on average."""
    rng = random.Random(3)
    rows, at_ms = [], float(BEGIN_MS)
    for number in range(COUNT):
        at_ms += rng.uniform(1, 1_000)
        prompt, output = rng.randrange(200, 900), rng.randrange(30, 90)
        ttft_ms = prompt * 0.1 + rng.uniform(20, 40)
        rows.append(
            {
                "request_id": f"r{number}",
                "send_ms": round(at_ms, 3),
                "input_tokens": prompt,
                "output_tokens": output,
                "ttft_ms": round(ttft_ms, 3),
                "e2e_ms": round(ttft_ms + output * rng.uniform(11, 14), 3),
            }
        )
    return rows


def written(path: Path, rows: list[Row]) -> Path:
    """A file of rows: objects per line, a document, or CSV, by its name."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(stream.getvalue())
    return path


def run_in(path: Path, **options: Any) -> tuple[Recording, str]:
    """The run in a file, and what is said of it."""
    found = spillway.read(path, **options)
    return found.recording, "\n".join(found.notes)


# --- marks of warm-up -----------------------------------------------------------------------------

MAP = {
    "send_s": "send_ms",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "ttft_s": "ttft_ms",
    "e2e_s": "e2e_ms",
}
MARKS: dict[str, tuple[str, Any, Any]] = {
    "phase": ("phase", "warmup", "measure"),
    "spelled": ("Benchmark Phase", "Warm-Up", "profiling"),
    "boolean": ("is_warmup", "true", "false"),
    "number": ("warm_up", 1, 0),
    "empty": ("warmup", "yes", ""),
    "stage": ("stage", "warming up", "steady"),
}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("name", MARKS)
def test_requests_marked_as_warm_up_are_left_out(name: str, suffix: str, tmp_path: Path) -> None:
    column, warm, others = MARKS[name]
    rows = [{**row, column: warm if at < 10 else others} for at, row in enumerate(requests())]
    path = written(tmp_path / f"run{suffix}", rows)
    run, said = run_in(path, columns=None if suffix == ".csv" else MAP)
    assert (run.num_requests, run.counts.warm_up) == (COUNT - 10, 10)
    assert run.input_tokens.tolist() == [row["input_tokens"] for row in rows[10:]]
    assert f"10 requests that {column} marks as warm-up are left out" in said
    assert "unused columns" not in said or column not in said


@pytest.mark.parametrize(("column", "value"), [("phase", "steady"), ("warmup", 2.5), ("stage", 1)])
def test_other_phases_are_no_warm_up(column: str, value: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "run.csv", [{**row, column: value} for row in requests()])
    run, said = run_in(path)
    assert (run.num_requests, run.counts.warm_up) == (COUNT, 0)
    assert f"unused columns: {column}" in said


def test_a_file_of_warm_up_alone_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "run.csv", [{**row, "warmup": True} for row in requests()])
    with pytest.raises(TraceError, match="holds no requests that are not warm-up"):
        spillway.read(path)


# --- several files --------------------------------------------------------------------------------


@pytest.mark.parametrize("in_a_folder", [True, False])
def test_what_is_said_of_many_files_is_said_once(in_a_folder: bool, tmp_path: Path) -> None:
    result = json.loads((DATA / "recordings/vllm_bench.json").read_text())
    for at in range(12):
        (tmp_path / f"run{at:02}.json").write_text(json.dumps(result))
    paths = [tmp_path] if in_a_folder else sorted(tmp_path.iterdir())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = measurements_of(paths, {"model": "Qwen3-14B-Instruct"})
    assert len(found.runs) == 12
    (said,) = (str(warning.message) for warning in caught if "replaces" in str(warning.message))
    assert said == (
        f"{tmp_path / 'run00.json'}, server: states model = 'Qwen/Qwen3-14B'; what the caller "
        "gives replaces that: model = 'Qwen3-14B-Instruct' (the same in 12 files)"
    )


def test_a_summary_beside_its_requests_is_no_further_measurement(tmp_path: Path) -> None:
    own = DATA / "specimens/aiperf-0.13.0/request_rate"
    for name in ("profile_export.jsonl", "profile_export_aiperf.json"):
        shutil.copy(own / name, tmp_path)
    assert spillway.read(tmp_path).offers == ("trace", "recording")
    (tmp_path / "profile_export.jsonl").unlink()
    assert spillway.read(tmp_path).offers == ("points",)


def test_points_that_several_files_hold_count_once(tmp_path: Path) -> None:
    shutil.copytree(DATA / "specimens/vllm-0.33.0/sweep/results/sweep", tmp_path / "sweep")
    found = spillway.read(tmp_path)
    assert found.points.concurrency.tolist() == [1, 3]
    (said,) = (text for text in found.notes if "the same points" in text)
    assert "left out, as other files hold the same points" in said
    assert said.count("run=0.json") == said.count("/summary.json") == 2
    table = tmp_path / "sweep/summary.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:2]))  # the first point
    assert {tuple(of.concurrency.tolist()) for of in spillway.read(tmp_path).points_of_servers} == {
        (1,),
        (3,),
    }


# --- figures and states that contradict each other ------------------------------------------------


@pytest.mark.parametrize("counted", [{"completed": 3, "failed": 0}, {"completed": 1, "failed": 2}])
def test_other_counts_with_the_same_sum_are_said(counted: Row, tmp_path: Path) -> None:
    result = json.loads((DATA / "recordings/vllm_bench.json").read_text())
    path = tmp_path / "run.json"
    path.write_text(json.dumps(result | counted))
    run, said = run_in(path)
    assert [figure.name for figure in run.reported if figure.cause][:2] == ["completed", "failed"]
    assert "completed by the tool's figures failed by their rows" in said


@pytest.mark.parametrize("nothing", ["\\N", "<NA>", "NaT", "nil"])
def test_an_error_that_is_null_is_none(nothing: str, tmp_path: Path) -> None:
    rows = [{**row, "error": nothing} for row in requests()]
    run, _ = run_in(written(tmp_path / "run.csv", rows))
    assert not run.failed.any()


def test_requests_without_output_are_counted(tmp_path: Path) -> None:
    text = "arrival_s,input_tokens,output_tokens\n0,10,5\n1,10,0\n2,10,0\n"
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert "requests: 3, 2 without output, which fail" in spillway.read(path).text()


@pytest.mark.parametrize("suffix", [".csv", ".gz"])
def test_names_of_requests_that_repeat_are_said(suffix: str, tmp_path: Path) -> None:
    rows = [{**row, "request_id": f"r{at // 2}"} for at, row in enumerate(requests())]
    path = written(tmp_path / "run.csv", rows)
    if suffix == ".gz":
        path = tmp_path / "run.csv.gz"
        path.write_bytes(gzip.compress((tmp_path / "run.csv").read_bytes()))
    _, said = run_in(path)
    assert "request_id of 30 requests is that of another" in said
    assert "is that of another" not in run_in(written(tmp_path / "run.csv", requests()))[1]


# --- times ----------------------------------------------------------------------------------------


def test_times_that_lost_their_digits_are_said(tmp_path: Path) -> None:
    rows = [{**row, "send_ms": f"{row['send_ms']:.3E}"} for row in requests()]
    run, said = run_in(written(tmp_path / "run.csv", rows))
    assert run.send_s.max() == 0
    assert "all 60 requests are sent at the same instant" in said


@pytest.mark.parametrize("before", [10, 30, 59])
def test_a_long_pause_is_said(before: int, tmp_path: Path) -> None:
    rows = requests()
    for row in rows[before:]:
        row["send_ms"] += 3_600_000
    _, said = run_in(written(tmp_path / "run.csv", rows))
    assert f"after the first {before} of 60: the file probably holds several runs" in said
    for row in rows[before:]:
        row["send_ms"] -= 3_560_000
    assert "no request is sent" not in run_in(written(tmp_path / "run.csv", rows))[1]


# --- logs of gateways -----------------------------------------------------------------------------


def responses() -> list[Row]:
    """The same requests as responses of OpenAI."""
    return [
        {
            "id": f"chatcmpl-{row['request_id']}",
            "created": int(row["send_ms"] / 1_000),
            "model": "small",
            "usage": {
                "prompt_tokens": row["input_tokens"],
                "completion_tokens": row["output_tokens"],
                "total_tokens": row["input_tokens"] + row["output_tokens"],
            },
        }
        for row in requests()
    ]


def said_of(path: Path, **options: Any) -> str:
    return "\n".join(spillway.read(path, **options).notes)


def _swapped(row: Row) -> None:
    row["usage"]["total_tokens"] += 9


def _cached(row: Row) -> None:
    row["usage"]["prompt_tokens_details"] = {"cached_tokens": row["usage"]["prompt_tokens"] + 1}


def _named_alike(row: Row) -> None:
    row["id"] = row["id"][:11]


def _of_another_model(row: Row) -> None:
    row["model"] = f"model {row['created'] % 2}"


RESPONSES = {
    "in 60 responses total_tokens is not the sum of prompt_tokens and completion": _swapped,
    "in 60 responses more tokens were cached than the prompt has": _cached,
    "id of 50 of 60 requests is that of another": _named_alike,
    "requests of several models (model 0, model 1)": _of_another_model,
}


@pytest.mark.parametrize("message", RESPONSES)
def test_what_responses_contradict_is_said(message: str, tmp_path: Path) -> None:
    rows = responses()
    assert said_of(written(tmp_path / "log.jsonl", rows)) == ""
    for row in rows:
        RESPONSES[message](row)
    assert message in said_of(written(tmp_path / "log.jsonl", rows))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json"])
def test_models_of_ones_own_log_are_said(suffix: str, tmp_path: Path) -> None:
    rows = [{**row, "model": f"m{at % 3}"} for at, row in enumerate(requests())]
    columns = {"arrival_s": "send_ms", "input_tokens": "input_tokens"}
    columns["output_tokens"] = "output_tokens"
    path = written(tmp_path / f"log{suffix}", rows)
    assert "several models (m0, m1, m2)" in said_of(path, columns=columns)
    assert "models" not in said_of(path, columns=columns | {"tenant": "model"})


PAGES: dict[str, Row] = {
    "a page that lists 60 of 500 items": {"meta": {"page": 1, "totalItems": 500}},
    "a page that lists 60 of 61 items": {"total_count": 61},
    "a page of 60 items, after which there are more": {"object": "list", "has_more": True},
    "": {"meta": {"totalItems": 60}, "has_more": False},
}


@pytest.mark.parametrize("message", PAGES)
def test_a_page_of_several_is_said(message: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"data": responses(), **PAGES[message]}))
    said = said_of(path)
    assert message in said
    assert ("page" in said) == bool(message)


@pytest.mark.parametrize(("scale", "message"), [(1, ""), (1_000, "a load only in microseconds")])
def test_timestamps_of_mooncake_in_microseconds_are_said(
    scale: int, message: str, tmp_path: Path
) -> None:
    rows = [
        {
            "timestamp": int((row["send_ms"] - BEGIN_MS) * scale),
            "input_length": row["input_tokens"],
            "output_length": row["output_tokens"],
        }
        for row in requests()
    ]
    path = written(tmp_path / "log.jsonl", rows)
    said = said_of(path)
    assert message in said
    assert bool(said) == bool(message)
    assert said_of(path, unit="us" if message else "ms") == ""


# --- further figures of tools ---------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1, 100])
def test_a_throughput_that_is_not_that_of_the_run_is_said(factor: int, tmp_path: Path) -> None:
    point = DATA / "specimens/vllm-0.33.0/not_detailed"
    (path,) = (path for path in point.glob("*.json") if path.stem not in ("expected", "specimen"))
    result = json.loads(path.read_text())
    result["request_throughput"] *= factor
    copy = tmp_path / "run.json"
    copy.write_text(json.dumps(result))
    assert ("completed in" in said_of(copy)) == (factor != 1)


@pytest.mark.parametrize("is_wrong", [True, False])
def test_durations_of_lmbench_that_do_not_add_up_are_said(is_wrong: bool, tmp_path: Path) -> None:
    rows = [
        {
            "prompt_tokens": row["input_tokens"],
            "generation_tokens": row["output_tokens"],
            "ttft": row["ttft_ms"] / 1e3,
            "generation_time": (row["e2e_ms"] - (0 if is_wrong else row["ttft_ms"])) / 1e3,
            "launch_time": row["send_ms"] / 1e3,
            "finish_time": (row["send_ms"] + row["e2e_ms"]) / 1e3,
        }
        for row in requests()
    ]
    assert ("do not add up" in said_of(written(tmp_path / "run.csv", rows))) == is_wrong


# --- names of columns -----------------------------------------------------------------------------

SPELLED = {
    "brackets": ("TTFT (ms)", "Total [ms]", 1.0),
    "words": ("ttftMillis", "total_microseconds", 1e3),
    "paths": ("latency.first_ms", "latency.all_us", 1e3),
}


@pytest.mark.parametrize("name", SPELLED)
def test_units_in_names_are_read(name: str, tmp_path: Path) -> None:
    ttft, e2e, scale = SPELLED[name]
    rows = [
        {"Start": row["send_ms"], "in": row["input_tokens"], "out": row["output_tokens"]}
        | {ttft: row["ttft_ms"], e2e: row["e2e_ms"] * scale, "HTTP": 503 if at % 10 == 3 else 200}
        for at, row in enumerate(requests())
    ]
    columns = {"send_s": "Start", "input_tokens": "in", "output_tokens": "out"}
    path = written(tmp_path / "log.csv", rows)
    columns |= {"ttft_s": ttft, "e2e_s": e2e}
    run, _ = run_in(path, columns=columns, units={"Start": "ms"})
    own = [row["e2e_ms"] / 1e3 for at, row in enumerate(requests()) if at % 10 != 3]
    assert run.e2e_s[~run.failed].tolist() == pytest.approx(own)
    assert int(run.failed.sum()) == 6
    with pytest.raises(TraceError, match="'Start': the name states no unit; state it"):
        spillway.read(path, columns=columns)


@pytest.mark.parametrize("is_alike", [True, False])
def test_a_server_of_equal_latencies_is_no_sign_of_double_rows(
    is_alike: bool, tmp_path: Path
) -> None:
    rows = requests()[:10]
    for at, row in enumerate(rows):
        pair = rows[at - at % 2]
        row |= {key: pair[key] for key in ("send_ms", "input_tokens", "output_tokens")}
        latencies = rows[0] if is_alike else pair
        row |= {key: latencies[key] for key in ("ttft_ms", "e2e_ms")}
    _, said = run_in(written(tmp_path / "run.csv", rows))
    assert ("probably lists requests twice" in said) == (not is_alike)


def test_runs_that_are_listed_twice_are_said(tmp_path: Path) -> None:
    written(tmp_path / "first.csv", requests())
    assert "count twice" not in said_of(tmp_path)
    shutil.copy(tmp_path / "first.csv", tmp_path / "second.csv")
    assert "run second has the requests of run first, so they count twice" in said_of(tmp_path)
    report = json.loads((DATA / "specimens/guidellm-0.8.1/concurrent/benchmarks.json").read_text())
    report["benchmarks"] *= 2
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(report))
    assert "benchmarks[1] has the requests of run benchmarks[0]" in said_of(path)


LATENCIES: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "empty": ("12 of 60 completed requests have no TTFT", lambda _: ""),
    "zero": ("TTFT of 12 of 60 requests is less than 1 ms", lambda _: 0),
    "seconds": ("TTFT of 12 of 60 requests is less than 1 ms", lambda row: row["ttft_ms"] / 1e3),
}


@pytest.mark.parametrize("name", LATENCIES)
def test_latencies_that_some_requests_lack_are_said(name: str, tmp_path: Path) -> None:
    message, changed = LATENCIES[name]
    rows = requests()
    assert said_of(written(tmp_path / "run.csv", rows)) == ""
    rows = [{**row, "ttft_ms": changed(row)} if at % 5 == 3 else row for at, row in enumerate(rows)]
    assert message in said_of(written(tmp_path / "run.csv", rows))


@pytest.mark.parametrize("names", [("prompt_chars", "out"), ("in", "outputBytes"), ("Words", "o")])
def test_lengths_that_are_no_tokens_are_said(names: tuple[str, str], tmp_path: Path) -> None:
    rows = [
        {"t_ms": row["send_ms"], names[0]: row["input_tokens"], names[1]: 5} for row in requests()
    ]
    columns = {"arrival_s": "t_ms", "input_tokens": names[0], "output_tokens": names[1]}
    said = said_of(written(tmp_path / "log.csv", rows), columns=columns)
    assert "are read as tokens" in said


@pytest.mark.parametrize(("step_s", "is_said"), [(10, True), (0.1, False)])
def test_coarse_times_are_said(step_s: float, is_said: bool, tmp_path: Path) -> None:
    rows = [
        {**row, "at": f"{(row['send_ms'] - BEGIN_MS) / 1e3 // step_s * step_s:.1f}"}
        for row in requests()
    ]
    columns = {"arrival_s": "at", "input_tokens": "input_tokens", "output_tokens": "output_tokens"}
    said = said_of(written(tmp_path / "log.csv", rows), columns=columns)
    assert ("instants, as with rounded times" in said) == is_said
