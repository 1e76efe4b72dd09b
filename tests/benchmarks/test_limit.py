"""The skeleton does what W8 does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.paths import ROOT, importing_from

import spillway

if TYPE_CHECKING:
    from pathlib import Path

with importing_from(ROOT / "benchmarks"):
    import scenarios
    import skeleton


@pytest.mark.slow
def test_skeleton_makes_the_steps_and_figures_of_w8(tmp_path: Path) -> None:
    program = skeleton.build(tmp_path / "skeleton")
    assert program is not None
    result = spillway.simulate(scenarios.w8(3000))
    arrivals = tmp_path / "arrivals"
    (result.requests["arrival_s"] * 1e9).round().astype(np.int64).tofile(arrivals)
    figures = skeleton.run(program, "--arrivals", arrivals, "--repeats", 1)
    assert figures["steps"] == result.steps
    summary = result.summary()
    names = [name for name in figures if name.endswith("_ms")]
    assert len(names) > 5
    for name in names:
        assert figures[name] == pytest.approx(summary[name], rel=1e-13), name
