"""Recordings of AIPerf."""

from __future__ import annotations

import numpy as np
import pytest
from support.recordings import run_of, values


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


REFUSED = {
    "profile_export.jsonl": [
        ('"error": null}\n', "\n", "line 1: not valid JSON"),
        ('"error": null}\n', "9" * 5000, "line 1: not valid JSON"),
        ('"error": null}\n', "[" * 100_000, "line 1: not valid JSON"),
        ('"value": 255.5, "unit": "ms"', '"value": 1, "unit": "h"', "one of sec"),
    ]
}
