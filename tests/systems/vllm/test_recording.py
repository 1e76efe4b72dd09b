"""Results of `vllm bench serve`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.recordings import FILES, run_of, values

import spillway

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*count twice")


def test_vllm_bench() -> None:
    run = run_of("vllm_bench.json")
    assert values(run.send_s) == [0, 0.5, 1.25]
    assert values(run.input_tokens) == [1010, 987, 996]
    assert values(run.output_tokens) == [4, 0, 3]
    assert values(run.ttft_s) == [0.072, None, 0.065]
    assert values(run.e2e_s) == [pytest.approx(0.108), None, pytest.approx(0.091)]
    assert values(run.failed) == [False, True, False]
    assert run.token_gaps is not None
    assert [values(run.token_gaps.of(row)) for row in range(3)] == [
        [0.012, 0.013, 0.011],
        [],
        [0.012, 0.014],
    ]
    assert run.client_max_in_flight == 8
    assert run.server.model == "Qwen/Qwen3-14B"


def result_of(*, ttft_s: float = 0.1, failed: int = 0, **others: Any) -> dict[str, Any]:
    """A result of 20 requests, 4 per second, with 10 ms between 11 tokens, the last ones failed."""
    done = 20 - failed
    return {
        "date": "20260818-021333",
        "model_id": "llama",
        "num_prompts": 20,
        "request_rate": 4.0,
        "max_concurrency": None,
        "completed": done,
        "failed": failed,
        "duration": 4.95,
        "request_throughput": done / 4.95,
        "total_input_tokens": 64 * done,
        "total_output_tokens": 11 * done,
        "input_lens": [64] * 20,
        "output_lens": [11] * done + [0] * failed,
        "ttfts": [ttft_s] * done + [0.0] * failed,
        "itls": [[0.01] * 10] * done + [[]] * failed,
        "start_times": np.arange(0, 5, 0.25).tolist(),
        "errors": [""] * done + ["Bad Gateway"] * failed,
        "mean_ttft_ms": 100.0,
        "median_ttft_ms": 100.0,
        "mean_tpot_ms": 10.0,
        "mean_itl_ms": 10.0,
        "mean_e2el_ms": 200.0,
        **others,
    }


def written(folder: Path, *results: Any, separator: str = "\n", indent: int | None = None) -> Path:
    path = folder / "result.json"
    path.write_text(separator.join(json.dumps(result, indent=indent) for result in results))
    return path


def test_figures_of_the_tool_are_recomputed(tmp_path: Path) -> None:
    run = run_of(written(tmp_path, result_of()))
    assert {figure.name for figure in run.reported} == {
        *("completed", "failed", "rate", "duration", "mean prompt", "mean output"),
        *("mean TTFT", "median TTFT", "mean TPOT", "mean ITL", "mean E2E"),
    }
    assert not run.mismatches
    with pytest.warns(UserWarning, match="mean TTFT: 0.1 s reported, 0.1045 s here"):
        run_of(written(tmp_path, result_of(ttft_s=0.1045)))
    # Without some metrics of newer versions, and with those of `--percentile-metrics`.
    older = {key: value for key, value in result_of().items() if key not in ("failed", "duration")}
    assert not run_of(written(tmp_path, older)).mismatches


def test_failures_are_none_of_the_means(tmp_path: Path) -> None:
    result = result_of(failed=4)
    result["itls"][-1] = [9.0]  # it broke off after some tokens
    run = run_of(written(tmp_path, result))
    assert int(run.failed.sum()) == 4
    assert not run.mismatches
    # An answer without any token is no completion, though vLLM states no error.
    empty = result_of(failed=4, errors=[""] * 20)
    assert values(run_of(written(tmp_path, empty)).failed) == [False] * 16 + [True] * 4


@pytest.mark.parametrize("limit", [None, 16])
def test_the_limit_of_the_client(tmp_path: Path, limit: int | None) -> None:
    run = run_of(written(tmp_path, result_of(max_concurrency=limit)))
    assert run.client_max_in_flight == limit
    assert run.to_trace().max_in_flight == (limit or 0)


@pytest.mark.parametrize(
    ("separator", "indent"), [("\n", None), ("", None), ("\n\n", 2), ("\r\n", 1)]
)
def test_appended_results_are_runs(tmp_path: Path, separator: str, indent: int | None) -> None:
    results = [result_of(max_concurrency=limit) for limit in (2, 4, 8)]
    path = written(tmp_path, *results, separator=separator, indent=indent)
    runs = spillway.read_recordings(path, check_units=False)
    assert [run.client_max_in_flight for run in runs] == [2, 4, 8]
    assert [run.name for run in runs] == ["result 1", "result 2", "result 3"]
    with pytest.raises(spillway.TraceError, match=r"3 runs \(1 result 1; 2 result 2; 3 result 3\)"):
        spillway.read_trace(path, check_units=False)
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps(results))
    assert len(spillway.read_recordings(listed)) == 3


def test_places_in_appended_results_are_named(tmp_path: Path) -> None:
    wrong = result_of()
    wrong["output_lens"] = [11] * 19 + [3.5]
    with pytest.raises(spillway.TraceError, match=r"result 2.output_lens\[19\] = 3\.5: must be"):
        spillway.read_recordings(written(tmp_path, result_of(), wrong))
    with pytest.raises(spillway.TraceError, match="unknown format"):
        spillway.read_recordings(written(tmp_path, result_of(), {"model_id": "llama"}))


def test_results_without_requests_beside_others_are_said(tmp_path: Path) -> None:
    means = {key: value for key, value in result_of().items() if not isinstance(value, list)}
    path = written(tmp_path, means, result_of())
    with pytest.warns(UserWarning, match="1 of 2 results are left out: they list no requests"):
        assert run_of(path).num_requests == 20
    path = written(tmp_path, means)
    with pytest.raises(spillway.TraceError, match=r"again with `--save-detailed`.*gives po"):
        run_of(path)
    assert spillway.read(path).offers == ("points",)


def test_a_recording_is_replayed() -> None:
    path = FILES / "vllm_bench.json"
    with pytest.warns(UserWarning, match="a recording of the format vllm_bench, replayed"):
        trace = spillway.read_trace(path)
    assert (trace.rows, trace.max_in_flight) == (2, 8)


REFUSED = {
    "vllm_bench.json": [
        ('"input_lens"', '"inputs"', "input_lens: missing; measure again with"),
        ('"start_times"', '"begin"', "start_times: missing; .* since 0.11"),
        ("[0.072, 0.0, 0.065]", "[0.072]", "ttfts = '1 values': must hold 3"),
        ("[4, 0, 3]", "[4, 0, 3.5]", r"output_lens\[2\] = 3\.5: must be a whole"),
        ("[0.012, 0.014]", "[-1, 2]", "request 2, itls = -1: a gap must be a num"),
        ("[0.012, 0.014]", "[true]", r"itls\[2\]\[0\] = True: must be a number"),
        ("[8123.5,", "[NaN,", "request 0, start_times = nan: must be a number"),
        ("[0.012, 0.014]", "9" * 5000, "vllm_bench.json: "),
        ("[8123.5,", f"[1{'0' * 400},", "start_times.* must be a number"),
        ("[0.012, 0.014]", '"\\ud800"', "vllm_bench.json: "),
    ]
}
