"""The data files of the catalog of servers."""

from __future__ import annotations

import difflib
import functools
from pathlib import Path
from typing import Any

from spillway.config.classes import config_error
from spillway.config.files import read_settings

_FOLDER = Path(__file__).parent


@functools.cache
def entries(file: str) -> dict[str, dict[str, Any]]:
    """The content of a data file, by name."""
    return read_settings(_FOLDER / file)


def names(file: str) -> tuple[str, ...]:
    """The names in a data file."""
    return tuple(entries(file))


def entry(file: str, name: str, what: str, *, also: str) -> tuple[str, dict[str, Any]]:
    """The entry of a name, an alias or a repository; case does not matter.

    Raises ConfigError with the nearest names, and `also`, if there is none.
    """
    known = _by_any_name(file)
    key = known.get(name.lower()) if isinstance(name, str) else None
    if key is None:
        near = difflib.get_close_matches(str(name).lower(), known, n=3, cutoff=0.5)
        meant = f"did you mean {', '.join(map(repr, near))}?"
        hint = meant if near else f"one of {', '.join(names(file))}"
        raise config_error([(what, repr(name), f"is not in the catalog; {hint} {also}")])
    return key, entries(file)[key]


@functools.cache
def _by_any_name(file: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, fields in entries(file).items():
        given = [key, fields.get("repository"), fields.get("name"), *fields.get("aliases", [])]
        found |= {str(alias).lower(): key for alias in given if alias}
    return found
