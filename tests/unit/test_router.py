"""Routing: each policy against a plain model of it, and what it is allowed to see."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillway import Result, Simulation, _core, gateway, instance, router, signals, simulate, trace

if TYPE_CHECKING:
    from collections.abc import Sequence

FUZZ = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

MS = 1_000_000  # nanoseconds
ROUTER_STREAM = 5


def latency(step_ms: float, entry_ms: float = 0) -> instance.Linear:
    """A server whose every step takes as long, after a delay of every request."""
    return instance.Linear(
        alpha0_us=1000 * entry_ms,
        alpha_input_us=0,
        alpha_output_us=0,
        beta0_us=1000 * step_ms,
        beta_prefill_us=0,
        beta_decode_us=0,
    )


def run(
    arrival_ns: Sequence[int],
    input_tokens: Sequence[int] | int = 16,
    output_tokens: Sequence[int] | int = 1,
    *,
    seed: int = 0,
    **settings_: Any,
) -> Result:
    n = len(arrival_ns)
    requests = trace(
        arrival_s=np.array(arrival_ns) / 1e9,
        input_tokens=np.broadcast_to(input_tokens, n),
        output_tokens=np.broadcast_to(output_tokens, n),
    )
    return simulate(Simulation(workload=requests, **settings_), seed)


def ns(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
    return np.rint(np.nan_to_num(seconds * 1e9, nan=-1)).astype(np.int64).tolist()


def chosen(result: Result) -> list[int]:
    return result.requests["instance"].tolist()


# --- round robin and always busiest ---------------------------------------------------------------


def test_round_robin_takes_turns() -> None:
    result = run([i * MS for i in range(10)], instances={"count": 3}, router="round_robin")
    assert chosen(result) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_round_robin_counts_dispatches() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    result = run(
        [0, 1, 2, 3, 4, 5],
        [20, 500, 20, 500, 20, 20],
        instances={"count": 3},
        gateway={"admission": bucket},
    )
    assert chosen(result) == [0, -1, 1, -1, 2, 0]


def test_round_robin_ignores_load_and_speed() -> None:
    result = run(
        [0] * 6,
        output_tokens=20,
        instances=[{"latency": latency(1)}, {"count": 2, "latency": latency(50)}],
    )
    assert chosen(result) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("transport", ["live", {"kind": "on_read", "period_s": 0.005}])
def test_always_busiest_never_leaves_the_first(transport: Any) -> None:
    arrivals = [i * 7 * MS for i in range(40)]
    result = run(
        arrivals,
        output_tokens=9,
        instances={"count": 4},
        router="always_busiest",
        signals=transport,
    )
    assert set(chosen(result)) == {0}
    assert [one["completed"] for one in result.instances] == [40, 0, 0, 0]


# --- least loaded ---------------------------------------------------------------------------------


@dataclass
class Server:
    """What an instance reports, from the ways of the requests sent to it so far."""

    entry_ns: int
    sent: list[tuple[int, int]] = field(default_factory=list)  # routed, finished
    reading: int = 0
    measured: int = 0

    def reported(self, now: int) -> int:
        """Waiting and running: entries count from the next instant on, ends at once."""
        return sum(routed + self.entry_ns < now < finished for routed, finished in self.sent)

    def in_flight(self, now: int) -> int:
        """Routed and not finished: the router's own count."""
        return sum(now < finished for _, finished in self.sent)


def least_loaded_oracle(
    result: Result, servers: list[Server], period_ns: int | None, gateway_ns: tuple[int, int]
) -> list[list[int]]:
    """The least loaded instances at every routing, given how long each request took.

    Requests must be routed in the order of their arrival. Decisions on admission renew readings as
    routings do.
    """
    admission_ns, routing_ns = gateway_ns
    arrival = ns(result.requests["arrival_s"])
    finished = [at + e2e for at, e2e in zip(arrival, ns(result.requests["e2e_s"]), strict=True)]
    decisions = [(at + admission_ns, 0, row) for row, at in enumerate(arrival)]
    decisions += [(at + admission_ns + routing_ns, 1, row) for row, at in enumerate(arrival)]
    best = []
    for now, stage, row in sorted(decisions):
        for server in servers:
            if period_ns is None or now - server.measured >= period_ns:
                server.reading, server.measured = server.reported(now), now
        if stage == 0:
            continue
        loads = [server.reading + server.in_flight(now) for server in servers]
        best.append([i for i, load in enumerate(loads) if load == min(loads)])
        servers[chosen(result)[row]].sent.append((now, finished[row]))
    return best


