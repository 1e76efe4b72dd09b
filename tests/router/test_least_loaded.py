"""The least-loaded router against a plain model of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.routing import chosen
from support.runs import MS, ROUTER_STREAM, ns, run_ns, steady

from spillway import Result, _core, gateway, router, signals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


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
    result = run_ns(
        arrival_ns,
        output_tokens=outputs[: len(arrival_ns)],
        seed=seed,
        router=router.LeastLoaded(ties=ties),
        signals=transport,
        instances=[{"latency": steady(step_ms, entry_ms)} for step_ms in steps_ms],
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
    for row, (choice, candidates) in enumerate(zip(chosen(result), best, strict=True)):
        if ties == "first" or len(candidates) == 1:
            assert choice == candidates[0]
        else:
            # One draw of the router's stream, which belongs to this request alone.
            draws = _core.sim.Draws(seed=seed, stream=ROUTER_STREAM, entity=row)
            assert choice == candidates[draws.below(len(candidates))]


def test_slower_server_gets_less() -> None:
    result = run_ns(
        [i * 20 * MS for i in range(200)],
        output_tokens=5,
        router="least_loaded",
        instances=[{"latency": steady(40)}, {"latency": steady(10)}],
    )
    slow, fast = (instance["completed"] for instance in result.instances)
    assert slow + fast == 200
    assert fast > 2 * slow > 0


def test_reported_requests_count_twice() -> None:
    # The first request is in the engine of instance 0 when the third is routed: load 1 + 1. The
    # second is still on its way to instance 1: load 1.
    settings_: dict[str, Any] = {
        "router": "least_loaded",
        "instances": {"count": 2, "latency": steady(100, entry_ms=10)},
    }
    arrivals = [0, 15 * MS, 20 * MS]
    assert chosen(run_ns(arrivals, **settings_)) == [0, 1, 1]
    # Before the first period has passed, all readings are zero: the loads are equal.
    assert chosen(run_ns(arrivals, signals=signals.OnRead(period_s=1), **settings_)) == [0, 1, 0]


def test_readings_are_renewed_at_decisions() -> None:
    # The reading that the second request causes at 30 ms shows no request yet, because the first
    # one enters later. It is valid until 60 ms.
    def choose(third_ms: int) -> int:
        result = run_ns(
            [0, 30 * MS, third_ms * MS],
            router="least_loaded",
            signals=signals.OnRead(period_s=0.03),
            instances=[
                {"latency": steady(500, entry_ms=31)},
                {"latency": steady(500, entry_ms=200)},
            ],
        )
        assert chosen(result)[:2] == [0, 1]
        return chosen(result)[2]

    assert choose(59) == 0
    assert choose(60) == 1
