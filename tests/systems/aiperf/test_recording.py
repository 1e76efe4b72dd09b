"""Recordings of AIPerf."""

from __future__ import annotations

import json
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.recordings import FILES, run_of, values

import spillway
from spillway.data.recording import RequestCounts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*malformed requests? left out"),
    pytest.mark.filterwarnings("ignore:.*without its summary .* beside"),
]


def test_aiperf() -> None:
    run = run_of("profile_export.jsonl")  # without the warm-up
    assert values(run.send_s) == [0, 1e-7]  # nanoseconds since 1970 exceed a float
    assert values(run.input_tokens) == [550, 540]
    assert values(run.output_tokens) == [9, 0]
    assert values(run.ttft_s) == [0.2555, None]
    assert values(run.e2e_s) == [0.2975, None]
    assert values(run.failure_s) == [None, pytest.approx(0.0025)]
    assert run.token_gaps is not None
    assert run.token_gaps.of(0).sum() == pytest.approx(0.042)


def test_output_of_aiperf() -> None:
    run = run_of("aiperf_0_13.jsonl")
    assert values(run.input_tokens)[0] == 13  # as the server counts; AIPerf counts 10
    assert values(run.output_tokens[~run.failed]) == [9] * 5
    assert values(run.failed).count(True) == 1
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0122, abs=0.0005)
    assert run.token_gaps is not None
    decode_s = run.e2e_s - run.ttft_s
    for row in np.flatnonzero(~run.failed):
        assert run.token_gaps.of(row).sum() == pytest.approx(decode_s[row], abs=1e-6)
    assert run.in_flight() == 2


def record(
    number: int, *, start_s: float, ttft_ms: float = 100.0, output: int = 11, **metadata: Any
) -> dict[str, Any]:
    """A record of a request with 10 ms between its tokens."""
    start_ns = 1_795_646_628_000_000_000 + round(start_s * 1e9)
    latency_ms = ttft_ms + 10.0 * (output - 1)
    times = {"time_to_first_token": ttft_ms, "request_latency": latency_ms}
    tokens = {"input_sequence_length": 50, "output_sequence_length": output}
    return {
        "metadata": {
            "session_num": number,
            "x_correlation_id": f"user {number}",
            "turn_index": 0,
            "request_start_ns": start_ns,
            "request_end_ns": start_ns + round(latency_ms * 1e6),
            "benchmark_phase": "profiling",
            "was_cancelled": False,
            **metadata,
        },
        "metrics": {name: {"value": value, "unit": "ms"} for name, value in times.items()}
        | {name: {"value": value, "unit": "tokens"} for name, value in tokens.items()},
        "error": None,
    }