@FUZZ
@given(
    gaps_ns=st.lists(
        st.sampled_from([0, 5 * MS, 10 * MS]) | st.integers(0, 40 * MS), min_size=3, max_size=30
    ),
    outputs=st.lists(st.integers(0, 15), min_size=31, max_size=31),
    steps_ms=st.lists(st.sampled_from([2, 5, 10, 30]), min_size=1, max_size=4),
    entry_ms=st.sampled_from([0, 5, 12]),
    period_ms=st.none() | st.sampled_from([1, 10, 35, 200]),
    latencies_ms=st.tuples(st.sampled_from([0, 5]), st.sampled_from([0, 3])),
    ties=st.sampled_from(["first", "random"]),
    seed=st.integers(0, 2**64 - 1),
)
def test_least_loaded_equals_its_oracle(
    *,
    gaps_ns: list[int],
    outputs: list[int],
    steps_ms: list[int],
    entry_ms: int,
    period_ms: int | None,
    latencies_ms: tuple[int, int],
    ties: str,
    seed: int,
) -> None:
    arrival_ns = np.cumsum([0, *gaps_ns]).tolist()
    transport = signals.Live() if period_ms is None else signals.OnRead(period_s=period_ms / 1000)
    result = run(
        arrival_ns,
        output_tokens=outputs[: len(arrival_ns)],
        seed=seed,
        router=router.LeastLoaded(ties=ties),
        signals=transport,
        instances=[{"latency": latency(step_ms, entry_ms)} for step_ms in steps_ms],
        gateway=gateway.Gateway(
            admission_latency_s=latencies_ms[0] / 1000, routing_latency_s=latencies_ms[1] / 1000
        ),
    )
    best = least_loaded_oracle(
        result,
        [Server(entry_ms * MS) for _ in steps_ms],
        None if period_ms is None else period_ms * MS,
        (latencies_ms[0] * MS, latencies_ms[1] * MS),
    )
    for row, (found, candidates) in enumerate(zip(chosen(result), best, strict=True)):
        if ties == "first" or len(candidates) == 1:
            assert found == candidates[0]
        else:
            # One draw of the router's stream, which belongs to this request alone.
            draws = _core.sim.Draws(seed=seed, stream=ROUTER_STREAM, entity=row)
            assert found == candidates[draws.below(len(candidates))]


def test_slower_server_gets_less() -> None:
    result = run(
        [i * 20 * MS for i in range(200)],
        output_tokens=5,
        router="least_loaded",
        instances=[{"latency": latency(40)}, {"latency": latency(10)}],
    )
    slow, fast = (one["completed"] for one in result.instances)
    assert slow + fast == 200
    assert fast > 2 * slow > 0


def test_reported_requests_count_twice() -> None:
    # The first request is in the engine of instance 0 when the third is routed: load 1 + 1. The
    # second is still on its way to instance 1: load 1.
    settings_ = {
        "router": "least_loaded",
        "instances": {"count": 2, "latency": latency(100, entry_ms=10)},
    }
    arrivals = [0, 15 * MS, 20 * MS]
    assert chosen(run(arrivals, **settings_)) == [0, 1, 1]
    # Before the first period has passed, all readings are zero: the loads are equal.
    stale = signals.OnRead(period_s=1)
    assert chosen(run(arrivals, signals=stale, **settings_)) == [0, 1, 0]


def test_readings_are_renewed_at_decisions() -> None:
    # The reading that the second request causes at 30 ms shows nobody yet, because the first one
    # enters later. It is good until 60 ms.
    def choose(third_ms: int) -> int:
        result = run(
            [0, 30 * MS, third_ms * MS],
            router="least_loaded",
            signals=signals.OnRead(period_s=0.03),
            instances=[
                {"latency": latency(500, entry_ms=31)},
                {"latency": latency(500, entry_ms=200)},
            ],
        )
        assert chosen(result)[:2] == [0, 1]
        return chosen(result)[2]

    assert choose(59) == 0
    assert choose(60) == 1


