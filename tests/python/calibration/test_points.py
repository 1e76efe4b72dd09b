"""Servers fitted to mean latencies at stated loads."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.measured_runs import FACTS, LATENCY, server

from spillway import TraceError, calibrate, simulate
from spillway.calibration.points import PointPart, means, parts_of
from spillway.data.recording import LatencyPoints
from spillway.validation import real

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def points(users: Sequence[int], *, prompt: int = 500, output: int = 100) -> LatencyPoints:
    """What the known server does at these numbers of users."""
    blank = LatencyPoints(
        server=FACTS, group={}, input_tokens=prompt, output_tokens=output,
        concurrency=np.array(users), ttft_s=np.ones(len(users)), itl_s=np.ones(len(users)),
    )  # fmt: skip
    found = np.array(
        [means(simulate(PointPart(blank, at).simulation(server()))) for at in range(len(users))]
    )
    return dataclasses.replace(blank, itl_s=found[:, 0], ttft_s=found[:, 1])


def test_means_at_low_loads_predict_higher_ones() -> None:
    with pytest.warns(UserWarning, match="points state no requests; assumed: lengths uniform"):
        fitted = calibrate(
            [points((1, 4, 16)), points((2, 8), prompt=1500)], norms=(LATENCY.norm,),
            allow_unidentified=True,
        )  # fmt: skip
    assert len(fitted.runs) == 5
    far = points((40,))
    (part,) = parts_of(far)
    itl_s, ttft_s = means(simulate(part.simulation(fitted.group)))
    assert itl_s == pytest.approx(part.itl_s, rel=0.06)
    assert ttft_s == pytest.approx(part.ttft_s, rel=0.15)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_higher_loads_are_predicted_from_lower_ones(tmp_path: Path) -> None:
    table = points((1, 4, 16, 40))
    file = tmp_path / "points.csv"
    rows = zip(table.concurrency, table.ttft_s, table.itl_s, strict=True)
    lines = [f"{users},500,100,{1e3 * ttft},{1e3 * itl}" for users, ttft, itl in rows]
    file.write_text("\n".join(["users,prompt,output,ttft_ms,tpot_ms", *lines]))
    columns = {
        "concurrency": "users", "input_tokens": "prompt", "output_tokens": "output",
        "ttft_s": "ttft_ms", "itl_s": "tpot_ms",
    }  # fmt: skip
    report = real.validate(file, norms=(LATENCY.norm,), columns=columns)
    assert [run.run for run in report.runs] == [
        "16 in flight, 500/100 tokens", "40 in flight, 500/100 tokens"
    ]  # fmt: skip
    for run in report.runs:
        assert abs(run.error_percent("itl", "mean")) < 15
        assert run.statistics["ttft"]["p99_sim"] is None
    assert "+nan" not in report.table()


def test_loads_measured_twice_count_once() -> None:
    table = points((4, 4, 8))
    twice = dataclasses.replace(table, itl_s=table.itl_s * [0.9, 1.1, 1.0])
    first, second = parts_of(twice)
    assert (first.users, second.users) == (4, 8)
    assert first.itl_s == pytest.approx(table.itl_s[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_points_of_several_servers_are_refused() -> None:
    one = points((1, 4))
    other = dataclasses.replace(one, group={"precision": "fp8"})
    with pytest.raises(TraceError, match="the points are of several servers"):
        calibrate([one, other])
    nothing = dataclasses.replace(one, concurrency=np.zeros(2, dtype=np.int64))
    with pytest.raises(TraceError, match="no point states its concurrency or its rate"):
        calibrate(nothing)
