"""The C++ core keeps its dependency rule, read from its `#include` lines and its code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.paths import ROOT, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CPP = ROOT / "cpp"

# A folder includes itself and lower ranks; folders of one rank are siblings and do not meet.
RANK = {
    "sim": 0,
    "numerics": 1,
    "workload": 2,
    "signals": 3,
    "gateway": 4,
    "router": 4,
    "fleet": 4,
    "instance": 4,
    "metrics": 5,
    "cluster": 6,
    "bindings": 7,
}
SEARCH_MAY_INCLUDE = {"search", "sim", "numerics"}
MAY_INCLUDE_SEARCH = {"search", "bindings"}

# This file and all that it includes hold settings alone. The classes of `sim` are no part of any
# stage: spans of time, errors.
SETTINGS = "cluster/config.h"
BELOW_SETTINGS = {"sim"}

# Header → the folders that may include it.
RESTRICTED = {
    r"pybind11/.*|Python\.h": {"bindings"},
    r"(unsupported/)?Eigen/.*": {"numerics", "search", "bindings"},
    r"random|iostream|format": set[str](),
}

# pybind11 calls the translator of errors as a plain function, which can carry no state of its own.
STATIC_ALLOWED = {
    ("bindings/sim.cpp", f"static PyObject* {name}")
    for name in ("config_error", "usage_error", "invariant_error", "livelock_error")
} | {("cluster/nesting.cpp", "thread_local Nesting place_of_thread")}

# File → what may be said about BLIS in code. Comments and prose may cite it anywhere.
BLIS_ALLOWED = {
    "cluster/profiles.h": r".*",
    "cluster/profiles.cpp": r".*",
    "metrics/config.h": r"(Accounting::)?blis",
    "metrics/figures.h": r"blis",
    "metrics/figures.cpp": r"(in_)?blis",
    "metrics/latencies.h": r"(Accounting::)?blis",
    "metrics/latencies.cpp": r"(Accounting::)?blis",
    "bindings/metrics.cpp": r"(FigureInfo::)?blis",
    "bindings/cluster.cpp": r"blis_0_6",  # hands the values of the profiles to Python
}

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
_VARIABLE = re.compile(r"[A-Za-z_][\w:<>,\s*&\[\]]*[\s*&>]\w+(\[\w*\])?")  # a type and a name
_NO_VARIABLE = re.compile(
    r"\b(const|constexpr|static|thread_local|template|struct|class|enum|union|using|typedef|"
    r"namespace|concept|operator)\b"
)


def without_comments(source: str) -> str:
    """Code without comments and without prose: text that holds a space."""

    def replace(match: re.Match[str]) -> str:
        text = match.group()
        if text.startswith("/"):
            return " "
        return '""' if " " in text else text

    return _TOKEN.sub(replace, source)


def namespace_scope(code: str) -> Iterator[str]:
    """The declarations outside of every function and class; what is in brackets is left out."""
    code = re.sub(r"^[ \t]*#.*(\\\n.*)*$", "", code, flags=re.MULTILINE)
    opened: list[str] = []  # brackets: "namespace", "{" or "("
    declaration = ""
    for token in re.findall(r"[{}();]|[^{}();]+", code):
        inside = any(bracket != "namespace" for bracket in opened)
        if token == "{" and not inside and re.match(r"\s*(inline\s+)?namespace\b", declaration):
            opened.append("namespace")
            declaration = ""
        elif token in "{(":
            opened.append(token)
            declaration += "" if inside else token
        elif token in "})":
            ended = opened.pop() == "{" and all(bracket == "namespace" for bracket in opened)
            if ended and "(" in declaration:  # the end of a function
                yield declaration
                declaration = ""
        elif token == ";" and not inside:
            yield declaration
            declaration = ""
        elif not inside:
            declaration += token


def mutable_statics(code: str) -> Iterator[str]:
    """Variables that outlive a call and can change."""
    code = _TOKEN.sub('""', code)
    for match in re.finditer(r"\b(static|thread_local)\b[^;{=(]*", code):
        declaration = " ".join(match.group().split())
        is_function = code[match.end() : match.end() + 1] == "("
        if not is_function and not re.search(r"\b(const|constexpr)\b", declaration):
            yield declaration
    for declaration in namespace_scope(code):
        head = re.split(r"[={]", declaration, maxsplit=1)[0].strip()
        if _VARIABLE.fullmatch(head) and not _NO_VARIABLE.search(head):
            yield " ".join(head.split())


def include_violations(folder: str, source: str) -> Iterator[str]:
    """What a file of `folder` includes and must not."""
    for bracket, header in _INCLUDE.findall(source):
        if bracket == "<":
            for pattern, folders in RESTRICTED.items():
                if re.fullmatch(pattern, header) and folder not in folders:
                    yield f"includes <{header}>"
            continue
        target = header.split("/")[0]
        if "/" not in header or (target not in RANK and target != "search"):
            yield f'includes "{header}", which is no path from cpp/'
        elif "search" in (folder, target):
            if (target == "search" and folder not in MAY_INCLUDE_SEARCH) or (
                folder == "search" and target not in SEARCH_MAY_INCLUDE
            ):
                yield f'includes "{header}"'
        elif target != folder and RANK[target] >= RANK[folder]:
            yield f'includes "{header}"'


def included_from(root: Path, name: str) -> set[str]:
    """A file of `root` and all that it includes, whatever lies between."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name in found or not (root / name).is_file():
            continue
        found.add(name)
        source = (root / name).read_text(encoding="utf-8")
        waiting += [header for bracket, header in _INCLUDE.findall(source) if bracket == '"']
    return found


