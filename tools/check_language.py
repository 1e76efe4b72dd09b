"""Finds words that the project does not use in comments, docstrings, messages and documents.

    python tools/check_language.py [PATH …]

Each line of `denied_words.txt` is a pattern of words and what to write instead. Code and text
between backticks are exempt, so identifiers such as Optuna's `tell` may be named.

In sources of Python and C++ it also finds variables whose names do not say what they hold, and
comments that begin with a pronoun: what that stands for is clear to the author alone.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
WORDS = Path(__file__).with_name("denied_words.txt")
FOLDERS = (
    *("cpp", "python", "tests", "tools", "benchmarks", "experiments", "examples", "notebooks"),
    *("docs", ".github", "conda"),
)
NOTEBOOKS = "notebooks"  # whose comments are prose
FILES = ("CMakeLists.txt", "Makefile", "pyproject.toml", "CITATION.cff", ".ci/run")
CPP = {".cpp", ".h"}
DOCUMENTS = {".md", ".yaml", ".yml", ".toml", ".cmake", ".cff"}

# The prose of C++ is in comments and quotes. The last alternative skips characters such as '"'.
_CPP = re.compile(
    r"//[/!]?<?(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/"
    r'|R"(?P<mark>[^(]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\\n])*)"'
    r"|'(?:\\.|[^'\\\n])'",
    re.DOTALL,
)
_INLINE_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", re.DOTALL)
_PYTHON_STRING = re.compile(r"(?P<prefix>[a-zA-Z]*)(?P<quote>\"\"\"|'''|\"|')")
_REPLACED = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")  # in f-strings
_CODE = "\0"  # stands for each character of code
_LINE_BREAK = re.compile(rf"[\s{_CODE}]*\n[\s{_CODE}]*")

_VAGUE = {"cure", "doubt", "doubts", "stated", "to" + "ld"}
_LOOP = "one"  # denied as the variable of a loop or of a lambda
_CPP_NAME = re.compile(rf"\b({'|'.join(sorted(_VAGUE))})\b|\bfor \([^;{{}}]*?\b({_LOOP}) :")
# `This limit …` names what it speaks of, and so does `Which instances …`; `This is …` does not.
_PRONOUN = re.compile(
    r"[\s#/*!<]*((?:It|Its|They|Them|Their|Those|He|She|Whose)\b"
    r"|(?:This|These|That|Which)(?= (?:is|are|was|were|has|have|does|do|did|can|may|must|would)\b))"
)


class Rule(NamedTuple):
    """A pattern of denied words and what to write instead."""

    pattern: re.Pattern[str]
    suggestion: str


class Finding(NamedTuple):
    """Denied words that begin in a line of a file."""

    line: int
    words: str
    suggestion: str


def rules(text: str) -> list[Rule]:
    """Rules of a list with lines `pattern = suggestion`; lines that begin with # are notes."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [line.split(" = ", 1) for line in lines]
    return [
        Rule(re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE), suggestion)
        for pattern, suggestion in pairs
    ]


def _masked(text: str) -> str:
    return re.sub(r"[^\n]", _CODE, text)


