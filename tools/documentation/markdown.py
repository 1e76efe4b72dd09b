"""Pieces of Markdown (MyST) that the generators of the reference share."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(``.+?``|`[^`\n]+`)", re.DOTALL)
_NAME = r"[A-Za-z]\w*(?:\[[^\]\s]*\])?"
_PATH = rf"{_NAME}(?:\.{_NAME})*"
_WORD = re.compile(rf"(?<![\w./-])(--[a-z][\w-]*|{_PATH}(?:[=,]{_PATH})*)(?![\w/])")
_SPECIAL = re.compile(r"([\\<>*\[\]|$])")


def prose(text: str) -> str:
    """Plain text, e.g. of a descriptor: identifiers become code, special characters stay."""
    parts = _CODE.split(text)
    for i in range(0, len(parts), 2):
        pieces = _WORD.split(parts[i])
        for j, piece in enumerate(pieces):
            is_code = j % 2 and _is_identifier(piece)
            pieces[j] = f"`{piece}`" if is_code else _SPECIAL.sub(r"\\\1", piece)
        parts[i] = "".join(pieces)
    return "".join(parts)


def _is_identifier(word: str) -> bool:
    """Whether a word is a name of the program: an option, or a path with `_`, `[]` or two dots."""
    steps = word.split(".")
    return word.startswith("--") or "_" in word or "[" in word or (len(steps) > 2 and len(word) > 8)


def sentence(text: str) -> str:
    """Markdown that begins with a capital letter and ends with a period."""
    begins_with_a_name = text.startswith("`") or "_" in text.split(" ", 1)[0]
    start = text if begins_with_a_name else text[:1].upper() + text[1:]
    return start if not start or start.endswith((".", "…", "!", "?", ":")) else f"{start}."


def facts(*pairs: tuple[str, str]) -> str:
    """A line of short facts, each with its name; those without a value are left out."""
    line = " · ".join(f"**{name}** {value}" for name, value in pairs if value)
    return f"{{.facts}}\n{line}" if line else ""


def code(text: str) -> str:
    """Text as code; empty text stays empty."""
    return f"`{text}`" if text else ""


def cell(text: str) -> str:
    """Markdown that fits into a cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", re.sub(r"\s+", " ", text)).strip()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a row may hold any Markdown of one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def page(*blocks: str) -> str:
    """Blocks, one below the other; empty ones are left out."""
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def fence(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"````{language}\n{text.rstrip()}\n````"


def label(name: str) -> str:
    """A target for links within the site: `[text](#name)`."""
    return f"({name})="


def link(text: str, name: str) -> str:
    """A link to a target."""
    return f"[{text}](#{name})"


def rooted(text: str, folder: str) -> str:
    """Text of a document in a folder of the repository, whose links begin at the root instead."""

    def target(found: re.Match[str]) -> str:
        return f"](/{posixpath.normpath(posixpath.join(folder, found[1]))}"

    return re.sub(r"\]\((?!https?:|#|/)([^)#\s]+)", target, text)
