"""`spillway run --strict` and `--assert`: exit statuses for findings and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spillway import load, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD = """\
schema: 1
workload: {kind: synthetic, duration_s: 30, requests_per_s: 10}
slo_classes: [{name: standard, target_ttft_s: 2}]
instances: {count: 2}
"""
BAD = """\
schema: 1
workload: {kind: synthetic, duration_s: 10, requests_per_s: 20}
slo_classes: [{name: standard, target_ttft_s: 2}]
gateway: {admission: {kind: token_bucket, capacity_tokens: 1000, refill_tokens_per_s: 10}}
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(BAD)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["bad.yaml"], 0),
        (["bad.yaml", "--strict"], 1),
        (["bad.yaml", "--strict", "--seeds", "2"], 1),
        (["good.yaml", "--strict"], 0),
        (["good.yaml", "--strict=medium"], 0),
        (["good.yaml", "--assert", "goodput >= 0.9", "--assert", "p99_ttft_ms<=2000"], 0),
        (["good.yaml", "--assert", "goodput[standard] >= 0.9", "--seeds", "2"], 0),
        (["good.yaml", "--assert", "p99_ttft_ms <= 1"], 1),
        (["bad.yaml", "--assert", "goodput >= 0.9", "--seeds", "2"], 1),
    ],
)
def test_status(called: Callable[..., Any], options: list[str], status: int) -> None:
    found, out, _ = called("run", *options)
    assert found == status
    assert "goodput" in out


def test_a_file_is_no_severity(
    called: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        called("run", "--strict", "bad.yaml")
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "'bad.yaml' must be one of high, medium, low; before CONFIG, write --strict=high" in err
    assert called("run", "--strict=high", "bad.yaml")[0] == 1


def test_what_failed_is_said(called: Callable[..., Any]) -> None:
    _, _, err = called("run", "bad.yaml", "--strict", "--assert", "goodput >= 0.9")
    goodput = simulate(load("bad.yaml")).summary()["goodput"]
    assert f"--assert goodput >= 0.9: it is {goodput:.6g}\n" in err
    assert "--strict: high: shedding: gateway.admission[0]: " in err
    _, _, err = called("run", "bad.yaml", "--seeds", "2", "--assert", "goodput >= 0.9")
    known = [simulate(load("bad.yaml"), seed).summary()["goodput"] for seed in range(2)]
    assert f", from {min(known):.6g} to {max(known):.6g} in 2 runs\n" in err


def test_a_figure_without_values_does_not_hold(called: Callable[..., Any]) -> None:
    options = ("--set", "workload.clients[0].output_tokens={kind: fixed, tokens: 1}")
    status, _, err = called("run", "good.yaml", *options, "--assert", "p99_tpot_ms <= 50")
    assert status == 1
    assert "--assert p99_tpot_ms <= 50: " in err


@pytest.mark.parametrize("text", ["goodput", "goodput = 1", "godput >= 1", "goodput >= much"])
def test_assertions_are_read_before_the_run(called: Callable[..., Any], text: str) -> None:
    status, out, err = called("run", "good.yaml", "--assert", text)
    assert (status, out) == (2, "")
    assert err.startswith("spillway: ")
