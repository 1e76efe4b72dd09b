"""What a live server says at its start of the errors of its servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.live import application, fleet

import spillway
from spillway import instance
from spillway.calibration import Profile
from spillway.calibration.hull import Hull
from spillway.calibration.profile import FittedLog, FittedRun
from spillway.calibration.refinement import COEFFICIENTS
from spillway.config import acceptance
from spillway.data.recording import ServerFacts

if TYPE_CHECKING:
    from pathlib import Path


def said(*groups: Any) -> list[str]:
    return application(fleet(instances=list(groups)), model=None).settings.notes


def profile() -> Profile:
    values = (900, 5000, 20, 10, 0.1, 0.01, 3000)
    return Profile(
        server=ServerFacts(model="own", num_kv_blocks=900),
        latency=instance.Roofline(norm=2, **dict(zip(COEFFICIENTS, values, strict=True))),
        async_scheduling=True,
        turnaround_s=0.0,
        covariance=tuple(
            tuple(0.01 * (i == j) for i in range(len(values))) for j in range(len(values))
        ),
        hull=Hull(((0.0, 0.0), (300.0, 0.0), (300.0, 1.0), (0.0, 1.0))),
        runs=(
            FittedRun("a", "0", 100, {"mean_ttft": -3.21, "capacity": 1.0}),
            FittedRun("b", "0", 100, {"mean_ttft": 2.0, "capacity": 1.0}),
        ),
        logs=(FittedLog("steps.jsonl", "0", 1200, 4.25),),
    )


def loaded(folder: Path) -> instance.InstanceGroup:
    (folder / "fleet.yaml").write_text("instances: [{server: own.yaml, count: 2}]")
    (group,) = spillway.load(folder / "fleet.yaml").instances
    return group


def test_the_errors_of_a_fit_are_those_of_its_profile(tmp_path: Path) -> None:
    profile().save(tmp_path / "own.yaml")
    notes = said(loaded(tmp_path))
    assert "errors of the 2 fitted runs in %" in "".join(notes)
    assert any("mean_ttft -3.2 to +2.0, capacity +1.0" in note for note in notes)
    assert any("steps.jsonl: 1,200 steps, errors of 4.2%" in note for note in notes)
    assert any("no recording has judged this server" in note for note in notes)


@pytest.mark.parametrize("verdict", ["met", "not met", "undecided"])
def test_the_verdict_of_a_recording_is_said(tmp_path: Path, verdict: str) -> None:
    profile().save(tmp_path / "own.yaml")
    entry = {
        "verdict": verdict,
        "date": "2026-11-27",
        "server": acceptance.fingerprint(loaded(tmp_path)),
        "configuration": "c",
        "reason": "shed +3 points",
        "recording": {"sha256": "0"},
    }
    acceptance.write(tmp_path / "own.acceptance.yaml", [entry])
    notes = said(loaded(tmp_path))
    assert any(f"acceptance: {verdict} on 2026-11-27" in note for note in notes)
    assert not any("no recording has judged" in note for note in notes)
    refutes = any("a recording of production refutes the servers" in note for note in notes)
    assert refutes == (verdict == "not met")


def test_step_times_that_are_no_longer_those_of_the_fit_have_unknown_errors(tmp_path: Path) -> None:
    profile().save(tmp_path / "own.yaml")
    group = loaded(tmp_path)
    slower = group.replace(latency=group.latency.replace(constant_us=9999))
    assert any("not known: they are not those of" in note for note in said(slower))
    (tmp_path / "own.yaml").unlink()
    assert any("errors of its step times are not known: " in note for note in said(group))
    (tmp_path / "own.yaml").write_text("kind: other\n")
    assert any("errors of its step times are not known: " in note for note in said(group))


def test_computed_step_times_say_how_well_they_are_known() -> None:
    (first, computed, judged, *_) = said(instance.Server(model="llama-3.1-8b", gpu="h100").group)
    assert first.startswith("1 x roofline: server {model: llama-3.1-8b, gpu: h100}: physics, ")
    assert "one standard deviation of the reached share of memory bandwidth ±" in computed
    assert "no recording has judged" in judged


def test_stated_step_times_have_unknown_errors() -> None:
    group = instance.InstanceGroup(count=3, latency=instance.Linear(), max_model_len=100)
    first, second, *_ = said(group)
    assert first == "3 x linear: step times as the configuration states them"
    assert second.strip() == "errors of its step times are not known"
