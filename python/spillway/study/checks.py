"""Checks of the values in study and sweep files, before any object is built.

A check takes the path and the value of a setting and raises ConfigError unless it is allowed.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from pathlib import Path


Check = Callable[[str, Any], None]

MOST_RUNS = 1_000_000
"""Maximum runs of one sweep or one batch of a study: configurations times seeds."""


def whole(lowest: int, highest: int) -> Check:
    """A whole number between two others."""
    allowed = f"must be a whole number >= {lowest} and <= {highest}"

    def check(path: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise refusal(path, value, allowed)

    return check


def number(*, above: float = -math.inf, below: float = math.inf, or_equal: bool = False) -> Check:
    """A finite number between two others; `or_equal` includes the lower one."""
    limits = [f"{'>=' if or_equal else '>'} {above:g}"] if math.isfinite(above) else []
    limits += [f"< {below:g}"] if math.isfinite(below) else []
    allowed = f"must be a finite number {' and '.join(limits)}".rstrip()

    def check(path: str, value: Any) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_within = is_number and (above < value < below or (or_equal and value == above))
        if not is_within or not math.isfinite(value):
            raise refusal(path, value, allowed)

    return check


def text(path: str, value: Any) -> None:
    """Nonempty text."""
    if not isinstance(value, str) or not value:
        raise refusal(path, value, "must be text")


def truth(path: str, value: Any) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise refusal(path, value, "must be true or false")


def mapping(of: Check, *, may_be_empty: bool = True) -> Check:
    """A mapping from text to values that pass `of`."""

    def check(path: str, value: Any) -> None:
        if not isinstance(value, Mapping) or not (value or may_be_empty):
            what = "a mapping" if may_be_empty else "a mapping of at least one entry"
            raise refusal(path, value, f"must be {what}")
        for key, entry in value.items():
            of(f"{path}.{key}", entry)

    return check


def items(of: Check) -> Check:
    """A list of values that pass `of`."""

    def check(path: str, value: Any) -> None:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise refusal(path, value, "must be a list")
        for i, item in enumerate(value):
            of(f"{path}[{i}]", item)

    return check


def by_type(checks: Mapping[type, Check], allowed: str) -> Check:
    """A value that passes the check of its type; `allowed` describes the types."""

    def check(path: str, value: Any) -> None:
        check_type = next((checks[kind] for kind in checks if isinstance(value, kind)), None)
        if check_type is None:
            raise refusal(path, value, allowed)
        check_type(path, value)

    return check


def keys(known: Mapping[str, Check], *, required: Sequence[str] = ()) -> Check:
    """A mapping with known keys only, whose values pass the check of their key."""

    def check(path: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise refusal(path, value, f"must be a mapping of {', '.join(known)}")
        check_keys(value, known, path)
        for key in required:
            if key not in value:
                raise config_error([(f"{path}.{key}", "", "must be given")])

    return check


def check_keys(settings: Mapping[str, Any], known: Mapping[str, Check], where: str | Path) -> None:
    """Checks the values of a file or, with `where` its path, of a setting."""
    prefix = f"{where}." if isinstance(where, str) else ""
    for key, value in settings.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(known)}"
            raise config_error([(f"{where}: {key}", "", f"unknown key; {hint}")])
        known[key](f"{prefix}{key}", value)


def anything(path: str, value: Any) -> None:
    """Any value; the code that uses it checks it."""


def seeds(path: str, value: Any) -> None:
    """The number of seeds, or a list of different seeds."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or not 1 <= value <= MOST_RUNS:
            allowed = f"must be their number, or a list of seeds; >= 1 and <= {MOST_RUNS}"
            raise refusal(path, value, allowed)
        return
    if not value or len(value) > MOST_RUNS:
        raise refusal(path, value, f"must be their number, or a list of 1 to {MOST_RUNS} seeds")
    for i, seed in enumerate(value):
        whole(0, 2**64 - 1)(f"{path}[{i}]", seed)
    if len(set(value)) < len(value):
        raise refusal(path, value, "must hold different seeds")


def objectives(path: str, value: Any) -> None:
    """A figure, a mapping of figures to weights, or a list of these."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, Mapping):
            mapping(number(), may_be_empty=False)(path, item)
        elif not isinstance(item, str):
            raise refusal(path, item, "must be a figure, or a mapping of figures to weights")


def check_runs(path: str, num_configurations: int, num_seeds: int) -> None:
    """Checks the number of runs of a sweep, before any configuration is built."""
    if num_configurations * num_seeds > MOST_RUNS:
        value = f"{num_configurations:,} configurations under {num_seeds:,} seeds"
        raise config_error([(path, value, f"must be <= {MOST_RUNS:,} runs")])


def refusal(path: str, value: Any, allowed: str) -> Exception:
    """The ConfigError of one value, which is truncated."""
    return config_error([(path, f"{value!r:.80}", allowed)])
