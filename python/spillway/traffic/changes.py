"""Changes of traffic in words: `B: rate x5 from 60s to 120s`. Failures are in `failures`."""

from __future__ import annotations

import bisect
import dataclasses
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from spillway._core.cluster import Simulation
from spillway._core.workload import Client, RatePoint, ScalePart, Synthetic, Trace
from spillway.config.classes import config_error
from spillway.config.limits import MAX_TOKENS
from spillway.config.messages import checked, note
from spillway.traffic.failures import is_failure, with_failure
from spillway.traffic.replication import applied_columns, transformed
from spillway.traffic.words import refusal, time_s, with_joined_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


Traffic = TypeVar("Traffic", Simulation, Trace, Synthetic)

_WORD = re.compile(r'"([^"]*)"|(:)|([^\s:"]+)')
_FACTOR = re.compile(r"x([0-9.]+(?:[eE][-+]?[0-9]+)?)")

_TIMES = ("from", "to", "for")
_FACTORS: Mapping[str, tuple[str, ...]] = {
    "rate": ("rate",),
    "prompts": ("prompts",),
    "outputs": ("outputs",),
    "lengths": ("prompts", "outputs"),
}

_LARGEST = {"rate": 10_000.0, "prompts": 1_000.0, "outputs": 1_000.0}
_MOST_POINTS = 100_000  # of a rate over time

_SHAPE = "must be WHOSE: rate xF, prompts xF, outputs xF or lengths xF, from TIME, to or for TIME"


@dataclass(frozen=True)
class Change:
    """What a change says: whose traffic, by which factors, from when to when."""

    text: str
    tenant: str = ""
    slo_class: str = ""
    rate: float = 1.0
    prompts: float = 1.0
    outputs: float = 1.0
    from_s: float = 0.0
    to_s: float | None = None

    @property
    def scales_lengths(self) -> bool:
        """Whether prompts or outputs get another length."""
        return self.prompts != 1 or self.outputs != 1

    @property
    def whose(self) -> str:
        """Whose traffic it is, in words."""
        names = [f"tenant {self.tenant}"] * bool(self.tenant)
        names += [f"class {self.slo_class}"] * bool(self.slo_class)
        return " and ".join(names) or "any tenant"

    @property
    def when(self) -> str:
        """The span of time, in words."""
        until = "" if self.to_s is None else f" to {self.to_s:g} s"
        return f"from {self.from_s:g} s{until}"


def changed(traffic: Traffic, *changes: str) -> Traffic:
    """The same with changes of its traffic, one after the other.

    A change says whose traffic is scaled, and how: `B: rate x5 from 60s to 120s`, `all: outputs
    x2`, `class batch: rate x0.5 lengths x1.5 from 5min`.

    Parameters
    ----------
    traffic : Simulation, Trace or Synthetic
        A recorded trace gets a transform (`workload.ScalePart`), a generator other rates over time
        and lengths.
    *changes : str
        `WHOSE: FACTORS [from TIME] [to TIME | for TIME]`. `WHOSE` is `all`, the name of a tenant,
        or `tenant NAME` and `class NAME`, of which both may be given; names with spaces or colons
        are quoted ("…"). The factors are `rate xF`, `prompts xF`, `outputs xF`, and `lengths xF`
        for both lengths. Times count from the start of the run: 90s, 1.5min, 2h, 500ms. Of a
        simulation also `instance N crashes [at TIME] [for TIME]`, `instance N hangs …`,
        `instance N slows xF …` and `instance N loses its KV [at TIME]`, N from 0: an instance
        fails, and `gateway N crashes …`: a replica of the gateway (`Simulation.changes`).

    At a higher rate recorded sessions are repeated within the span; at a lower one each stays with
    that probability. Recorded prompts are scaled as a whole, generated ones without the prefix that
    they share.

    Raises
    ------
    ConfigError
        A change is not of this form, names a tenant or a class that the traffic does not have,
        concerns no request, or cannot be made: the rate of users that wait for answers follows
        what is served.

    Examples
    --------
    >>> from spillway import traffic, workload
    >>> calm = workload.Synthetic(requests_per_s=2, duration_s=300)
    >>> wave = traffic.changed(calm, "all: rate x5 from 60s to 120s")
    >>> len(traffic.generated(wave)._columns()["arrival_ns"]) > 2 * 300
    True

    """
    for text in changes:
        traffic = _changed(traffic, text)
    return traffic


