"""Requests of SGLang's load generator, whose times of sending follow from their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.recordings import FILES, run_of, values
from support.sglang import details_of, line_of, written

import spillway
from spillway import TraceError
from spillway.files.recordings import read_points, read_recordings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*count twice")


DERIVED = pytest.mark.filterwarnings("ignore:.* times of sending are not in the file")
TTFTS = (0.25, 0.75, 0.25, 0.75)


@DERIVED
def test_a_run() -> None:
    first, second = read_recordings(FILES / "sglang.jsonl")
    assert (first.name, second.name) == ("sglang[0]", "sglang[1]")
    assert values(first.send_s) == [0, 0, 0.5, 1.0]
    assert values(first.e2e_s) == [0.5, 1, 0.5, 1]
    assert values(second.failed) == [False, False, True]
    assert first.server.model == "Qwen/Qwen3-14B"
    assert (first.server.tensor_parallel_size, first.server.prefix_caching) == (2, True)
    assert [first.client_max_in_flight, second.client_max_in_flight] == [2, None]
    assert first.mismatches == second.mismatches == ()


@pytest.mark.parametrize(
    ("limit", "send_s"),
    [(1, [0, 0.5, 1.5, 2.0]), (2, [0, 0, 0.5, 1.0]), (8, [0] * 4), (None, [0] * 4)],
)
def test_the_next_begins_when_one_ends(
    limit: int | None, send_s: list[float], tmp_path: Path
) -> None:
    path = written(tmp_path / "out.jsonl", line_of(limit=limit) | details_of(TTFTS))
    with pytest.warns(UserWarning, match="follow from the order and the duration of requests"):
        run = run_of(path)
    assert values(run.send_s) == send_s
    assert run.in_flight() <= (limit or 4)
    evidence = spillway.read(path)
    assert evidence.trace.max_in_flight == (limit or 0)
    assert "times of sending are not in the file" in evidence.notes[0]


@DERIVED
def test_many_users_keep_the_limit(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    details = details_of(random.uniform(0.05, 1, 500).tolist())
    path = written(tmp_path / "out.jsonl", line_of(limit=16, count=500) | details)
    with pytest.warns(UserWarning, match="the tool reports other figures: mean TTFT"):
        run = run_of(path)  # the figures are those of others
    assert run.in_flight() == 16


@DERIVED
def test_figures_of_the_line(tmp_path: Path) -> None:
    line = line_of(median_ttft_ms=500.0, request_throughput=2.0) | details_of(TTFTS)
    run = run_of(written(tmp_path / "out.jsonl", line))
    names = ("completed", "mean TTFT", "median TTFT", "mean ITL", "rate", "duration", "mean output")
    assert [figure.name for figure in run.reported] == list(names)
    assert run.mismatches == ()
    with pytest.warns(UserWarning, match="mean TTFT: 0.4 s reported, 0.5 s here"):
        run = run_of(written(tmp_path / "out.jsonl", line | {"mean_ttft_ms": 400.0}))


@pytest.mark.parametrize("errors", [["", "HTTP 429", "", ""], ["", "", "", ""]])
def test_failed_requests(errors: list[str], tmp_path: Path) -> None:
    """An error without text has no token, and the time until the failure is not known."""
    details = details_of(
        [0.25, 0.0, 0.25, 0.75],
        output_lens=[3, 0, 3, 3],
        itls=[[0.125] * 2, [], [0.125] * 2, [0.125] * 2],
        errors=errors,
    )
    line = line_of(limit=1, count=3, mean_ttft_ms=None) | details
    with pytest.warns(UserWarning, match="that of 1 failed requests is taken as none"):
        run = run_of(written(tmp_path / "out.jsonl", line))
    assert values(run.failed) == [False, True, False, False]
    assert values(run.send_s) == [0, 0.5, 0.5, 1.0]
    assert values(run.failure_s) == [None] * 4
    assert run.to_trace().rows == 3


@DERIVED
def test_prompts_of_other_length_than_in_the_dataset(tmp_path: Path) -> None:
    details = details_of(TTFTS, input_lens=[109, 100, 109, 109])
    path = written(tmp_path / "out.jsonl", line_of() | details)
    with pytest.warns(UserWarning, match="427 tokens in all; total_input_tokens, 400, is that of"):
        run = run_of(path)
    assert values(run.input_tokens) == [109, 100, 109, 109]


@DERIVED
def test_lines_with_a_rate_are_left_out(tmp_path: Path) -> None:
    lines = [
        line_of(),
        line_of(rate=12.0) | details_of(TTFTS),
        line_of(rate="inf") | details_of(TTFTS),
    ]
    with pytest.warns(UserWarning, match="left out") as notes:
        (run,) = read_recordings(written(tmp_path / "out.jsonl", *lines))
    assert run.name == "out[2]"
    texts = [str(note.message) for note in notes]
    assert any("line 1: left out: no input_lens" in text for text in texts)
    assert any("line 2: left out: no times of sending" in text for text in texts)


@pytest.mark.parametrize("rate", [12.0, "trace", None])
def test_a_rate_without_times_of_sending_is_refused(rate: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "out.jsonl", line_of(rate=rate) | details_of(TTFTS))
    with pytest.raises(TraceError, match=r"no times of sending.* gives points, not recor"):
        read_recordings(path)
    with pytest.warns(UserWarning, match="keeps no number of requests in flight"):
        assert len(read_points(path)) == 1


@DERIVED
def test_malformed_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "out.jsonl", line_of() | details_of(TTFTS), '{"tag": nu')
    with pytest.raises(TraceError, match="line 2: must be a JSON object"):
        read_recordings(path)
    with pytest.warns(UserWarning, match="line 2: skipped"):
        assert len(read_recordings(path, skip_bad=True)) == 1


@DERIVED
@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"errors": [""]}, r"line 1\.errors = '1 values': must hold 4 values, as ttfts does"),
        ({"output_lens": [3, 3, 3, 2.5]}, r"line 1\.output_lens\[3\] = 2\.5: must be a whole"),
        ({"itls": [[0.1]] * 3 + [["x"]]}, r"itls\[3\]\[0\] = 'x': must be a number"),
        ({"ttfts": [0.1, 0.1, 0.1, "x"]}, r"line 1\.ttfts\[3\] = 'x': must be a number"),
    ],
)
def test_invalid_values(details: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "out.jsonl", line_of() | details_of(TTFTS) | details)
    with pytest.raises(TraceError, match=message):
        read_recordings(path)


@DERIVED
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("several", [False, True])
def test_lines_in_other_layouts(indent: int | None, several: bool, tmp_path: Path) -> None:
    """One object over several lines, or a list."""
    line = line_of() | details_of(TTFTS)
    path = tmp_path / "out.json"
    path.write_text(json.dumps([line, line] if several else line, indent=indent))
    assert [run.name for run in read_recordings(path)] == (
        ["out[0]", "out[1]"] if several else ["out"]
    )


REFUSED = {"sglang.jsonl": [('"input_lens": [100,', '"input_lens": [-1,', r"input_lens\[0\] = -1")]}
