"""Random cases for the scheduler of SGLang: settings, the duration of a step, requests.

As in `random_cases`: the same seed gives the same cases, and features take turns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from random_cases import (
    DURATIONS,
    Draw,
    Prompts,
    any_kind,
    following,
    num_tokens,
    prefixed,
    rank,
    repeated,
    separate,
    spread,
    withdraw,
)

_DEFAULTS: dict[str, Any] = {
    "page_size": 1,
    "max_total_num_tokens": 4096,
    "max_running_requests": 16,
    "context_length": 512,
    "chunked_prefill_size": 128,
    "max_prefill_tokens": 256,
    "mixed_chunk": False,
    "overlap": False,
    "radix_cache": True,
    "schedule_policy": "fcfs",
    "schedule_conservativeness": 1.0,
    "priority_scheduling": False,
    "ignore_eos": False,
}
_OVERLAP = {"overlap": (True,)}
_LPM = {"schedule_policy": ("lpm",)}
_PAGES = {"page_size": (4, 16)}
_BOTH = (False, True)
_LONG_ANSWERS: dict[str, Any] = {"num_fold_answers": 2, "gap_ms": (0.5, 3)}


@dataclass(frozen=True)
class Feature:
    """What is special about the cases of a feature; choices are drawn evenly."""

    prompts: Prompts
    longest: int = 120
    room: tuple[float, float] | None = None
    """Tokens in units of the longest request; `None`: more than ever needed."""
    settings: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    has_aborts: bool = False
    num_fold_answers: int = 1
    gap_ms: tuple[float, ...] = (0.5, 3, 8, 20)


FEATURES: dict[str, Feature] = {
    "base": Feature(separate),
    "chunks": Feature(separate, settings={"chunked_prefill_size": (16, 24, 40)}),
    "no_chunking": Feature(separate, settings={"chunked_prefill_size": (None,)}),
    "no_cache": Feature(any_kind, settings={"radix_cache": (False,), "overlap": _BOTH}),
    "mixed_chunk": Feature(
        any_kind, settings={"mixed_chunk": (True,), "chunked_prefill_size": (16, 32, 64)}
    ),
    "few_running": Feature(separate, settings={"max_running_requests": (1, 2, 4)}),
    "pages": Feature(any_kind, 120, (1.3, 4.0), _PAGES),
    "shared_prefix": Feature(prefixed, settings={"overlap": _BOTH}),
    "eviction": Feature(prefixed, 120, (1.2, 3.5)),
    "full_hit": Feature(repeated, 110, (1.2, 3.5)),
    "follow_up": Feature(following, 120, (1.2, 3.5)),
    "lpm": Feature(prefixed, 120, (1.2, 4.0), _LPM),
    "lpm_follow_up": Feature(following, 120, (1.2, 4.0), {**_LPM, "overlap": _BOTH}),
    "policies": Feature(
        any_kind, 120, (1.2, 4.0), {"schedule_policy": ("lof", "hrrn", "dfs-weight")}
    ),
    "retract": Feature(
        separate, 20, (2.0, 6.0), {"schedule_conservativeness": (0.05, 0.1, 0.3)}, **_LONG_ANSWERS
    ),
    "retract_pages": Feature(
        prefixed,
        20,
        (2.0, 6.0),
        {**_PAGES, "schedule_conservativeness": (0.05, 0.1, 0.3)},
        **_LONG_ANSWERS,
    ),
    "ignore_eos": Feature(separate, 60, (1.1, 2.5), {"ignore_eos": (True,), "overlap": _BOTH}),
    "overlap": Feature(separate, settings=_OVERLAP),
    "overlap_chunks": Feature(
        any_kind, settings={"chunked_prefill_size": (16, 24, 40), "mixed_chunk": _BOTH, **_OVERLAP}
    ),
    "overlap_retract": Feature(
        separate,
        20,
        (2.0, 6.0),
        {"schedule_conservativeness": (0.05, 0.1, 0.3), **_OVERLAP},
        **_LONG_ANSWERS,
    ),
    "priority": Feature(separate, 60, (1.2, 2.5), {"priority_scheduling": (True,)}),
    "priority_few_running": Feature(
        any_kind, 60, (1.2, 3.0), {"priority_scheduling": (True,), "max_running_requests": (2, 4)}
    ),
    "aborts": Feature(any_kind, 120, (1.2, 4.0), {"overlap": (False,)}, has_aborts=True),
    "aborts_overlap": Feature(any_kind, 120, (1.2, 4.0), _OVERLAP, has_aborts=True),
    "mixed": Feature(
        any_kind,
        80,
        (1.3, 4.0),
        {
            "page_size": (1, 1, 4, 16),
            "overlap": _BOTH,
            "mixed_chunk": _BOTH,
            "chunked_prefill_size": (None, 16, 32, 64),
            "schedule_policy": ("fcfs", "lpm"),
            "schedule_conservativeness": (0.1, 0.3, 1.0),
            "max_running_requests": (4, 16),
        },
        has_aborts=True,
    ),
}
"""The features, by name."""

NAMES = tuple(FEATURES)


def _case(name: str, number: int, rng: random.Random) -> dict[str, Any]:
    feature = FEATURES[name]
    engine = dict(_DEFAULTS)
    for key, values in feature.settings.items():
        engine[key] = rng.choice(values)
    page = engine["page_size"]
    if engine["chunked_prefill_size"] is None:
        engine["mixed_chunk"] = False
    else:  # whole pages
        engine["chunked_prefill_size"] = -(-engine["chunked_prefill_size"] // page) * page
    draw = Draw(rng, number, max(page, 4), feature.longest, rng.randint(6, 16))
    requests = [
        {"id": f"r{i:02d}", "arrival_ns": 0, **each} for i, each in enumerate(feature.prompts(draw))
    ]
    for request in requests:
        request["output"] *= feature.num_fold_answers
    step_ns = rng.choice(DURATIONS)
    spread(rng, requests, rng.choice(feature.gap_ms), 0)
    if engine["priority_scheduling"]:
        rank(rng, requests)
        for request in requests:  # the distance at which one is preempted for another is 10
            request["priority"] *= rng.choice((1, 15))
    if feature.has_aborts:
        withdraw(rng, requests, rng.choice((40, 150, 400)))
    if feature.room is not None:
        longest = max(map(num_tokens, requests)) + 2 * page
        pages = -(-int(longest * rng.uniform(*feature.room)) // page) + 1
        engine["max_total_num_tokens"] = pages * page
    return {
        "id": f"{name}-{number}",
        "feature": name,
        "engine": engine,
        "step_ns": dict(step_ns),
        "requests": requests,
    }


def cases(number: int, seed: int) -> list[dict[str, Any]]:
    """Random cases of a seed; the features take turns."""
    names = [NAMES[i % len(NAMES)] for i in range(number)]
    return [_case(name, i, random.Random(f"{seed} {i} {name}")) for i, name in enumerate(names)]
