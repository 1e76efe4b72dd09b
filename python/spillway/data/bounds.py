"""Bounds of figures as text: `figure[scope] op value[unit]`, e.g. `p99_ttft_ms[gold] <= 500`."""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

from spillway.config.classes import config_error
from spillway.config.messages import note
from spillway.data.figures import FIGURES, is_share

FORM = "a figure, <= or >=, and a number, e.g. 'p99_ttft_ms[gold] <= 500' or 'goodput >= 99%'"
"""The form, for error messages."""

_BOUND = re.compile(
    r"""\s*(?P<figure>[^<>=\[]+(\[[^\]]*\])?)\s*
        (?P<relation><=|>=|<|>)\s*
        (?P<value>[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)\s*
        (?P<unit>%|[^\W\d][\w./]*)?\s*""",
    re.VERBOSE,
)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_SAME_UNITS = {
    "requests/s": ("requests/s", "req/s", "rps"),
    "tokens/s": ("tokens/s", "tok/s", "tps"),
}
_TARGET = re.compile(
    r"(?:(?P<statistic>mean|p50|p90|p95|p99)_)?(?P<latency>\w+):(?P<ms>\d+\.?\d*|\.\d+)"
)
_LATENCIES = {
    "ttft": "ttft",
    "time_to_first_token": "ttft",
    "tpot": "tpot",
    "inter_token_latency": "tpot",
    "e2el": "e2el",
    "request_latency": "e2el",
}


class Bound(NamedTuple):
    """A figure, of one group if its text has a scope, with the limit that it must keep."""

    figure: str
    relation: Literal["<=", ">="]
    limit: float


def parse(text: object, where: str) -> list[Bound]:
    """The bounds that a text states: one, or one per target of a load generator's `--goodput`.

    `<` and `>` mean `<=` and `>=`. A value may have a unit: us, ms, s or min of a time, % of a
    share, otherwise that of the figure. `ttft:500 tpot:50`, in ms, are targets as `vllm bench serve
    --goodput` and AIPerf state them. Those are of single requests; here the p99 must keep them,
    which a note says, or the statistic that is stated, e.g. `p95_ttft:500`.

    Raises ConfigError about `where` for another form, a number that is not finite, or a unit that
    the figure does not have.
    """
    found = _BOUND.fullmatch(str(text))
    if found is None:
        targets = [_TARGET.fullmatch(part) for part in re.split(r"[\s,]+", str(text).strip())]
        known = [match for match in targets if match and match["latency"] in _LATENCIES]
        if not known or len(known) < len(targets):
            raise config_error([(where, f"{text!r:.80}", f"must be {FORM}")])
        return [_of_target(match) for match in known]
    limit = float(found["value"])
    if found["unit"]:
        limit = _in_own_unit(limit, found["unit"], found["figure"], (where, repr(text)))
    if not math.isfinite(limit):
        raise config_error([(where, repr(text), "must have a finite bound")])
    return [Bound(found["figure"], "<=" if found["relation"].startswith("<") else ">=", limit)]


def _of_target(match: re.Match[str]) -> Bound:
    figure = f"{match['statistic'] or 'p99'}_{_LATENCIES[match['latency']]}_ms"
    bound = Bound(figure, "<=", float(match["ms"]))
    if match["statistic"] is None:
        note(
            f"{match[0]} is a target of single requests: it is read as {figure} <= "
            f"{bound.limit:g}; p95_{match[0]} would bound the p95"
        )
    return bound


def _in_own_unit(value: float, unit: str, figure: str, where: tuple[str, str]) -> float:
    """The value in the unit of its figure. Raises ConfigError if it is in none of it."""
    name = figure.partition("[")[0].strip()
    own = FIGURES[name].unit if name in FIGURES else ""
    if own in _SECONDS:
        allowed = ", ".join(_SECONDS)
        if unit in _SECONDS:
            return value if unit == own else value * (_SECONDS[unit] / _SECONDS[own])
    elif is_share(name) or (name in FIGURES and not own):
        allowed = "%"
        if unit == "%":
            return value / 100
    else:
        same = _SAME_UNITS.get(own, (own,) if own else ())
        allowed = ", ".join(same) or "no unit"
        if unit in same:
            return value
    raise config_error([(*where, f"the unit of {name} must be one of: {allowed}")])
