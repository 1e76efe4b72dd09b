"""The front end of a server: workers in front of the engine, and limits that count there."""

from __future__ import annotations

import numpy as np
import pytest
from support.runs import simulated, steady

from spillway import ConfigError, Result, Simulation, instance, workload

STEP = steady(50)


def served(front_end: instance.FrontEnd, requests_per_s: float = 8) -> Result:
    """Prompts of two sizes; the engine has a seat for every request."""
    group = instance.InstanceGroup(front_end=front_end, latency=STEP, async_scheduling=False)
    return simulated(
        workload=workload.Synthetic(
            num_requests=4000,
            requests_per_s=requests_per_s,
            clients=[
                workload.Client(
                    input_tokens=workload.Uniform(min_tokens=100, max_tokens=300),
                    output_tokens=workload.Fixed(tokens=1),
                )
            ],
        ),
        instances=[group],
    )


def test_without_times_there_is_no_front_end() -> None:
    many = instance.FrontEnd(workers=7, counts_on_arrival=True)
    assert served(many).digest == served(instance.FrontEnd()).digest


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_take_requests_in_turn(workers: int) -> None:
    times = {"us_per_request": 50_000, "us_per_token": 250}
    with_front_end = served(instance.FrontEnd(workers=workers, **times), 10 * workers)
    without = served(instance.FrontEnd(), 10 * workers)
    free = np.zeros(workers)
    delay = []
    arrivals = without.requests["arrival_s"]
    for arrival, tokens in zip(arrivals, without.requests["input_tokens"], strict=True):
        worker = free.argmin()
        free[worker] = max(free[worker], arrival) + 0.05 + 0.00025 * tokens
        delay.append(free[worker] - arrival)
    # A step of 50 ms that begins when the engine gets the request, unless another one is under way.
    ttft = with_front_end.requests["ttft_s"]
    assert (ttft > np.array(delay)).all()
    assert (ttft - np.array(delay) <= 0.1 + 1e-6).all()
    assert np.mean(delay) > 0.12


def test_mean_wait_is_that_of_theory() -> None:
    """M/D/1 with a load of 0.8: the mean wait is 0.8 / (2 x 0.2) service times of 100 ms."""
    front_end = instance.FrontEnd(us_per_request=100_000)
    ttft = served(front_end).requests["ttft_s"] - served(instance.FrontEnd()).requests["ttft_s"]
    assert ttft.mean() == pytest.approx(0.1 * (1 + 0.8 / 0.4), rel=0.15)


def burst(counts_on_arrival: bool) -> Result:
    """100 requests at once, of which the engine takes 10, and one that comes 2 s later."""
    group = instance.InstanceGroup(
        front_end=instance.FrontEnd(us_per_request=50_000, counts_on_arrival=counts_on_arrival),
        ingress=instance.VllmQueueLimits(max_num_queued_reqs=10, counts_running=True),
        latency=STEP,
    )
    return simulated(
        workload=workload.Synthetic(
            clients=[
                workload.Client(
                    name="burst",
                    arrivals="constant",
                    requests_per_s=1e5,
                    duration_s=0.001,
                    output_tokens=workload.Fixed(tokens=20),
                ),
                workload.Client(
                    name="later",
                    tenant="later",
                    arrivals="constant",
                    requests_per_s=2,
                    start_s=1.6,
                    duration_s=0.6,
                    output_tokens=workload.Fixed(tokens=20),
                ),
            ],
            duration_s=10,
        ),
        instances=[group],
    )


def test_a_burst_that_is_counted_late_is_worked_on_and_refused() -> None:
    late, early = burst(counts_on_arrival=False), burst(counts_on_arrival=True)
    assert early.by_tenant()["default"]["completed"] == 10
    assert early.by_tenant()["later"]["completed"] == 1
    assert early.by_tenant()["later"]["p50_ttft_ms"] < 250
    # All 100 take the only worker for 50 ms before most are refused.
    assert late.by_tenant()["default"]["completed"] >= 10
    assert late.ledger["worker_rejected"]["queued_requests"] > 20
    served_late = late.by_tenant()["later"]
    assert served_late["completed"] == 0 or served_late["p50_ttft_ms"] > 3000


def test_withdrawn_requests_are_finished_by_their_worker() -> None:
    result = simulated(
        workload=workload.Synthetic(
            num_requests=50,
            requests_per_s=100,
            clients=[workload.Client(output_tokens=workload.Fixed(tokens=5))],
        ),
        slo_classes=[{"name": "standard"}],
        reaction={"timeout_s": 0.5},
        instances=[
            instance.InstanceGroup(front_end=instance.FrontEnd(us_per_request=50_000), latency=STEP)
        ],
    )
    # 20 a second leave the front end; those of the first half second are in time.
    assert 0 < result.ledger["completed"] < 15
    assert result.ledger["completed"] + result.ledger["cancelled"] == 50
    assert result.end_s > 2.5


def test_exact_estimates_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"instances\[0\]\.front_end"):
        Simulation(
            gateway={"admission": [{"kind": "predictive_ttft", "estimator": "exact"}]},
            instances=[instance.InstanceGroup(front_end={"us_per_request": 1})],
        )
