"""Equality with vLLM's own scheduler in every step, of the simulator and of its slow twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.paths import REFERENCE
from support.twins import vllm

from spillway.validation import vllm_scheduler
from spillway.validation.vllm_scheduler import Steps

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDINGS = REFERENCE / "vllm_scheduler"
pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no recordings of vLLM's scheduler")


def twin(case: Mapping[str, Any], version: str) -> Steps:
    run = vllm.run_case(case, version)
    return Steps(run.steps, run.requests)


def test_twin_agrees_in_every_step() -> None:
    report = vllm_scheduler.validate(RECORDINGS, run=twin)
    assert report.agrees, report.table()


def test_simulator_agrees_in_every_step() -> None:
    report = vllm_scheduler.validate(RECORDINGS)
    assert report.agrees, report.table()
