"""Checks of the numbers and names in a test."""

from __future__ import annotations

import operator
from typing import Any

from spillway.config.classes import config_error

LONGEST_S = 3.2e9
_MOST = 1_000_000_000


def check_whole(path: str, value: Any, least: int, most: int = _MOST) -> None:
    """Raises ConfigError unless it is a whole number from `least` to `most`."""
    try:
        if least <= operator.index(value) <= most:
            return
    except TypeError:
        pass
    allowed = f"must be a whole number >= {least} and <= {most}"
    raise config_error([(path, repr(value), allowed)])


def check_real(path: str, value: Any, least: float, most: float) -> None:
    """Raises ConfigError unless it is a number from `least` to `most`."""
    try:
        if least <= value <= most:
            return
    except TypeError:
        pass
    raise config_error([(path, repr(value), f"must be a number >= {least:g} and <= {most:g}")])


def check_text(path: str, value: Any) -> None:
    """Raises ConfigError unless it is text."""
    if not isinstance(value, str):
        raise config_error([(path, repr(value), "must be text")])