def behavior_in(code: str) -> Iterator[str]:
    """Classes that are defined, not only declared: what has state, or a contract of behavior."""
    code = _TOKEN.sub('""', code)
    for match in re.finditer(r"(?<!enum )\bclass\s+(\w+)[^;{}()>]*\{", code):
        yield f"class {match[1]}"
    if re.search(r"\bvirtual\b", code):
        yield "virtual functions"


def violations(root: Path) -> list[str]:
    """Everything under `root` that breaks a rule, as `file: what`."""
    found = []
    settings = included_from(root, SETTINGS)
    for path in sorted((*root.rglob("*.h"), *root.rglob("*.cpp"))):
        name = path.relative_to(root).as_posix()
        folder = name.split("/")[0]
        if folder not in RANK and folder != "search":
            found.append(f"{name}: lies in no known folder")
            continue
        source = path.read_text(encoding="utf-8")
        code = without_comments(source)
        found += [f"{name}: {what}" for what in include_violations(folder, source)]
        if name in settings and folder not in BELOW_SETTINGS:
            found += [f"{name}: is among the settings, has {what}" for what in behavior_in(code)]
        if "std::format" in code:
            found.append(f"{name}: uses std::format")
        found += [
            f"{name}: mutable state: {declaration}"
            for declaration in mutable_statics(code)
            if (name, declaration) not in STATIC_ALLOWED
        ]
        allowed = BLIS_ALLOWED.get(name, r"(?!)")
        found += [
            f"{name}: mentions {word}"
            for word in re.findall(r"[\w:]*blis\w*", code, flags=re.IGNORECASE)
            if not re.fullmatch(allowed, word)
        ]
    return found


def test_core_keeps_the_rule() -> None:
    assert violations(CPP) == []


def test_settings_reach_every_stage() -> None:
    seen = {name.split("/")[0] for name in included_from(CPP, SETTINGS)}
    assert {"workload", "signals", "gateway", "router", "instance", "fleet", "metrics"} <= seen


