"""Random cases for the schedulers of engines: settings, the duration of a step, requests.

The same seed gives the same cases. Each case has a feature, which is the part of its name before
the dash; features take turns. Times of withdrawals differ within a case, and so do times of arrival
where requests have priorities: what an engine does at ties there is not defined.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DURATIONS = (
    {"constant": 10_000_000, "per_token": 0},
    {"constant": 4_000_000, "per_token": 50_000},
)
_LONG_DURATION = {"constant": 8_000_000, "per_token": 30_000}
_MS = 1_000_000
_NUM_ACCEPTED = 7
"""Numbers of accepted drafts after which those of a request repeat."""

Request = dict[str, Any]
Prompts = Callable[["Draw"], list[Request]]


@dataclass
class Draw:
    """What the prompts of one case are drawn from."""

    rng: random.Random
    number: int
    block_size: int
    longest: int
    num_requests: int

    def own(self, i: int, low: int = 1, high: int | None = None) -> list[Any]:
        """A segment that no other request has."""
        return [f"u{self.number}_{i}", self.rng.randint(low, high or self.longest)]

    def output(self) -> int:
        """A number of output tokens."""
        return self.rng.randint(1, 30)


@dataclass(frozen=True)
class Feature:
    """What is special about the cases of a feature; choices are drawn evenly."""

    prompts: Prompts
    longest: int = 120
    """The longest segment of a prompt that only one request has, in tokens."""
    room: tuple[float, float] | None = None
    """Blocks in units of what the longest request needs; `None`: more than ever needed."""
    settings: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    extra: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    has_aborts: bool = False
    gap_ms: tuple[float, ...] = (0.5, 3, 8, 20, 35)


# --- prompts --------------------------------------------------------------------------------------


def separate(draw: Draw) -> list[Request]:
    """No request shares a token with another."""
    return [{"prompt": [draw.own(i)], "output": draw.output()} for i in range(draw.num_requests)]


def prefixed(draw: Draw) -> list[Request]:
    """Most begin with one of three prefixes, some are nothing else."""
    size = draw.block_size
    lengths = [
        draw.rng.choice((size, 3 * size, size * draw.rng.randint(1, 12), draw.rng.randint(2, 50)))
        for _ in range(3)
    ]
    found = []
    for i in range(draw.num_requests):
        prefix = draw.rng.randrange(3)
        shared = [f"p{draw.number}_{prefix}", min(lengths[prefix], 50)]
        kind = draw.rng.random()
        prompt = (
            [draw.own(i)] if kind < 0.35 else [shared] if kind < 0.55 else [shared, draw.own(i)]
        )
        found.append({"prompt": prompt, "output": draw.output()})
    return found


def repeated(draw: Draw) -> list[Request]:
    """Whole prompts come again; many end at the end of a block."""
    size = draw.block_size
    lengths = [draw.rng.choice((2 * size, 4 * size, draw.rng.randint(2, 60))) for _ in range(3)]
    found = []
    for i in range(draw.num_requests):
        again = draw.rng.randrange(3)
        whole = [f"p{draw.number}_{again}", min(lengths[again], 64)]
        prompt = [draw.own(i)] if draw.rng.random() < 0.25 else [whole]
        found.append({"prompt": prompt, "output": draw.output()})
    return found


def following(draw: Draw) -> list[Request]:
    """Later prompts repeat an earlier prompt and its answer, mostly after that answer."""
    found: list[Request] = []
    for i in range(draw.num_requests):
        earlier = [
            (j, each)
            for j, each in enumerate(found)
            if sum(size for _, size in each["prompt"]) + each["output"] < draw.longest
        ]
        if earlier and draw.rng.random() < 0.6:
            j, before = draw.rng.choice(earlier)
            answer = [f"out:r{j:02d}", before["output"]]
            prompt = [*before["prompt"], answer, draw.own(i, 1, 25)]
            pause_ms = draw.rng.choice((0.0, 50.0, 200.0, 400.0))
            found.append({"prompt": prompt, "output": draw.output(), "pause_ms": pause_ms})
        else:
            prompt = [draw.own(i)]
            if draw.rng.random() < 0.4:
                prefix = draw.rng.randrange(3)
                prompt = [[f"p{draw.number}_{prefix}", 8 + 19 * prefix], *prompt]
            found.append({"prompt": prompt, "output": draw.output()})
    return found


_CACHED = (prefixed, repeated, following)


def any_kind(draw: Draw) -> list[Request]:
    return draw.rng.choice((separate, *_CACHED))(draw)


# --- features -------------------------------------------------------------------------------------

_ON, _PRIORITY = (True,), ("priority",)
_TIGHT, _EVICTING = (1.0, 2.2), (1.1, 3.5)
_CACHING = {"prefix_caching": _ON}
_ASYNC = {"async_scheduling": _ON}
_DRAFTS = (1, 2, 3, 4)
_THRESHOLDS = (5, 8, 16, 24, 40)


def _drafting(method: str, **settings: tuple[Any, ...]) -> Feature:
    drafting = {"num_spec_tokens": _DRAFTS, "spec_method": (method,), **_CACHING, **settings}
    return Feature(prefixed, settings={"max_num_batched_tokens": (32, 64, 128, 256), **drafting})


FEATURES: dict[str, Feature] = {
    "base": Feature(separate),
    "chunks": Feature(separate, settings={"max_num_batched_tokens": (16, 24, 40)}),
    "threshold": Feature(separate, settings={"long_prefill_token_threshold": _THRESHOLDS}),
    "preempt_no_reserve": Feature(
        separate, 60, _TIGHT, settings={"reserve_full_isl": (False,)}, gap_ms=(3, 8, 20)
    ),
    "preempt_reserve": Feature(separate, 60, _TIGHT, gap_ms=(3, 8, 20)),
    "shared_prefix": Feature(prefixed, settings=_CACHING),
    "eviction": Feature(prefixed, 120, _EVICTING, _CACHING),
    "cache_preempt": Feature(prefixed, 60, _TIGHT, _CACHING, gap_ms=(1, 5, 15)),
    "full_hit": Feature(repeated, 110, _EVICTING, _CACHING),
    "follow_up": Feature(following, 120, _EVICTING, _CACHING),
    "priority": Feature(
        separate, 60, _TIGHT, {"policy": _PRIORITY, "reserve_full_isl": (True, False)}
    ),
    "priority_cache": Feature(
        prefixed,
        80,
        (1.0, 3.0),
        {"policy": _PRIORITY, "reserve_full_isl": (True, False), **_CACHING},
    ),
    "async": Feature(separate, settings=_ASYNC),
    "async_preempt": Feature(
        separate, 60, _TIGHT, {"reserve_full_isl": (True, False), **_ASYNC}, gap_ms=(3, 8, 20)
    ),
    "async_cache": Feature(any_kind, 120, _EVICTING, {**_CACHING, **_ASYNC}),
    "aborts": Feature(separate, has_aborts=True),
    "aborts_cache": Feature(prefixed, 70, (1.0, 3.0), _CACHING, has_aborts=True),
    "no_chunking": Feature(
        separate,
        settings={"chunked_prefill": (False,), "max_num_batched_tokens": (160, 200, 256)},
    ),
    "watermark": Feature(
        separate, 60, (1.0, 3.0), {"watermark": (0.01, 0.05, 0.1, 0.2)}, gap_ms=(3, 8, 20)
    ),
    "mixed": Feature(
        any_kind,
        80,
        (1.0, 4.0),
        {
            "prefix_caching": (True, False),
            "async_scheduling": (True, False),
            "policy": ("fcfs", "priority"),
            "reserve_full_isl": (True, False),
            "long_prefill_token_threshold": (0, 0, *_THRESHOLDS),
            "max_num_batched_tokens": (16, 32, 64, 128, 256),
        },
        has_aborts=True,
    ),
    "spec_ngram": _drafting("ngram"),
    "spec_eagle": _drafting("eagle"),
    "spec_draft_model": _drafting("draft_model", max_num_batched_tokens=(64, 128, 256)),
    "spec_async": _drafting("eagle", **_ASYNC),
    "spec_preempt": Feature(
        prefixed,
        60,
        (1.5, 3.0),
        {
            "num_spec_tokens": _DRAFTS,
            "spec_method": ("ngram", "eagle"),
            "reserve_full_isl": (False,),
            **_CACHING,
        },
        gap_ms=(1, 5, 15),
    ),
    "prefill_interval": Feature(
        any_kind,
        settings={"prefix_caching": (True, False)},
        extra={"prefill_schedule_interval": (2, 3, 4, 5, 6)},
    ),
    "adaptive_threshold": Feature(
        separate,
        settings={"long_prefill_token_threshold": _THRESHOLDS},
        extra={"long_prefill_token_threshold_adaptive": _ON},
    ),
    "active_seqs": Feature(separate, extra={"max_num_active_seqs": (1, 2, 3, 4, 8)}),
}
"""The features of short cases, by name; `chat` and `load` are longer ones."""

NAMES = (*FEATURES, "chat", "load")


# --- one case -------------------------------------------------------------------------------------


def _settings(rng: random.Random) -> dict[str, Any]:
    """The settings of an engine without anything special."""
    return {
        "block_size": rng.choice((4, 8, 16)),
        "num_gpu_blocks": rng.randint(200, 400),
        "max_num_seqs": rng.choice((2, 4, 8, 16)),
        "max_num_batched_tokens": rng.choice((32, 64, 128, 256)),
        "long_prefill_token_threshold": 0,
        "policy": "fcfs",
        "prefix_caching": False,
        "chunked_prefill": True,
        "async_scheduling": False,
        "reserve_full_isl": True,
        "watermark": 0.0,
        "num_spec_tokens": 0,
        "spec_method": None,
    }


def spread(rng: random.Random, requests: list[Request], gap_ms: float, grid_ns: int) -> None:
    """Gives requests their times of arrival, in order; some together, some at the end of steps."""
    now_ns = rng.randrange(0, 30 * _MS)
    on_grid = grid_ns > 0 and rng.random() < 0.2
    for request in requests:
        now_ns += int(request.pop("pause_ms", 0.0) * _MS)
        if rng.random() >= 0.15:
            gap_ns = int(rng.expovariate(1 / (gap_ms * _MS)))
            now_ns += -(-gap_ns // grid_ns) * grid_ns if on_grid else gap_ns
        request["arrival_ns"] = now_ns


def withdraw(rng: random.Random, requests: list[Request], within_ms: float) -> None:
    """Lets clients of about a third of the requests go, no two at one time."""
    taken: set[int] = set()
    for request in requests:
        if rng.random() < 0.35:
            abort_ns = request["arrival_ns"] + rng.randint(1, int(within_ms * _MS))
            while abort_ns in taken:
                abort_ns += 1
            taken.add(abort_ns)
            request["abort_ns"] = abort_ns


def rank(rng: random.Random, requests: list[Request]) -> None:
    """Gives requests priorities, and arrivals at one time an order."""
    for before, request in zip([None, *requests], requests, strict=False):
        request["priority"] = rng.randrange(4)
        if before is not None:
            request["arrival_ns"] = max(request["arrival_ns"], before["arrival_ns"] + 1)


def num_tokens(request: Request) -> int:
    num_prompt = sum(size for _, size in request["prompt"])
    return int(num_prompt + request["output"])


def _short(name: str, number: int, rng: random.Random) -> dict[str, Any]:
    """A case of a few requests."""
    feature = FEATURES[name]
    engine = _settings(rng)
    for key, values in feature.settings.items():
        engine[key] = rng.choice(values)
    engine["max_num_seqs"] = min(engine["max_num_seqs"], engine["max_num_batched_tokens"])
    if feature.extra:
        engine["extra"] = {key: rng.choice(values) for key, values in feature.extra.items()}
        if "max_num_active_seqs" in engine["extra"]:
            most = engine["max_num_seqs"]
            engine["extra"]["max_num_active_seqs"] = min(
                most, engine["extra"]["max_num_active_seqs"]
            )
    draw = Draw(rng, number, engine["block_size"], feature.longest, rng.randint(6, 16))
    requests = [
        {"id": f"r{i:02d}", "arrival_ns": 0, **each} for i, each in enumerate(feature.prompts(draw))
    ]
    step_ns = rng.choice(DURATIONS)
    grid_ns = 0 if step_ns["per_token"] else step_ns["constant"]
    spread(rng, requests, rng.choice(feature.gap_ms), grid_ns)
    if engine["policy"] == "priority":
        rank(rng, requests)
    if feature.has_aborts:
        withdraw(rng, requests, rng.choice((40, 150, 400)))
    if num_drafts := engine["num_spec_tokens"]:
        for request in requests:
            request["accept"] = [rng.randint(0, num_drafts) for _ in range(_NUM_ACCEPTED)]
    engine["max_model_len"] = max(map(num_tokens, requests)) + 8
    if feature.room is not None:
        longest = -(-(engine["max_model_len"] + engine["num_spec_tokens"]) // engine["block_size"])
        usable = int(longest * rng.uniform(*feature.room)) + 1
        usable = int(usable / (1 - engine["watermark"])) + bool(engine["watermark"])
        engine["num_gpu_blocks"] = usable + 1
    return {
        "id": f"{name}-{number}",
        "feature": name,
        "engine": engine,
        "step_ns": dict(step_ns),
        "requests": requests,
    }


# --- long cases -----------------------------------------------------------------------------------


def _long_settings(rng: random.Random, num_blocks: tuple[int, int]) -> dict[str, Any]:
    engine = _settings(rng) | {
        "block_size": 16,
        "num_gpu_blocks": rng.randrange(*num_blocks, 10),
        "max_num_seqs": 16,
        "max_num_batched_tokens": 256,
        "prefix_caching": True,
        "async_scheduling": rng.random() < 0.5,
    }
    return engine | {"max_model_len": min(1024, (engine["num_gpu_blocks"] - 1) * 16)}


def _chat(number: int, rng: random.Random) -> dict[str, Any]:
    """Conversations of four users over one system prompt."""
    requests: list[Request] = []
    for user in range(4):
        prompt: list[list[Any]] = [[f"sys{number}", 40], [f"c{number}u{user}", rng.randint(10, 60)]]
        now_ns = rng.randrange(0, 1500 * _MS)
        for turn in range(4):
            output = rng.randint(10, 40)
            each = {"id": f"u{user}t{turn}", "arrival_ns": now_ns, "prompt": list(prompt)}
            requests.append(each | {"output": output})
            prompt.append([f"out:u{user}t{turn}", output])
            prompt.append([f"c{number}u{user}m{turn}", rng.randint(5, 25)])
            now_ns += rng.randrange(300 * _MS, 2500 * _MS)
    requests.sort(key=lambda each: each["arrival_ns"])
    return {
        "id": f"chat-{number}",
        "feature": "chat",
        "engine": _long_settings(rng, (40, 101)),
        "step_ns": dict(_LONG_DURATION),
        "requests": requests,
    }


def _load(number: int, rng: random.Random) -> dict[str, Any]:
    """Forty requests that arrive faster than they are served."""
    engine = _long_settings(rng, (40, 81)) | {"policy": rng.choice(("fcfs", "priority"))}
    requests: list[Request] = []
    for i in range(40):
        prompt: list[list[Any]] = [[f"o{number}_{i}", rng.randint(10, 200)]]
        if rng.random() < 0.6:
            prefix = rng.randrange(3)
            prompt = [[f"s{number}_{prefix}", (40, 64, 96)[prefix]], *prompt]
        requests.append(
            {"id": f"q{i:02d}", "arrival_ns": 0, "prompt": prompt, "output": rng.randint(4, 60)}
        )
    spread(rng, requests, rng.choice((10, 20, 30)), 0)
    rank(rng, requests)
    return {
        "id": f"load-{number}",
        "feature": "load",
        "engine": engine,
        "step_ns": dict(_LONG_DURATION),
        "requests": requests,
    }


def cases(number: int, seed: int) -> list[dict[str, Any]]:
    """Random cases of a seed; the features take turns."""
    found = []
    for i in range(number):
        name = NAMES[i % len(NAMES)]
        rng = random.Random(f"{seed} {i} {name}")
        if name == "chat":
            found.append(_chat(i, rng))
        elif name == "load":
            found.append(_load(i, rng))
        else:
            found.append(_short(name, i, rng))
    return found
