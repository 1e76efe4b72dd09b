"""The front page: short, with a picture, with code that one reads at a glance.

`test_guides.py` runs its code and compares the output; `tests/examples/test_demo.py` compares the
figures and the picture.
"""

from __future__ import annotations

import re

from support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_front_page_is_read_in_minutes() -> None:
    assert len(README.split()) <= 800


def test_its_code_is_ten_lines_of_python_and_five_of_shell() -> None:
    lines = [(language, len(text.replace("\n\n", "\n").splitlines())) for language, text in BLOCKS]
    code = [("bash", 2), ("python", 10), ("bash", 5)]
    assert [block for block in lines if block[0] != "text"] == code
    assert max(count for language, count in lines if language == "text") <= 3


def test_every_tool_of_the_comparison_has_a_source() -> None:
    table = README.partition("| tool |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == 8
    for row in table[:-1]:
        tool, *_, speed = row.strip("|").split(" | ")
        assert "](https://" in tool
        assert "](" in speed or speed.strip() in ("not measured", "real time")
    assert "](python/" in table[-1]


def test_every_figure_that_was_measured_here_has_a_script() -> None:
    measured = re.findall(r"\*measured\*: \[[^\]]+\]\(([^)#]+)", README)
    assert [(ROOT / path).exists() for path in measured] == [True, True]
