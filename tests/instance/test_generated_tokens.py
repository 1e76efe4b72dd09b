"""Answers in the prefix cache: the next turn of a conversation reuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.runs import steady

from spillway import Result, Simulation, _core, instance, router, simulate, workload
from spillway.data.shared_prompts import conversation_segments

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 8


def server(**kv_cache: Any) -> instance.InstanceGroup:
    return instance.InstanceGroup(
        block_size_tokens=BLOCK,
        num_kv_blocks=4000,
        latency=steady(10, beta_prefill_us=100),
        kv_cache=instance.KvCache(**kv_cache),
        engine_rules=instance.EngineRules.preset("vllm-0.33"),
    )


def talks(generated_tokens: bool, turns: int = 4, **settings: Any) -> Result:
    """A user with questions of 30 tokens and answers of 21."""
    client = workload.Client(
        arrivals=workload.ClosedLoop(users=1, turns=turns, think_time_s=0.5),
        input_tokens=workload.Fixed(tokens=30),
        output_tokens=workload.Fixed(tokens=21),
        num_requests=turns,
    )
    return simulate(
        Simulation(
            workload=workload.Synthetic(clients=[client]),
            instances=server(generated_tokens=generated_tokens),
            **settings,
        )
    )


def test_a_turn_finds_all_computed_blocks_of_the_one_before() -> None:
    turns = 4
    prompts = [30 + 51 * turn for turn in range(turns)]
    # The last token of an answer is never computed.
    (report,) = talks(True).instances
    assert report["kv_hits"] == sum((prompt + 21 - 1) // BLOCK for prompt in prompts[:-1])
    (report,) = talks(False).instances
    assert report["kv_hits"] == sum(prompt // BLOCK for prompt in prompts[:-1])


def test_the_first_token_of_a_turn_comes_sooner() -> None:
    with_answers, without = talks(True), talks(False)
    sooner_s = without.requests["ttft_s"] - with_answers.requests["ttft_s"]
    assert sooner_s[0] == 0
    # An answer has 21 tokens of 0.1 ms, at least two whole blocks of them.
    assert (sooner_s[1:] >= 0.0016 - 1e-9).all()


@pytest.mark.parametrize("generated_tokens", [True, False])
def test_streaming_finds_the_same(generated_tokens: bool) -> None:
    kept = talks(generated_tokens)
    streamed = talks(generated_tokens, metrics={"streaming": True})
    assert streamed.instances[0]["kv_hits"] == kept.instances[0]["kv_hits"]


@pytest.mark.parametrize("generated_tokens", [True, False])
def test_a_router_that_follows_kv_events_finds_answers_where_they_are(
    generated_tokens: bool,
) -> None:
    users, turns = 6, 4
    client = workload.Client(
        arrivals=workload.ClosedLoop(users=users, turns=turns, think_time_s=0.5),
        input_tokens=workload.Fixed(tokens=30),
        output_tokens=workload.Fixed(tokens=21),
        num_requests=users * turns,
    )
    result = simulate(
        Simulation(
            workload=workload.Synthetic(clients=[client]),
            instances=server(generated_tokens=generated_tokens).replace(count=3),
            router=router.Weighted(scorers=[router.PrecisePrefixCache()]),
        )
    )
    before = result.requests["input_tokens"] - 30  # the prompt of the turn before, and its answer
    assert (before > 0).sum() >= users * (turns - 2)
    found = np.maximum(before - (1 if generated_tokens else 21), 0) // BLOCK
    assert sum(report["kv_hits"] for report in result.instances) == found.sum()


def recorded(turns: Sequence[tuple[str, int, int]]) -> workload.Trace:
    names, prompts, outputs = zip(*turns, strict=True)
    n = len(turns)
    return _core.workload.make_trace(
        arrival_ns=np.arange(n) * 10**10,
        input_tokens=prompts,
        output_tokens=outputs,
        tenant=[0] * n,
        tenants=["a"],
        slo_class=[0] * n,
        slo_classes=["standard"],
        request_id=[],
        file="",
        **conversation_segments(names, prompts, outputs),
    )


TURNS = [("a", 40, 25), ("b", 64, 9), ("a", 90, 16), ("b", 100, 1), ("a", 20, 5)]


def hits(trace: workload.Trace, num_kv_blocks: int = 4000) -> int:
    group = server(generated_tokens=True).replace(num_kv_blocks=num_kv_blocks)
    result = simulate(Simulation(workload=trace, instances=group, horizon_s=1000))
    found: int = result.instances[0]["kv_hits"]
    return found


def test_sessions_of_traces_find_their_answers() -> None:
    # The third turn of a begins the conversation anew.
    assert hits(recorded(TURNS)) == (40 + 25 - 1) // BLOCK + (64 + 9 - 1) // BLOCK


def test_answers_are_gone_where_another_prompt_took_their_blocks_in_the_gap() -> None:
    """A tool runs between two turns, and another request needs 20 blocks."""
    turns = [("a", 40, 25), ("other", 153, 1), ("a", 90, 16)]
    assert hits(recorded(turns)) == (40 + 25 - 1) // BLOCK
    assert hits(recorded(turns), num_kv_blocks=20) == 0


def test_copies_of_sessions_find_their_own_answers() -> None:
    trace = recorded(TURNS).replace(session_segments=1)
    both = trace.replace(transforms=[workload.Superpose(copies=2)])
    assert hits(both) == 2 * hits(trace)


def test_answers_survive_saving() -> None:
    trace = recorded(TURNS)
    columns = _core.workload._columns(trace)
    assert columns["answer"].tolist()[2:] == [0, 0, 0]
    assert all(columns["answer"][:2])
    assert _core.workload.make_trace(**columns) == trace
