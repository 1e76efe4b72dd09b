"""An instance that serves one request at a time is a queue with known theory.

With `max_num_seqs = 1`, Poisson arrivals and no overheads outside the step, `scheduling_delay_s`
is the wait of an M/G/1 queue; with c such instances behind a limit of c requests, `queue_s` is
that of an M/G/c queue.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats
from support.effort import few_of
from support.runs import ns, steady

from spillway import Result, Simulation, gateway, instance, router, simulate, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NS = 1e9
STEP_US = 10_000.0
REQUESTS = 100_000
SEEDS_PER_CASE = 8
# A fluke of four standard deviations has a probability of 6e-5; the seeds are fixed.
SIGMAS = 4.0


@dataclass(frozen=True)
class Queue:
    """An M/D/1 or M/M/1 queue, or c of its servers behind one queue.

    `exponential` service is a whole number of steps, 50 on average: its second moment differs from
    that of the exponential distribution by less than 0.1 %, far less than the bands here. Where a
    formula takes the realized moments, it holds for the quantized service itself.
    """

    service: str
    utilization: float
    servers: int = 1

    @property
    def client(self) -> workload.Client:
        if self.service == "fixed":
            prompt, answer = workload.Fixed(tokens=100), workload.Fixed(tokens=5)
        else:
            prompt, answer = workload.Fixed(tokens=1), workload.Exponential(mean_tokens=50)
        return workload.Client(input_tokens=prompt, output_tokens=answer)

    @property
    def beta_prefill_us(self) -> float:
        return 25.0 if self.service == "fixed" else 0.0

    @property
    def mean_service_s(self) -> float:
        steps = 5.25 if self.service == "fixed" else 50.0
        return steps * STEP_US * 1e-6

    def simulation(self, num_requests: int = REQUESTS, warm_up_s: float = 0) -> Simulation:
        return Simulation(
            workload=workload.Synthetic(
                requests_per_s=self.utilization * self.servers / self.mean_service_s,
                num_requests=num_requests,
                clients=(self.client,),
            ),
            gateway=gateway.Gateway(
                limit=gateway.Unlimited()
                if self.servers == 1
                else gateway.FixedLimit(max_in_flight=self.servers)
            ),
            router=router.LeastLoaded(),
            instances=(
                instance.InstanceGroup(
                    count=self.servers,
                    max_num_seqs=1,
                    latency=steady(STEP_US / 1000, beta_prefill_us=self.beta_prefill_us),
                ),
            ),
            warm_up_s=warm_up_s,
        )

    def service_ns(self, result: Result) -> NDArray[np.int64]:
        """Service times from the lengths of the requests, not from their timestamps."""
        requests = result.requests
        prefill_ns = self.beta_prefill_us * 1000 * requests["input_tokens"]
        return (requests["output_tokens"] * STEP_US * 1000 + prefill_ns).astype(np.int64)

    def __str__(self) -> str:
        return f"{self.service}-{self.utilization}-{self.servers}"


SINGLE = [Queue(law, rho) for law in ("fixed", "exponential") for rho in (0.3, 0.5, 0.7, 0.85)]


def seeds_of(queue: Queue) -> range:
    """Separate seeds for every queue, so that the queues are independent."""
    return range(first := 1000 * SINGLE.index(queue), first + SEEDS_PER_CASE)


# Theory


def pollaczek_khinchine(rate: float, mean: float, mean_square: float) -> float:
    """Mean wait of an M/G/1 queue."""
    return rate * mean_square / (2 * (1 - rate * mean))


def asymptotic_variances(rate: float, service: Floats) -> tuple[float, float]:
    """n times the variance of the mean wait of n customers, and of the formula from their moments.

    The first: h(w) = a (w**2 + 2 w / rate) with a = rate / (2 (1 - utilization)) solves Poisson's
    equation of the chain of waits for w - E W, so the variance is 2 Cov(W, h(W)) - Var W; the
    moments of W are Takács's. The second is the delta method. Pollaczek-Khinchine from the realized
    rate and moments is an efficient estimate of E W, so that its difference from the mean wait has
    the difference of the two variances.
    """
    s1, s2, s3, s4 = (float(np.mean(service**k)) for k in (1, 2, 3, 4))
    idle = 1 - rate * s1
    w1 = rate * s2 / (2 * idle)
    w2 = 2 * w1**2 + rate * s3 / (3 * idle)
    w3 = rate / idle * (1.5 * s2 * w2 + s3 * w1 + s4 / 4)
    a = rate / (2 * idle)
    of_waits = 2 * a * (w3 - w1 * w2) + (4 * a / rate - 1) * (w2 - w1**2)
    by_rate = rate * s2 / (2 * idle**2)
    by_service = rate**2 * s2 / (2 * idle**2) * service + a * service**2
    return of_waits, by_rate**2 + float(np.var(by_service))


def erlang_c_wait(servers: int, rate: float, mean: float) -> float:
    """Mean wait of an M/M/c queue."""
    offered = rate * mean
    blocking = 1.0  # Erlang B, server by server
    for n in range(1, servers + 1):
        blocking = offered * blocking / (n + offered * blocking)
    waiting = blocking / (1 - offered / servers * (1 - blocking))
    return waiting * mean / (servers - offered)


def earliest_free(arrival: Sequence[int], service: Sequence[int], servers: int) -> list[int]:
    """Waits of a first-come-first-served queue, customer by customer."""
    free_at = [0] * servers
    waits = []
    for at, length in zip(arrival, service, strict=True):
        start = max(at, heapq.heappop(free_at))
        heapq.heappush(free_at, start + length)
        waits.append(start - at)
    return waits


def test_theory_agrees_with_the_textbook() -> None:
    rho = 0.6
    # M/M/1 with a mean service of 1 (Daley 1968).
    exponential = -np.log1p(-(np.arange(1_000_000) + 0.5) / 1_000_000)
    of_waits, _ = asymptotic_variances(rho, exponential)
    textbook = rho * (2 + 5 * rho - 4 * rho**2 + rho**3) / (1 - rho) ** 4
    assert of_waits == pytest.approx(textbook, rel=1e-3)
    assert pollaczek_khinchine(rho, 1, 2) == pytest.approx(rho / (1 - rho))
    assert erlang_c_wait(1, rho, 1) == pytest.approx(rho / (1 - rho))
    # Two servers at one erlang: a third of the arrivals wait.
    assert erlang_c_wait(2, 1, 1) == pytest.approx(1 / 3)


# Exact


@pytest.mark.parametrize("queue", SINGLE, ids=str)
def test_waits_are_lindleys_to_the_nanosecond(queue: Queue) -> None:
    result = simulate(queue.simulation(20_000), seed=1)
    expected = earliest_free(ns(result.requests["arrival_s"]), queue.service_ns(result).tolist(), 1)
    assert ns(result.requests["scheduling_delay_s"]) == expected
    assert max(expected) > 0


SEVERAL = [Queue("exponential", rho, servers) for servers in (2, 4) for rho in (0.5, 0.8)]


@pytest.mark.parametrize("queue", SEVERAL, ids=str)
def test_waits_for_a_permit_are_kiefer_wolfowitzs_to_the_nanosecond(queue: Queue) -> None:
    result = simulate(queue.simulation(20_000), seed=1)
    arrival = ns(result.requests["arrival_s"])
    expected = earliest_free(arrival, queue.service_ns(result).tolist(), queue.servers)
    assert ns(result.requests["queue_s"]) == expected
    assert max(expected) > 0
    # A permit is a free instance: no request waits a second time.
    assert (result.requests["scheduling_delay_s"] == result.requests["queue_s"]).all()


def test_littles_law_of_one_server() -> None:
    result = simulate(Queue("exponential", 0.85).simulation(), seed=1)
    requests = result.requests
    duration_s = (requests["arrival_s"] + requests["e2e_s"]).max()
    rate = requests.num_rows / duration_s
    wait_s = requests["scheduling_delay_s"].mean()
    (report,) = result.instances
    assert report["mean_waiting"] == pytest.approx(rate * wait_s, rel=1e-10)


def test_littles_law_of_a_batching_server() -> None:
    latency = instance.Linear()
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=9, num_requests=20_000),
        instances=(
            instance.InstanceGroup(max_num_seqs=8, max_num_batched_tokens=300, latency=latency),
        ),
    )
    result = simulate(simulation, seed=1)
    requests = result.requests
    assert result.summary()["preemptions"] == 0  # else a request waits more than once
    # The delay before the engine's queue is no time in the queue.
    entry_us = latency.alpha0_us + latency.alpha_input_us * requests["input_tokens"]
    wait_s = requests["scheduling_delay_s"] - np.floor(entry_us * 1000) / NS
    assert wait_s.min() >= -1e-12
    duration_s = (requests["arrival_s"] + requests["e2e_s"]).max()
    (report,) = result.instances
    assert report["mean_waiting"] > 1
    assert report["mean_waiting"] == pytest.approx(wait_s.sum() / duration_s, rel=1e-10)


# Statistical


@pytest.mark.parametrize("queue", few_of(SINGLE, 3), ids=str)
def test_mean_wait_is_pollaczek_khinchines(queue: Queue) -> None:
    """Against the formula with every run's own rate and moments.

    A queue that starts empty underestimates the mean wait by E h(W) / n (`asymptotic_variances`):
    below 0.1 % for every queue here, a small part of the band.
    """
    differences = []
    waits = []
    services = []
    for seed in seeds_of(queue):
        requests = simulate(queue.simulation(), seed).requests
        wait = requests["scheduling_delay_s"]
        service = requests["e2e_s"] - wait
        rate = len(wait) / requests["arrival_s"][-1]
        theory = pollaczek_khinchine(rate, service.mean(), np.square(service).mean())
        differences.append(wait.mean() - theory)
        waits.append(wait.mean())
        services.append(service)
    of_waits, of_formula = asymptotic_variances(
        queue.utilization / queue.mean_service_s, np.concatenate(services)
    )
    sigma = math.sqrt((of_waits - of_formula) / REQUESTS)
    scores = np.array(differences) / sigma
    assert np.abs(scores).max() < SIGMAS
    assert abs(scores.mean()) < SIGMAS / math.sqrt(len(scores))
    # How sharp that is: the band of the mean over the seeds, relative to the wait.
    assert SIGMAS * sigma / math.sqrt(len(scores)) < 0.06 * np.mean(waits)


@pytest.mark.slow
@pytest.mark.parametrize("queue", [queue for queue in SEVERAL if queue.utilization == 0.8], ids=str)
def test_mean_wait_for_a_permit_is_erlangs(queue: Queue) -> None:
    """Against Erlang's C formula with every run's own rate and mean service.

    The band comes from the spread of the differences over the runs.
    """
    differences = []
    waits = []
    for seed in range(16):
        requests = simulate(queue.simulation(), seed).requests
        wait = requests["queue_s"]
        service = requests["e2e_s"] - wait
        rate = len(wait) / requests["arrival_s"][-1]
        differences.append(wait.mean() - erlang_c_wait(queue.servers, rate, service.mean()))
        waits.append(wait.mean())
    band = stats.t.ppf(1 - 1e-4, len(waits) - 1) * stats.sem(differences)
    assert abs(np.mean(differences)) < band
    assert band < 0.06 * np.mean(waits)


# To one percent

LONG_REQUESTS = 200_000
FEWEST_RUNS, MOST_RUNS = 20, 300
CONFIDENCE = 0.99
HALF_WIDTH = 0.01


@pytest.mark.long
@pytest.mark.parametrize("queue", SINGLE, ids=str)
def test_pollaczek_khinchine_lies_within_one_per_cent(queue: Queue) -> None:
    """Replications until the 99 % interval of the mean wait is narrow; the formula must lie inside.

    The formula takes the rate and the moments of all replications together. The queue starts empty,
    so the first tenth of every replication, many relaxation times, is left out.
    Stopping at the first interval that is narrow enough covers a little less than 99 %; a formula
    that takes the same arrivals and services follows the mean, which covers more.
    """
    mean_gap_s = queue.mean_service_s / queue.utilization
    warm_up_s = 0.1 * LONG_REQUESTS * mean_gap_s
    simulation = queue.simulation(LONG_REQUESTS, warm_up_s)
    waits: list[float] = []
    customers = 0
    observed_s = total_s = squares_s2 = 0.0
    half_width = np.inf
    while len(waits) < FEWEST_RUNS or half_width > HALF_WIDTH * np.mean(waits):
        assert len(waits) < MOST_RUNS
        result = simulate(simulation, seed=1_000_000 * SINGLE.index(queue) + len(waits))
        waits.append(result.summary()["mean_scheduling_delay_ms"] * 1e-3)
        requests = result.requests
        counted = requests["arrival_s"] >= warm_up_s
        service = (requests["e2e_s"] - requests["scheduling_delay_s"])[counted]
        customers += service.size
        observed_s += requests["arrival_s"][-1] - warm_up_s
        total_s += service.sum()
        squares_s2 += np.square(service).sum()
        if len(waits) >= FEWEST_RUNS:
            t = stats.t.ppf(0.5 + CONFIDENCE / 2, len(waits) - 1)
            half_width = t * stats.sem(waits)

    mean = np.mean(waits)
    theory = pollaczek_khinchine(
        customers / observed_s, total_s / customers, squares_s2 / customers
    )
    print(  # shown by pytest -rP
        f"{queue}: {len(waits)} replications, mean wait {mean:.6g} s +- {half_width / mean:.2%}, "
        f"Pollaczek-Khinchine {theory:.6g} s ({theory / mean - 1:+.2%})"
    )
    assert half_width <= HALF_WIDTH * mean
    assert abs(theory - mean) <= half_width
