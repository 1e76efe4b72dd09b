"""The skeleton does what W8 does, and `make bench-check` judges counts by it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.paths import ROOT

import spillway

if TYPE_CHECKING:
    from pathlib import Path

_BENCHMARKS = str(ROOT / "benchmarks")
sys.path.insert(0, _BENCHMARKS)
try:
    import check
    import scenarios
    import skeleton
finally:
    sys.path.remove(_BENCHMARKS)


@pytest.mark.slow
def test_skeleton_makes_the_steps_and_figures_of_w8(tmp_path: Path) -> None:
    program = skeleton.build(tmp_path / "skeleton")
    assert program is not None
    result = spillway.simulate(scenarios.w8(3000))
    arrivals = tmp_path / "arrivals"
    (result.requests["arrival_s"] * 1e9).round().astype(np.int64).tofile(arrivals)
    found = skeleton.run(program, "--arrivals", arrivals, "--repeats", 1)
    assert found["steps"] == result.steps
    summary = result.summary()
    names = [name for name in found if name.endswith("_ms")]
    assert len(names) > 5
    for name in names:
        assert found[name] == pytest.approx(summary[name], rel=1e-13), name


def test_counts_may_grow_by_three_per_cent() -> None:
    assert check.verdict(1029, 1000) == (True, "+2.9% of 1,000")
    passed, comment = check.verdict(1031, 1000)
    assert not passed
    assert comment == "+3.1% of 1,000, FAILED: more than 3%"
    passed, comment = check.verdict(900, 1000)
    assert passed
    assert "RENEW=1" in comment
    assert check.verdict(900, None)[0] is False


def test_counts_of_another_compiler_are_not_compared() -> None:
    committed = {"compiler": "12.2.0", "libc": "glibc 2.36"}
    assert check.differences(committed, dict(committed)) == []
    assert check.differences(committed, committed | {"compiler": "14.1"}) == [
        "compiler is 14.1, was 12.2.0"
    ]


def test_every_scenario_has_committed_counts() -> None:
    content = json.loads((ROOT / "benchmarks" / "instructions.json").read_text())
    assert content["instructions_per_request"].keys() == scenarios.SCENARIOS.keys()