def test_every_file_is_seen() -> None:
    seen = {path.relative_to(CPP).parts[0] for path in CPP.rglob("*.h")}
    assert {"sim", "workload", "gateway", "router", "instance", "metrics", "cluster"} <= seen
    includes = [
        header
        for path in CPP.rglob("*.h")
        for header in _INCLUDE.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(includes) > 100


CLEAN = {
    "sim/time.h": "#include <cstdint>\nnamespace a { inline constexpr int kOne = 1; }\n",
    "numerics/fit.cpp": '#include <Eigen/Core>\n#include "sim/time.h"\n',
    "search/model.cpp": '#include <Eigen/Core>\n#include "numerics/fit.h"\n',
    "workload/trace.cpp": '#include "numerics/fit.h"\n#include "workload/trace.h"\n',
    "gateway/limit/fixed.cpp": (
        '#include "signals/view.h"  // as in BLIS\n'
        "namespace a {\nnamespace {\n"
        "class Policy { public: int get() const { return n_; } private: int n_ = 0; };\n"
        "const char* const kDoc = \"a policy of BLIS\";\n"
        "}\n"
        "int one(int a) { int local = a; static const int two = 2; return local + two; }\n"
        "static int helper(int a);\n"
        "bool operator==(int a, int b);\n"
        "}\n"
    ),
    "gateway/limit/fixed.h": (
        "namespace a {\nclass LimitPolicy;\nenum class Kind { one, two };\n"
        "template <class T>\nvoid add(T field) { field(1); }\n"
        "struct Fixed { int n = 1; };  // no class Fixed {\n}\n"
    ),
    "gateway/pipeline.h": "namespace a { class Pipeline { int in_flight_ = 0; }; }\n",
    "cluster/config.h": '#include "gateway/limit/fixed.h"\n#include "sim/clock.h"\n',
    "sim/clock.h": "namespace a { class Quantum { int ns_ = 1; }; }\n",
    "metrics/ledger.cpp": '#include "gateway/pipeline.h"\n#include "instance/group.h"\n',
    "metrics/latencies.h": "bool b() { return a() == Accounting::blis; }\n",
    "cluster/run.cpp": '#include "metrics/ledger.h"\n',
    "bindings/module.cpp": '#include <pybind11/pybind11.h>\n#include "cluster/run.h"\n',
}  # fmt: skip

BROKEN = {
    "upwards": ("sim/x.h", '#include "workload/trace.h"', 'includes "workload/trace.h"'),
    "sibling": ("router/x.cpp", '#include "gateway/config.h"', 'includes "gateway/config.h"'),
    "sibling, indented": ("fleet/x.h", '  # include "instance/group.h"', "instance/group.h"),
    "metrics from a stage": ("instance/x.h", '#include "metrics/config.h"', "metrics/config.h"),
    "search of a stage": ("search/x.h", '#include "workload/trace.h"', "workload/trace.h"),
    "a stage of search": ("cluster/x.h", '#include "search/model.h"', "search/model.h"),
    "relative": ("router/x.cpp", '#include "router.h"', "no path from cpp/"),
    "unknown folder": ("util/x.h", "", "no known folder"),
    "pybind11": ("cluster/x.cpp", "#include <pybind11/numpy.h>", "pybind11/numpy.h"),
    "Python": ("sim/x.h", "#include <Python.h>", "Python.h"),
    "Eigen": ("router/x.cpp", "#include <Eigen/Dense>", "Eigen/Dense"),
    "random": ("sim/x.cpp", "#include <random>", "<random>"),
    "iostream": ("bindings/x.cpp", "#include <iostream>", "<iostream>"),
    "format": ("sim/x.cpp", "auto f() { return std::format(1); }", "std::format"),
    "static": ("sim/x.cpp", "int f() { static int calls; return ++calls; }", "static int calls"),
    "static, braces": ("sim/x.cpp", "void f() { static Map<int, int> m{}; }", "static Map<int"),
    "thread_local": ("sim/x.cpp", "thread_local int depth;", "thread_local int depth"),
    "member": ("sim/x.h", "struct A { static inline int n = 0; };", "static inline int n"),
    "global": ("sim/x.cpp", "namespace a {\nnamespace {\nint count = 0;\n}\n}", "int count"),
    "global, inline": ("sim/x.h", "namespace a::b { inline vector<int> all{}; }", "vector<int>"),
    "global after a function": ("sim/x.cpp", "int f() { return 1; }\nint count;", "int count"),
    "another system": ("gateway/x.cpp", "bool f() { return is_blis; }", "mentions is_blis"),
    "its profile": ("instance/x.cpp", 'bool f(S p) { return p == "blis"; }', "mentions blis"),
    "state among the settings": (
        "gateway/limit/fixed.h", "class Gauge final : public B { int n_ = 0; };", "class Gauge"
    ),
    "a contract among the settings": (
        "gateway/limit/fixed.h", "struct Limit { virtual ~Limit() = default; };", "virtual"
    ),
    "beyond the accounting": (
        "cluster/run.cpp", "bool f() { return a == Accounting::blis; }", "mentions Accounting::blis"
    ),
}  # fmt: skip


def test_clean_tree_has_no_violation(tmp_path: Path) -> None:
    assert violations(written(tmp_path, CLEAN)) == []


def test_settings_are_followed_through_what_they_include(tmp_path: Path) -> None:
    between = {"gateway/limit/fixed.h": '#include "gateway/pipeline.h"\n'}
    assert violations(written(tmp_path, CLEAN | between)) == [
        "gateway/pipeline.h: is among the settings, has class Pipeline"
    ]


@pytest.mark.parametrize("name", BROKEN)
def test_violation_is_found(tmp_path: Path, name: str) -> None:
    file, content, expected = BROKEN[name]
    (found,) = violations(written(tmp_path, CLEAN | {file: content}))
    assert found.startswith(f"{file}: ")
    assert expected in found