def written(folder: Path, records: list[dict[str, Any]], summary: Any = None) -> Path:
    path = folder / "profile_export.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    if summary is not None:
        (folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
    return path


LIMITS = {  # by version of the summary
    "phases": (
        {
            "phases": [
                {"name": "warmup", "kind": "warmup", "concurrency": 9},
                {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": 3},
            ]
        },
        3,
    ),
    "rate with a limit": ({"phases": [{"name": "profiling", "concurrency": 2, "rate": 4.0}]}, 2),
    "rate": ({"phases": [{"name": "profiling", "type": "poisson", "rate": 4.0}]}, None),
    "loadgen": ({"loadgen": {"concurrency": 5, "request_rate_mode": "concurrency_burst"}}, 5),
    "rate of loadgen": ({"loadgen": {"request_rate": 4.0}}, None),
}


@pytest.mark.parametrize(("config", "limit"), LIMITS.values(), ids=LIMITS)
def test_the_limit_of_the_client_is_in_the_summary(
    tmp_path: Path, config: dict[str, Any], limit: int | None
) -> None:
    config = config | {"endpoint": {"model_names": ["llama"]}}
    path = written(tmp_path, [record(0, start_s=0)], {"input_config": config})
    run = run_of(path)
    assert run.client_max_in_flight == limit
    assert run.to_trace().max_in_flight == (limit or 0)
    assert run.server.model == "llama"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it replaces that of the file
        assert run_of(path, client_max_in_flight=7).client_max_in_flight == 7
    without = run_of(path).sha256
    (tmp_path / "profile_export_aiperf.json").unlink()
    assert run_of(path).client_max_in_flight is None
    assert run_of(path).sha256 != without  # the summary is part of what was read


def test_limits_of_several_phases_are_said(tmp_path: Path) -> None:
    phases = [{"kind": "profiling", "concurrency": number} for number in (2, 8)]
    path = written(tmp_path, [record(0, start_s=0)], {"input_config": {"phases": phases}})
    with pytest.warns(UserWarning, match="phases have 2, 8 requests in flight; .* the largest"):
        assert run_of(path).client_max_in_flight == 8
    (tmp_path / "profile_export_aiperf.json").write_text("{")
    with pytest.warns(UserWarning, match=r"profile_export_aiperf\.json: not read"):
        run_of(path)


def test_a_truncated_or_wrong_summary_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, [record(0, start_s=0)], {"time_to_first_token": {"avg": 5}})
    with pytest.raises(
        spillway.TraceError, match=r"aiperf\.json, time_to_first_token\.unit = '': must be one of"
    ):
        run_of(path)


def summary_of(ttft_ms: float, completed: int, **others: float) -> dict[str, Any]:
    return {
        "time_to_first_token": {"avg": ttft_ms, "p50": ttft_ms, "unit": "ms"},
        "inter_token_latency": {"avg": 10.0, "unit": "ms"},
        "request_latency": {"avg": (ttft_ms + 100) / 1e3, "unit": "sec"},
        "request_count": {"avg": float(completed), "unit": "requests"},
        "input_sequence_length": {"avg": 50.0, "unit": "tokens"},
        **{name: {"avg": value, "unit": "requests"} for name, value in others.items()},
    }


def test_figures_of_the_tool_are_recomputed(tmp_path: Path) -> None:
    records = [record(number, start_s=number) for number in range(4)]
    run = run_of(written(tmp_path, records, summary_of(100, 4)))
    assert {figure.name for figure in run.reported} >= {"mean TTFT", "mean TPOT", "completed"}
    assert not run.mismatches
    path = written(tmp_path, records, summary_of(0.1, 4))
    with pytest.warns(UserWarning, match="mean TTFT: 0.0001 s reported, 0.1 s here: another unit"):
        run_of(path)
    path = written(tmp_path, records, summary_of(100, 3, error_request_count=7))
    with pytest.warns(UserWarning, match="a sample: the file lists 4 of 10 requests"):
        assert run_of(path).is_sample


def test_itl_of_another_count_of_tokens_is_not_compared(tmp_path: Path) -> None:
    """AIPerf divides by its own count of tokens, not by that of the server."""
    records = [record(number, start_s=number) for number in range(3)]
    for each in records:
        each["metrics"]["usage_completion_tokens"] = {"value": 21, "unit": "tokens"}
    run = run_of(written(tmp_path, records, summary_of(100, 3)))
    assert values(run.output_tokens) == [21] * 3
    assert "mean TPOT" not in {figure.name for figure in run.reported}
    assert not run.mismatches


def test_warm_up_is_counted_apart(tmp_path: Path) -> None:
    records = [record(0, start_s=0, ttft_ms=5000, benchmark_phase="warmup")]
    records += [record(number, start_s=9 + number) for number in (1, 2)]
    run = run_of(written(tmp_path, records, summary_of(100, 2)))
    assert run.num_requests == 2
    assert run.counts == RequestCounts(warm_up=1)
    assert not run.mismatches


def test_overload_is_read(tmp_path: Path) -> None:
    """AIPerf states the unit beside each value, so no size of it is another unit."""
    records = [record(number, start_s=20 * number, ttft_ms=803_000) for number in range(6)]
    path = written(tmp_path, records)
    with pytest.warns(UserWarning, match="median TTFT 803 s, which is unusual; the file states mi"):
        assert values(run_of(path).ttft_s) == [803.0] * 6
    for each in records:
        each["metrics"]["time_to_first_token"] = {"value": 803.0, "unit": "sec"}
    path = written(tmp_path, records)
    with pytest.warns(UserWarning, match="median TTFT 803 s"):
        assert values(run_of(path).ttft_s) == [803.0] * 6
    evidence = spillway.read(path)
    assert any("which is unusual" in text for text in evidence.notes)
    # A contradiction remains an error: the first token after the last one.
    for each in records:
        each["metrics"]["time_to_first_token"] = {"value": 803_000.0, "unit": "sec"}
    with pytest.raises(spillway.TraceError, match="time_to_first_token"):
        run_of(written(tmp_path, records))


def turns(**names: Any) -> list[dict[str, Any]]:
    """Two conversations of two turns, one after the other."""
    found = []
    for place in range(4):
        user, turn = divmod(place, 2)
        ids = {name: value.format(user) for name, value in names.items()}
        found.append(record(user, start_s=place, turn_index=turn, **ids))
        found[-1]["metrics"]["input_sequence_length"]["value"] = 50 + 61 * turn
    return found


@pytest.mark.parametrize(
    ("names", "sessions"),
    [
        ({"conversation_id": "c{}", "x_correlation_id": "u{}"}, ["c0", "c0", "c1", "c1"]),
        ({"conversation_id": "c{}"}, ["c0", "c0", "c1", "c1"]),
        ({"x_correlation_id": "u{}"}, ["u0", "u0", "u1", "u1"]),
        # A conversation of the data set that two users lead is two conversations.
        (
            {"conversation_id": "c", "x_correlation_id": "u{}"},
            ["c/u0", "c/u0", "c/u1", "c/u1"],
        ),
    ],
)
def test_turns_are_sessions(tmp_path: Path, names: dict[str, str], sessions: list[str]) -> None:
    run = run_of(written(tmp_path, turns(**names)))
    assert list(run.session or ()) == sessions
    trace = run.to_trace()
    assert trace.rows == 4


def test_single_turns_are_no_sessions(tmp_path: Path) -> None:
    records = [record(number, start_s=number) for number in range(3)]
    for each, cached in zip(records, (0, 16, 48), strict=True):
        each["metrics"]["usage_prompt_cache_read_tokens"] = {"value": cached, "unit": "tokens"}
    run = run_of(written(tmp_path, records))
    assert run.session is None
    assert run.cached_tokens is not None
    assert values(run.cached_tokens) == [0, 16, 48]


def test_malformed_lines_are_skipped_on_request(tmp_path: Path) -> None:
    path = written(tmp_path, [record(number, start_s=number) for number in range(3)])
    path.write_text(path.read_text()[:-40])  # the tool was interrupted
    with pytest.raises(spillway.TraceError, match="line 3: not valid JSON"):
        run_of(path)
    run = run_of(path, skip_bad=True)
    assert (run.num_requests, run.counts.skipped) == (2, 1)


def test_texts_with_ends_of_lines_are_read(tmp_path: Path) -> None:
    records = [record(0, start_s=0), record(1, start_s=1) | {"error": {"message": "a\u2028b\x85"}}]
    path = tmp_path / "profile_export.jsonl"
    lines = [json.dumps(each, ensure_ascii=False) for each in records]
    path.write_text("\r\n".join(lines), encoding="utf-8")
    assert values(run_of(path).failed) == [False, True]


def test_raw_records_are_no_recording(tmp_path: Path) -> None:
    path = written(tmp_path, [record(0, start_s=0)])
    raw = {"metadata": record(0, start_s=0)["metadata"], "status": 200, "responses": []}
    (tmp_path / "profile_export_raw.jsonl").write_text(json.dumps(raw))
    assert [run.name for run in spillway.read_recordings(tmp_path)] == [path.stem]
    with pytest.raises(spillway.TraceError, match="unknown format"):
        spillway.read_recordings(tmp_path / "profile_export_raw.jsonl")


REFUSED = {
    "profile_export.jsonl": [
        ('"error": null}\n', "\n", "line 1: not valid JSON"),
        ('"error": null}\n', "9" * 5000, "line 1: not valid JSON"),
        ('"error": null}\n', "[" * 100_000, "line 1: not valid JSON"),
        ('"value": 255.5, "unit": "ms"', '"value": 1, "unit": "h"', "one of sec"),
    ]
}


def test_a_missing_summary_is_said(tmp_path: Path) -> None:
    shutil.copy(FILES / "profile_export.jsonl", tmp_path)
    with pytest.warns(
        UserWarning,
        match=r"without its summary profile_export_aiperf\.json beside, the client's lim",
    ):
        run = run_of(tmp_path / "profile_export.jsonl")
    assert run.client_max_in_flight is None


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ("request_start_ns", "request_start_ns is after request_end_ns"),
        ("request_end_ns", "request_latency exceeds the time from start to end"),
    ],
)
def test_times_that_contradict_each_other_are_said(change: str, wrong: str, tmp_path: Path) -> None:
    lines = (FILES / "profile_export.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if not row.get("error")]
    for row in rows:
        times = {"request_start_ns": 10**18, "request_end_ns": 10**18 + 10**12}
        times[change] = 10**18 + 10**13 if change == "request_start_ns" else 10**18 + 10**6
        row["metadata"] |= times
        row["metadata"].pop("request_ack_ns", None)
    path = tmp_path / "profile_export.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.warns(UserWarning, match=wrong):
        run_of(path, check_units=False)
