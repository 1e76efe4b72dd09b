"""Errors that a live server gives on purpose, beside those of its fleet."""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.config import yaml
from spillway.config.classes import config_error
from spillway.config.filesystem import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Status of the answer by error; None: the connection breaks, without an answer or within it.
STATUSES: Mapping[str, int | None] = {
    "rate_limit": 429,
    "invalid_api_key": 401,
    "context_length": 400,
    "invalid_request": 400,
    "model_not_found": 404,
    "server_error": 500,
    "unavailable": 503,
    "drop": None,
    "cut": None,
}
_FIRST, _LAST = 400, 599


@dataclass(frozen=True)
class Rule:
    """A share of the requests of a span of simulated time gets an error.

    Attributes
    ----------
    error : str
        A name of `STATUSES`: an answer with that status; drop: the connection breaks without an
        answer; cut: it breaks after the first token.
    share : float
        Of the requests, > 0 and <= 1.
    from_s, to_s : float
        The span, without its end, since the server's start (simulated s); None: it has no end.
    instance : int or None
        In mode servers, the only instance that gives it.

    """

    error: str
    share: float = 1.0
    from_s: float = 0.0
    to_s: float | None = None
    instance: int | None = None


def rules_of(given: Any, *, instances: int | None) -> list[Rule]:
    """The rules of a list of mappings; `instances`: how many have a port. Raises ConfigError."""
    if not isinstance(given, list | tuple):
        raise config_error([("errors", _short(given), "must be a list of rules")])
    return [_rule(each, f"errors[{i}]", instances) for i, each in enumerate(given)]


def read(path: str | Path) -> Any:
    """The content of a file of rules, YAML or JSON. Raises ConfigError."""
    text = read_text(Path(path))
    return yaml.parse(text, str(path), is_json=str(path).endswith(".json"))


def _rule(given: Any, path: str, instances: int | None) -> Rule:
    if isinstance(given, Rule):
        given = asdict(given)
    if not isinstance(given, dict) or "error" not in given:
        raise config_error([(path, _short(given), "must be a mapping with `error`")])
    names = list(Rule.__dataclass_fields__)
    wrong = [
        (f"{path}.{_short(name)}", "", f"must be one of {', '.join(names)}")
        for name in given
        if name not in names
    ]
    if wrong:
        raise config_error(wrong)
    rule = Rule(**given)
    if rule.error not in STATUSES:
        wrong.append((f"{path}.error", _short(rule.error), f"must be one of {', '.join(STATUSES)}"))
    if not (_is_number(rule.share) and 0 < rule.share <= 1):
        wrong.append((f"{path}.share", _short(rule.share), "must be > 0 and <= 1"))
    if not (_is_number(rule.from_s) and rule.from_s >= 0):
        wrong.append((f"{path}.from_s", _short(rule.from_s), "must be >= 0 (s)"))
    elif rule.to_s is not None and not (_is_number(rule.to_s) and rule.to_s > rule.from_s):
        wrong.append((f"{path}.to_s", _short(rule.to_s), f"must be > from_s = {rule.from_s:g} (s)"))
    if rule.instance is not None and instances is None:
        wrong.append((f"{path}.instance", _short(rule.instance), "goes with mode servers"))
    elif rule.instance is not None and not (
        type(rule.instance) is int and 0 <= rule.instance < (instances or 0)
    ):
        allowed = f"must be one of the {instances} instances, from 0"
        wrong.append((f"{path}.instance", _short(rule.instance), allowed))
    if wrong:
        raise config_error(wrong)
    return rule


class Errors:
    """The rules in force, with a random stream of their own."""

    def __init__(self, rules: Sequence[Rule], seed: int) -> None:
        self.rules = list(rules)
        self._random = random.Random(f"errors of seed {seed}")

    def drawn(self, now_s: float, instance: int | None) -> str | None:
        """The error of a request now, by the first rule that hits it."""
        for rule in self.rules:
            is_now = rule.from_s <= now_s < (math.inf if rule.to_s is None else rule.to_s)
            if not is_now or rule.instance not in (None, instance):
                continue
            if self._random.random() < rule.share:
                return rule.error
        return None

    def state(self) -> list[dict[str, Any]]:
        """The rules as mappings."""
        return [asdict(rule) for rule in self.rules]


def asked(text: str) -> tuple[str, int | None]:
    """Name and status of the error that a header asks for. Raises ConfigError."""
    if text in STATUSES:
        return text, STATUSES[text]
    if text.isascii() and text.isdigit() and _FIRST <= int(text[:4]) <= _LAST:
        return text, int(text)
    allowed = f"must be a status from {_FIRST} to {_LAST}, or one of {', '.join(STATUSES)}"
    raise config_error([("x-return-error", _short(text), allowed)])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: Any) -> str:
    return f"{value!r:.40}"
