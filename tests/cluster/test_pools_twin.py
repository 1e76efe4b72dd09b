"""Hand-computed checks of the oracle of prefill and decode pools, and laws that it must obey."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from support.effort import trials
from support.twins.instance import PLAIN, Request, Server
from support.twins.instance import simulate as simulate_alone
from support.twins.pools import DeadlockError, Job, Link, Pools, PoolsRun

US = 1000

SERVER = replace(PLAIN, quantum_ns=1, prefix_caching=True)
# A block of four tokens takes 4 us between two instances.
LINK = Link(bytes_per_token=1000, pair_bytes_per_s=1e9, latency_ns=50 * US)


def request(name: str, at_us: float = 0, tokens: int = 8, output: int = 3, **more: int) -> Request:
    return Request(name, round(at_us * US), tokens, output, **more)


def run(
    *requests: Request, prefill: Server = SERVER, decode: Server = SERVER, **settings: Any
) -> PoolsRun:
    link = settings.pop("link", LINK)
    return Pools([("prefill", prefill), ("decode", decode)], link, **settings).run(requests)


def test_request_passes_both_pools_once() -> None:
    """Prefill 100 + 8 * 10, transfer 50 + 8, one prompt token again 100 + 10, then two steps."""
    (job,) = run(request("a")).jobs
    assert job.prefill_end_ns == 180 * US
    assert job.transfer_begin_ns == 180 * US
    assert job.transfer_end_ns == (180 + 58) * US
    assert job.decode_leg is not None
    assert job.decode_leg.outcome.scheduled_ns == 238 * US
    assert job.decode_leg.outcome.first_token_ns == (238 + 110) * US
    assert job.decode_leg.outcome.finished_ns == (238 + 110 + 2 * 101) * US
    assert job.outcome == "completed"


def test_transfer_of_a_thousand_tokens_takes_its_bytes_and_the_latency() -> None:
    """Row 26: 1,000 tokens of 128 kB at 25 GB/s, 5.12 ms + 0.05 ms."""
    link = Link(bytes_per_token=128_000, pair_bytes_per_s=25e9, latency_ns=50_000)
    server = replace(SERVER, num_kv_blocks=1000, max_num_batched_tokens=1000)
    (job,) = run(request("a", tokens=1000), link=link, prefill=server, decode=server).jobs
    assert job.transfer_begin_ns is not None
    assert job.transfer_end_ns == job.transfer_begin_ns + 5_170_000


def test_only_blocks_that_the_reader_lacks_are_moved() -> None:
    shared = (("system", 8),)
    first, second = (
        Request(name, at * US, 16, 1, shared=shared) for name, at in (("a", 0), ("b", 5000))
    )
    jobs = run(first, second).jobs
    assert [job.moved_blocks for job in jobs] == [4, 2]


@pytest.mark.parametrize(("sharing", "ends_us"), [("fixed_share", (2, 4)), ("max_min", (3, 4))])
def test_transfers_share_a_bandwidth(sharing: str, ends_us: tuple[int, int]) -> None:
    """Two of 2,000 bytes at 1 GB/s, the second 1 us later.

    Fixed: the first keeps all, the second gets half for 4 us, until 5 us. Fairly: after 1 us each
    has half, the first ends at 3 us, then the second has all for its last 1,000 bytes, until 4 us.
    """
    link = Link(bytes_per_token=500, shared_bytes_per_s=1e9, sharing=sharing)
    server = replace(SERVER, max_num_seqs=1, beta0_us=1.0, beta_prefill_us=0.0)
    two = Pools([(role, server) for role in ("prefill", "decode") for _ in range(2)], link)
    jobs = two.run([request("a", 0, tokens=4), request("b", 1, tokens=4)]).jobs
    begin = jobs[0].transfer_begin_ns
    assert begin is not None
    ends = [(job.transfer_end_ns or 0) - begin for job in jobs]
    if sharing == "fixed_share":
        assert ends == [2 * US, 5 * US]
    else:
        assert ends == [end * US for end in ends_us]


def test_transfers_beyond_the_limit_wait_in_order() -> None:
    link = replace(LINK, max_transfers=1)
    jobs = run(request("a"), request("b"), request("c"), link=link).jobs
    spans = [(job.transfer_begin_ns, job.transfer_end_ns) for job in jobs]
    # All prompts end with one step, 100 + 24 * 10 us.
    assert [end for _, end in spans] == [(340 + 58 * (i + 1)) * US for i in range(3)]


def test_leg_without_blocks_waits_and_blocks_those_behind_it() -> None:
    """Of four blocks: the second leg waits for the first request to finish, the third behind it."""
    small = replace(SERVER, num_kv_blocks=4)
    jobs = run(
        request("a", tokens=8, output=4),
        request("b", tokens=12, output=2),
        request("c", tokens=4, output=2),
        decode=small,
    ).jobs
    legs = [job.decode_leg for job in jobs]
    assert all(leg is not None for leg in legs)
    finished = [leg.outcome.finished_ns for leg in legs if leg is not None]
    begun = [job.transfer_begin_ns for job in jobs]
    assert begun[1] == finished[0]
    assert begun[2] is not None
    assert begun[1] is not None
    assert begun[2] >= begun[1]


def test_prompt_stays_in_memory_until_it_is_read() -> None:
    """The second prompt does not fit beside the first one before this has been read."""
    small = replace(SERVER, num_kv_blocks=3)
    jobs = run(request("a", tokens=8, output=3), request("b", tokens=8), prefill=small).jobs
    assert jobs[1].prefill_leg is not None
    assert jobs[1].prefill_leg.outcome.scheduled_ns == jobs[0].transfer_end_ns


@pytest.mark.parametrize("at_us", [100, 180, 200, 237, 238, 300, 349])
def test_withdrawal_frees_both_sides(at_us: int) -> None:
    """In the prompt, as it ends, in the transfer, as it ends, in the first step of the other."""
    withdrawn = request("a", cancelled_ns=at_us * US)
    result = run(withdrawn)
    assert [job.outcome for job in result.jobs] == ["cancelled"]


@pytest.mark.parametrize("handoff", ["after_prefill", "at_dispatch"])
def test_blocks_of_the_reader_come_first_at_dispatch(handoff: str) -> None:
    (job,) = run(request("a"), handoff=handoff).jobs
    assert job.outcome == "completed"
    assert job.decode_leg is not None
    assert job.prefill_leg is not None
    entered = (job.prefill_leg.outcome.enqueued_ns, job.decode_leg.outcome.enqueued_ns)
    assert entered == ((0, 180 * US) if handoff == "after_prefill" else (0, 0))


def test_pools_wait_for_each_other_at_dispatch() -> None:
    """Not if the reader's blocks come first: a request that holds some there is prefilled first."""
    small = replace(SERVER, num_kv_blocks=3)
    requests = [request("a", tokens=8, output=1), request("b", tokens=8, output=1)]
    jobs = run(*requests, prefill=small, decode=small, handoff="at_dispatch").jobs
    assert [job.outcome for job in jobs] == ["completed", "completed"]
    with pytest.raises(DeadlockError, match="a"):
        Unordered([("prefill", small), ("decode", small)], LINK).run(requests)


