"""The load of a GuideLLM scenario as a generator.

The fields are those of its documentation: `docs/getting-started/benchmark.md`, `guides/datasets.md`
and `guides/multiturn.md` of 0.6 and 0.7, and the scenarios that it ships.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from spillway._core.workload import Client, ClosedLoop, Fixed, Gaussian, Synthetic, Uniform
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.loads import Block, LoadFormat, staged

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST = 1_000_000_000
_MOST_USERS = 1_000_000
_MOST_DIGITS = 20
_MOST_PREFIXES = 10_000
_PROFILES = ("constant", "async", "poisson", "concurrent", "throughput", "synchronous")
_MEASURED = ("kind", "warmup", "cooldown", "random_seed")  # not part of the load
_ON_ERRORS = ("max_errors", "max_error_rate", "max_global_error_rate")
_KNOBS = ("stdev", "min", "max")
_DATA = {
    "kind",
    "samples",
    "source",
    "seed",
    *(f"{part}_tokens" for part in ("prompt", "output", "prefix")),
    *(f"{part}_tokens_{knob}" for part in ("prompt", "output") for knob in _KNOBS),
    "prefix_count",
    "prefix_buckets",
    "turns",
}


def workload(whole: Block) -> Synthetic:
    """A scenario, or a report (benchmarks.json), which holds its scenario.

    A scenario has `spec` (since 0.7), or `profile`, `rate`, `data`, `max_seconds` and
    `max_requests` (before). The profile is constant (also named async), poisson, concurrent,
    throughput with `max_concurrency`, or synchronous. Several rates follow each other at once, each
    for `max_duration`, or as long as `max_requests` take. Limits on errors are ignored, as are
    warm-up and cool-down, which concern its statistics. Data are one `synthetic_text`: lengths are
    fixed, normal (with `_stdev`; by default from 1 to five deviations above the mean), or uniform
    (with `_min` and `_max` alone). Prefixes become clients with prefix groups; prompts share
    nothing else, whatever the number of samples.
    """
    if "benchmarks" in whole.values:
        # Reports until 0.6 hold `args`.
        whole = whole.block("args" if "args" in whole.values else "config")
    spec = whole.block("spec") if "spec" in whole.values else whole.replaced(_since_0_7(whole))
    profile = spec.block("profile")
    kind = profile.choice("kind", _PROFILES)
    settings = _prompts(_data(spec))
    most_s, most_requests = _limits(spec)
    if kind in ("constant", "async", "poisson"):
        profile.only((*_MEASURED, "rate", "rampup_duration", "max_concurrency"))
        profile.forbid("rampup_duration", "not supported: rates must begin at once")
        profile.forbid("max_concurrency", "not supported: the rate must not depend on the answers")
        rates = profile.numbers("rate", 0, _MOST)
        lengths = [min(most_s, most_requests / rate) for rate in rates]
        if math.fsum(lengths) > LONGEST_SPAN_S:
            allowed = f"must hold max_duration or max_requests, <= {LONGEST_SPAN_S:g} s in all"
            raise spec.refuse("constraints", allowed)
        constant = kind != "poisson"
        if constant and len({client.get("rate_fraction", 1.0) for client in settings}) > 1:
            allowed = "must be poisson for prefixes of unequal weight"
            raise profile.refuse("kind", allowed)
        return staged(rates, lengths, settings, constant=constant)
    if len(settings) > 1:
        raise profile.refuse("kind", "must be constant or poisson for several prefixes")
    if math.inf in (most_s, most_requests) and most_s == most_requests:
        raise spec.refuse("constraints", "must hold max_duration or max_requests")
    return Synthetic(
        clients=[
            Client(
                **settings[0],
                duration_s=None if most_s == math.inf else most_s,
                num_requests=None if most_requests == math.inf else int(most_requests),
                arrivals=ClosedLoop(users=_users(profile, kind), think_time_s=0),
            )
        ]
    )


def _users(profile: Block, kind: str) -> int:
    profile.forbid("rampup_duration", "not supported: users must begin at once")
    if kind == "synchronous":
        profile.only((*_MEASURED, "rampup_duration"))
        return 1
    field = "streams" if kind == "concurrent" else "max_concurrency"
    profile.only((*_MEASURED, field, "rampup_duration", "max_concurrency"))
    if kind == "concurrent":
        profile.forbid("max_concurrency", "not supported: state the number of streams alone")
    found = profile.values.get(field)
    if isinstance(found, list):
        if len(found) > 1:
            allowed = "must be one number: the next streams begin when the first have ended"
            raise profile.refuse(field, allowed)
        profile = profile.replaced({field: found[0] if found else None})
    return profile.whole(field, 1, _MOST_USERS)


def _limits(spec: Block) -> tuple[float, float]:
    """Return the seconds and the requests of each rate; infinity: unlimited."""
    most_s = most_requests = math.inf
    if not spec.values.get("constraints"):
        return most_s, most_requests
    for constraint in spec.blocks("constraints"):
        kind = constraint.choice("kind", ("max_duration", "max_requests", *_ON_ERRORS))
        if kind == "max_duration":
            most_s = min(most_s, constraint.number("seconds", 0, LONGEST_SPAN_S, above=True))
        elif kind == "max_requests":
            most_requests = min(most_requests, constraint.whole("count", 1, _MOST))
    return most_s, most_requests


def _since_0_7(whole: Block) -> dict[str, Any]:
    """Return a scenario of an earlier version in the form of 0.7."""
    values = {key.replace("-", "_"): value for key, value in whole.values.items()}
    kind = values.get("profile", values.get("rate_type"))
    profile: dict[str, Any] = {"kind": kind, "rampup_duration": values.get("rampup")}
    if kind != "synchronous":
        field = {"concurrent": "streams", "throughput": "max_concurrency"}.get(str(kind), "rate")
        profile[field] = _number(values.get("rate"))
    constraints = [
        {"kind": kind, field: _number(values[name])}
        for name, kind, field in (
            ("max_seconds", "max_duration", "seconds"),
            ("max_requests", "max_requests", "count"),
        )
        if values.get(name) is not None
    ]
    data = values.get("data")
    entries = data if isinstance(data, list) else [data]
    pairs = [_pairs(entry) if isinstance(entry, str) else entry for entry in entries]
    return {
        "profile": profile,
        "constraints": constraints,
        "data": [
            {"kind": "synthetic_text"} | entry if isinstance(entry, dict) else entry
            for entry in pairs
        ],
    }


def _pairs(text: str) -> Any:
    """Return "prompt_tokens=256,output_tokens=128", or the same as JSON, as a mapping."""
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text)
    except (ValueError, RecursionError):
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(mark for _, mark, _ in pairs):
        return text
    return {key.strip(): _number(value.strip()) for key, _, value in pairs}


def _number(value: Any) -> Any:
    """Return a number that earlier versions also took as text."""
    if isinstance(value, list):
        return [_number(element) for element in value]
    if not isinstance(value, str):
        return value
    try:
        return int(value) if value.strip().isdigit() and len(value) < _MOST_DIGITS else float(value)
    except ValueError:
        return value


def _data(spec: Block) -> Block:
    found = spec.blocks("data")
    if len(found) > 1:
        raise spec.refuse("data", "must hold one synthetic_text")
    found[0].choice("kind", ("synthetic_text",))
    found[0].only(tuple(_DATA))
    if found[0].values.get("turns") not in (None, 1):
        raise found[0].refuse("turns", "must be 1: turns of a conversation are not supported")
    return found[0]


def _prompts(data: Block) -> list[dict[str, Any]]:
    """Return name, lengths, prefix and share of each client."""
    lengths = {"input_tokens": _lengths(data, "prompt_tokens", 1)}
    if data.values.get("output_tokens") is None:
        raise data.refuse("output_tokens", "must be the mean number of output tokens")
    lengths["output_tokens"] = _lengths(data, "output_tokens", 0)
    buckets = [data]
    if data.values.get("prefix_buckets"):
        for name in ("prefix_tokens", "prefix_count"):
            data.forbid(name, "not together with prefix_buckets")
        buckets = data.blocks("prefix_buckets")
    found = []
    for at, bucket in enumerate(buckets):
        tokens = bucket.whole("prefix_tokens", 0, MAX_TOKENS, 0)
        count = bucket.whole("prefix_count", 1, _MOST_PREFIXES, 1)
        weight = bucket.number("bucket_weight", 0, _MOST, above=True, default=1.0)
        if tokens == 0 and len(buckets) == 1:
            return [{"name": "guidellm", **lengths}]
        for k in range(count):
            name = f"prefix-{at}-{k}"
            prefix = {"prefix_group": name, "prefix_tokens": tokens} if tokens else {}
            found.append({"name": name, "rate_fraction": weight / count, **prefix, **lengths})
    if len(found) > _MOST_PREFIXES:
        raise data.refuse("prefix_buckets", f"must hold at most {_MOST_PREFIXES} prefixes")
    return found


def _has(block: Block, name: str) -> bool:
    return block.values.get(name) is not None


def _lengths(data: Block, name: str, low: int) -> Fixed | Uniform | Gaussian:
    mean = data.whole(name, low, MAX_TOKENS)
    ends = [end for end in ("min", "max") if _has(data, f"{name}_{end}")]
    least = data.whole(f"{name}_min", low, MAX_TOKENS) if "min" in ends else max(low, 1)
    if _has(data, f"{name}_stdev"):
        deviation = data.number(f"{name}_stdev", 0, MAX_TOKENS)
        most = min(round(mean + 5 * deviation), MAX_TOKENS)
        if "max" in ends:
            most = data.whole(f"{name}_max", least, MAX_TOKENS)
        return Gaussian(
            mean_tokens=mean,
            std_dev_tokens=deviation,
            min_tokens=least,
            max_tokens=max(most, least),
        )
    if not ends:
        return Fixed(tokens=mean)
    least = data.whole(f"{name}_min", low, MAX_TOKENS)  # without both, the range is not documented
    return Uniform(min_tokens=least, max_tokens=data.whole(f"{name}_max", least, MAX_TOKENS))


def _detect(root: Mapping[str, Any]) -> bool:
    keys = {"spec", "profile", "rate-type", "rate_type", "benchmarks"}
    return "load" not in root and bool(root.keys() & keys)


FORMAT = LoadFormat(
    name="GuideLLM",
    keys="a scenario or a report",
    detect=_detect,
    workload=workload,
)
