"""`make bench-check` fails where a scenario takes more instructions, and says what it skips."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.paths import ROOT, importing_from

if TYPE_CHECKING:
    from pathlib import Path

with importing_from(ROOT / "benchmarks"):
    import check
    import instructions
    import scenarios

_COUNTS = dict.fromkeys(scenarios.SCENARIOS, 1000.0)
_REASON = "The format is that of [Keep a Changelog]"
"""A passage of every changelog."""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with 1,000 instructions for each scenario, on a machine that counts as many."""
    path = tmp_path / "instructions.json"
    path.write_text(
        json.dumps({"GCC": {"reason": _REASON, "instructions_per_request": dict(_COUNTS)}})
    )
    monkeypatch.setattr(check, "_COMMITTED", path)
    monkeypatch.setattr(instructions, "missing", lambda: None)
    monkeypatch.setattr(instructions, "toolchain", lambda: "GCC")
    monkeypatch.setattr(instructions, "measure", lambda *_: 1000.0)
    return path


def _commit(path: Path, **changes: float) -> None:
    content = json.loads(path.read_text())
    content["GCC"]["instructions_per_request"].update(changes)
    path.write_text(json.dumps(content))


def test_equal_counts_pass(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 0
    printed = capsys.readouterr().out
    for name in scenarios.SCENARIOS:
        assert f"{name:<12}     1,000  +0.0% of 1,000" in printed
    assert table.exists()


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_any_scenario_that_takes_over_two_per_cent_more_fails(
    name: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _commit(table, **{name: 981.0})
    assert check.main([]) == 0
    _commit(table, **{name: 980.0})
    capsys.readouterr()
    assert check.main([]) == 1
    printed = capsys.readouterr().out
    assert f"{name:<12}     1,000  +2.0% of 980, FAILED: more than 2% slower" in printed
    assert printed.count("FAILED") == 1


def test_a_faster_scenario_asks_to_renew(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _commit(table, W8=1021.0)
    assert check.main([]) == 0
    printed = capsys.readouterr().out
    assert (
        '-2.1% of 1,021, more than 2% faster: renew with make bench-check RENEW="reason"' in printed
    )
    assert printed.count("faster") == 1


def test_every_scenario_needs_a_count(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(table.read_text())
    counts = content["GCC"]["instructions_per_request"]
    counts["gone"] = counts.pop("W64")
    table.write_text(json.dumps(content))
    assert check.main([]) == 1
    printed = capsys.readouterr().out
    assert f"{'W64':<12}     1,000  FAILED: none committed" in printed
    assert f"{'gone':<12}FAILED: committed, but no scenario" in printed


def test_without_valgrind_one_line_says_so(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _commit(table, W8=1.0)
    monkeypatch.setattr(instructions, "missing", lambda: "valgrind is not installed")
    assert check.main([]) == 0
    assert (
        capsys.readouterr().out == "bench-check: NOTHING WAS COMPARED: valgrind is not installed\n"
    )


def test_on_an_unknown_toolchain_one_line_says_so(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _commit(table, W8=1.0)
    monkeypatch.setattr(instructions, "toolchain", lambda: "Clang")
    assert check.main([]) == 0
    assert capsys.readouterr().out == (
        "bench-check: NOTHING WAS COMPARED: no counts of Clang are committed, only of GCC: "
        'renew with make bench-check RENEW="reason"\n'
    )


def test_counts_are_renewed_with_a_reason_from_the_changelog(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table.read_text()
    for reason in ("", "1", "no passage of the changelog"):
        assert check.main(["--renew", reason]) == 1
        assert "must be a passage of CHANGELOG.md" in capsys.readouterr().out
        assert table.read_text() == before
    monkeypatch.setattr(instructions, "toolchain", lambda: "Clang")
    monkeypatch.setattr(instructions, "measure", lambda *_: 900.04)
    assert check.main(["--renew", "The format is that of [Keep a\n  Changelog]"]) == 0
    content = json.loads(table.read_text())
    assert content["GCC"] == json.loads(before)["GCC"]
    assert content["Clang"] == {
        "reason": "The format is that of [Keep a Changelog]",
        "instructions_per_request": dict.fromkeys(scenarios.SCENARIOS, 900.0),
    }


def test_a_reason_that_the_changelog_lacks_fails(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text(table.read_text().replace(_REASON, "no passage of the changelog"))
    assert check.main([]) == 1
    assert "CHANGELOG.md lacks the reason" in capsys.readouterr().out


def test_committed_counts_are_complete_and_have_a_reason() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    content = json.loads((ROOT / "benchmarks" / "instructions.json").read_text())
    assert content
    for of_toolchain in content.values():
        assert of_toolchain["instructions_per_request"].keys() == scenarios.SCENARIOS.keys()
        assert check.changelog_has(of_toolchain["reason"], changelog)


@pytest.mark.slow
def test_real_counts_fail_where_fewer_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := instructions.missing():
        pytest.skip(reason)
    count = instructions.measure("W8", 200)
    path = tmp_path / "instructions.json"
    monkeypatch.setattr(check, "_COMMITTED", path)
    monkeypatch.setattr(check, "SCENARIOS", {"W8": scenarios.w8})
    monkeypatch.setattr(check, "_count", lambda name: instructions.measure(name, 200))
    for committed, status in ((count, 0), (count / 1.03, 1)):
        of_toolchain = {"reason": _REASON, "instructions_per_request": {"W8": committed}}
        path.write_text(json.dumps({instructions.toolchain(): of_toolchain}))
        assert check.main([]) == status, capsys.readouterr().out


def test_continuous_integration_runs_it() -> None:
    (line,) = [
        line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make")
    ]
    assert "bench-check" in line.split()
