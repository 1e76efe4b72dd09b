"""Hand-computed checks of the instance oracle. Times in the comments are microseconds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from .instance_oracle import Outcome, Request, Run, Server, simulate

US = 1000

# A step costs 100 + 10 per prefilled token + 1 per decoding request; no entry delay.
PLAIN = Server(
    max_num_seqs=8,
    max_num_batched_tokens=64,
    long_prefill_token_threshold=0,
    max_model_len=0,
    block_size_tokens=4,
    num_kv_blocks=100,
    scheduler="fcfs",
    priority="slo_class",
    alpha0_us=0.0,
    alpha_input_us=0.0,
    alpha_output_us=0.0,
    beta0_us=100.0,
    beta_prefill_us=10.0,
    beta_decode_us=1.0,
    beta_context_us=0.0,
    completion="step_end",
    preemption="keep_emitted",
    output_overhead="in_step",
    accounting="clock",
    quantum_ns=1000,
)

WORKED = replace(
    PLAIN,
    max_num_batched_tokens=2048,
    block_size_tokens=16,
    num_kv_blocks=1000,
    alpha0_us=1601.35,
    alpha_input_us=3.51,
    alpha_output_us=1805.54,
    beta0_us=6910.42,
    beta_prefill_us=17.67,
    beta_decode_us=2.84,
    completion="step_start",
    preemption="restart",
    output_overhead="reported",
    accounting="blis",
)


def stamps_us(outcome: Outcome) -> tuple[float, float, float, float]:
    """(enqueued, scheduled, first token, finished), all of which must be there."""
    assert outcome.enqueued_ns is not None
    assert outcome.scheduled_ns is not None
    assert outcome.first_token_ns is not None
    assert outcome.finished_ns is not None
    return (
        outcome.enqueued_ns / US,
        outcome.scheduled_ns / US,
        outcome.first_token_ns / US,
        outcome.finished_ns / US,
    )


def gaps_us(run: Run) -> dict[float, int]:
    return {gap / US: count for gap, count in run.gaps.items()}


def test_worked_example() -> None:
    run = simulate(WORKED, [Request("a", 0, 164, 12)])
    (a,) = run.outcomes
    # Entry: floor(1601.35 + 3.51 * 164) = 2176; prefill step: floor(6910.42 + 17.67 * 164) = 9808;
    # overhead per token: 1805; decode step: floor(6910.42 + 2.84) = 6913.
    assert a.reported_ttft_ns == 13789 * US
    assert a.reported_ttft_ns + a.reported_decode_ns == (13789 + 11 * (6913 + 1805)) * US
    assert gaps_us(run) == {6913 + 1805: 11}
    assert stamps_us(a) == (2176, 2176, 2176 + 9808, 2176 + 9808 + 11 * 6913)
    assert run.steps == 12
    assert run.end_ns == a.finished_ns


def test_quantum_is_the_unit_of_truncation() -> None:
    run = simulate(replace(WORKED, quantum_ns=500), [Request("a", 0, 164, 1)])
    # Entry: 2176.99 -> 2176.5; step: 9808.30 -> 9808.0; overhead: 1805.54 -> 1805.5.
    (a,) = run.outcomes
    assert stamps_us(a) == (2176.5, 2176.5, 11984.5, 11984.5)
    assert a.reported_ttft_ns == 13790 * US


def test_step_lasts_at_least_one_quantum() -> None:
    server = replace(PLAIN, beta0_us=0.0, beta_prefill_us=0.0, beta_decode_us=0.25)
    run = simulate(server, [Request("a", 5, 3, 2)])
    assert run.outcomes[0].finished_ns == 5 + 2 * 1000


def test_in_step_overhead_only_when_a_token_is_emitted() -> None:
    server = replace(PLAIN, alpha_output_us=7.0, max_num_batched_tokens=4)
    run = simulate(server, [Request("a", 0, 6, 2)])
    # 4 tokens, no emission: 140; 2 tokens and the first token: 120 + 7; decode: 101 + 7.
    assert stamps_us(run.outcomes[0]) == (0, 0, 267, 375)


# Preemption. Three blocks of four tokens; a and b (4 in, 4 out) fill one each with their prefill.
#   0: a 4, b 4 -> 180, both emit. 180: a takes the last block for its fifth token, b needs one
#   too, is the last of running and preempts itself; a decodes -> 281.
TIGHT = replace(PLAIN, num_kv_blocks=3)
PAIR = [Request("a", 0, 4, 4), Request("b", 0, 4, 4)]


def test_preemption_keep_emitted() -> None:
    run = simulate(TIGHT, PAIR)
    a, b = run.outcomes
    # b needs 5 tokens = 2 blocks, one is free: it waits. 281: a -> 382. 382: a -> 483, done.
    # 483: b recomputes 5 tokens -> 633, its second token; 734; 835.
    assert stamps_us(a) == (0, 0, 180, 483)
    assert stamps_us(b) == (0, 0, 180, 835)
    assert (a.preemptions, b.preemptions) == (0, 1)
    assert gaps_us(run) == {101: 5, 633 - 180: 1}
    assert run.steps == 7
    assert run.end_ns == 835 * US


def test_preemption_restart() -> None:
    run = simulate(replace(TIGHT, preemption="restart"), PAIR)
    a, b = run.outcomes
    # b needs 4 tokens = 1 block again. 281: a, b 4 -> 422. 422: b preempts itself again, a -> 523,
    # done. 523: b 4 -> 663; 764; 865; 966.
    assert stamps_us(a) == (0, 0, 180, 523)
    assert stamps_us(b) == (0, 0, 180, 966)
    assert (a.preemptions, b.preemptions) == (0, 2)
    assert gaps_us(run) == {101: 5, 141: 1}
    assert run.steps == 8


def test_preemption_of_another_request_as_reported() -> None:
    server = replace(TIGHT, accounting="blis", output_overhead="reported", alpha_output_us=7.0)
    pair = [Request("a", 0, 4, 2), Request("b", 0, 5, 2)]
    # 0: a 4 (1 block), b 5 (2 blocks) -> 190. 190: a needs a block, b gives way; a -> 291, done.
    run = simulate(replace(server, preemption="restart"), pair)
    a, b = run.outcomes
    # 291: b 5 -> 441, its first token again; 441: -> 542.
    assert (a.reported_ttft_ns, a.reported_decode_ns) == (197 * US, 108 * US)
    assert (b.reported_ttft_ns, b.reported_decode_ns) == (448 * US, 108 * US)
    assert stamps_us(b) == (0, 291, 190, 542)
    assert gaps_us(run) == {108: 2}

    run = simulate(replace(server, preemption="keep_emitted"), pair)
    a, b = run.outcomes
    # 291: b 6 -> 451, its second token.
    assert (a.reported_ttft_ns, a.reported_decode_ns) == (197 * US, 108 * US)
    assert (b.reported_ttft_ns, b.reported_decode_ns) == (197 * US, 167 * US)
    assert stamps_us(b) == (0, 291, 190, 451)
    assert gaps_us(run) == {108: 1, 167: 1}


def test_reported_ttft_is_overwritten_while_one_token_is_out() -> None:
    server = replace(
        TIGHT,
        long_prefill_token_threshold=4,
        accounting="blis",
        output_overhead="reported",
        alpha_output_us=7.0,
    )
    run = simulate(server, PAIR)
    a, b = run.outcomes
    # 281: b recomputes 4 of 5 -> 422, ttft 429. 422: b (one token left: it decodes) preempts
    # itself; a -> 523, done. 523: b 4 of 5 -> 663, ttft 670. 663: b decodes -> 764; 865; 966.
    assert (a.reported_ttft_ns, a.reported_decode_ns) == (187 * US, (108 + 148 + 108) * US)
    assert (b.reported_ttft_ns, b.reported_decode_ns) == (670 * US, 3 * 108 * US)
    assert stamps_us(b) == (0, 523, 180, 966)
    assert b.preemptions == 2
    assert run.steps == 8


def test_chunked_prefill_with_context() -> None:
    server = replace(PLAIN, long_prefill_token_threshold=4, beta_context_us=0.5)
    run = simulate(server, [Request("a", 0, 10, 2)])
    # 4 -> 140; 4 over 4 -> 140 + 2; 2 over 8 -> 120 + 4; decode over 10 -> 101 + 5.
    assert stamps_us(run.outcomes[0]) == (0, 0, 406, 512)
    assert gaps_us(run) == {106: 1}
    assert run.steps == 4


def test_chunked_prefill_shares_the_budget() -> None:
    server = replace(PLAIN, long_prefill_token_threshold=4, max_num_batched_tokens=6)
    run = simulate(server, [Request("a", 0, 10, 2), Request("b", 0, 3, 2)])
    a, b = run.outcomes
    # a 4, b 2 -> 160; a 4, b 1 (still a prefill) -> 310; a 2, b decodes -> 431; a decodes -> 532.
    assert stamps_us(a) == (0, 0, 431, 532)
    assert stamps_us(b) == (0, 0, 310, 431)
    assert gaps_us(run) == {121: 1, 101: 1}


def test_unservable() -> None:
    server = replace(PLAIN, num_kv_blocks=4)
    run = simulate(server, [Request("a", 0, 10, 7), Request("b", 0, 10, 6)])
    a, b = run.outcomes
    assert a == Outcome(outcome="rejected")
    assert b.outcome == "completed"
    assert stamps_us(b) == (0, 0, 200, 200 + 5 * 101)

    server = replace(PLAIN, max_model_len=16)
    requests = [
        Request("full", 0, 10, 6),
        Request("long", 0, 10, 7),
        Request("prompt", 0, 16, 0),
        Request("short", 0, 15, 1),
    ]
    outcomes = [outcome.outcome for outcome in simulate(server, requests).outcomes]
    assert outcomes == ["completed", "rejected", "rejected", "completed"]

    run = simulate(server, [Request("long", 0, 10, 7)])
    assert (run.steps, run.end_ns, run.gaps) == (0, 0, Counter())


@pytest.mark.parametrize("accounting", ["clock", "blis"])
@pytest.mark.parametrize("output_tokens", [0, 1, 2, 12])
def test_completion_mode_does_not_move_the_stamps(accounting: str, output_tokens: int) -> None:
    server = replace(WORKED, accounting=accounting, long_prefill_token_threshold=50)
    requests = [Request("a", 123, 164, output_tokens)]
    at_end = simulate(replace(server, completion="step_end"), requests)
    at_start = simulate(replace(server, completion="step_start"), requests)
    assert at_end == at_start
    assert at_end.outcomes[0].outcome == "completed"


def test_no_output_completes_with_the_prefill() -> None:
    run = simulate(PLAIN, [Request("a", 0, 4, 0)])
    assert stamps_us(run.outcomes[0]) == (0, 0, 140, 140)
    assert run.gaps == Counter()


def test_entries_of_the_step_end_instant_join_the_next_step() -> None:
    requests = [Request("a", 0, 4, 2), Request("b", 140 * US, 4, 1), Request("c", 0, 1, 1)]
    run = simulate(replace(PLAIN, max_num_batched_tokens=4), requests)
    a, b, c = run.outcomes
    # 0: a 4, no budget for c -> 140. 140: a decodes, c 1, b 2 -> 271. 271: b 2 -> 391.
    assert stamps_us(a) == (0, 0, 140, 271)
    assert stamps_us(c) == (0, 140, 271, 271)
    assert stamps_us(b) == (140, 140, 391, 391)


# One slot: the requests run one after another in the order the scheduler picks.
@pytest.mark.parametrize(
    ("scheduler", "priority", "order"),
    [
        ("fcfs", "slo_class", "x d c b a"),
        ("priority_fcfs", "slo_class", "x b c d a"),
        ("reverse_priority", "slo_class", "x a d b c"),
        ("priority_fcfs", "constant", "x a d b c"),
        ("reverse_priority", "constant", "x a d b c"),
        ("priority_fcfs", "age", "x a d b c"),
        ("reverse_priority", "age", "x b c d a"),
        ("priority_fcfs", "inverted_age", "x b c d a"),
        ("reverse_priority", "inverted_age", "x a d b c"),
        ("sjf", "slo_class", "x c d b a"),
    ],
)
def test_scheduler_order(scheduler: str, priority: str, order: str) -> None:
    # All others enter the queue during x's step, in the order d, c (same instant), b, a, which is
    # not the order of their arrival; b and c arrive together.
    server = replace(
        PLAIN, max_num_seqs=1, alpha_input_us=1.0, scheduler=scheduler, priority=priority
    )
    requests = [
        Request("x", 0, 1, 1),
        Request("d", 2 * US, 2, 1, priority=1),
        Request("c", 3 * US, 1, 1, priority=2),
        Request("b", 3 * US, 9, 1, priority=2),
        Request("a", 1 * US, 14, 1, priority=0),
    ]
    run = simulate(server, requests)
    finished = {
        request.request_id: outcome.finished_ns or 0
        for request, outcome in zip(requests, run.outcomes, strict=True)
    }
    assert sorted(finished, key=lambda name: finished[name]) == order.split()


@pytest.mark.parametrize("seed", range(200))
def test_random_runs_keep_the_invariants(seed: int) -> None:
    rng = random.Random(seed)
    server = replace(
        PLAIN,
        max_num_seqs=rng.randint(1, 6),
        max_num_batched_tokens=rng.randint(1, 24),
        long_prefill_token_threshold=rng.choice([0, 1, 3, 8]),
        max_model_len=rng.choice([0, 30]),
        block_size_tokens=rng.choice([1, 2, 4]),
        num_kv_blocks=rng.randint(4, 16),
        scheduler=rng.choice(["fcfs", "priority_fcfs", "reverse_priority", "sjf"]),
        priority=rng.choice(["slo_class", "constant", "age", "inverted_age"]),
        alpha_input_us=rng.choice([0.0, 20.0]),
        alpha_output_us=5.5,
        beta_context_us=rng.choice([0.0, 0.3]),
        preemption=rng.choice(["restart", "keep_emitted"]),
        output_overhead=rng.choice(["in_step", "reported"]),
        accounting=rng.choice(["clock", "blis"]),
        quantum_ns=rng.choice([1, 1000]),
    )
    requests = [
        Request(
            f"r{i}",
            rng.randrange(0, 3000) * US,
            rng.randint(1, 20),
            rng.randint(0, 20),
            rng.randint(0, 2),
        )
        for i in range(rng.randint(1, 25))
    ]
    at_end = simulate(replace(server, completion="step_end"), requests)
    assert at_end == simulate(replace(server, completion="step_start"), requests)

    done = [
        (request, outcome)
        for request, outcome in zip(requests, at_end.outcomes, strict=True)
        if outcome.outcome == "completed"
    ]
    tokens_after_first = sum(max(request.output_tokens, 1) - 1 for request, _ in done)
    pooled = sum(at_end.gaps.values())
    pooled_ns = sum(gap * count for gap, count in at_end.gaps.items())
    if server.preemption == "keep_emitted":
        assert pooled == tokens_after_first
    else:
        assert pooled >= tokens_after_first
    if server.accounting == "blis":
        assert pooled_ns == sum(outcome.reported_decode_ns for _, outcome in done)
    elif server.preemption == "keep_emitted":
        assert pooled_ns == sum(
            (outcome.finished_ns or 0) - (outcome.first_token_ns or 0) for _, outcome in done
        )
