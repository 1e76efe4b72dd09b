"""`tools/check_language.py` finds denied words in prose, and only there."""

import runpy
from pathlib import Path

import pytest
from support.paths import ROOT, importing_from

SCRIPT = Path(__file__).parents[2] / "tools" / "check_language.py"
CHECK = runpy.run_path(str(SCRIPT))
RULES = CHECK["rules"]("# a note\nbanana(?:s)? = fruit\nsplit pea = soup\n")


def found(text: str, suffix: str) -> list[tuple[int, str]]:
    return [(line, words) for line, words, _ in CHECK["findings"](text, suffix, RULES)]


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".md", "One.\nA Banana, bananas; bananarama.", [(2, "Banana"), (2, "bananas")]),
        (".md", "A `banana` and ``a banana``, not a banana.", [(1, "banana")]),
        (".md", "Open ` banana\n\nand close ` banana", [(1, "banana"), (3, "banana")]),
        (".md", "A split\npea.", [(1, "split pea")]),
        (".cpp", "banana(); // a banana\nint banana;", [(1, "banana")]),
        (".h", "/* a\nbanana */ b('\"'); // split\n  /// pea", [(2, "banana"), (2, "split pea")]),
        (".cpp", 'f("a \\" banana", banana, R"(a\nbanana)")', [(1, "banana"), (2, "banana")]),
        (".cpp", 'f("a split "\n  "pea");', [(1, "split pea")]),
        (".cpp", 'f("a split" + pea + "pea");', []),
        (".py", "banana = 1  # a banana\nbanana()", [(1, "banana")]),
        (".py", '"""One.\n\nA banana."""\nbanana()', [(3, "banana")]),
        (".py", 'banana = "split " \\\n    "pea"', [(1, "split pea")]),
        (".py", 'f"banana {banana:>{banana}} {banana} split " f"{x} pea"', [(1, "banana")]),
        (".py", "# A split\n# pea of `banana`.", [(1, "split pea")]),
    ],
)  # fmt: skip
def test_words_of_prose_are_found(suffix: str, text: str, expected: list[tuple[int, str]]) -> None:
    assert found(text, suffix) == expected


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".py", "for one in ():\n    one.one()\none = 1", [(1, "one")]),
        (".py", "[f(lambda one, other: one)\n for a, (one, b) in c]", [(1, "one"), (2, "one")]),
        (".py", "f(stated=1)\ncure.doubt = doubts",
         [(1, "stated"), (2, "cure"), (2, "doubt"), (2, "doubts")]),
        (".py", "'''cure'''\n# cure, one\nx = 'stated'", []),
        (".py", "# It is late.\nf()  # Those of a\n# run: they\n", [(1, "It"), (2, "Those")]),
        (".py", "# A limit: for\n# Its policy.\n", []),
        (".py", "# This limit holds.\n# b\nf()  # Which is it?\n# a\nf()\n# This is bad.",
         [(3, "Which"), (6, "This")]),
        (".cpp", "for (const auto& one : all) f(one);\nint one = cure;", [(1, "one"), (2, "cure")]),
        (".h", 'f("one");  // Its rank.\n/// Them\n\n/* They\ncure */ int stated;',
         [(1, "Its"), (2, "Them"), (4, "They"), (5, "stated")]),
        (".h", "/// Which request yields.\n// It does.\nint a;  ///< It too.", [(3, "It")]),
    ],
)  # fmt: skip
def test_vague_names_and_comments_are_found(
    suffix: str, text: str, expected: list[tuple[int, str]]
) -> None:
    assert [(line, words) for line, words, _ in CHECK["vague"](text, suffix)] == expected


@pytest.mark.parametrize(
    "bad", ["nob" + "ody", "may be " + "absent", "behav" + "iour", "fores" + "een", "like" + "wise"]
)
def test_the_list_denies(tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str) -> None:
    (tmp_path / "clean.py").write_text('"""A request may be rejected."""\n')
    assert CHECK["main"]([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""

    (tmp_path / "bad.py").write_text(f'"""One line."""\n# It says {bad}.\n')
    assert CHECK["main"]([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"{tmp_path}/bad.py:2: {bad} → ")


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such file or folder"):
        CHECK["main"]([str(tmp_path / "missing")])


def test_what_users_read_is_checked() -> None:
    root = SCRIPT.parents[1]
    checked = {file for path in CHECK["everything"]() for file in CHECK["sources"](path)}
    prose = [
        *root.glob("*.md"),
        *(root / "docs").rglob("*.md"),
        *(root / "notebooks").glob("*.py"),
        *(root / "examples").rglob("*.md"),
        *(root / "examples").glob("*.yaml"),
        *(root / "python").rglob("*.md"),
        *(root / "python").rglob("*.py"),  # errors, notes, help of commands
        *(root / "cpp").rglob("*.h"),  # descriptions of settings
        *(root / "cpp").rglob("*.cpp"),
    ]
    assert [path for path in prose if path not in checked] == []


@pytest.mark.slow
def test_the_generated_reference_is_clean() -> None:
    with importing_from(ROOT / "tools"):
        from documentation import reference
    denied = CHECK["rules"]((ROOT / "tools" / "denied_words.txt").read_text())
    found = {
        name: findings
        for name, page in reference.pages().items()
        if (findings := CHECK["findings"](page, ".md", denied))
    }
    assert found == {}
