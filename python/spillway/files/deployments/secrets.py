"""Secrets in configuration files, which no output repeats."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
"""What stands for a secret."""

_WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+")
_SECRET = frozenset(
    {
        *("password", "passwd", "passphrase", "pwd", "secret", "secrets", "credential"),
        *("credentials", "authorization", "bearer", "cookie", "apikey", "dsn", "webhook"),
    }
)
_LAST = frozenset({"token", "key", "keys", "auth", "pat"})
_NAME = r"[-\w.]*(?:key|token|password|passwd|passphrase|secret|credentials?|authorization|auth)"
_VALUES = (
    (
        re.compile(
            r"\b(?:sk-[\w-]{4,}|hf_\w{4,}|gh[pousr]_\w{8,}|github_pat_\w+|AKIA[0-9A-Z]{12,}"
            r"|eyJ[\w-]{8,}\.[\w-]+\.?[\w-]*|nvapi-[\w-]{4,}|glpat-[\w-]{4,}|xox[abp]-[\w-]{4,})"
        ),
        MASK,
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"']+"), rf"\1 {MASK}"),
    (re.compile(r"(?<=://)[^/\s@]+@"), f"{MASK}@"),
    (
        re.compile(
            rf"(?i)(?<![-\w])(-{{0,2}}{_NAME}[\"']?(?:\s*[:=]\s*|\s+)[\"']?)(?!-)[^\s\"',}}]+"
        ),
        rf"\1{MASK}",
    ),
)


def is_secret(name: str) -> bool:
    """Whether the value of a field, flag or variable of this name is a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    return (
        not _SECRET.isdisjoint(words)
        or (len(words) > 1 and words[-1] in _LAST)
        or (words[-1:] == ["token"])
    )


def masked(value: Any, name: str = "") -> Any:
    """A value without the secrets in it, for a field of this name."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, dict):
        named = str(value.get("name", ""))
        return {
            key: masked(below, named if key == "value" and named else str(key))
            for key, below in value.items()
        }
    if isinstance(value, list | tuple):
        before = ["", *value]
        return [
            masked(element, _flag(previous) or name)
            for element, previous in zip(value, before, strict=False)
        ]
    if name and is_secret(name):
        return MASK
    if isinstance(value, str):
        for pattern, replacement in _VALUES:
            value = pattern.sub(replacement, value)
    return value


def _flag(word: Any) -> str:
    """The name of a flag whose value is the next word."""
    return word.lstrip("-") if isinstance(word, str) and word[:1] == "-" and "=" not in word else ""
