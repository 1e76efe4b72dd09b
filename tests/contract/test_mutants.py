"""`tools/mutants.py` puts faults into code, and only there, and continues where it stopped."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT, importing_from

with importing_from(ROOT / "tools"):
    import mutants

FAULTS = mutants.faults


def test_faults_are_in_code(tmp_path: Path) -> None:
    source = """\
#if 1 == 1
// a < b
static void fields(auto field) { field("a", &A::a, "1 < 2").range(at_least(0)); }
const char* kText = "a < b";
bool operator<(A a, B b) { return a.x <= b.x && a.y; }
"""
    (tmp_path / "cpp" / "router").mkdir(parents=True)
    (tmp_path / "cpp" / "router" / "a.cpp").write_text(source)
    (tmp_path / "cpp" / "router" / "a_config.h").write_text("int a = 1 + 1;")
    (tmp_path / "cpp" / "sim").mkdir()
    (tmp_path / "cpp" / "sim" / "a.cpp").write_text("int a = 1 + 1;")

    found = FAULTS(tmp_path)

    assert [(fault.found, fault.instead, fault.line(source)) for fault in found] == [
        (" <= ", " < ", 5),
        (" && ", " || ", 5),
    ]
    assert FAULTS(tmp_path, Path("cpp/router/a.cpp")) == found
    assert FAULTS(tmp_path, Path("cpp/router/b.cpp")) == []
    assert all(source[fault.offset :].startswith(fault.found) for fault in found)


def test_an_interrupted_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    for folder in mutants.FOLDERS:
        (repository / "cpp" / folder).mkdir(parents=True)
    source = repository / "cpp" / "router" / "a.cpp"
    source.write_text("bool a = b < c || d < e || f == g;")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "init", "--quiet", repository], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "Add a"], check=True)
    build = tmp_path / "build"
    build.mkdir()
    monkeypatch.setattr(mutants, "ROOT", repository)
    monkeypatch.setattr(mutants, "BUILD", build)
    monkeypatch.setattr(mutants, "ROWS", build / "mutants.csv")
    monkeypatch.setattr(sys, "argv", ["mutants.py"])
    judged = []

    def killer(_judge: object, fault: object) -> str:
        if len(judged) == stops_after:
            raise KeyboardInterrupt
        judged.append(fault)
        return "test-native" if len(judged) % 2 else ""

    monkeypatch.setattr(mutants.Judge, "killer", killer)
    stops_after = 2
    with pytest.raises(KeyboardInterrupt):
        mutants.main()
    source.write_text("an edit that is not part of the run")
    stops_after = 99
    assert mutants.main() == 0

    assert len(judged) == len(set(judged)) == len(FAULTS(build / "mutants")) == 5
    rows = (build / "mutants.csv").read_text().splitlines()
    assert [row.rpartition(",")[2] for row in rows[1:]] == ["test-native", ""] * 2 + ["test-native"]
    monkeypatch.setattr(sys, "argv", ["mutants.py", "--seed", "2"])
    with pytest.raises(SystemExit, match="another run"):
        mutants.main()