# --- ties and random numbers ----------------------------------------------------------------------

APART = [i * 10**9 for i in range(60)]  # everyone meets idle servers, so all are tied
FOUR = {"instances": {"count": 4, "latency": latency(10)}}


def drawn(seed: int, rows: Sequence[int]) -> list[int]:
    return [_core.sim.Draws(seed=seed, stream=ROUTER_STREAM, entity=row).below(4) for row in rows]


def test_ties() -> None:
    first = run(APART, router={"kind": "least_loaded", "ties": "first"}, **FOUR)
    assert set(chosen(first)) == {0}
    random = run(APART, router={"kind": "least_loaded", "ties": "random"}, seed=8, **FOUR)
    assert chosen(random) == drawn(8, range(60))
    assert set(chosen(random)) == {0, 1, 2, 3}
    other = run(APART, router={"kind": "least_loaded", "ties": "random"}, seed=9, **FOUR)
    assert chosen(other) == drawn(9, range(60)) != chosen(random)


@pytest.mark.parametrize(
    "gateway_",
    [
        gateway.Gateway(admission=["always_admit", gateway.TokenBucket(capacity_tokens=1e9)]),
        gateway.Gateway(admission_latency_s=0.25, routing_latency_s=0.125),
        gateway.Gateway(limit="fixed", bands=[gateway.Band(priority=3), gateway.Band()]),
    ],
    ids=["chain", "latencies", "limit"],
)
def test_admission_does_not_shift_the_draws_of_the_router(gateway_: gateway.Gateway) -> None:
    tied = router.LeastLoaded(ties="random")
    assert chosen(run(APART, router=tied, gateway=gateway_, **FOUR)) == drawn(0, range(60))


def test_rejected_requests_leave_the_draws_of_the_others_alone() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    sizes = [500 if row % 3 else 1 for row in range(60)]
    tied = router.LeastLoaded(ties="random")
    result = run(APART, sizes, router=tied, gateway={"admission": bucket}, **FOUR)
    expected = [-1 if row % 3 else instance_ for row, instance_ in enumerate(drawn(0, range(60)))]
    assert chosen(result) == expected


# --- fleets of unequal servers --------------------------------------------------------------------


def test_groups_are_numbered_in_order_and_keep_their_speed() -> None:
    groups = [
        instance.InstanceGroup(count=2, latency=latency(5, entry_ms=1)),
        instance.InstanceGroup(latency=latency(70, entry_ms=30)),
        instance.InstanceGroup(count=2, latency=latency(11)),
    ]
    result = run(APART[:10], output_tokens=3, instances=groups)
    assert chosen(result) == [0, 1, 2, 3, 4] * 2
    assert ns(result.requests["ttft_s"])[:5] == [6 * MS, 6 * MS, 100 * MS, 11 * MS, 11 * MS]
    assert ns(result.requests["itl_mean_s"])[:5] == [5 * MS, 5 * MS, 70 * MS, 11 * MS, 11 * MS]
    assert len(result.instances) == 5


def test_memory_is_that_of_the_group() -> None:
    result = run(
        APART[:4],
        100,
        instances=[{"num_kv_blocks": 6}, {"num_kv_blocks": 7}],
    )
    assert result.requests["reason"].tolist() == ["unservable", "", "unservable", ""]
    assert [one["refused"] for one in result.instances] == [2, 0]
    assert math.ceil((100 + 1) / 16) == 7


def test_scheduler_is_that_of_the_group() -> None:
    # One prompt at a time; the long one waits longest only where the shortest goes first.
    result = run(
        [0, 0, 0, 0, 1, 1],
        [16, 16, 900, 900, 8, 8],
        instances=[
            {"scheduler": "fcfs", "max_num_seqs": 1, "latency": latency(10)},
            {"scheduler": "sjf", "max_num_seqs": 1, "latency": latency(10)},
        ],
    )
    delay = ns(result.requests["scheduling_delay_s"])
    assert chosen(result) == [0, 1] * 3
    assert (delay[2], delay[4]) == (10 * MS, 20 * MS - 1)
    assert (delay[3], delay[5]) == (20 * MS, 10 * MS - 1)
