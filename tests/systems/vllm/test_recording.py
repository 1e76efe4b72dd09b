"""Results of `vllm bench serve`."""

from __future__ import annotations

import pytest
from support.recordings import run_of, values


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
