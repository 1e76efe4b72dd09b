"""The prefix cache of the engine against its slow twin: prompts that begin alike, memory short."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.effort import few_of, often, trials
from support.engine_trials import (
    CLASSES,
    assert_same,
    random_kv_cache,
    random_latency,
    random_scheduler,
    trace_of,
    with_async_scheduling,
    with_spare_memory,
)
from support.twins import instance as oracle

from spillway import Simulation, instance, metrics, profiles
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = few_of(trials(1000), 2)
KINDS = (*profiles.NAMES, "any")

# The share of the seeds that must show a feature, by kind of case (absent: any kind).
SHARES = {
    "hits": 0.4,
    "evictions": 0.4,
    "preempted": 0.2,
    "preempted and hits": 0.1,
    "hits on own blocks only": 0.02,
    "odd prefix": 0.1,
    "prefixes of two lengths": 0.03,
    "capped prefill": 0.1,
    "two instances": 0.2,
    "no group": 0.03,
    "warm": 0.15,
    "warm beyond the memory": 0.02,
}
OF_ROLL_BACK = {"rolled_back": 0.03, "whole_prompts": 0.05}


def random_requests(rng: random.Random, block: int) -> list[oracle.Request]:
    count = rng.randint(2, 24)
    scale_ns = rng.choice((0, 1_000_000, 10_000_000, 40_000_000))
    # Sometimes the groups need much more memory than any request.
    most = rng.choice((4, 4, 4, 4, 16))
    longest = (rng.choice((3, 6, 12)) if most == 4 else 1) * block
    groups = [f"g{i}" for i in range(rng.randint(1, 4) if most == 4 else 4)]
    lengths = {
        name: block * rng.randint(1, most) if rng.random() < 0.6 else rng.randint(1, most * block)
        for name in groups
    }
    no_group = rng.choice((0.0, 0.2, 1.0)) if rng.random() < 0.4 else 0.1
    nothing_own = rng.choice((0.0, 0.1, 0.5))
    other_length = rng.choice((0.0, 0.0, 0.2))
    warm = rng.choice((0.0, 0.0, 0.3, 1.0) if most == 4 else (0.0, 1.0))
    no_output = rng.choice((0.0, 0.1))
    ids = [str(number) for number in rng.sample(range(2 * count + 8), count)]
    requests = []
    now_ns = 0
    for request_id in ids:
        shared: tuple[tuple[str, int], ...] = ()
        unshared = rng.choice((rng.randint(1, longest), block * rng.randint(1, 3)))
        if rng.random() >= no_group:
            name = rng.choice(groups)
            length = lengths[name]
            if rng.random() < other_length:
                length += rng.choice((-1, 1, block))
            shared = ((name, length),) if length > 0 else ()
            if shared and rng.random() < nothing_own:
                unshared = 0
        prompt = unshared + sum(tokens for _, tokens in shared)
        requests.append(
            oracle.Request(
                request_id=request_id,
                arrival_ns=now_ns,
                input_tokens=prompt,
                output_tokens=0
                if rng.random() < no_output
                else rng.choice((1, rng.randint(1, longest), rng.randint(1, 3 * longest))),
                priority=rng.choice(CLASSES).priority,
                shared=shared,
                warm_tokens=rng.choice((shared[0][1], rng.randint(1, shared[0][1])))
                if shared and rng.random() < warm
                else 0,
            )
        )
        now_ns += rng.choice((0, rng.randint(0, scale_ns), rng.randint(0, scale_ns)))
    return requests


def random_group(rng: random.Random, requests: list[oracle.Request], block: int) -> dict[str, Any]:
    needs = [
        math.ceil((request.input_tokens + request.output_tokens) / block) for request in requests
    ]
    return {
        "count": rng.choice((1, 1, 2)),
        "max_num_seqs": rng.choice((1, 2, 4, 256, 256)),
        "max_num_batched_tokens": rng.choice((2048, 2048, rng.randint(1, 3 * block))),
        "long_prefill_token_threshold": rng.choice((0, 0, block, rng.randint(1, 3 * block))),
        "max_model_len": 0,
        "block_size_tokens": block,
        "num_kv_blocks": max(1, max(needs) + rng.choice((-1, 0, 0, 1, 2, 3, rng.randint(0, 20)))),
        "scheduler": random_scheduler(rng) if rng.random() < 0.5 else instance.Fcfs(),
        "latency": random_latency(rng).replace(
            alpha0_us=rng.choice((0.0, 1601.35)), alpha_input_us=rng.choice((0.0, 3.51))
        ),
    }


def random_case(rng: random.Random, kind: str) -> tuple[Simulation, list[oracle.Request]]:
    block = rng.choice((1, 2, 4, 4, 8, 16))
    requests = random_requests(rng, block)
    group = BLIS_SERVER.replace(**random_group(rng, requests, block))
    simulation = Simulation(workload=trace_of(requests, rng), slo_classes=CLASSES, instances=group)
    if kind == "any":
        simulation = simulation.replace(
            instances=(
                group.replace(
                    completion=rng.choice(("step_end", "step_start")),
                    preemption=rng.choice(("keep_emitted", "restart")),
                    output_overhead=rng.choice(("in_step", "reported")),
                ),
            ),
            metrics=metrics.Metrics(accounting=rng.choice(("clock", "blis"))),
            quantum_ns=rng.choice((1, 700, 1000, 10**6)),
        ).with_(random_kv_cache(rng))
    else:
        simulation = profiles.apply(kind, simulation)
        simulation = simulation.with_({"instances[0].scheduler": group.scheduler})
    return with_spare_memory(with_async_scheduling(simulation, rng), rng), requests


def features_of(
    simulation: Simulation, requests: list[oracle.Request], run: oracle.Run
) -> Iterator[str]:
    (group,) = simulation.instances
    preempted = any(outcome.preemptions > 0 for outcome in run.outcomes)
    lengths: dict[str, set[int]] = {}
    for request in requests:
        for name, tokens in request.shared:
            lengths.setdefault(name, set()).add(tokens)
    several = Counter(request.shared for request in requests if request.shared)
    reached = {
        "hits": run.hits > 0,
        "evictions": run.evictions > 0,
        "rolled_back": run.rolled_back > 0,
        "whole_prompts": run.whole_prompts > 0,
        "preempted": preempted,
        "preempted and hits": preempted and run.hits > 0,
        "hits on own blocks only": run.hits > 0 and max(several.values(), default=0) < 2,
        "odd prefix": any(
            tokens % group.block_size_tokens for shared in lengths.values() for tokens in shared
        ),
        "prefixes of two lengths": any(len(shared) > 1 for shared in lengths.values()),
        "capped prefill": 0
        < group.long_prefill_token_threshold
        < max(request.input_tokens for request in requests),
        "two instances": group.count == 2,
        "no group": not lengths,
        "warm": any(request.warm_tokens >= group.block_size_tokens for request in requests),
        "warm beyond the memory": sum(
            {
                request.shared: request.warm_tokens // group.block_size_tokens
                for request in requests
            }.values()
        )
        > group.num_kv_blocks,
    }
    yield from (name for name, is_reached in reached.items() if is_reached)


@pytest.mark.parametrize("kind", KINDS)
def test_engine_equals_its_twin(kind: str) -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        # The text names the case in a failure.
        case = random_case(random.Random(f"{kind} {seed}"), kind)
        try:
            run = assert_same(*case)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {case}") from error
        reached.update(features_of(*case, run))
    wanted = SHARES if kind == "vllm" else SHARES | OF_ROLL_BACK
    rare = {
        name: reached[name] for name, share in wanted.items() if reached[name] < often(1000 * share)
    }
    assert not rare, reached


@pytest.mark.parametrize(
    ("allocation", "blocks", "cap", "shared", "lengths"),
    [
        # The same blocks computed twice at the same time, then one set taken away.
        ("check_then_act", 6, 2, 8, [(9, 0), (9, 0)]),
        ("check_then_act", 6, 2, 8, [(11, 0), (9, 0)]),
        # Own blocks computed again after a preemption, while the older ones stand free.
        ("roll_back", 12, 3, 6, [(6, 10), (14, 5), (2, 1)]),
    ],
)
def test_equal_blocks(
    allocation: str, blocks: int, cap: int, shared: int, lengths: list[tuple[int, int]]
) -> None:
    requests = [
        oracle.Request(
            str(i), 0, prompt, output, shared=(("g", shared),) if prompt >= shared else ()
        )
        for i, (prompt, output) in enumerate(lengths)
    ]
    group = BLIS_SERVER.replace(
        block_size_tokens=2, num_kv_blocks=blocks, long_prefill_token_threshold=cap
    )
    simulation = Simulation(
        workload=trace_of(requests, random.Random(0)), slo_classes=CLASSES, instances=group
    ).with_({"instances[0].kv_cache.allocation": allocation})
    assert_same(simulation, requests)
