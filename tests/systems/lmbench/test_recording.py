"""Records of LMBench."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.recordings import FILES, MEASURED, run_of, values

import spillway

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "prompt_tokens,generation_tokens,ttft,generation_time"
PUBLISHED = sorted((MEASURED / "lmbench").glob("*/*/*.csv"))


def test_users_are_sessions() -> None:
    run = run_of("lmbench.csv")
    assert values(run.send_s) == [0, 2, 10, 12]
    assert values(run.input_tokens) == [21073, 21073, 21202, 21202]
    assert values(run.output_tokens) == [100, 100, 100, 90]
    assert values(run.ttft_s) == [2, 3, 0.5, 0.5]
    assert values(run.e2e_s) == [6, 7, 4.5, 4]
    assert run.session == ("63", "64", "63", "64")
    assert run.client_max_in_flight == 2
    assert run.to_trace().max_in_flight == 2
    assert not run.failed.any()


def test_requests_without_users_have_no_limit(tmp_path: Path) -> None:
    path = tmp_path / "LMBench_sharegpt_output_0.5.csv"
    path.write_text(
        f"{HEADER},launch_time,finish_time\n"
        "689,275,0.182,14.791,1746154385.72,1746154400.693\n"
        "543,332,0.156,18.137,1746154387.72,1746154406.013\n"
    )
    run = run_of(path)
    assert (run.session, run.client_max_in_flight) == (None, None)
    assert values(run.e2e_s) == [pytest.approx(14.973), pytest.approx(18.293)]


def test_users_that_come_and_go(tmp_path: Path) -> None:
    """The limit is the most users at once, not all of them."""
    rows = [(user, 10 * user + 4 * turn) for user in range(6) for turn in range(2)]
    path = tmp_path / "many.csv"
    lines = [f"100,10,0.5,1.5,{user},{send % 10},{send},{send + 2}" for user, send in rows]
    path.write_text("\n".join([f"{HEADER},user_id,question_id,launch_time,finish_time", *lines]))
    assert run_of(path).client_max_in_flight == 1
    assert len(set(run_of(path).session or ())) == 6
    # A user with several requests in flight is no limit.
    path.write_text("\n".join([path.read_text(), "100,10,0.5,1.5,0,7,4.5,6.5"]))
    assert run_of(path).client_max_in_flight is None


def test_invalid_values_are_named(tmp_path: Path) -> None:
    text = (FILES / "lmbench.csv").read_text()
    for change, message in (
        (("21073.0,", "21073.5,"), "line 2, prompt_tokens = '21073.5': must be a whole number"),
        ((",2.0,4.0", ",soon,4.0"), "line 2, ttft = 'soon': must be a number"),
        (("1745612520.5", ""), "line 2, launch_time = '': must be a number"),
    ):
        path = tmp_path / "lmbench.csv"
        path.write_text(text.replace(*change, 1))
        with pytest.raises(spillway.TraceError, match=message):
            run_of(path)


@pytest.mark.skipif(not PUBLISHED, reason="the published files are not part of the repository")
def test_published_files_are_read() -> None:
    for path in PUBLISHED[::8]:
        run = run_of(path)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert run.num_requests == len(rows)
        assert np.mean(run.ttft_s) == pytest.approx(np.mean([float(row["ttft"]) for row in rows]))
        assert run.in_flight() <= (run.client_max_in_flight or len(rows))
