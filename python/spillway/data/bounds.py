"""Bounds of figures as text: `figure[scope] op value[unit]`, e.g. `p99_ttft_ms[gold] <= 500`.

Also as people write SLOs, `gold: p99 ttft < 2 s, tpot < 80 ms`, and as load generators take them,
`ttft:500 tpot:50`.
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

from spillway.config.classes import config_error
from spillway.config.messages import note
from spillway.data.figures import FIGURES, is_share

FORM = (
    "a figure, <= or >=, and a number, e.g. 'p99_ttft_ms[gold] <= 500', 'goodput >= 99%' or "
    "'gold: p99 ttft < 2 s, tpot < 80 ms'"
)
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


_SLO = re.compile(
    r"""\s*(?:(?P<group>"[^"]+"|[^<>=:"\[\]]+|(class|tenant)\s+"[^"]+"):)?(?P<bounds>.+)"""
)
_COMMA = re.compile(r",(?![^\[]*\])")  # outside of brackets
_WORDS = re.compile(
    r"\s*(?:(?P<statistic>mean|p50|p90|p95|p99)\s+)?(?P<latency>ttft|tpot|itl|e2e|e2el)\s*"
)
_DEFAULT_STATISTIC = "p99"


class Bound(NamedTuple):
    """A figure, of one group if its text has a scope, with the limit that it must keep."""

    figure: str
    relation: Literal["<=", ">="]
    limit: float


def parse(text: object, where: str) -> list[Bound]:
    """The bounds that a text states: one, those of an SLO, or the targets of `--goodput`.

    An SLO is `GROUP: BOUND, BOUND`, or without a group: `gold: p99 ttft < 2 s, tpot < 80 ms`. The
    group is a class or a tenant, `class NAME` or `tenant NAME`, or `all`; a name with a colon is in
    quotes. A latency is ttft, tpot, itl or e2e after its statistic; one without a statistic has
    that of the latency before it, or the p99, which a note says.

    `<` and `>` mean `<=` and `>=`. A value may have a unit: us, ms, s or min of a time, % of a
    share, otherwise that of the figure. `ttft:500 tpot:50`, in ms, are targets as `vllm bench serve
    --goodput` and AIPerf state them. Those are of single requests; here the p99 must keep them,
    which a note says, or the statistic that is stated, e.g. `p95_ttft:500`.

    Raises ConfigError about `where` for another form, a number that is not finite, or a unit that
    the figure does not have.
    """
    shown = str(text)
    if not re.search("[<>]", shown):
        targets = [_TARGET.fullmatch(part) for part in re.split(r"[\s,]+", shown.strip())]
        known = [match for match in targets if match and match["latency"] in _LATENCIES]
        if not known or len(known) < len(targets):
            raise config_error([(where, f"{text!r:.80}", f"must be {FORM}")])
        return [_of_target(match) for match in known]
    slo = _SLO.fullmatch(shown)
    if slo is None:
        raise config_error([(where, f"{text!r:.80}", f"must be {FORM}")])
    scope = _scope((slo["group"] or "").strip())
    found: list[Bound] = []
    statistic = ""
    for part in _COMMA.split(slo["bounds"]):
        match = _BOUND.fullmatch(part)
        if match is None:
            raise config_error([(where, f"{text!r:.80}", f"must be {FORM}")])
        figure = match["figure"]
        if words := _WORDS.fullmatch(figure):
            statistic = words["statistic"] or statistic
            figure = _in_words(words, statistic, part)
        found.append(_bound(f"{figure.strip()}{scope}", match, where, text))
    return found


def _in_words(words: re.Match[str], statistic: str, part: str) -> str:
    """The figure of a latency in words, with a note if its statistic is not stated there."""
    latency = "e2el" if words["latency"] == "e2e" else words["latency"]
    figure = f"{statistic or _DEFAULT_STATISTIC}_{latency}_ms"
    if words["statistic"] is None:
        note(f"'{part.strip()}' states no statistic: it is read as {figure}")
    return figure


def _scope(group: str) -> str:
    """The selector of the group before the colon of an SLO."""
    if group in ("", "all"):
        return ""
    kind, _, name = group.partition(" ")
    if kind in ("class", "tenant") and name:
        return f"[{kind}={name.strip().strip(chr(34))}]"
    return f"[{group.strip(chr(34))}]"


def _bound(figure: str, match: re.Match[str], where: str, text: object) -> Bound:
    limit = float(match["value"])
    if figure.count("[") > 1:
        raise config_error([(where, f"{text!r:.80}", "must name the group once")])
    if match["unit"]:
        limit = _in_own_unit(limit, match["unit"], figure, (where, repr(text)))
    if not math.isfinite(limit):
        raise config_error([(where, repr(text), "must have a finite bound")])
    return Bound(figure, "<=" if match["relation"].startswith("<") else ">=", limit)


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
