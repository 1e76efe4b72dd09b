"""`tools/mutants.py` puts faults into code, and only there."""

import runpy
from pathlib import Path

FAULTS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "mutants.py"))["faults"]


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
