"""Numbers, settings and tables as plain text."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


_LONGEST_SETTING = 60  # characters
_LONGEST_SAMPLE = 40
_KEY = re.compile(
    r"\b((?:sk-|hf_|gh[pousr]_|github_pat_|nvapi-|glpat-)[\w-]{12,}|eyJ[\w-]{8,}\.[\w.-]+)( *)"
)
_GAP = 2  # spaces between columns
_NO_DECIMALS = 1e4  # settings from here on are shown as whole numbers
_EXACT = 1e15  # whole numbers below this are shown in full


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left, the others to the right; row one is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def number(value: float | None) -> str:
    """A figure for display, `-` for None; the number of decimals depends on its size."""
    if value is None:
        return "-"
    if value == 0 or isinstance(value, int):
        return f"{int(value):,}"
    size = abs(value)
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 4
    return f"{value:,.{decimals}f}"


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless it is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def without_keys(text: str) -> str:
    """A text in which API keys, such as tenants that are named by theirs, are shortened.

    Equal keys stay equal, different ones different, and columns stay aligned.
    """

    def short(match: re.Match[str]) -> str:
        key, gap = match[1], match[2]
        alias = f"{key[:3]}…{hashlib.sha256(key.encode()).hexdigest()[:6]}"
        return alias + (gap if len(gap) < _GAP else gap + " " * (len(key) - len(alias)))

    return _KEY.sub(short, text)


def wrapped(text: str, indent: str = "", width: int = 100) -> str:
    """Text in lines that do not break names and addresses."""
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def figures(values: Mapping[str, Any]) -> str:
    """Every figure on a separate line."""
    return table([["figure", "value"], *([name, number(value)] for name, value in values.items())])


def sample(content: str) -> str:
    """The beginning of a file's content for errors: 40 characters at most, escaped.

    A configuration can name any file as a trace, so a message must not show much of it.
    """
    start = content[:_LONGEST_SAMPLE]
    shown = "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in start
    )
    return shown + "…" * (len(content) > _LONGEST_SAMPLE)


def quoted(content: str) -> str:
    """The `sample` of a content in quotes."""
    return repr(content[:_LONGEST_SAMPLE]) + "…" * (len(content) > _LONGEST_SAMPLE)


def setting(value: Any, longest: int | None = _LONGEST_SETTING) -> str:
    """The value of any setting for display, in the form of a configuration file.

    Without what is unset in it; text of more characters than `longest` is cut.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        is_whole = value.is_integer() or abs(value) >= _NO_DECIMALS
        return f"{value:.0f}" if is_whole and abs(value) < _EXACT else f"{value:.4g}"
    if isinstance(value, Mapping):
        known = [f"{k}: {setting(v, None)}" for k, v in value.items() if v is not None]
        text = "{" + ", ".join(known) + "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(setting(element, None) for element in value) + "]"
    else:
        return str(value)
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def point(values: Mapping[str, Any]) -> str:
    """Settings with their values, in one line."""
    return ", ".join(f"{name} = {setting(value)}" for name, value in values.items())
