"""Shell scripts as commands: what runs, with which variables.

Known are assignments and `export`, arrays, expansions of known variables with their defaults,
here-documents, lists and pipes of commands, loops and conditions (every branch counts), comments.
What a substitution of a command gives is not known, so its text stays.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass
class Script:
    """What a shell script holds.

    `commands`: words and environment of each command; `redirections`: files of their outputs;
    `variables`: all assignments that are not only part of one command; `documents`: here-documents
    by name.
    """

    commands: list[tuple[list[str], dict[str, str]]] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)


_HIDDEN = 0xE000  # characters of substitutions while words are split
_SPECIAL = " \t\n|;&<>()'\"#\\`"
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=]([^}]*)|:?[?+][^}]*)?\}|([A-Za-z_]\w*))"
)
_REQUIRED = re.compile(r"\$\{\w+:?\?")  # a variable without which the shell stops
_KEYWORDS = {"if", "then", "else", "elif", "do", "{", "}", "(", ")", "!", "time"}
_ENDS = {"fi", "done", "esac"}
_DECLARING = {"export", "declare", "local", "readonly", "typeset"}
_SEPARATORS = re.compile(r"[;&|]+")


def script(text: str, where: str, environment: Mapping[str, str] | None = None) -> Script:
    """The commands of a script that starts with an environment."""
    found = Script()
    body = _without_documents(text, found.documents)
    known = dict(environment or {})
    exported = set(known)
    arrays: dict[str, list[str]] = {}
    for words in _statements(body, where, found.redirections):
        own: dict[str, str] = {}
        left = list(words)
        while left and (left[0] in _KEYWORDS or left[0] in _ENDS):
            left.pop(0)
        is_declared = bool(left) and left[0] in _DECLARING
        is_exported = is_declared and left[0] == "export"
        if is_declared:
            left = [word for word in left[1:] if word[:1] != "-"]
            exported |= {word for word in left if is_exported and "=" not in word}
            left = [word for word in left if "=" in word or word in "()"]
        while left and (assigned := _ASSIGNED.fullmatch(left[0])):
            name, added, value = assigned.groups()
            left.pop(0)
            if not value and left[:1] == ["("]:
                end = left.index(")") if ")" in left else len(left)
                values = _expanded(left[1:end], known, arrays)
                arrays[name] = [*(arrays.get(name, []) if added else []), *values]
                left = left[end + 1 :]
                continue
            (value,) = _expanded([value], known, arrays, split=False)
            own[name] = known.get(name, "") + value if added else value
            if is_exported:
                exported.add(name)
        if left and not is_declared:
            inherited = {name: known[name] for name in known if name in exported}
            found.commands.append((_expanded(left, known | own, arrays), inherited | own))
        else:
            known |= own
            found.variables |= own
    return found


def _without_documents(text: str, documents: dict[str, str]) -> str:
    """The lines of a script outside of its here-documents, which are stored by name."""
    lines = iter(text.replace("\r\n", "\n").split("\n"))
    kept = []
    for line in lines:
        kept.append(line)
        if line.lstrip().startswith("#"):
            continue
        for here in _HERE.finditer(line):
            body = []
            for inner in lines:
                if inner.strip() == here[2]:
                    break
                body.append(inner)
            name = re.search(r">>?\s*([^\s<>|;&]+)", line[: here.start()] + line[here.end() :])
            documents[name[1] if name else f"here-document {len(documents) + 1}"] = "\n".join(body)
        kept[-1] = _HERE.sub("", line)
    return "\n".join(kept)


def _statements(text: str, where: str, redirections: list[str]) -> Iterator[list[str]]:
    """The words of each command; of an array its parentheses are words too."""
    text = re.sub(r"\\\n", " ", _hidden(text))
    pending = ""
    for line in text.split("\n"):
        pending = f"{pending}\n{line}" if pending else line
        lexer = shlex.shlex(pending, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError as error:
            problem = str(error)
            continue
        if _is_open(words):
            problem = "a parenthesis is not closed"
            continue
        pending = ""
        yield from _split([_shown(word) for word in words], redirections)
    if pending.strip():
        raise config_error([(where, "", f"not a command line: {problem}")])


def _is_open(words: Sequence[str]) -> bool:
    """Whether an array goes on in the next line."""
    return any(
        word.endswith("=") and _ASSIGNED.fullmatch(word) and words[i + 1 : i + 2] == ["("]
        and ")" not in words[i:]
        for i, word in enumerate(words)
    )  # fmt: skip


def _split(words: list[str], redirections: list[str]) -> Iterator[list[str]]:
    """Commands between separators, without redirections, which are listed."""
    found: list[str] = []
    left = iter(words)
    for word in left:
        if _SEPARATORS.fullmatch(word):
            if found:
                yield found
            found = []
        elif re.fullmatch(r"[<>]+&?|&>+", word):
            if found and found[-1].isdigit():
                found.pop()
            redirections.append(next(left, ""))
        else:
            found.append(word)
    if found:
        yield found


def _hidden(text: str) -> str:
    """A text in which no substitution can be split: $(…), ${…}, `…`."""
    out = []
    at = 0
    while at < len(text):
        end = _end(text, at)
        out += [
            chr(_HIDDEN + ord(character)) if end > at and character in _SPECIAL else character
            for character in text[at : max(end, at + 1)]
        ]
        at = max(end, at + 1)
    return "".join(out)


def _end(text: str, at: int) -> int:
    """The end of the substitution that begins at a place; that place if none does."""
    pairs = {"$(": "()", "${": "{}"}
    pair = pairs.get(text[at : at + 2])
    if text[at] == "`":
        end = text.find("`", at + 1)
        return end + 1 if end > 0 else at
    if pair is None or (at and text[at - 1] == "\\"):
        return at
    depth = 0
    for i in range(at + 1, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i + 1
    return at


def _shown(word: str) -> str:
    return "".join(
        chr(ord(character) - _HIDDEN) if _HIDDEN <= ord(character) < _HIDDEN + 128 else character
        for character in word
    )


def _expanded(
    words: Sequence[str],
    known: Mapping[str, str],
    arrays: Mapping[str, list[str]],
    *,
    split: bool = True,
) -> list[str]:
    """The words with the values of known variables; a variable alone may be several words."""
    found: list[str] = []
    for word in words:
        alone = _VARIABLE.fullmatch(word)
        name = (alone[1] or alone[3]) if alone else ""
        if name in arrays:
            found += arrays[name]
            continue
        value = expand(word, known)
        if alone and split and value != word:
            try:
                found += shlex.split(value)
                continue
            except ValueError:
                pass
        found.append(value)
    return found


def expand(text: str, known: Mapping[str, str]) -> str:
    """A text with the values of known variables; the others stay."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        default = found[2]
        if known.get(name) or (name in known and default is None):
            return known[name]
        if default is None:
            return f"${name}" if _REQUIRED.match(found[0]) else found[0]
        return default.strip("'\"")

    return _VARIABLE.sub(value, text)