def _changed(traffic: Traffic, text: str) -> Traffic:
    if isinstance(text, str) and is_failure(text):
        if not isinstance(traffic, Simulation):
            _refuse(text, "", "must change a Simulation: requests alone have no instances")
        return with_failure(traffic, text)
    if isinstance(traffic, Simulation):
        workload: Any = traffic.workload
        return traffic.replace(workload=_changed(workload, text))
    if isinstance(traffic, Trace):
        return _of_trace(traffic, text)
    kinds = "a Simulation, a Trace or a Synthetic"
    return _of_generator(checked("traffic", traffic, Synthetic, kinds), text)


# --- words ----------------------------------------------------------------------------------------


def parsed(text: str, tenants: Sequence[str], classes: Sequence[str]) -> Change:
    """Return what a change says of traffic with these tenants and classes.

    Raises ConfigError if it is not of the form, or names others.
    """
    if not isinstance(text, str):
        raise config_error([("traffic", f"{text!r:.60}", "must be text")])
    rest, end = [], 0
    for match in _WORD.finditer(text):
        rest.append((match[1] is not None, match[1] if match[1] is not None else match[0]))
        end = match.end()
    if text[end:].strip() or (False, ":") not in rest:
        _refuse(text, "", f"{_SHAPE}, e.g. B: rate x5 from 60s to 120s")
    colon = rest.index((False, ":"))
    found = _subject(text, rest[:colon], tenants, classes)
    found |= _factors(text, [word for _, word in rest[colon + 1 :]])
    if (lasts_s := found.pop("for_s", None)) is not None:
        if "to_s" in found:
            _refuse(text, "", "must have to or for, not both")
        found["to_s"] = found.get("from_s", 0.0) + lasts_s
    change = Change(text, **found)
    if change.rate == 1 and not change.scales_lengths:
        _refuse(text, "", "must change something: rate, prompts, outputs or lengths, e.g. rate x5")
    if change.to_s is not None and change.to_s <= change.from_s:
        _refuse(text, f"to {change.to_s:g} s", f"must be > {change.from_s:g} s")
    return change


def _subject(
    text: str, words: Sequence[tuple[bool, str]], tenants: Sequence[str], classes: Sequence[str]
) -> dict[str, Any]:
    known = {"tenant": tenants, "class": classes}
    fields = {"tenant": "tenant", "class": "slo_class"}
    if words == [(False, "all")]:
        return {}
    if len(words) == 1:
        words = [(False, "tenant"), *words]
    found: dict[str, Any] = {}
    for (is_quoted, kind), (_, name) in zip(words[::2], words[1::2], strict=False):
        if is_quoted or kind not in known or fields[kind] in found:
            break
        if name not in known[kind]:
            of_class = f"; class {name} is one" if kind == "tenant" and name in classes else ""
            names = ", ".join(known[kind])
            _refuse(text, f"{kind} {name}", f"must be one of the traffic's: {names}{of_class}")
        found[fields[kind]] = name
    if 2 * len(found) != len(words) or not words:
        shown = " ".join(word for _, word in words)
        _refuse(
            text, shown, "must be all, the name of a tenant, or tenant NAME, class NAME or both"
        )
    return found


