"""Hand-computed checks of the instance oracle. Times in the comments are microseconds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from support.effort import trials
from support.twins.instance import PLAIN, Outcome, Request, Run, simulate

US = 1000

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
    # Entry: 2176.99 -> 2176.5; step: 9808.30 -> 9808.0; overhead: 1805.54 -> 1805.5.
    (a,) = simulate(replace(WORKED, quantum_ns=500), [Request("a", 0, 164, 1)]).outcomes
    assert stamps_us(a) == (2176.5, 2176.5, 11984.5, 11984.5)
    assert a.reported_ttft_ns == 13790 * US


def test_step_lasts_at_least_one_quantum() -> None:
    server = replace(PLAIN, beta0_us=0.0, beta_prefill_us=0.0, beta_decode_us=0.25)
    assert simulate(server, [Request("a", 5, 3, 2)]).outcomes[0].finished_ns == 5 + 2 * 1000


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
    # 0: a 4 (1 block), b 5 (2 blocks) -> 190. 190: a needs a block, b yields; a -> 291, done.
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
    assert at_end == simulate(replace(server, completion="step_start"), requests)
    assert at_end.outcomes[0].outcome == "completed"


def test_no_output_completes_with_the_prefill() -> None:
    run = simulate(PLAIN, [Request("a", 0, 4, 0)])
    assert stamps_us(run.outcomes[0]) == (0, 0, 140, 140)
    assert run.gaps == Counter()


def test_entries_of_the_step_end_instant_join_the_next_step() -> None:
    requests = [Request("a", 0, 4, 2), Request("b", 140 * US, 4, 1), Request("c", 0, 1, 1)]
    a, b, c = simulate(replace(PLAIN, max_num_batched_tokens=4), requests).outcomes
    # 0: a 4, no budget for c -> 140. 140: a decodes, c 1, b 2 -> 271. 271: b 2 -> 391.
    assert stamps_us(a) == (0, 0, 140, 271)
    assert stamps_us(c) == (0, 140, 271, 271)
    assert stamps_us(b) == (140, 140, 391, 391)


# The prefix cache. Requests with no output finish with their prefill.
CACHED = replace(PLAIN, prefix_caching=True)
KINDS = ("check_then_act", "roll_back")


def counts(run: Run) -> tuple[int, int, int]:
    return run.hits, run.misses, run.lookups


def prompt(
    request_id: str,
    at_us: int,
    shared: tuple[tuple[str, int], ...] | int,
    own: int = 0,
    output: int = 0,
) -> Request:
    """A prompt of shared segments (a number: as many tokens of "g") and tokens of its own."""
    segments = (("g", shared),) if isinstance(shared, int) else shared
    length = sum(tokens for _, tokens in segments) + own
    return Request(request_id, at_us * US, length, output, shared=segments)


@pytest.mark.parametrize("allocation", KINDS)
def test_second_prompt_starts_behind_the_shared_blocks(allocation: str) -> None:
    server = replace(CACHED, allocation=allocation, beta_context_us=0.5)
    run = simulate(server, [prompt("a", 0, 8, 2, 2), prompt("b", 301, 8, 2, 2)])
    a, b = run.outcomes
    # a 10 -> 200; over 10 -> 106. b 2 over 8 -> 124; over 10 -> 106.
    assert stamps_us(a) == (0, 0, 200, 306)
    assert stamps_us(b) == (301, 306, 430, 536)
    assert counts(run) == (2, 3 + 1, 4)
    # Without cache the counts still say what there is: blocks taken, blocks looked for.
    run = simulate(PLAIN, [prompt("a", 0, 8, 2, 2), prompt("b", 301, 8, 2, 2)])
    assert counts(run) == (0, 3 + 3, 4)


@pytest.mark.parametrize("allocation", KINDS)
@pytest.mark.parametrize(
    ("first", "second", "cached"),
    [
        ((("s", 8),), (("s", 8),), 2),
        ((("s", 8),), (("t", 8),), 0),
        # The same content in another length is another segment.
        ((("s", 8),), (("s", 9),), 0),
        # A block that ends behind the shared tokens is the request's own.
        ((("s", 7),), (("s", 7),), 1),
        ((("s", 3),), (("s", 3),), 0),
        # A block counts with all that stands before its end, and with nothing behind.
        ((("s", 4), ("t", 4)), (("s", 4), ("u", 4)), 1),
        ((("s", 4), ("t", 4)), (("u", 4), ("t", 4)), 0),
        ((("s", 3), ("t", 5)), (("s", 3), ("t", 5)), 2),
        ((("s", 3), ("t", 5)), (("s", 3), ("u", 5)), 0),
        ((("s", 4), ("t", 4)), (("s", 8),), 0),
    ],
)
def test_identity_of_blocks(
    allocation: str,
    first: tuple[tuple[str, int], ...],
    second: tuple[tuple[str, int], ...],
    cached: int,
) -> None:
    server = replace(CACHED, allocation=allocation)
    requests = [prompt("a", 0, first, 5), prompt("b", 1000, second, 5)]
    run = simulate(server, requests)
    last = requests[1].input_tokens
    assert stamps_us(run.outcomes[1])[3] == 1000 + 100 + 10 * (last - 4 * cached)
    assert run.hits == cached


def test_prompts_of_one_step_share() -> None:
    # a's blocks are registered when it gets its tokens, so b finds them in the same step.
    run = simulate(CACHED, [prompt("a", 0, 8, 1), prompt("b", 0, 8, 1)])
    assert stamps_us(run.outcomes[1])[3] == 100 + 10 * (9 + 1)
    assert counts(run) == (2, 4, 4)


@pytest.mark.parametrize("allocation", KINDS)
def test_last_block_of_a_sequence_goes_first(allocation: str) -> None:
    # a fills blocks 0 to 2 and begins 3; free afterwards: 3 2 1 0. b takes two or one of them.
    server = replace(CACHED, allocation=allocation, num_kv_blocks=4)
    requests = [prompt("a", 0, 12, 1), prompt("b", 230, (), 5), prompt("c", 380, 12, 1)]
    run = simulate(server, requests)
    # c: 5 over 8.
    assert [stamps_us(outcome)[3] for outcome in run.outcomes] == [230, 380, 380 + 150]
    assert counts(run) == (2, 4 + 2 + 2, 3 + 1 + 3)

    run = simulate(server, [requests[0], prompt("b", 230, (), 1), prompt("c", 340, 12, 1)])
    # c: 1 over 12.
    assert [stamps_us(outcome)[3] for outcome in run.outcomes] == [230, 340, 340 + 110]
    assert counts(run) == (3, 4 + 1 + 1, 3 + 0 + 3)


@pytest.mark.parametrize("allocation", KINDS)
def test_own_blocks_are_found_after_a_preemption(allocation: str) -> None:
    run = simulate(replace(TIGHT, prefix_caching=True, allocation=allocation), PAIR)
    a, b = run.outcomes
    # As without cache until 483; b's first block stands alone in the free list meanwhile, and b
    # would need another besides it. 483: b decodes over 4 -> 584; 685; 786.
    assert stamps_us(a) == (0, 0, 180, 483)
    assert stamps_us(b) == (0, 0, 180, 786)
    assert (a.preemptions, b.preemptions) == (0, 1)
    assert gaps_us(run) == {101: 5, 584 - 180: 1}
    assert counts(run) == (1, 2 + 1 + 1, 3)


@pytest.mark.parametrize(
    ("allocation", "tokens", "counted"),
    # check_then_act always computes the last token again, and with it its block.
    [("check_then_act", 4, (1, 3, 4)), ("roll_back", 0, (0, 2, 4))],
)
@pytest.mark.parametrize("output", [0, 1])
def test_prompt_that_is_cached_to_its_end(
    allocation: str, tokens: int, counted: tuple[int, int, int], output: int
) -> None:
    server = replace(CACHED, allocation=allocation, beta_context_us=0.5)
    run = simulate(server, [prompt("a", 0, 8, 0, output), prompt("b", 180, 8, 0, output)])
    a, b = run.outcomes
    assert stamps_us(a) == (0, 0, 180, 180)
    end = 180 + 100 + 10 * tokens + (8 - tokens) / 2
    assert stamps_us(b) == (180, 180, end, end)
    assert counts(run) == counted


def test_prompt_without_tokens_holds_only_the_blocks_behind_it() -> None:
    # a leaves free: 2 1 0. b holds nothing at first, then block 2 for what it has emitted; the two
    # of its prompt stay in the free list, so c finds them.
    server = replace(CACHED, allocation="roll_back", num_kv_blocks=3)
    run = simulate(server, [prompt("a", 0, 8), prompt("b", 180, 8, 0, 3), prompt("c", 482, 8)])
    assert [stamps_us(outcome)[3] for outcome in run.outcomes] == [180, 280 + 2 * 101, 582]
    assert counts(run) == (0, 2 + 1, 6)


def test_prompt_without_tokens_needs_some_budget_but_takes_none() -> None:
    server = replace(CACHED, allocation="roll_back", max_num_batched_tokens=9)
    requests = [prompt("a", 0, 8), prompt("b", 180, (), 8), prompt("c", 180, 8)]
    run = simulate(server, requests)
    assert [stamps_us(outcome)[3] for outcome in run.outcomes] == [180, 360, 360]
    run = simulate(replace(server, max_num_batched_tokens=8), requests)
    assert [stamps_us(outcome)[3] for outcome in run.outcomes] == [180, 360, 460]


@pytest.mark.parametrize(
    ("allocation", "tokens", "counted"),
    [("check_then_act", 12, (1, 9, 8)), ("roll_back", 8, (2, 8, 8))],
)
def test_roll_back_moves_the_cached_blocks_to_the_tail(
    allocation: str, tokens: int, counted: tuple[int, int, int]
) -> None:
    # Blocks 0 1 to a, 2 to y, then 3 4 to b; free: 1 0 2. 390: c finds 1 and 0 but not two more;
    # rolled back: 2 1 0. 491: b takes the head, in one case c's block 1, in the other 2.
    requests = [
        prompt("a", 0, 8),
        prompt("y", 0, (), 4),
        prompt("b", 220, (), 7, 3),
        prompt("c", 300, 8, 8),
    ]
    run = simulate(replace(CACHED, num_kv_blocks=5, allocation=allocation), requests)
    _, _, b, c = run.outcomes
    assert stamps_us(b) == (220, 220, 390, 592)
    end = 592 + 100 + 10 * tokens
    assert stamps_us(c) == (300, 592, end, end)
    assert counts(run) == counted


@pytest.mark.parametrize(
    ("allocation", "end", "hits"), [("check_then_act", 870, 1), ("roll_back", 1110, 0)]
)
def test_what_taking_one_of_two_equal_blocks_forgets(allocation: str, end: int, hits: int) -> None:
    # a and b compute the same block at the same time, two tokens per step; b's replaces a's.
    # 280: free: 2 0 1. d takes 2 and at 520 a's 0; c looks for b's 1.
    server = replace(CACHED, num_kv_blocks=3, allocation=allocation, long_prefill_token_threshold=2)
    requests = [
        prompt("a", 0, 4),
        prompt("b", 0, 4),
        prompt("d", 280, (), 8),
        prompt("c", 760, 4, 1),
    ]
    run = simulate(server, requests)
    assert [stamps_us(outcome)[3] for outcome in run.outcomes] == [280, 280, 760, end]
    assert run.hits == hits


@pytest.mark.parametrize("allocation", KINDS)
@pytest.mark.parametrize(
    ("stores", "output", "end", "counted"),
    [
        (True, 1, 540, (0, 2 + 3 + 2, 6)),
        (True, 0, 500, (1, 2 + 2 + 1, 6)),
        (False, 1, 500, (1, 2 + 2 + 1, 6)),
    ],
)
def test_last_token_takes_a_cached_block(
    allocation: str, stores: bool, output: int, end: int, counted: tuple[int, int, int]
) -> None:
    # a leaves free: 2 1 0. b takes 2 and 1, and for its last token perhaps 0. c: 8 or 4 tokens;
    # with no output it has no last token.
    server = replace(CACHED, num_kv_blocks=3, allocation=allocation, stores_last_token=stores)
    requests = [prompt("a", 0, 8), prompt("b", 180, (), 8, output), prompt("c", 360, 8)]
    run = simulate(server, requests)
    assert [stamps_us(outcome)[3] for outcome in run.outcomes] == [180, 360, end]
    assert counts(run) == counted


@pytest.mark.parametrize("stores", [False, True])
def test_last_token_of_a_prompt_without_blocks(stores: bool) -> None:
    server = replace(CACHED, num_kv_blocks=3, allocation="roll_back", stores_last_token=stores)
    run = simulate(server, [prompt("a", 0, 8), prompt("b", 180, 8, 0, 1)])
    assert stamps_us(run.outcomes[1]) == (180, 180, 280, 280)
    assert counts(run) == (0, 2 + stores, 4)


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
    finished = {
        request.request_id: outcome.finished_ns or 0
        for request, outcome in zip(requests, simulate(server, requests).outcomes, strict=True)
    }
    assert sorted(finished, key=lambda name: finished[name]) == order.split()


@pytest.mark.parametrize("seed", trials(200))
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
        prefix_caching=rng.random() < 0.7,
        allocation=rng.choice(KINDS),
        stores_last_token=rng.choice([False, True]),
    )
    # Prompts begin with the same tokens or do not; some are nothing else.
    segments = (("g", rng.randint(1, 8)), ("h", rng.randint(1, 8)))
    beginnings = [segments[:parts] for parts in (rng.choice([0, 1, 2]) for _ in range(25))]
    lengths = [sum(tokens for _, tokens in beginning) for beginning in beginnings]
    requests = [
        Request(
            f"r{i}",
            rng.randrange(0, 3000) * US,
            max(1, lengths[i] + rng.randint(0, 20 - lengths[i]) * rng.randint(0, 1)),
            rng.randint(0, 20),
            rng.randint(0, 2),
            shared=beginnings[i],
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


# Priorities. Seats for one, or memory for a few; a step costs 100 + 10 per prefilled token + 1 per
# decoding request.
URGENT = replace(PLAIN, scheduler="priority_fcfs", max_num_seqs=1, preemption_margin=5)


def test_head_takes_the_seat_of_one_that_counts_less_by_the_margin() -> None:
    # 0: a 4 -> 140. 140: b enters for a, 4 -> 180 + 100 = 280, done. 280: a recomputes 5 -> 430.
    pair = [Request("a", 0, 4, 3, priority=0), Request("b", 10, 4, 1, priority=5)]
    run = simulate(URGENT, pair)
    a, b = run.outcomes
    assert stamps_us(b) == (0.01, 140, 280, 280)
    assert stamps_us(a) == (0, 0, 140, 531)
    assert (a.preemptions, b.preemptions, run.yielded) == (1, 0, 1)
    waits = simulate(replace(URGENT, preemption_margin=6), pair)
    assert stamps_us(waits.outcomes[1]) == (0.01, 342, 482, 482)
    assert waits.yielded == 0


def test_age_counts_as_priority() -> None:
    # By 10 per s, 5 are worth 0.5 s. b is 5 more important than a, but came later by 0.4 s or 0.6.
    server = replace(URGENT, beta0_us=1e5, age_weight_per_s=10.0, preemption_margin=None)
    for later_s, order in ((0.4, ["b", "a"]), (0.6, ["a", "b"])):
        requests = [
            Request("x", 0, 64, 10, priority=100),
            Request("a", 1, 4, 1, priority=0),
            Request("b", 1 + int(later_s * 1e9), 4, 1, priority=5),
        ]
        run = simulate(server, requests)
        at = dict(zip("xab", (stamps_us(outcome)[1] for outcome in run.outcomes), strict=True))
        assert sorted("ab", key=at.__getitem__) == order


def test_preemptions_per_step_are_bounded() -> None:
    # Four of 4 tokens fill the memory; the fifth needs three of their blocks, one per step.
    server = replace(
        URGENT, max_num_seqs=8, num_kv_blocks=4, max_preemptions_per_step=1, beta_prefill_us=0.0
    )
    few = [Request(name, 0, 3, 2, priority=0) for name in "abcd"]
    run = simulate(server, [*few, Request("e", 10, 12, 1, priority=9)])
    e = run.outcomes[-1]
    # 0: all -> 100. 100: d yields; a, b, c finish -> 203. 203: e enters.
    assert run.yielded == 1
    assert stamps_us(e) == (0.01, 203, 303, 303)
    many = simulate(
        replace(server, max_preemptions_per_step=3), [*few, Request("e", 10, 12, 1, priority=9)]
    )
    assert many.yielded == 3
    assert stamps_us(many.outcomes[-1]) == (0.01, 100, 201, 201)


def test_the_lowest_weight_is_preempted_if_memory_is_short() -> None:
    # As in TIGHT, but a counts less: it finds no block at 180 and yields itself, and b, which
    # comes next, decodes -> 281.
    pair = [Request("a", 0, 4, 4, priority=0), Request("b", 0, 4, 4, priority=1)]
    server = replace(TIGHT, scheduler="priority_fcfs", victim="lowest_priority")
    # b enters first, so it is b that takes the last block, and a that needs one.
    run = simulate(server, pair)
    a, b = run.outcomes
    assert (a.preemptions, b.preemptions) == (1, 0)
    assert stamps_us(b) == (0, 0, 180, 483)
    # a enters first if b comes later; it is first in the batch and is preempted all the same.
    run = simulate(server, [Request("a", 0, 4, 4, priority=0), Request("b", 1, 4, 4, priority=1)])
    a, b = run.outcomes
    # 0: a -> 140. 140: a takes a second block and b one -> 241; 241: b needs one, a yields
    # with its part of the step; b -> 342.
    assert (a.preemptions, b.preemptions) == (1, 0)
    assert run.unfinished_victims == 1


# Withdrawal. PLAIN: a step costs 100 + 10 per prefilled token + 1 per decoding request.


def test_withdrawn_from_the_batch_with_the_step_under_way() -> None:
    # 0: a 4, b 4 -> 180. 180: both decode -> 282, where b leaves; a -> 383 (101).
    run = simulate(PLAIN, [Request("a", 0, 4, 3), Request("b", 0, 4, 9, cancelled_ns=200 * US)])
    a, b = run.outcomes
    assert stamps_us(a) == (0, 0, 180, 383)
    assert (b.outcome, b.cancelled_ns, b.emitted) == ("cancelled", 282 * US, 2)
    assert b.finished_ns is None
    assert run.steps == 3


def test_withdrawn_in_its_last_step() -> None:
    requests = [Request("a", 0, 4, 2, cancelled_ns=200 * US)]
    (a,) = simulate(PLAIN, requests).outcomes
    assert (a.outcome, a.emitted, a.cancelled_ns) == ("cancelled", 2, 241 * US)
    (a,) = simulate(replace(PLAIN, completion="step_start"), requests).outcomes
    assert (a.outcome, a.emitted, a.cancelled_ns) == ("completed", 2, None)
    assert stamps_us(a) == (0, 0, 140, 241)


# One step ahead

AHEAD = replace(PLAIN, async_scheduling=True)


def test_a_lone_request_takes_as_long_one_step_ahead() -> None:
    for server in (PLAIN, AHEAD):
        assert stamps_us(simulate(server, [Request("a", 0, 4, 3)]).outcomes[0]) == (0, 0, 140, 342)


def test_an_arrival_joins_one_step_later() -> None:
    requests = [Request("a", 0, 4, 9), Request("b", 5 * US, 4, 1)]
    assert stamps_us(simulate(PLAIN, requests).outcomes[1]) == (5, 140, 281, 281)
    # The step that starts at 140 has been planned at 0, the next one is at 140.
    assert stamps_us(simulate(AHEAD, requests).outcomes[1]) == (5, 140, 382, 382)


def test_a_finished_request_keeps_its_seat_for_one_step() -> None:
    requests = [Request("a", 0, 4, 1), Request("b", 0, 4, 9), Request("c", 0, 4, 1)]
    sync, ahead = (
        simulate(replace(server, max_num_seqs=2), requests).outcomes[2] for server in (PLAIN, AHEAD)
    )
    assert stamps_us(sync) == (0, 180, 321, 321)
    assert stamps_us(ahead) == (0, 180, 422, 422)


def test_without_a_plan_the_next_step_starts_at_once() -> None:
    requests = [Request("a", 0, 4, 1), Request("b", 0, 4, 1)]
    for server in (PLAIN, AHEAD):
        b = simulate(replace(server, max_num_seqs=1), requests).outcomes[1]
        assert stamps_us(b) == (0, 140, 280, 280)


def test_a_request_preempted_for_the_plan_keeps_the_token_of_the_current_step() -> None:
    # Both begin a third block in the same step, for which there is no memory when it is planned: b
    # leaves during the step before, whose token still counts.
    run = simulate(replace(AHEAD, num_kv_blocks=4), [Request("a", 0, 7, 9), Request("b", 0, 7, 9)])
    assert run.outcomes[1].preemptions > 0
    assert run.outcomes[1].emitted == 9
    assert sum(run.gaps.values()) == 16


def test_withdrawn_between_two_steps_leaves_at_once() -> None:
    run = simulate(PLAIN, [Request("a", 0, 4, 9, cancelled_ns=140 * US), Request("b", 5, 4, 1)])
    a, b = run.outcomes
    assert (a.cancelled_ns, a.emitted) == (140 * US, 1)
    assert stamps_us(b) == (0.005, 140, 280, 280)
    assert run.steps == 2


def test_withdrawn_head_lets_the_next_one_in() -> None:
    # One of three blocks is free from 0 on; b needs two, c one. b gives up at 150: c joins at 201.
    server = replace(PLAIN, num_kv_blocks=3, beta_prefill_us=0.0)
    requests = [
        Request("a", 0, 5, 3),
        Request("b", 10, 8, 1, cancelled_ns=150 * US),
        Request("c", 20, 4, 1),
    ]
    a, b, c = simulate(server, requests).outcomes
    assert (b.outcome, b.cancelled_ns, b.scheduled_ns) == ("cancelled", 150 * US, None)
    assert stamps_us(a) == (0, 0, 100, 302)
    assert stamps_us(c) == (0.02, 201, 302, 302)


def test_withdrawn_before_it_enters_stays() -> None:
    server = replace(PLAIN, alpha0_us=50.0)
    (a,) = simulate(server, [Request("a", 0, 4, 1, cancelled_ns=50 * US)]).outcomes
    assert stamps_us(a) == (50, 50, 190, 190)


def test_blocks_of_a_withdrawn_request_are_found_again() -> None:
    server = replace(PLAIN, prefix_caching=True)
    requests = [
        Request("a", 0, 9, 9, shared=(("x", 8),), cancelled_ns=150 * US),
        Request("b", 200 * US, 9, 1, shared=(("x", 8),)),
    ]
    run = simulate(server, requests)
    assert run.outcomes[0].cancelled_ns == 190 * US
    assert run.hits == 2
    assert run.outcomes[1].finished_ns == 310 * US