# --- commands that start another ------------------------------------------------------------------

_SHELLS = {"sh", "bash", "zsh", "dash", "ash"}
_RUNNERS = {"docker", "podman", "nerdctl"}
_SWITCHES = {
    *("-d", "-i", "-t", "-it", "-ti", "-dit", "-itd", "-P", "-q", "--detach", "--interactive"),
    *("--tty", "--rm", "--init", "--privileged", "--read-only", "--no-healthcheck", "--quiet"),
    *("--publish-all", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust"),
}


@dataclass
class Container:
    """A container that a command line starts: image, command, environment, and other options."""

    image: str
    words: list[str]
    environment: dict[str, str]
    options: dict[str, list[str]]
    env_files: list[str]


def container_of(words: Sequence[str]) -> Container | None:
    """The container of `docker run`; None for other commands."""
    program = words[0].rpartition("/")[2] if words else ""
    start = 2 if list(words[1:3]) == ["container", "run"] else 1
    if program not in _RUNNERS or list(words[start : start + 1]) not in (["run"], ["create"]):
        return None
    found = Container("", [], {}, {}, [])
    entry: list[str] = []
    left = list(words[start + 1 :])
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            found.image = word
            found.words = [*entry, *left]
            break
        name, is_given, value = word.partition("=")
        if not is_given and name not in _SWITCHES:
            value = left.pop(0) if left else ""
        if name in ("-e", "--env"):
            key, _, content = value.partition("=")
            found.environment[key] = content if "=" in value else f"${key}"
        elif name == "--env-file":
            found.env_files.append(value)
        elif name == "--entrypoint":
            entry = value.split()
        else:
            found.options.setdefault(name, []).append(value)
    return found


def inner_script(words: Sequence[str]) -> str | None:
    """The script of `bash -c SCRIPT`; None for other commands."""
    if words and words[0].rpartition("/")[2] in _SHELLS:
        for i, word in enumerate(words[1:], start=1):
            if re.fullmatch(r"-[a-z]*c", word):
                return words[i + 1] if i + 1 < len(words) else ""
            if not word.startswith(("-", "+")):
                return None
            if word in ("-o", "+o"):
                continue
    return None
