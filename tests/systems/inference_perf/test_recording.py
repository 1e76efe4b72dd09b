"""Reports of inference-perf."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.recordings import FILES, run_of, values

from spillway import TraceError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*malformed requests? left out"),
    pytest.mark.filterwarnings("ignore:.*without the .* beside"),
]


def test_inference_perf() -> None:
    run = run_of("per_request_lifecycle_metrics.json")
    assert values(run.send_s) == [0, 0.5, 1]
    assert values(run.input_tokens) == [571, 580, 0]
    assert values(run.output_tokens) == [4, 3, 0]
    assert values(run.ttft_s) == [0.0625, 0.125, None]
    assert values(run.e2e_s) == [0.125, 0.1875, None]
    assert values(run.failure_s) == [None, None, 300]
    assert run.token_gaps is not None
    assert values(run.token_gaps.of(1)) == [0.015625, 0.015625]


def test_output_of_inference_perf() -> None:
    run = run_of("inference_perf_0_7.json")
    done = ~run.failed
    assert (run.num_requests, int(done.sum())) == (6, 4)
    assert values(run.input_tokens) == [0, 35, 23, 33, 32, 0]
    assert values(run.output_tokens[done]) == [9] * 4
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0125, abs=0.0005)
    assert run.token_gaps is not None
    assert values(np.diff(run.token_gaps.offsets)) == [0, 8, 8, 8, 8, 0]


def test_the_server_counts_tokens(tmp_path: Path) -> None:
    """The usage that a server reports has precedence over the tokenizer of the client."""
    content = json.loads((FILES / "inference_perf_0_7.json").read_text())
    response = content[1]["info"]["response_metrics"]
    response["server_usage"] |= {"prompt_tokens": 40, "completion_tokens": 10}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="the server reports, .* own tokenizer counts") as notes:
        run = run_of(path)
    assert (run.input_tokens[1], run.output_tokens[1]) == (40, 10)
    assert sum("the server reports" in str(note.message) for note in notes) == 2
    response["server_usage"] = None
    path.write_text(json.dumps(content))
    assert (run_of(path).input_tokens[1], run_of(path).output_tokens[1]) == (35, 9)


def answer_of(begin_s: float, *, failed: bool = False, turn: str = "") -> dict[str, Any]:
    """A request of 0.5, whose text has more tokens than the server made."""
    times_s = [] if failed else [begin_s + 0.2 + 0.0125 * at for at in range(5)]
    usage = {
        "prompt_tokens": 2042,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1024},
    }
    response = {
        "chunk_times": times_s,
        "output_tokens": 11,
        "output_token_times": times_s,
        "server_usage": usage,
    }
    return {
        "start_time": begin_s,
        "end_time": begin_s + 0.25,
        "info": {
            "input_tokens": 0 if failed else 2042,
            "extra_info": {"user_session": turn, "chat_round": 1} if turn else {},
            "response_info": None if failed else response,
        },
        "error": {"error_type": "HTTP Error 429", "error_msg": "no"} if failed else None,
    }


ANSWERS = [answer_of(100 + at) for at in range(8)]
SUMMARY: dict[str, Any] = {
    "successes": {
        "count": 8,
        "latency": {
            "time_to_first_token": {"mean": 0.2},
            "inter_token_latency": {"mean": 0.0125},
            "request_latency": {"mean": 0.25},
        },
        "throughput": {"requests_per_sec": 1.1},
        "prompt_len": {"mean": 2042.0},
        "output_len": {"mean": 11.0},
    },
    "failures": {"count": 0},
}
OWN_LENGTHS = pytest.mark.filterwarnings("ignore:.* output_tokens are those that the server")


def report_of(
    folder: Path, requests: list[dict[str, Any]], prefix: str = "", **others: Any
) -> Path:
    """The files of a report: of requests, and the summary and stages in `others`."""
    for name, content in others.items():
        (folder / f"{prefix}{name}_lifecycle_metrics.json").write_text(json.dumps(content))
    path = folder / f"{prefix}per_request_lifecycle_metrics.json"
    path.write_text(json.dumps(requests))
    return path


def test_response_info_of_0_5(tmp_path: Path) -> None:
    path = report_of(tmp_path, ANSWERS)
    with pytest.warns(UserWarning, match="output_tokens are .* 40 in all; the tool's own .* 88"):
        run = run_of(path)
    assert values(run.output_tokens) == [5] * 8
    assert values(run.ttft_s) == pytest.approx([0.2] * 8)
    assert run.cached_tokens is not None
    assert values(run.cached_tokens) == [1024] * 8
    assert run.token_gaps is not None
    assert run.token_gaps.values_s == pytest.approx(0.0125)
    assert run.reported == ()


@OWN_LENGTHS
def test_times_of_chunks_alone(tmp_path: Path) -> None:
    requests = copy.deepcopy(ANSWERS)
    for request in requests:
        del request["info"]["response_info"]["output_token_times"]
    assert values(run_of(report_of(tmp_path, requests)).ttft_s) == pytest.approx([0.2] * 8)


@OWN_LENGTHS
@pytest.mark.parametrize("prefix", ["", "chat-"])
def test_summary_beside(prefix: str, tmp_path: Path) -> None:
    """Its length of outputs is that of the tool's tokenizer, and is not compared."""
    run = run_of(report_of(tmp_path, ANSWERS, prefix, summary=SUMMARY))
    assert [figure.name for figure in run.reported] == [
        *("completed", "failed", "rate", "mean TTFT", "mean ITL", "mean E2E", "mean prompt")
    ]
    assert run.mismatches == ()
    alone = tmp_path / "alone"
    alone.mkdir()
    assert run.sha256 != run_of(report_of(alone, ANSWERS)).sha256


