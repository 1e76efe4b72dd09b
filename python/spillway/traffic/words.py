"""Times in changes that are stated in words, and their errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}  # in seconds
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+")
_TIME = re.compile(rf"({_NUMBER.pattern})({'|'.join(_UNITS)})")


def with_joined_units(words: Sequence[str]) -> list[str]:
    """The words, with a unit that stands apart joined to its number: `2 min` is `2min`."""
    joined: list[str] = []
    for word in words:
        if joined and word in _UNITS and _NUMBER.fullmatch(joined[-1]):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def time_s(text: str, word: str, shown: str) -> float:
    """The time after a word of a change, e.g. `90s` after `for`. Raises ConfigError for another."""
    match = _TIME.fullmatch(shown)
    if not match:
        allowed = "must be a time with its unit, such as 90s, 1.5min or 2h"
        raise refusal(text, f"{word} {shown}", allowed)
    return float(match[1]) * _UNITS[match[2]]


def refusal(text: str, value: str, allowed: str) -> Exception:
    """The error of a change, of which a value is not allowed."""
    return config_error([(f"traffic {text!r:.80}", value, allowed)])
