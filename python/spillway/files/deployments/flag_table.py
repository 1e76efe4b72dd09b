"""The flags of a program by version, and command lines read with them.

A table is a CSV file beside the module of a system, written by `tools/generate_flag_tables.py` from
the parsers of the system itself or by hand. `kind` says how a flag takes values: `value` one,
`values` several, `optional` one or none, `switch` none, `pair` none, with a form `--no-…`.
"""

from __future__ import annotations

import csv
import difflib
import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.target import Unread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Flag:
    """A flag: its name without dashes, how it takes values, and its variable, if it has one."""

    name: str
    kind: str
    variable: str = ""


@dataclass
class Line:
    """A command line: words that are no flags, values of flags by name, and what is neither."""

    words: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)


class Flags:
    """The flags of a program in a version, by each of their spellings."""

    def __init__(self, program: str, version: str, flags: dict[str, Flag]) -> None:
        self.program = program
        self.version = version
        self._by_spelling = flags

    @property
    def all(self) -> tuple[Flag, ...]:
        """Every flag once."""
        return tuple({flag.name: flag for flag in self._by_spelling.values()}.values())

    def exactly(self, spelling: str) -> Flag | None:
        """The flag of a whole spelling."""
        name = spelling.replace("_", "-") if spelling.startswith("--") else spelling
        return self._by_spelling.get(name)

    def get(self, spelling: str, where: str = "") -> Flag | None:
        """The flag of a spelling, which may be its unambiguous beginning."""
        name = spelling.replace("_", "-")
        if self.exactly(spelling) or not name.startswith("--") or not name.strip("-"):
            return self.exactly(spelling)
        known = {flag.name: flag for key, flag in self._by_spelling.items() if key.startswith(name)}
        if len(known) > 1:
            allowed = f"is the beginning of {', '.join(f'--{key}' for key in sorted(known)[:12])}"
            raise config_error([(f"{where}: {name}", "", allowed)])
        return next(iter(known.values()), None)

    def nearest(self, spelling: str) -> str:
        """The nearest spelling, as a remark; empty if none is near."""
        name = spelling.replace("_", "-")
        near = difflib.get_close_matches(name, self._by_spelling, n=1, cutoff=0.75)
        return f"; did you mean {near[0]}?" if near else ""

    def line(self, words: Sequence[str], where: str, *, is_part: bool = False) -> Line:
        """The flags and values of a command line.

        `is_part`: it has flags of another program too, so that no beginning is unambiguous.
        """
        found = Line()
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--":
                found.words += left
                break
            if not _FLAG.match(word):
                found.words.append(word)
                continue
            self._take(word, left, found, where, is_part=is_part)
        return found

    def _take(self, word: str, left: list[str], found: Line, where: str, *, is_part: bool) -> None:
        spelling, is_given, text = word.partition("=")
        spelling, _, below = spelling.partition(".")
        flag, is_off = self.exactly(spelling) if is_part else self.get(spelling, where), False
        if flag is None and re.match(r"-[A-Za-z]\d", word):  # a short flag with its value: -O3
            flag, is_given, text = self.get(word[:2]), "=", word[2:]
        if flag is None and spelling.startswith(("--no-", "--no_")):
            name = f"--{spelling[5:]}"
            positive = self.exactly(name) if is_part else self.get(name, where)
            if positive is not None and positive.kind == "pair":
                flag, is_off = positive, True
        if flag is None:
            if not is_given and left and not _FLAG.match(left[0]):
                text = left.pop(0)
            reason = f"is no flag of {self.program} {self.version}{self.nearest(spelling)}"
            found.unread.append(Unread(f"{where}: {word.partition('=')[0]}", text, reason))
            return
        value: Any = text
        if is_off or (flag.kind in ("switch", "pair") and not is_given):
            value = not is_off
        elif not is_given:
            value = self._values(flag, left, f"{where}: {spelling}")
        elif flag.kind in ("switch", "pair"):
            value = _truth(text, f"{where}: {spelling}")
        elif flag.kind == "values":
            value = [text]
        if isinstance(value, str):
            value = scalar(value, f"{where}: {flag.name}")
        if below:
            held = found.values.get(flag.name)
            held = held if isinstance(held, dict) else {}
            found.values[flag.name] = held | {below: value}
            return
        if flag.name in found.values:
            before = found.values[flag.name]
            reason = "is given again later"
            found.unread.append(Unread(f"{where}: {flag.name}", before, reason, "irrelevant"))
        found.values[flag.name] = value

    @staticmethod
    def _values(flag: Flag, left: list[str], where: str) -> Any:
        """The words that are the value of a flag."""
        taken = []
        while left and left[0] != "--" and not _FLAG.match(left[0]):
            taken.append(left.pop(0))
            if flag.kind != "values":
                break
        if flag.kind == "values":
            return taken
        if not taken and flag.kind == "value":
            raise config_error([(where, "", "has no value")])
        return taken[0] if taken else True


_FLAG = re.compile(r"--?[a-zA-Z]")
_TRUTHS = {"true": True, "1": True, "yes": True, "on": True}
_TRUTHS |= {"false": False, "0": False, "no": False, "off": False, "": False}


def _truth(text: str, where: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise config_error([(where, repr(text), "must be true or false")])
    return _TRUTHS[text.lower()]


def scalar(text: str, where: str) -> Any:
    """A value of a command line: a number or a truth value if it looks like one."""
    if text[:1] in "{[" or not re.fullmatch(r"[-+.\w]*", text):
        return text
    value = parse(text, where)
    return text if isinstance(value, dict | list) else value


@functools.cache
def table(path: Path, program: str, version: str) -> Flags:
    """The flags of a program in the newest version of its table that is not newer."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["program"] == program]
    wanted = number(version)
    found: dict[str, Flag] = {}
    for row in rows:
        if number(row["first"]) <= wanted and (not row["last"] or wanted <= number(row["last"])):
            flag = Flag(row["flag"], row["kind"], row["variable"])
            for spelling in (f"--{row['flag']}", *row["others"].split()):
                found[spelling] = flag
    return Flags(program, version, found)


def number(version: str) -> tuple[int, ...]:
    """A version for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def nearest_version(version: str, known: Sequence[str]) -> str:
    """The newest known version that is not newer than another, or else the oldest one."""
    older = [entry for entry in known if number(entry) <= number(version)]
    return older[-1] if older else known[0]
