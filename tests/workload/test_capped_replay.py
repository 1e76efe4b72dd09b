"""Traces that were recorded through a client with a limited number of requests in flight."""

from __future__ import annotations

import heapq
import random
from typing import Any

import numpy as np
import pytest
from support.effort import trials
from support.runs import SECOND, flat, ns, ways

import spillway
from spillway import ConfigError, Simulation, gateway, instance, simulate, workload


def random_trace(rng: random.Random) -> workload.Trace:
    n = rng.randint(1, 120)
    return spillway.trace(
        arrival_s=np.sort([rng.choice((0.0, 0.5, rng.uniform(0, 5))) for _ in range(n)]),
        input_tokens=[rng.randint(1, 400) for _ in range(n)],
        output_tokens=[rng.randint(0, 60) for _ in range(n)],
    ).replace(empty_outputs="served")


def random_case(rng: random.Random) -> Simulation:
    return Simulation(
        workload=random_trace(rng).replace(
            max_in_flight=rng.choice((1, 2, 5, 20, 200)),
            open_loop_requests=rng.choice((None, 0, 40, 1000)),
            turnaround_s=rng.choice((0, 0, 1e-5, 0.03)),
        ),
        gateway=gateway.Gateway(
            admission=rng.choice(
                (
                    gateway.AlwaysAdmit(),
                    gateway.TokenBucket(capacity_tokens=2000, refill_tokens_per_s=5000),
                )
            )
        ),
        instances=instance.InstanceGroup(
            max_num_seqs=rng.choice((1, 4, 256)), async_scheduling=rng.random() < 0.5
        ),
        metrics={"streaming": False},
    )


def expected_arrivals(
    recorded_ns: list[int],
    ends_ns: list[int],
    max_in_flight: int,
    open_loop: int,
    turnaround_ns: int,
) -> list[int]:
    """Each request takes the place that becomes free first, not before its predecessor."""
    places = [0] * max_in_flight
    arrivals: list[int] = []
    for i, (recorded, end) in enumerate(zip(recorded_ns, ends_ns, strict=True)):
        earliest = recorded if i < open_loop else arrivals[-1] if arrivals else 0
        arrivals.append(max(earliest, heapq.heappop(places)))
        heapq.heappush(places, end + turnaround_ns)
    return arrivals


@pytest.mark.parametrize("seed", trials(60))
def test_arrivals_follow_the_rule(seed: int) -> None:
    simulation = random_case(random.Random(seed))
    trace: Any = simulation.workload
    result = simulate(simulation, seed)
    arrivals = ns(result.requests["arrival_s"])
    # A request without an end was rejected at its arrival.
    expected = expected_arrivals(
        recorded_ns(trace),
        [way.arrived if way.ended is None else way.ended for way in ways(result)],
        trace.max_in_flight,
        trace.max_in_flight if trace.open_loop_requests is None else trace.open_loop_requests,
        round(trace.turnaround_s * SECOND),
    )
    assert arrivals == expected


def recorded_ns(trace: workload.Trace) -> list[int]:
    open_loop = Simulation(workload=trace.replace(max_in_flight=0), instances=flat())
    return ns(simulate(open_loop).requests["arrival_s"])


def test_a_limit_that_never_binds_is_open_loop() -> None:
    simulation = Simulation(workload=random_trace(random.Random(3)))
    limited = simulation.with_({"workload.max_in_flight": 10_000, "workload.turnaround_s": 5})
    assert limited.workload.open_loop_requests is None
    assert simulate(limited).digest == simulate(simulation).digest


def test_retries_keep_the_place() -> None:
    """A place is free only after the last attempt."""
    trace = spillway.trace(arrival_s=[0, 0, 0], input_tokens=[1] * 3, output_tokens=[1] * 3)
    simulation = Simulation(
        workload=trace.replace(max_in_flight=1, turnaround_s=0.5),
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=1e-3, refill_tokens_per_s=1e-9)
        ),
        reaction=workload.Reaction(
            retries=[
                workload.Retry(on=["rate_limited"], max_attempts=2, backoff_s=2, jitter="none")
            ]
        ),
        instances=flat(),
    )
    assert simulate(simulation).requests["arrival_s"].tolist() == [0.0, 2.5, 5.0]


def test_streaming_gives_the_same_figures() -> None:
    simulation = random_case(random.Random(11))
    streamed = simulation.with_({"metrics.streaming": True})
    ours, theirs = simulate(simulation).summary(), simulate(streamed).summary()
    assert ours["completed"] == theirs["completed"]
    assert ours["mean_ttft_ms"] == pytest.approx(theirs["mean_ttft_ms"])


def test_a_file_keeps_the_limit(tmp_path: Any) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,5,3\n0,5,3\n")
    configuration = tmp_path / "simulation.yaml"
    configuration.write_text(
        "workload: {kind: trace, file: trace.csv, max_in_flight: 1, turnaround_s: 0.25}\n"
    )
    loaded = spillway.load(configuration)
    assert (loaded.workload.max_in_flight, loaded.workload.turnaround_s) == (1, 0.25)
    again = tmp_path / "again.yaml"
    spillway.dump(loaded, again)
    assert spillway.load(again) == loaded


def test_a_negative_limit_is_refused() -> None:
    trace = spillway.trace(arrival_s=[0], input_tokens=[1], output_tokens=[1])
    with pytest.raises(ConfigError, match=r"max_in_flight = -1: must be >= 0"):
        trace.replace(max_in_flight=-1)