def test_mixed_instances_may_wait_for_each_other() -> None:
    """Each holds a prompt that the other one is to continue, and has no block left."""
    small = replace(SERVER, num_kv_blocks=3)
    requests = [request("a", tokens=9, output=1), request("b", tokens=8, output=1)]
    with pytest.raises(DeadlockError, match="a"):
        Pools([("both", small)] * 2, LINK).run(requests)


def test_request_stays_where_both_pools_choose_the_same_instance() -> None:
    (job,) = Pools([("both", SERVER)], LINK).run([request("a")]).jobs
    assert job.decode_leg is not None
    assert job.transfer_end_ns is None
    assert job.decode_leg.outcome.first_token_ns == (180 + 110) * US
    assert job.outcome == "completed"


class Unordered(Pools):
    """What can go wrong if the blocks of a request are taken on both sides in any order."""

    def prefill_ended(self, job: Job, now_ns: int) -> None:
        if job.request.request_id == "b":
            super().prefill_ended(job, now_ns)


def random_case(rng: random.Random) -> tuple[Pools, list[Request]]:
    size = rng.choice((1, 2, 4))

    def server() -> Server:
        return replace(
            SERVER,
            max_num_seqs=rng.randint(1, 5),
            max_num_batched_tokens=rng.choice((3, 8, 64)),
            block_size_tokens=size,
            num_kv_blocks=rng.choice((12, 20, 60)) * 4 // size,
            async_scheduling=rng.random() < 0.5,
            reserve_full_prompt=rng.random() < 0.5,
            watermark=rng.choice((0.0, 0.0, 0.1)),
            scheduler=rng.choice(("fcfs", "priority_fcfs", "sjf")),
            prefix_caching=rng.random() < 0.7,
        )

    link = Link(
        bytes_per_token=rng.choice((1000, 70_000)),
        pair_bytes_per_s=rng.choice((None, 1e9, 3e8)),
        shared_bytes_per_s=rng.choice((None, 1e9, 7e8)),
        sharing=rng.choice(("fixed_share", "max_min")),
        latency_ns=rng.choice((0, 50_000)),
        max_transfers=rng.choice((0, 0, 1, 2)),
    )
    pools = Pools(
        [(role, server()) for role in ("prefill", "decode") for _ in range(rng.randint(1, 3))],
        link,
        handoff=rng.choice(("after_prefill", "after_prefill", "at_dispatch")),
        is_remote=lambda request: request.input_tokens >= 4,
    )
    at_ns = 0
    requests = []
    for i in range(rng.randint(1, 25)):
        at_ns += rng.choice((0, 0, rng.randint(0, 600) * US))
        tokens = rng.randint(1, 30)
        shared = (("system", rng.choice((4, 8))),) if rng.random() < 0.4 and tokens >= 8 else ()
        cancelled = at_ns + rng.randint(1, 4000) * US if rng.random() < 0.2 else None
        requests.append(
            Request(
                f"r{i}", at_ns, tokens, rng.randint(0, 12), i % 3, shared, cancelled_ns=cancelled
            )
        )
    return pools, requests


@pytest.mark.parametrize("seed", trials(120))
def test_every_request_ends_and_every_block_returns(seed: int) -> None:
    """Blocks are counted on both sides at every instant."""
    pools, requests = random_case(random.Random(seed))
    result = pools.run(requests)
    assert {job.outcome for job in result.jobs} <= {"completed", "cancelled", "rejected"}


@pytest.mark.parametrize("seed", trials(40))
def test_local_requests_alone_are_those_of_one_instance(seed: int) -> None:
    rng = random.Random(seed)
    server = replace(SERVER, num_kv_blocks=40, async_scheduling=rng.random() < 0.5)
    requests = [
        request(f"r{i}", rng.randint(0, 3000), rng.randint(1, 40), rng.randint(1, 9))
        for i in range(20)
    ]
    requests.sort(key=lambda request: request.arrival_ns)
    alone = simulate_alone(server, requests)
    jobs = (
        Pools([("prefill", SERVER), ("decode", server)], LINK, is_remote=lambda _: False)
        .run(requests)
        .jobs
    )
    outcomes = [job.decode_leg.outcome for job in jobs if job.decode_leg is not None]
    assert outcomes == alone.outcomes
