"""The load of an inference-perf configuration as a generator."""

from __future__ import annotations

import math
from typing import Any

from spillway._core.workload import Client, ClosedLoop, Fixed, Gaussian, Synthetic, Uniform
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.loads import Block, LoadFormat, staged

_MOST = 1_000_000_000  # requests per second, and in all
_MOST_USERS = 1_000_000
_MOST_GROUPS = 10_000
_LOADS = ("constant", "poisson", "concurrent")
_DATA = ("synthetic", "random", "shared_prefix")
_LAWS = ("normal", "uniform", "fixed")


def workload(whole: Block) -> Synthetic:
    """The blocks `load` and `data` are read; others are ignored.

    `load.type` is constant, poisson or concurrent. The stages of the first two become the rate
    profile of the clients: each `rate` (requests/s) holds for its `duration` (seconds). Stages
    follow each other at once, whereas inference-perf waits for the answers of a stage before the
    next. A concurrent load has one stage, whose `concurrency_level` users send `num_requests`
    requests without thinking. `data.type` is synthetic, random or shared_prefix. Lengths in tokens
    are normal between `min` and `max` with `mean` and `std_dev`, or as `type` says: uniform or
    fixed (at `mean`). Of shared_prefix, each of the `num_groups` becomes a client with a prefix of
    `system_prompt_len` tokens of its own; prompts within a group share nothing else.
    """
    load, data = whole.block("load"), whole.block("data")
    load.forbid("sweep", "a sweep measures its rates; state stages instead")
    kind = load.choice("type", _LOADS)
    stages = load.blocks("stages")
    settings = _prompts(data)
    if kind == "concurrent":
        return _concurrent(load, stages, settings)
    rates = [stage.number("rate", 0, _MOST, above=True) for stage in stages]
    durations = [stage.number("duration", 0, LONGEST_SPAN_S, above=True) for stage in stages]
    length_s = math.fsum(durations)
    if length_s > LONGEST_SPAN_S:
        raise load.refuse("stages", f"must last <= {LONGEST_SPAN_S:g} s in all")
    return staged(rates, durations, settings, constant=kind == "constant")


def _concurrent(load: Block, stages: list[Block], settings: list[dict[str, Any]]) -> Synthetic:
    if len(stages) > 1:
        allowed = "must be one stage of a concurrent load: the next would begin when it ends"
        raise load.refuse("stages", allowed)
    users = stages[0].whole("concurrency_level", 1, _MOST_USERS)
    requests = stages[0].whole("num_requests", 1, _MOST)
    if len(settings) > 1:
        allowed = "must be constant or poisson for data with several shared prefixes"
        raise load.refuse("type", allowed)
    loop = ClosedLoop(users=users, think_time_s=0)
    return Synthetic(clients=[Client(**settings[0], num_requests=requests, arrivals=loop)])


def _prompts(data: Block) -> list[dict[str, Any]]:
    """Return name, lengths and prefix of each client."""
    data.forbid("multimodal", "not supported: prompts are text")
    if data.choice("type", _DATA) != "shared_prefix":
        lengths = {
            f"{name}_tokens": _lengths(data.block(f"{name}_distribution"))
            for name in ("input", "output")
        }
        return [{"name": "inference-perf", **lengths}]
    shared = data.block("shared_prefix")
    shared.forbid("enable_multi_turn_chat", "not supported: prompts of other turns are answers")
    shared.forbid("multimodal", "not supported: prompts are text")
    lengths = {
        f"{target}_tokens": _lengths(shared.block(f"{name}_distribution"))
        if f"{name}_distribution" in shared.values
        else Fixed(tokens=shared.whole(f"{name}_len", low, MAX_TOKENS))
        for target, name, low in (("input", "question", 1), ("output", "output", 0))
    }
    prefix = shared.whole("system_prompt_len", 0, MAX_TOKENS)
    return [
        {"name": name, "prefix_group": name, "prefix_tokens": prefix, **lengths}
        for name in (f"group-{k}" for k in range(shared.whole("num_groups", 1, _MOST_GROUPS)))
    ]


def _lengths(block: Block) -> Fixed | Uniform | Gaussian:
    kind = block.choice("type", _LAWS, _LAWS[0])
    if kind == "fixed":
        return Fixed(tokens=round(block.number("mean", 0, MAX_TOKENS)))
    low = block.whole("min", 0, MAX_TOKENS)
    high = block.whole("max", low, MAX_TOKENS)
    if kind == "uniform":
        return Uniform(min_tokens=low, max_tokens=high)
    return Gaussian(
        mean_tokens=block.number("mean", 0, MAX_TOKENS),
        std_dev_tokens=block.number("std_dev", 0, MAX_TOKENS),
        min_tokens=low,
        max_tokens=high,
    )


FORMAT = LoadFormat(
    name="inference-perf",
    keys="load and data",
    detect=lambda root: bool(root.keys() & {"load", "data"}),
    workload=workload,
)
