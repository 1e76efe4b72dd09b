"""The KV memory of a server that does not state it, from requests that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spillway.calibration.catalog import NEVER_BINDS, limits_of
from spillway.calibration.parts import Part
from spillway.calibration.refinement import soft_cost, table_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.calibration.parts import Measured
    from spillway.calibration.refinement import Fit
    from spillway.data.recording import Recording, ServerFacts


_SIZES = 10
_LEAST_SHARE = 0.7  # of what was held at once
_MOST_SHARE = 3.0
_FINE = np.array([-0.6, -0.3, 0.0, 0.3, 0.6])  # of the distance between two sizes
_BINDS = 0.75
"""Memory binds if the best size leaves less than this share of the misfit without a limit."""


class Scan(NamedTuple):
    """The number of KV blocks that fits best; None: no size fits better than a larger one."""

    blocks: int | None
    cost: float


def held_blocks(run: Recording, facts: ServerFacts) -> float:
    """The most KV blocks that requests with a first token held at once; 0 if they share prompts."""
    if run.session is not None or run.cached_tokens is not None:
        return 0.0
    done = ~run.failed & np.isfinite(run.e2e_s) & np.isfinite(run.ttft_s)
    begin_s, end_s = (run.send_s + run.ttft_s)[done], (run.send_s + run.e2e_s)[done]
    prompts, outputs = run.input_tokens[done].astype(float), run.output_tokens[done].astype(float)
    instants = np.linspace(float(begin_s.min(initial=0)), float(end_s.max(initial=0)), 400)
    span_s = np.maximum(end_s - begin_s, 1e-9)
    held = 0.0
    for at in instants:
        inside = (begin_s <= at) & (at < end_s)
        progress = (at - begin_s[inside]) / span_s[inside]
        held = max(held, float((prompts[inside] + progress * outputs[inside]).sum()))
    limits = limits_of(facts)
    return held / limits["block_size_tokens"].value / limits["data_parallel_size"].value


def lightest(parts: Sequence[Measured], facts: ServerFacts) -> list[Measured]:
    """The parts in which memory binds least: those that hold less than half of the most, or all."""
    held = [held_blocks(part.replay.recording, facts) if isinstance(part, Part) else 0.0
            for part in parts]  # fmt: skip
    found = [part for part, blocks in zip(parts, held, strict=True) if blocks < 0.5 * max(held)]
    return found or list(parts)


def scan(facts: ServerFacts, parts: Sequence[Measured], found: Fit) -> Scan:
    """Looks for the size of the KV memory with the step times of a fit."""
    runs = [part.replay.recording for part in parts if isinstance(part, Part)]
    block_tokens = limits_of(facts)["block_size_tokens"].value

    def cost(blocks: float) -> float:
        sized = facts.replace(num_kv_blocks=max(1, round(blocks)))
        return sum(soft_cost(row) for row in table_at(sized, parts, found))

    unlimited = cost(NEVER_BINDS)
    longest = max((int((run.input_tokens + run.output_tokens).max()) for run in runs), default=0)
    needed = longest / block_tokens + 1
    held = max((held_blocks(run, facts) for run in runs), default=0.0)
    low, high = max(_LEAST_SHARE * held, needed), _MOST_SHARE * held
    if held == 0:
        high = 1.2 * max((_conversations(run) for run in runs), default=0) / block_tokens
    if not runs or high <= low:
        return Scan(None, unlimited)
    sizes = np.geomspace(low, high, _SIZES)
    costs = [cost(size) for size in sizes]
    best = int(np.argmin(costs))
    if costs[best] > _BINDS * unlimited:
        return Scan(None, unlimited)
    near = np.maximum(sizes[best] * (sizes[1] / sizes[0]) ** _FINE, needed)
    costs = [cost(size) for size in near]
    best = int(np.argmin(costs))
    return Scan(round(float(near[best])), costs[best])


def _conversations(run: Recording) -> int:
    """Tokens of all conversations of a run together, each at its longest."""
    if run.session is None:
        return 0
    longest: dict[str, int] = {}
    whole = (run.input_tokens + run.output_tokens).tolist()
    for row, (name, tokens) in enumerate(zip(run.session, whole, strict=True)):
        key = name or f"request {row}"
        longest[key] = max(longest.get(key, 0), tokens)
    return sum(longest.values())