@OWN_LENGTHS
def test_summary_of_other_requests(tmp_path: Path) -> None:
    summary = copy.deepcopy(SUMMARY) | {"failures": {"count": 3}}
    summary["successes"]["latency"]["request_latency"]["mean"] = 0.3
    path = report_of(tmp_path, ANSWERS, summary=summary)
    with pytest.warns(UserWarning, match="a sample: the file lists 8 of 11 requests"):
        run = run_of(path)
    assert [figure.name for figure in run.mismatches] == ["failed", "mean E2E"]


@OWN_LENGTHS
def test_lengths_of_a_summary_of_0_7(tmp_path: Path) -> None:
    """The mean of `output_tokens` is that of the server."""
    requests = [*ANSWERS, answer_of(108, failed=True)]
    successes = {"count": 8, "output_tokens": {"mean": 5.0}, "prompt_tokens": {"mean": 2042.0}}
    summary = {"successes": successes, "failures": {"count": 1}}
    run = run_of(report_of(tmp_path, requests, summary=summary))
    assert values(run.failed) == [False] * 8 + [True]
    assert run.mismatches == ()
    assert len(run.reported) == 4


@OWN_LENGTHS
@pytest.mark.parametrize(
    ("levels", "limit"), [([3], 3), ([None], None), ([2, 2], 2), ([3, None], None)]
)
def test_stages_state_the_users(
    levels: list[int | None], limit: int | None, tmp_path: Path
) -> None:
    stages = {
        f"stage_{at}": {"load_summary": {"count": 4} | ({"concurrency": level} if level else {})}
        for at, level in enumerate(levels)
    }
    run = run_of(report_of(tmp_path, ANSWERS, **stages))
    assert run.client_max_in_flight == limit
    assert run.to_trace().max_in_flight == (limit or 0)


@OWN_LENGTHS
def test_stages_of_other_users(tmp_path: Path) -> None:
    stages = {f"stage_{at}": {"load_summary": {"concurrency": 2 + at}} for at in range(2)}
    path = report_of(tmp_path, ANSWERS, **stages)
    with pytest.warns(UserWarning, match="the stages have 2, 3 users"):
        assert run_of(path).client_max_in_flight == 3


@OWN_LENGTHS
def test_conversations(tmp_path: Path) -> None:
    names = ["a", "b", "a", "", "b", "c"]
    requests = [answer_of(100 + at, turn=name) for at, name in enumerate(names)]
    assert run_of(report_of(tmp_path, requests)).session == ("a", "b", "a", "", "b", "")


@OWN_LENGTHS
def test_malformed_requests_are_skipped(tmp_path: Path) -> None:
    requests = [*ANSWERS, answer_of(108) | {"start_time": "now"}]
    path = report_of(tmp_path, requests, summary=SUMMARY)
    with pytest.raises(TraceError, match=r"requests\[8\]\.start_time = 'now'"):
        run_of(path)
    run = run_of(path, skip_bad=True)
    assert (run.num_requests, run.counts.skipped) == (8, 1)


REFUSED = {
    "per_request_lifecycle_metrics.json": [('"start_time": 7061.75, ', "", "start_time: missing")]
}


def test_missing_files_of_the_report_are_said() -> None:
    with (
        pytest.warns(UserWarning, match="without the files of its stages beside .* the client's"),
        pytest.warns(UserWarning, match="without the report's summary beside .* the tool's own"),
    ):
        assert run_of("per_request_lifecycle_metrics.json").client_max_in_flight is None
