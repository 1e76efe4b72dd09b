"""`make build-check` fails where a cold build takes longer than its share of the yardstick."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.paths import ROOT, importing_from

if TYPE_CHECKING:
    from pathlib import Path

with importing_from(ROOT / "tools"):
    import build_check


@pytest.mark.parametrize(
    ("object_file", "unit"),
    [
        ("cpp/CMakeFiles/spillway_core.dir/Unity/unity_gateway_2_cxx.cxx.o", "gateway_2"),
        ("cpp/CMakeFiles/spillway_core.dir/cluster/schema.cpp.o", "schema"),
        ("cpp/CMakeFiles/_core.dir/Unity/unity_0_cxx.cxx.o", "bindings"),
    ],
)
def test_units_of_compilation_have_the_names_of_their_folders(object_file: str, unit: str) -> None:
    assert build_check.unit_of(object_file) == unit


def test_the_limit_is_relative_to_the_yardstick() -> None:
    seconds = {"gateway_0": 60.0, "bindings": 39.0}
    passes, text = build_check.verdict(seconds, [0.9, 1.1], 100)
    assert passes
    assert text == (
        "99 s of processor time, 99.0 times the yardstick (1.00 s); the limit is 100 times"
    )
    passes, text = build_check.verdict(seconds, [0.9, 1.0], 100)
    assert not passes
    assert text.endswith("104.2 times the yardstick (0.95 s); the limit is 100 times: FAILED")


@pytest.mark.parametrize(("limit", "status"), [(build_check.LIMIT, 0), (1.0, 1)])
def test_a_build_beyond_the_limit_fails(
    limit: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_check, "_measure", lambda _: ({"schema": 2.0}, [1.0]))
    monkeypatch.setattr(sys, "argv", ["build_check.py", "--limit", str(limit)])
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CCACHE_DISABLE", "")
    assert build_check.main() == status
    printed = capsys.readouterr().out
    assert printed.startswith("schema               2.0 s\nbuild-check: 2 s of processor time")
    assert ("FAILED" in printed) == bool(status)


def test_the_launcher_logs_processor_time_and_passes_on_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    compiler = [sys.executable, "-c", "import sys; sys.exit(3)", "-o", "unit.o"]
    monkeypatch.setattr(sys, "argv", ["build_check.py", "--launch", str(log), *compiler])
    assert build_check.main() == 3
    assert log.read_text().startswith('["unit.o", ')