def _factors(text: str, words: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    words = with_joined_units(words)
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        if following == "x" and at + 2 < len(words):
            at, following = at + 1, following + words[at + 2]
        if word in _FACTORS:
            for name in _FACTORS[word]:
                found[name] = _factor(text, word, following, _LARGEST[name])
        elif word in _TIMES:
            found[f"{word}_s"] = time_s(text, word, following)
        else:
            allowed = f"must be one of {', '.join(_FACTORS)}, from, to, for"
            _refuse(text, word, allowed)
        at += 2
    return found


def _factor(text: str, word: str, shown: str, largest: float) -> float:
    match = _FACTOR.fullmatch(shown)
    try:
        factor = float(match[1]) if match else math.nan
    except ValueError:
        factor = math.nan
    least = 0.0 if word == "rate" else 1e-3
    if not least <= factor <= largest:
        _refuse(
            text, f"{word} {shown}", f"must be a factor such as x5, >= {least:g}, <= {largest:g}"
        )
    return factor


def _refuse(text: str, value: str, allowed: str) -> NoReturn:
    raise refusal(text, value, allowed)


# --- recorded traffic -----------------------------------------------------------------------------


def _of_trace(trace: Trace, text: str) -> Trace:
    columns = applied_columns(trace)
    change = parsed(text, columns["tenants"], columns["slo_classes"])
    is_in = np.ones(len(columns["arrival_ns"]), dtype=bool)
    for name, names, wanted in (
        ("tenant", "tenants", change.tenant),
        ("slo_class", "slo_classes", change.slo_class),
    ):
        if wanted:
            is_in &= columns[name] == columns[names].index(wanted)
    arrival_s = columns["arrival_ns"] / 1e9
    is_in &= (arrival_s >= change.from_s) & (arrival_s < (change.to_s or math.inf))
    if not is_in.any():
        allowed = f"the trace has none there; it lasts until {arrival_s[-1]:g} s"
        _refuse(text, f"{change.whose}, {change.when}", allowed)
    part = ScalePart(
        tenant=change.tenant,
        slo_class=change.slo_class,
        start_s=change.from_s,
        duration_s=None if change.to_s is None else change.to_s - change.from_s,
        rate_factor=change.rate,
        input_factor=change.prompts,
        output_factor=change.outputs,
    )
    return transformed(trace, part)


# --- generated traffic ----------------------------------------------------------------------------


def _of_generator(synthetic: Synthetic, text: str) -> Synthetic:
    tenants = list(dict.fromkeys(client.tenant for client in synthetic.clients))
    classes = list(dict.fromkeys(client.slo_class for client in synthetic.clients))
    change = parsed(text, tenants, classes)
    clients: list[Client] = []
    added: list[Client] = []
    concerned = 0
    for at, client in enumerate(synthetic.clients):
        end_s = _end_s(synthetic, client)
        if not _concerns(change, client, end_s):
            clients.append(client)
            continue
        concerned += 1
        if client.arrivals.kind == "closed_loop" and (change.rate != 1 or not _is_whole(change)):
            allowed = "the rate of users follows what is served; change their number or lengths"
            _refuse(text, f"clients[{at}] {client.name}", allowed)
        kept, others = _of_client(synthetic, client, change, end_s)
        clients += kept
        added += others
    if not concerned:
        allowed = "the traffic has none there"
        _refuse(text, f"{change.whose}, {change.when}", allowed)
    if not clients:
        _refuse(text, f"rate x{change.rate:g}", "would leave no traffic")
    is_counted = synthetic.num_requests is not None or synthetic.duration_s is None
    if change.rate != 1 and is_counted:
        note(
            f"traffic {text!r}: the workload ends after a number of requests, so that another rate "
            "changes when it ends; state its duration_s instead of num_requests"
        )
    return synthetic.replace(clients=(*clients, *added))


def _is_whole(change: Change) -> bool:
    """Whether a change concerns all times."""
    return change.from_s == 0 and change.to_s is None


def _end_s(synthetic: Synthetic, client: Client) -> float:
    """The time at which a client ends; infinite if none is stated."""
    own = client.start_s + (math.inf if client.duration_s is None else client.duration_s)
    return min(own, math.inf if synthetic.duration_s is None else synthetic.duration_s)


def _concerns(change: Change, client: Client, end_s: float) -> bool:
    return (
        change.tenant in ("", client.tenant)
        and change.slo_class in ("", client.slo_class)
        and change.from_s < end_s
        and client.start_s < (change.to_s or math.inf)
    )


def _of_client(
    synthetic: Synthetic, client: Client, change: Change, end_s: float
) -> tuple[list[Client], list[Client]]:
    """The client after a change, and a second one that sends in its span if lengths change."""
    if _is_whole(change):
        client = _with_lengths(client, change)
        if change.rate == 0:
            return [], []
        return [client if change.rate == 1 else _at_rate(client, change, change.rate, end_s)], []
    if not change.scales_lengths:
        return [_at_rate(client, change, change.rate, end_s)], []
    if client.num_requests is not None:
        allowed = "must be unset to change lengths for a time; state duration_s instead"
        _refuse(change.text, f"{client.name}.num_requests = {client.num_requests}", allowed)
    outside = _at_rate(client, change, 0, end_s)
    if change.rate == 0:
        return [outside], []
    rate = client.requests_per_s
    if rate is None:
        shared = [each for each in synthetic.clients if each.requests_per_s is None]
        total = math.fsum(each.rate_fraction for each in shared)
        rate = synthetic.requests_per_s * client.rate_fraction / total
    inside = _at_rate(_with_lengths(client, change), change, change.rate, end_s, others=0)
    name = f"{client.name} {change.when}"
    return [outside], [inside.replace(name=name, requests_per_s=rate)]


def _with_lengths(client: Client, change: Change) -> Client:
    lengths = {"input_tokens": change.prompts, "output_tokens": change.outputs}
    return client.replace(
        **{name: _scaled(getattr(client, name), by) for name, by in lengths.items() if by != 1}
    )


def _scaled(lengths: Any, factor: float) -> Any:
    """A distribution of lengths that are `factor` times as long."""

    def tokens(value: float) -> int:
        return min(max(round(value * factor), int(value > 0)), MAX_TOKENS)

    settings: dict[str, Any] = {}
    for field in dataclasses.fields(lengths):
        value = getattr(lengths, field.name)
        if field.name == "values":
            settings[field.name] = tuple(map(tokens, value))
        elif field.name in ("tokens", "min_tokens", "max_tokens"):
            settings[field.name] = tokens(value)
        elif field.name in ("mean_tokens", "std_dev_tokens"):
            settings[field.name] = value * factor
        elif field.name == "mu":
            settings[field.name] = value + math.log(factor)
    return lengths.replace(**settings)


# --- rates over time ------------------------------------------------------------------------------


def _at_rate(
    client: Client, change: Change, factor: float, end_s: float, others: float = 1
) -> Client:
    """The client at another rate in the span of a change, and `others` times its own outside."""
    begin_s = max(change.from_s - client.start_s, 0)
    until_s = math.inf if change.to_s is None else change.to_s - client.start_s
    points = [(point.at_s, point.factor) for point in client.rate_profile] or [(0.0, 1.0)]
    if _is_whole(change):
        scaled = [(at_s, value * factor) for at_s, value in points]
        return client.replace(rate_profile=[RatePoint(at_s=a, factor=f) for a, f in scaled])
    if client.rate_period_s is not None:
        points = _unrolled(client, change, points, end_s - client.start_s)
    found = list(_within(points, begin_s, until_s, factor, others))
    return client.replace(
        rate_profile=[RatePoint(at_s=at_s, factor=value) for at_s, value in found],
        rate_period_s=None,
    )


def _unrolled(
    client: Client, change: Change, points: list[tuple[float, float]], length_s: float
) -> list[tuple[float, float]]:
    """A profile that repeats, written out until the client ends."""
    period_s = client.rate_period_s or 0.0
    if not length_s * len(points) <= _MOST_POINTS * period_s:
        allowed = "repeats, so that the traffic must have a duration_s, and not too many periods"
        _refuse(change.text, f"{client.name}.rate_period_s = {period_s:g}", allowed)
    (first_s, first), (last_s, last) = points[0], points[-1]
    share = first_s / (period_s - last_s + first_s) if first_s > 0 else 0.0
    found = [(0.0, first + (last - first) * share)] * (first_s > 0)
    for period in range(math.ceil(length_s / period_s) + 1):
        found += [(period * period_s + at_s, value) for at_s, value in points]
    return found


def _within(
    points: list[tuple[float, float]],
    begin_s: float,
    end_s: float,
    factor: float,
    others: float,
) -> Iterator[tuple[float, float]]:
    """Yield a profile whose factors are multiplied within a span, and those of others outside."""
    times = [at_s for at_s, _ in points]

    def value(at_s: float, *, before: bool) -> float:
        """The factor at a time: just before it, or just after it."""
        at = (bisect.bisect_left if before else bisect.bisect_right)(times, at_s)
        if at == 0 or at == len(points):
            return points[min(at, len(points) - 1)][1]
        (from_s, low), (to_s, high) = points[at - 1], points[at]
        return low + (high - low) * (at_s - from_s) / (to_s - from_s)

    for at_s, known in points:
        if at_s < begin_s:
            yield at_s, known * others
    if begin_s > 0:
        yield begin_s, value(begin_s, before=True) * others
    yield begin_s, value(begin_s, before=False) * factor
    for at_s, known in points:
        if begin_s < at_s < end_s:
            yield at_s, known * factor
    if math.isfinite(end_s):
        yield end_s, value(end_s, before=True) * factor
        yield end_s, value(end_s, before=False) * others
        for at_s, known in points:
            if at_s > end_s:
                yield at_s, known * others