def _only(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with everything outside of the spans masked."""
    result, at = "", 0
    for start, end in spans:
        result += _masked(text[at:start]) + text[start:end]
        at = end
    return result + _masked(text[at:])


def _cpp_prose(text: str) -> str:
    groups = ("line", "block", "raw", "text")
    return _only(text, [m.span(g) for m in _CPP.finditer(text) for g in groups if m[g] is not None])


def _python_prose(text: str) -> str:
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    exports = re.search(r"^__all__ = \[.*?\]", text, re.DOTALL | re.MULTILINE)  # identifiers
    code = exports.span() if exports else (0, 0)
    fstring_middle = getattr(tokenize, "FSTRING_MIDDLE", None)  # from Python 3.12 on
    spans = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        start = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        if code[0] <= start < code[1]:
            continue
        if token.type == tokenize.COMMENT:
            spans.append((start + 1, end))
        elif token.type == fstring_middle:
            spans.append((start, end))
        elif token.type == tokenize.STRING and (begin := _PYTHON_STRING.match(token.string)):
            inner = (start + begin.end(), end - len(begin["quote"]))
            if "f" in begin["prefix"].lower():
                replaced = [m.span() for m in _REPLACED.finditer(token.string)]
                edges = [inner[0], *(start + i for span in replaced for i in span), inner[1]]
                spans += zip(edges[::2], edges[1::2], strict=True)
            else:
                spans.append(inner)
    return _only(text, spans)


def findings(text: str, suffix: str, denied: list[Rule]) -> list[Finding]:
    """What of `denied` a file of this suffix contains, in order of place, also across lines."""
    if suffix in CPP:
        text = _cpp_prose(text)
    elif suffix == ".py":
        text = _python_prose(text)
    text = _INLINE_CODE.sub(lambda code: _masked(code[0]), text)
    parts = _LINE_BREAK.split(text)
    starts, lines = [0], [1]
    for part, gap in zip(parts, _LINE_BREAK.findall(text), strict=False):
        starts.append(starts[-1] + len(part) + 1)
        lines.append(lines[-1] + gap.count("\n"))
    joined = " ".join(parts)
    return sorted(
        Finding(lines[bisect_right(starts, m.start()) - 1], m[0], rule.suggestion)
        for rule in denied
        for m in rule.pattern.finditer(joined)
    )


def _loop_variables(tree: ast.AST) -> Iterator[ast.Name | ast.arg]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            yield from (name for name in ast.walk(node.target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.Lambda):
            yield from node.args.args


def _python_code(text: str) -> Iterator[tuple[int, str, str]]:
    """Vague names with their lines, and all comments with theirs, as (line, name, comment)."""
    for variable in _loop_variables(ast.parse(text)):
        name = variable.id if isinstance(variable, ast.Name) else variable.arg
        if name == _LOOP:
            yield variable.lineno, name, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in _VAGUE:
            yield token.start[0], token.string, ""
        elif token.type == tokenize.COMMENT:
            yield token.start[0], "", token.string


def _cpp_code(text: str) -> Iterator[tuple[int, str, str]]:
    """The same of C++."""
    code, at = "", 0
    for prose in _CPP.finditer(text):
        code += text[at : prose.start()] + _masked(prose[0])
        at = prose.end()
        if prose["line"] is not None or prose["block"] is not None:
            yield text.count("\n", 0, prose.start()) + 1, "", prose[0]
    code += text[at:]
    for name in _CPP_NAME.finditer(code):
        yield code.count("\n", 0, name.start()) + 1, name[1] or name[2], ""


def vague(text: str, suffix: str) -> list[Finding]:
    """Names that say nothing, and comments that begin with a pronoun, of a source."""
    lines = ["", *text.split("\n")]
    found = []
    for line, name, comment in (_cpp_code if suffix in CPP else _python_code)(text):
        continues = all(
            each.lstrip().startswith(("#", "//")) for each in lines[line - 1 : line + 1]
        )
        if name:
            found.append(Finding(line, name, "a noun for what the variable holds"))
        elif not continues and (pronoun := _PRONOUN.match(comment)):
            found.append(Finding(line, pronoun[1], "the noun in place of the pronoun"))
    return sorted(found)


def sources(path: Path) -> list[Path]:
    """The file, or the files of a folder that are checked: all but generated ones."""
    if path.is_file():
        return [path]
    suffixes = {*CPP, *DOCUMENTS, ".py"}
    return sorted(p for p in path.rglob("*") if p.suffix in suffixes or p.name == "CMakeLists.txt")


def everything() -> list[Path]:
    """The folders and files that are checked unless others are named."""
    paths = [*(ROOT / name for name in (*FOLDERS, *FILES)), *sorted(ROOT.glob("*.md"))]
    return [path for path in paths if path.exists()]


def main(arguments: list[str]) -> int:
    """Command line; 1 if anything was found."""
    denied = rules(WORDS.read_text())
    paths = [Path(argument) for argument in arguments] or everything()
    if missing := [path for path in paths if not path.exists()]:
        sys.exit(f"{missing[0]}: no such file or folder")
    found = 0
    for path in (file for root in paths for file in sources(root)):
        text = path.read_text()
        every = findings(text, path.suffix, denied)
        if path.suffix in {*CPP, ".py"} and NOTEBOOKS not in path.parts:
            every += vague(text, path.suffix)
        for line, words, suggestion in every:
            name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            print(f"{name}:{line}: {words} → {suggestion}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
